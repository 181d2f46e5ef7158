"""The whole study: the sections in their order, and the files that they become."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from lstm_bench import figures
from lstm_bench.study import (
    casts,
    choice,
    energy,
    findings,
    headroom,
    limits,
    projection,
    repeat,
    subject,
    table2,
    what_ran,
)
from lstm_bench.study.section import Section, bullets, text
from lstm_bench.study.subject import Runs

#: What to do first, then what the paper says, then how sure all that is.
SECTIONS = (
    *(choice, headroom, findings, table2, projection, casts, energy),
    *(what_ran, repeat, limits),
)
HEAD = "# LSTM inference: what the paper found, and what holds now"
NOTES = (
    "In five minutes: [what it comes to](#in-short) and [what to use](#what-to-use). The rest is"
    " the evidence, and at its end [what was run](#what-was-run), [whether it"
    " repeats](#does-it-repeat) and [what it does not show](#limits).",
    "Made by `make study` from the runs in `results/`: every number and every verdict here is"
    " computed from them. The paper is [the one of the README](../README.md#the-paper). A shape is"
    " hidden size, batch size and timesteps; latency is what one caller waits for one call; a"
    " difference counts only beyond the noise that the same run shows between two measurements of"
    " the same thing ([how](noise.md)).",
    "The rows: `deepbench` and its variants are C++ over cuDNN ([which](baseline.md)); `tf-mode0`"
    " is Keras on cuDNN, `tf-mode1` and `tf-mode2` are its two generic codes"
    " ([why](method.md#what-mode-0-1-2-is-in-tensorflow)), all of them in a `tf.function`; `-amp`"
    " is automatic mixed precision, which PyTorch enters anew in every call; `pytorch-half` has"
    " weights and inputs in half precision throughout.",
    "A cell is one row at one shape. MPE is the paper's mean percentage error, the mean over shapes"
    " of (A-B)/A. An A/A pair is one cell that was measured twice under two names: what lies"
    " between the two is noise, and 95% of such differences stay under the noise floor (where"
    " pairs are few, all of them). 2x slower: takes twice as long. Intervals are 95%: of two rows"
    " held against each other by [bootstrap](noise.md#comparing-two), of other means Student's.",
)


def sections(runs: Runs) -> list[Section]:
    found = [module.section(runs) for module in SECTIONS]
    told = [section.short for section in found if section.short]
    return [Section("In short", [bullets(told)]), *found]


def written(found: list[Section]) -> str:
    """The page as Markdown."""
    return "\n\n".join([HEAD, *map(text, NOTES), *(section.written() for section in found)]) + "\n"


def write(results: Path, docs: Path) -> list[Path]:
    """Write the page and its figures; returns what was written."""
    found = sections(subject.read(results))
    paths = [docs / "study.md"]
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    paths[0].write_text(written(found), encoding="utf-8")
    for section in found:
        for stem, figure in section.figures.items():
            paths.append(docs / "figures" / f"{stem}.svg")
            save(figure, paths[-1])
    return paths


@figures.styled()
def save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
