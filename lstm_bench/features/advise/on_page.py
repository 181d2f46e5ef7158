"""The data from which `advise.js` says what to run at any shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lstm_bench.analysis import noise, summary
from lstm_bench.analysis.choice import CLASSES, TIE, allowed
from lstm_bench.analysis.results import Run
from lstm_bench.features.advise import advice, estimate, sources
from lstm_bench.frameworks import snippet
from lstm_bench.model.shape import SHAPE, Shape
from lstm_bench.report.fastest import Compared, base_of


def on_page(run: Run) -> tuple[str, dict[str, Any], str] | None:
    """Name, data and script; None for a run that has nothing to advise."""
    run = sources.alike(run, Shape(1, 1, 1, 1))
    times = summary.times(run.cells)
    planned = {row.name for row in run.plan.implementations}
    names = [name for name in sources.deployable(run) if name in planned.intersection(times.names)]
    if not names:
        return None
    precisions = sources.precisions_of(times)
    classes = [summary.accuracy(precisions[name]) for name in names]
    now, device = base_of(run, names), run.plan.settings.device
    shapes = times.shapes[SHAPE[:4]].to_numpy().tolist()
    keys = list(times.shapes[SHAPE].itertuples(index=False, name=None))
    compared = Compared(run, run.cells, "latency")
    verdicts = [advice.verdicts(compared(now, name)) for name in names]
    slope, rest = estimate.plane(times)
    guesses, floors = estimate.left_out(times), run.floors("latency")
    limits = [limit for _, limit in noise.CLASSES][:-1]
    tried = {}
    for accuracy in (*CLASSES, summary.ANY):
        fine = [n for n, its in zip(names, classes, strict=True) if its in allowed(accuracy)]
        tried[accuracy] = estimate.hold_out(times, guesses, fine, now)
    worths = {accuracy: advice.worth(held, run.name) for accuracy, held in tried.items()}
    data = {
        "rows": names,
        "classes": classes,
        "order": CLASSES,
        "now": now,
        "shapes": shapes,
        "slope": list(slope),
        "rest": [[round(t, 9) for t in rest[:, times.names.index(name)]] for name in names],
        "verdict": [[own.get(key, "unsure") for key in keys] for own in verdicts],
        "doubling": list(estimate.DOUBLING.values()),
        "nearest": estimate.NEAREST,
        "power": estimate.POWER,
        "tie": TIE,
        "limits": limits,
        "floors": [list(noise.floor_at(floors, [0, *limits], [n] * 3)) for n in names],
        "margin": {accuracy: held.margin for accuracy, held in tried.items()},
        "worth": {accuracy: f"{text[0].upper()}{text[1:]}" for accuracy, text in worths.items()},
        "code": [snippet(advice.planned(run, n, precisions[n]), device) for n in names],
    }
    return "advice", data, Path(__file__).with_name("advise.js").read_text(encoding="utf-8")
