"""`lstm-bench report`: a run as tables, figures or a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstm_bench import features
from lstm_bench.commands import options
from lstm_bench.model.errors import LstmBenchError

if TYPE_CHECKING:
    from lstm_bench.model.types import Shape

#: Door `report`: a command for each report of a feature. Its name is a flag here, and its options
#: go with it; it is called with run, conditions and everything, and returns a document.
OWN: dict[str, click.Command] = {own.name: own for own in features.behind("report")}


@click.command()
@options.run
@options.results
@click.option("--mpe", is_flag=True, help="The paper's eight pairs, its values beside the run's.")
@click.option(
    "--pair", "pairs", multiple=True, metavar="A,B", help="With --mpe: another pair; repeatable."
)
@click.option(
    "--ladder",
    is_flag=True,
    help="Every implementation by latency, with its memory, start-up times and error.",
)
@options.where
@options.shape("Only this shape; repeatable.")
@options.metric
@click.option(
    "--all", "everything", is_flag=True, help="All that the run has: columns, shapes, warnings."
)
@options.writing
@click.option(
    "--figures",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Draw the figures there, as SVG and PNG.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write one page with figures and all data, which opens without a network.",
)
def report(
    run_name: str | None,
    results: Path,
    mpe: bool,
    pairs: Sequence[str],
    ladder: bool,
    conditions: Sequence[str],
    shape: Sequence[Shape],
    metric: str,
    everything: bool,
    form: str | None,
    output: str | None,
    figures: Path | None,
    html: Path | None,
    **of_features: Any,
) -> None:
    """Show a run: what was tested, what is fastest, every implementation, the noise.

    \b
      lstm-bench report                            the newest run, on one screen
      lstm-bench report --all                      all of it
      lstm-bench report --mpe                      the paper's table, and this run's beside it
      lstm-bench report --mpe --pair pytorch,pytorch-half
      lstm-bench report --where 'batch>=16'        of some shapes only
      lstm-bench report --shape 512,16,25          of one
      lstm-bench report --kernels                  where the time goes, if the run was profiled
      lstm-bench report --kernels --where hidden=512 --top 10
      lstm-bench report --ladder                   what each way to run the layer costs
      lstm-bench report --ladder --shape 512,1,25  at one shape
      lstm-bench report --energy                   what else it took: joules, clocks, memory
      lstm-bench report --energy --where hidden=512 --where batch=64
      lstm-bench report --format csv > run.csv     or github, json, latex
      lstm-bench report --html page.html           one page to send to a colleague
      lstm-bench report --figures figures/         as pictures

    CSV holds one table, the first; JSON holds all of them. Both have seconds and fractions where
    tables have microseconds and percent.
    """
    if pairs and not mpe:
        raise click.UsageError("--pair goes with --mpe")
    asked = {"mpe": mpe, "ladder": ladder, **{name: of_features.pop(name) for name in OWN}}
    alone = [name for name, yes in asked.items() if yes]
    if len(alone) > 1:
        flags = " and ".join(f"--{name}" for name in alone)
        raise click.UsageError(f"{flags} are reports of their own; choose one")
    for name, command in OWN.items():
        given = [param.opts[0] for param in command.params if of_features[str(param.name)]]
        if given and not asked[name]:
            raise click.UsageError(f"{given[0]} goes with --{name}")
    from lstm_bench.model.shape_filter import chosen, one_of, shapes_of

    conditions = [*conditions, *one_of(shape)]
    if conditions and html:
        raise click.UsageError(
            "--where and --shape do not choose for --html, which has a filter of its own"
        )
    if conditions and figures and alone != ["kernels"]:
        raise click.UsageError(
            "--where and --shape choose for figures of --kernels only; leave --figures out, or ask"
            " for these"
        )
    printed = alone or form or output or not (html or figures)
    shown = printed and alone in ([], ["mpe"])
    if metric != "latency" and not shown:
        raise click.UsageError("--metric goes with the summary and with --mpe")
    whole = bool(html or figures or alone)
    run = options.load(results, run_name, not whole, () if whole else (metric,))
    if whole and not mpe:
        from lstm_bench.analysis.kinds import no_part

        no_part(run, "more than the summary")
    options.check_shapes(run, shape)
    for path in (html, output):
        options.check_folder(path)
    if html:
        for page in features.behind("page"):  # of a run: its page as HTML
            with options.busy("comparing every implementation with every other"):
                made = page(run)
            options.write_file(html, made)
            break
        else:
            raise LstmBenchError("--html: found no lstm_bench/features/page, which makes the page")
    if figures:
        from lstm_bench.report import figures as drawing

        try:
            shapes = shapes_of(chosen(run.cells, conditions)) if conditions else None
            with options.busy("drawing the figures"):
                paths = drawing.write(run, figures, shapes)
            for path in paths:
                click.echo(f"wrote {path}", err=True)
        except OSError as error:
            raise options.cannot_write(figures, error) from None
    if not printed:
        return
    if mpe:
        from lstm_bench.report import paper_table

        named = [_pair(pair, run.implementations) for pair in pairs]
        document = paper_table.document(run, named, metric, conditions)
    elif ladder:
        from lstm_bench.report import ladder as ladders

        document = ladders.document(run, conditions)
    elif alone:
        command = OWN[alone[0]]
        assert command.callback
        own = {str(param.name): of_features[str(param.name)] for param in command.params}
        document = command.callback(run, conditions, everything, **own)
    else:
        from lstm_bench.report import mixed_report

        document = mixed_report.document(run, metric, conditions, everything)
    options.write(document, form, output)


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
