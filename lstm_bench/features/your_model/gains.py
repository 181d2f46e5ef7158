"""What a model would gain by other rows: the time of each layer in it, over a measured ratio."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from lstm_bench.analysis.choice import rank
from lstm_bench.analysis.noise import METRICS, floor_at
from lstm_bench.analysis.results import REFERENCES, Run
from lstm_bench.analysis.summary import accuracy
from lstm_bench.driver import doctor
from lstm_bench.features.your_model.layer import Layer
from lstm_bench.frameworks import IMPLEMENTATIONS
from lstm_bench.model.median import median_interval
from lstm_bench.model.shape import SHAPE, parsed
from lstm_bench.model.types import Settings
from lstm_bench.model.units import clipped, error, factor, percent, seconds
from lstm_bench.report.document import Document, Table, number, paragraph, text

LEAST = 0.01  # of a model's time that is left: the upper ends of unsteady shares may add up to all
COLUMNS = [
    text("layer", "name"),
    text("shape", "shape", lambda shape: clipped(shape, 32) or "-"),
    text("state", "state", lambda state: state or "never called"),
    text("lengths", "lengths"),
    number("calls", "calls"),
    number("time", "seconds", seconds),
    number("share", "share", lambda share: percent(share, 0)),
    text("fastest row", "row", sparse=True),
    number("gain", "gain", sparse=True),
]


class Gain(NamedTuple):
    """How many times as fast as now something is, and its range."""

    low: float
    ratio: float
    high: float

    def __str__(self) -> str:
        return f"{factor(self.ratio)} ({factor(self.low)} to {factor(self.high)})"


def plain_row(precision: str, device: str, framework: str = "pytorch") -> str:
    """The row that calls a layer in this precision as a model does; empty if there is none."""
    same = precision, *precision.split("-")  # amp-fp16 is amp in PyTorch, and fp16 in our kernels
    rows = (row for row in IMPLEMENTATIONS.values() if row.framework == framework)
    rows = (row for row in rows if device in row.devices and not row.options)
    return next((row.name for row in rows if row.precision in same), "")


def kernels_row(layer: Layer, device: str) -> str:
    """The row that computes a layer once it is replaced; empty if it is left as it is."""
    return plain_row(layer.precision, device, "lstm-kernels") if layer.kind == "LSTM" else ""


def grid(
    title: str,
    layers: Iterable[Layer],
    settings: Settings,
    pythons: Mapping[str, str],
    only: Sequence[str],
    replaced: bool,
) -> dict[str, Any]:
    """A grid of the layers that PyTorch has a row for, over the rows that can run them here.

    If they are replaced, what computes them then is among the rows.
    """
    device = settings.device
    bases = {layer.name: plain_row(layer.precision, device) for layer in layers if layer.shape}
    able = [layer for layer in layers if bases.get(layer.name)]
    names = [bases[layer.name] for layer in able]
    names += [ours for layer in able if replaced and (ours := kernels_row(layer, device))]
    classes = {accuracy(layer.precision) for layer in able}
    if able and not only:
        answers = doctor.survey(pythons, device)
        for row, lacks in doctor.availability(IMPLEMENTATIONS.values(), answers, device):
            if not lacks and accuracy(row.precision) in classes:
                names += [row.name] * (row.framework not in (*REFERENCES, "fake"))
    name = re.sub(r"[^A-Za-z0-9-]+", "-", Path(title.rpartition(":")[0]).stem).strip("-")
    return {
        "name": f"{name[:70]}-layers".lstrip("-"),
        "device": device,
        "threads": settings.threads,
        "workloads": {
            layer.name: {device: layer.shape, "source": f"{title}: {percent(layer.share)}"}
            for layer in able
        },
        "implementations": [*dict.fromkeys([*names, *only])],
    }


def gains(run: Run, layer: Layer) -> dict[str, Gain]:
    """The gain of each row over PyTorch's at a layer's shape, if it is no coarser."""
    device = run.plan.settings.device
    base = plain_row(layer.precision, device)
    here = (run.cells[SHAPE] == list(astuple(parsed(layer.shape)))).all(axis=1)
    cells = run.cells[here & (run.cells["status"] == "ok") & (run.cells["copy"] == 1)]
    coarseness = cells["precision"].map(accuracy).map(rank)
    cells = cells[coarseness <= rank(accuracy(layer.precision))]
    # On a GPU a model queues its calls, and waits at its end; a single call waits for itself.
    metrics = ("throughput", "latency") if device == "cuda" else ("latency",)
    times = cells.groupby("implementation")[[METRICS[metric][0] for metric in metrics]].median()
    result = {}
    for name in times.index if base in times.index else ():
        ratios, noise = times.loc[base] / times.loc[name], 0.0
        for metric, pair in zip(metrics, times.loc[[base, name]].to_numpy().T, strict=True):
            noise = max(noise, *floor_at(run.floors(metric), pair, [base, name]))
        result[name] = Gain(min(ratios) / (1 + noise), ratios.iloc[0], max(ratios) * (1 + noise))
    return result


def whole_gain(layers: Sequence[Layer], chosen: Mapping[str, Gain]) -> Gain:
    """The gain of a model whose layers of these names have these gains."""
    left = [1.0] * 3
    for layer in layers:
        if gain := chosen.get(layer.name):
            low, high = median_interval(layer.shares)
            parts = zip(left, (low, layer.share, high), gain, strict=True)
            left = [rest - share * (1 - 1 / ratio) for rest, share, ratio in parts]
    return Gain(*(1 / max(rest, LEAST) for rest in left))


def document(
    title: str, layers: Sequence[Layer], model: Mapping[str, Any], run: Run | None
) -> Document:
    """The layers of a model, their gains in a run, and what lstm_kernels brought."""
    time_s, rows = median(model["before_s"]), []
    device = run.plan.settings.device if run else ""
    fastest: dict[str, Gain] = {}
    replaced: dict[str, Gain] = {}
    for layer in layers:
        known = gains(run, layer) if run and layer.shape else {}
        row = max(known, key=lambda name: known[name].ratio, default=None)
        if row and known[row].low > 1:
            fastest[layer.name] = known[row]
        if (kernels := kernels_row(layer, device)) in known:
            replaced[layer.name] = known[kernels]
        gain = fastest.get(layer.name)
        row = row if gain else "none is faster" if len(known) > 1 else None
        times = {"share": layer.share, "seconds": time_s * layer.share}
        rows.append({**vars(layer), **times, "row": row, "gain": gain, "gains": known})
        del rows[-1]["shares"]
    share = percent(sum(layer.share for layer in layers), 0)
    result = Document(facts={"title": title, "seconds": time_s, **model})
    result.add(f"{title}: {_time(model['before_s'])} a call, {share} of it in LSTMs")
    result.add(Table("layers", rows, COLUMNS))
    lines = []
    if run:
        compared = any(len(row["gains"]) > 1 for row in rows)
        ours = sorted({kernels_row(layer, device) for layer in layers if layer.shape} - {""})
        for what, own, needs in (
            ("the fastest rows", fastest, "" if compared else "every other row"),
            ("lstm_kernels", replaced, ", ".join(ours)),
        ):
            whole = whole_gain(layers, own) if own or not needs else None
            why = f"unknown: {needs} or PyTorch's has no time" if needs else "no gain"
            result.facts[f"with {what}"] = whole
            lines.append(f"expected of the whole model with {what}: {whole if own else why}")
        lines.append(f"more of these rows: lstm-bench report --workloads --run {run.name}")
    if model["after_s"]:
        by_round = [a / b for a, b in zip(model["before_s"], model["after_s"], strict=True)]
        low, high = median_interval(by_round)
        result.facts["measured"] = measured = Gain(low, median(by_round), high)
        paths = "; ".join(f"{count} by {path}" for path, count in model["paths"].items())
        lines += [
            f"measured of the whole model with lstm_kernels: {measured}, {_time(model['after_s'])}",
            f"outputs differ by {error(model['difference'])} at most, by {error(model['repeat'])}"
            " between two calls without it",
            f"calls of LSTMs that it saw: {paths or 'none'}",
        ]
    result.add(paragraph(*lines))
    return result


def _time(rounds: Sequence[float]) -> str:
    low, high = median_interval(rounds)
    return f"{seconds(median(rounds))} (+/- {percent((high - low) / 2 / median(rounds))})"
