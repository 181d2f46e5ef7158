"""`lstm-bench report`: a run as tables, figures or a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from lstm_bench import features
from lstm_bench.commands import options
from lstm_bench.model.errors import LstmBenchError

if TYPE_CHECKING:
    from lstm_bench.analysis.results import Run
    from lstm_bench.report.document import Document

#: Door `report`: a command for each report of a feature. Its name is a flag here, and its options
#: go with it; it is called with run, conditions and everything, and returns a document.
OWN: dict[str, click.Command] = {own.name: own for own in features.behind("report")}


@click.command()
@options.run
@options.results
@click.option("--mpe", is_flag=True, help="The paper's eight pairs and values beside the run's.")
@click.option("--pair", multiple=True, metavar="A,B", help="With --mpe: add a pair; repeatable.")
@click.option(
    "--ladder",
    is_flag=True,
    help="Every implementation by latency, with its memory, start-up times and error.",
)
@options.where
@options.shape("Only this shape; repeatable.")
@options.metric
@click.option(
    "--all", "everything", is_flag=True, help="Show all columns, shapes and warnings of the run."
)
@options.writing
@options.figures("Draw the figures into FOLDER, as SVG and PNG.")
@options.file("--html", "Write one page with figures and all data, which opens without a network.")
def report(**given: Any) -> None:
    """Show a run: what was tested, what is fastest, every implementation, the noise.

    \b
      lstm-bench report                            the newest run, on one screen
      lstm-bench report --all                      all of it
      lstm-bench report --mpe                      the paper's table beside that of this run
      lstm-bench report --mpe --pair pytorch,pytorch-half
      lstm-bench report --where 'batch>=16'        only some shapes
      lstm-bench report --pass training            only training steps
      lstm-bench report --shape 512,16,25          only this one
      lstm-bench report --kernels                  where the time goes, if the run was profiled
      lstm-bench report --kernels --where hidden=512 --top 10
      lstm-bench report --ladder                   what each way to run the layer costs
      lstm-bench report --ladder --shape 512,1,25  at one shape
      lstm-bench report --energy                   joules, clocks and memory beside the time
      lstm-bench report --energy --where hidden=512 --where batch=64
      lstm-bench report --format csv > run.csv     or github, json, latex
      lstm-bench report --html page.html           one page to send to a colleague
      lstm-bench report --figures figures/         as pictures

    CSV holds one table, the first; JSON holds all of them. Both have seconds and fractions where
    tables have microseconds and percent.
    """
    from lstm_bench.model.shape_filter import chosen, one_of, shapes_of

    asked = SimpleNamespace(**given)
    alone = [name for name in ("mpe", "ladder", *OWN) if given[name]]
    if len(alone) > 1:
        flags = " and ".join(f"--{name}" for name in alone)
        raise click.UsageError(f"{flags} are reports of their own; choose one")
    belong = {name: command.params for name, command in OWN.items()}
    belong["mpe"] = [param for param in report.params if param.name == "pair"]
    for name, params in belong.items():
        extra = [param.opts[0] for param in params if given[str(param.name)]]
        if extra and name not in alone:
            raise click.UsageError(f"{extra[0]} goes with --{name}")
    conditions = [*asked.conditions, *one_of(asked.shape)]
    if conditions and asked.html:
        raise click.UsageError(
            "--where, --pass and --shape do not choose for --html, which has a filter of its own"
        )
    if conditions and asked.figures and alone != ["kernels"]:
        raise click.UsageError(
            "--where, --pass and --shape choose for figures of --kernels only; leave --figures out,"
            " or ask for these"
        )
    printed = alone or asked.form or asked.output or not (asked.html or asked.figures)
    if asked.metric != "latency" and not (printed and alone in ([], ["mpe"])):
        raise click.UsageError("--metric goes with the summary and with --mpe")
    whole = bool(asked.html or asked.figures or alone)
    run = options.load(asked.results, asked.run_name, not whole, () if whole else (asked.metric,))
    if whole and not asked.mpe:
        from lstm_bench.analysis.kinds import no_part

        no_part(run, "more than the summary")
    options.check_shapes(run, asked.shape)
    for path in (asked.html, asked.output):
        options.check_folder(path)
    if asked.html:
        page = next(features.behind("page"), None)  # of a run: its page as HTML
        if page is None:
            raise LstmBenchError("--html: found no lstm_bench/features/page, which makes the page")
        with options.busy("comparing every implementation with every other"):
            made = page(run)
        options.write_file(asked.html, made)
    if asked.figures:
        from lstm_bench.report import figures

        shapes = shapes_of(chosen(run.cells, conditions)) if conditions else None
        options.write_figures(asked.figures, lambda: figures.write(run, asked.figures, shapes))
    if printed:
        document = _document(run, alone[0] if alone else "", conditions, given)
        options.write(document, asked.form, asked.output)


def _document(run: Run, name: str, conditions: Sequence[str], given: dict[str, Any]) -> Document:
    """The report of that name, or the summary."""
    from lstm_bench.report import ladder, mixed_report, paper_table

    metric, everything = given["metric"], given["everything"]
    if name == "mpe":
        pairs = [_pair(pair, run.implementations) for pair in given["pair"]]
        return paper_table.document(run, pairs, metric, conditions)
    if name == "ladder":
        return ladder.document(run, conditions)
    if not name:
        return mixed_report.document(run, metric, conditions, everything)
    own = {str(param.name): given[str(param.name)] for param in OWN[name].params}
    callback: Callable[..., Document] = OWN[name].callback  # type: ignore[assignment]
    return callback(run, conditions, everything, **own)


for _own in OWN.values():
    report.params += [click.Option([f"--{_own.name}"], is_flag=True, help=_own.help), *_own.params]


def _pair(text: str, known: Sequence[str]) -> tuple[str, str]:
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or not all(names):
        raise LstmBenchError(f"--pair: found {text!r}, expected two names, as in pytorch,deepbench")
    for name in names:
        if name not in known:
            raise LstmBenchError(f"--pair: {name!r} is not in the run; it has: {', '.join(known)}")
    return names[0], names[1]
