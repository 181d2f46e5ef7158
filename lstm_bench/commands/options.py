"""Options that several commands share, and how all of them write."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lstm_bench import features
from lstm_bench.model.errors import LstmBenchError, Stopped
from lstm_bench.model.shape import PASSES
from lstm_bench.model.types import INPUTS
from lstm_bench.model.units import WIDTH

if TYPE_CHECKING:
    from lstm_bench.analysis.results import Run
    from lstm_bench.model.types import Shape

F = TypeVar("F", bound=Callable[..., Any])

results = click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    help="The folder that holds the runs.",
)
python = click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="FRAMEWORK=PATH",
    help="The interpreter that holds a framework, such as tensorflow=.venv-tf/bin/python.",
)
device = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    help="Where to run; auto takes the GPU if there is one.",
)
inputs = click.option(
    "--inputs",
    type=click.Choice(INPUTS),
    help="On a GPU: where x lies before a call and y after it; host memory is copied in the call.",
)
threads = click.option(
    "--threads",
    type=click.IntRange(1, 4096),
    metavar="N",
    help="CPU threads; default: all cores.",
)
run = click.option(
    "--run", "run_name", metavar="RUN", help="A run's name or folder; default: the newest."
)
metric = click.option(
    "--metric",
    type=click.Choice(["latency", "throughput", "device"]),
    default="latency",
    show_default=True,
    help="One call's wait, the time per queued call, or the time the device is busy.",
)


def of_pass(text: str, **more: Any) -> Callable[[F], F]:
    """`--pass`, inference or training."""
    return click.option("--pass", type=click.Choice(PASSES), help=text, **more)


def _also(context: click.Context, option: click.Parameter, given: Any) -> tuple[str, ...]:
    """Add the conditions of --where or of --pass to those of the other, whichever comes first."""
    more = given if option.name == "conditions" else (f"pass={given}",) * bool(given)
    context.params["conditions"] = every = (*context.params.get("conditions", ()), *more)
    return every


def where(command: F) -> F:
    """`--where` and `--pass`, which choose shapes together."""
    chosen_pass = of_pass("Only these.", expose_value=False, callback=_also)
    return click.option(
        "--where",
        "conditions",
        multiple=True,
        metavar="AXIS=N",
        callback=_also,
        help="Only these shapes: hidden=512, 'batch>=16', 'timesteps!=10'; repeatable, all must"
        " hold.",
    )(chosen_pass(command))


output = click.option(
    "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write to a file."
)


def file(flag: str, text: str) -> Callable[[F], F]:
    """An option whose value is a file."""
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(flag, type=kind, metavar="FILE", help=text)


def figures(text: str) -> Callable[[F], F]:
    """`--figures`, the folder to draw into."""
    kind = click.Path(path_type=Path, file_okay=False)
    return click.option("--figures", type=kind, metavar="FOLDER", help=text)


def across(*facts: str) -> Callable[[F], F]:
    """`--across`, the facts in which two sides may differ."""
    text = "Compare both sides although they differ in this; repeatable."
    return click.option("--across", multiple=True, type=click.Choice(facts), help=text)


def shape(text: str, **more: Any) -> Callable[[F], F]:
    """`--shape`, which all commands read alike: as a shape, or as a tuple of them."""

    def read(_: click.Context, __: click.Parameter, given: Any) -> Any:
        from lstm_bench.model.shape import parsed

        return tuple(map(parsed, given)) if isinstance(given, tuple) else parsed(given)

    more.setdefault("multiple", not more.get("required"))
    return click.option("--shape", metavar="H,B,T[,I]", callback=read, help=text, **more)


def threshold(text: str) -> Callable[[F], F]:
    """`--threshold`, as a share: `7%` or `0.07`."""

    def read(_: click.Context, __: click.Parameter, given: str) -> float:
        percent = given.strip().endswith("%")
        try:
            share = float(given.strip().rstrip("%")) / (100 if percent else 1)
        except ValueError:
            share = -1.0
        if not 0 < share <= (10 if percent else 1):
            raise LstmBenchError(f"--threshold: found {given!r}, expected a share such as 7%")
        return share

    return click.option(
        "--threshold", metavar="SHARE", default="7%", show_default=True, callback=read, help=text
    )


@dataclass(frozen=True)
class Added:
    """The options that a feature adds to a command, and what they do in place of it."""

    options: Sequence[Callable[[F], F]]
    run: Callable[..., Any]  # None or false: nothing was asked of it
    word: str = ""  # the option whose value may be left out


def of_features(door: str) -> Callable[[F], F]:
    """The options that features add behind this door."""

    def add(command: F) -> F:
        for added in features.behind(door):
            for option in reversed(added.options):
                command = option(command)
        return command

    return add


MOMENT = 2.0  # seconds without a word
NARROWEST = 40  # columns that a table is fitted to


def writing(command: F) -> F:
    """`--format` and `--output`, for every command that shows results."""
    formats = ["table", "github", "csv", "json", "latex"]  # tables.FORMATS, without its imports
    return click.option(
        "--format", "form", type=click.Choice(formats), help="Default: table, or by FILE's name."
    )(output(command))


def write(document: Any, form: str | None, output: str | None) -> None:
    """Print a document, or write it to a file whole."""
    from lstm_bench.report.document import chosen_format

    form = chosen_format(form, output)
    if output and output != "-":
        write_file(Path(output), document.written(form, WIDTH if form == "table" else None) + "\n")
    else:
        click.echo(document.written(form, terminal_width() if form == "table" else None))


def terminal_width() -> int:
    """Columns of the terminal; of a page where the output is none."""
    if not sys.stdout.isatty():
        return WIDTH
    return max(shutil.get_terminal_size().columns, NARROWEST)


def write_file(path: Path, text: str) -> None:
    """Whole or not at all: what was there stays until the new one is complete.

    A link stays one, and what is no plain file, as a pipe or /dev/null, is written into.
    """
    check_folder(path)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
        else:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise cannot_write(path, error) from None
    click.echo(f"wrote {path}", err=True)


def write_figures(folder: Path, draw: Callable[[], Sequence[Path]]) -> None:
    """Have figures drawn in a folder, and say which."""
    try:
        with busy("drawing the figures"):
            paths = draw()
    except OSError as error:
        raise cannot_write(folder, error) from None
    for path in paths:
        click.echo(f"wrote {path}", err=True)


def check_folder(path: Path | str | None) -> None:
    """Refuse a file whose folder is not there before half a minute is spent on what goes in."""
    if path is not None and not Path(path).parent.is_dir():
        folder = Path(path).parent
        raise LstmBenchError(f"{path}: no folder {folder}; make it first: `mkdir -p {folder}`")


def cannot_write(path: Path, error: OSError) -> LstmBenchError:
    """A full disk is a failure, a wrong path a mistake."""
    kind = Stopped if error.errno in (errno.ENOSPC, errno.EIO, errno.EDQUOT) else LstmBenchError
    return kind(f"{path}: cannot write: {error.strerror or error}")


def load(results: Path, name: str | None, mixed: bool = False, metrics: Sequence[str] = ()) -> Run:
    """The run of that name, or the newest; `mixed`: it may be of unlike devices.

    Else one kind must be chosen: `--run NAME@H200`. `metrics`: whose rounds are needed; default:
    all.
    """
    import gc

    from lstm_bench.analysis import kinds
    from lstm_bench.analysis import results as runs
    from lstm_bench.runs import run_folders

    gc.disable()  # a short life, and nothing in it is garbage: looking for it takes a fifth of it
    name, part = run_folders.split_part(results, name)
    folder = run_folders.find_run(results, name)
    run = runs.load(folder, metrics) if metrics else runs.load(folder)
    gc.freeze()
    return run if mixed and not part else kinds.chosen(run, part)


def check_shapes(run: Run, shapes: Sequence[Shape]) -> None:
    """Refuse a shape that the run does not have, and name a run beside it that does."""
    from lstm_bench.model.shape_filter import chosen, one_of
    from lstm_bench.runs import run_folders

    for shape in shapes if len(run.cells) else ():  # an empty run has a message of its own
        try:
            chosen(run.cells, one_of([shape]), run.name)
        except LstmBenchError as error:
            runs = run_folders.with_shape(run.folder, shape) if run.folder else []
            others = [other.name for other in runs if other.name != run.name]
            has = f"; {others[0]} has it: --run {others[0]}" if others else ""
            raise LstmBenchError(f"{error}{has}") from None


@contextlib.contextmanager
def alone(device: str) -> Iterator[None]:
    """Say who else measures on this machine, and be seen by those who come."""
    from lstm_bench.driver.machine_lock import announced

    with announced(device) as warnings:
        for warning in warnings:
            click.echo(f"! {warning}", err=True)
        yield


def tell(text: str) -> None:
    """Print a line from a signal handler, whether anybody reads it or not."""
    with contextlib.suppress(OSError):
        click.echo(f"\n{text}", err=True)


def progress(quiet: bool = False) -> Any:
    """A live bar where the output is a terminal, plain lines elsewhere."""
    from lstm_bench.report.progress import LiveProgress, PlainProgress

    if sys.stdout.isatty():
        from rich.console import Console

        return LiveProgress(Console())
    return PlainProgress((lambda _: None) if quiet else click.echo)


@contextlib.contextmanager
def busy(what: str) -> Iterator[None]:
    """A sign of life in a terminal, once something takes longer than a moment."""
    import threading

    timer = threading.Timer(MOMENT, click.echo, (f"{what} ...",), {"err": True})
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def device_for(device: str | None) -> str:
    from lstm_bench.driver import machine

    return machine.default_device() if device in (None, "auto") else str(device)
