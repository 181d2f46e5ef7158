"""The command line: its commands, and how it reports a mistake."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any

import click

from lstm_bench import __version__, features
from lstm_bench.model.errors import (
    BAD_INPUT,
    CUT_OFF,
    DONE,
    FAILED,
    INTERRUPTED,
    LstmBenchError,
    Stopped,
)

#: The place of each command and its help: help must not load what it only names.
CORE = {
    "compare": ("commands.compare:compare", "What B costs over A, and where each wins."),
    "doctor": ("commands.machine:doctor_", "Examine this machine, and measure its noise."),
    "grid": ("commands.grid:grid", "Measure every implementation at every shape of a grid."),
    "list": ("commands.machine:list_", "Show what can run here, and what the rest would need."),
    "merge": ("commands.merge:merge", "Join the parts of a grid that several jobs measured."),
    "report": ("commands.report:report", "Show a run as tables, figures or one page."),
}
COMMANDS = dict(sorted((CORE | features.commands()).items()))


class _Group(click.Group):
    """Loads a command when it is asked for, and tells every mistake in one or two lines."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, command = COMMANDS[name][0].split(":")
        loaded: click.Command = getattr(importlib.import_module(f"lstm_bench.{module}"), command)
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in COMMANDS.items()])

    def main(self, args: Any = None, *more: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        if not sys.stdout:  # closed by `>&-`
            sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        sys.stderr = sys.stderr or sys.stdout
        try:
            code = super().main(args, *more, **kwargs)
        except LstmBenchError as error:
            code = _complain(str(error), FAILED if isinstance(error, Stopped) else BAD_INPUT)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "lstm-bench"
            text = f"{_message(error)}\ntry `{command} --help`"
            if not (sys.argv[1:] if args is None else args):  # then the message is the help
                click.echo(error.format_message(), err=True)
                text = "no command was given"
            code = _complain(text, BAD_INPUT)
        except (click.Abort, KeyboardInterrupt):
            code = INTERRUPTED
        except OSError as error:  # the output's: what a run writes is told where it happens
            code = _unwritten(error)
        sys.exit(_written(code if isinstance(code, int) else DONE))

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)  # this shows the help
        except BrokenPipeError:
            raise click.exceptions.Exit(CUT_OFF) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # whoever reads has enough, as `head` does
            return CUT_OFF

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from lstm_bench.model.suggest import nearest

            near = nearest(args[0] if args else "", self.list_commands(ctx))
            raise click.UsageError(f"{error.message.rstrip('.')}{near}", ctx) from None


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="lstm-bench")
def main() -> None:
    """How long does one LSTM layer take, and what does your framework add?

    Inference, one layer, one direction, sequences of equal length.

    Every implementation of a shape gets the same weights and inputs, is checked against a float64
    reference, and is timed in turns with all others; differences stand beside the run's noise.

    \b
      lstm-bench list                      what can run here, and what the rest would need
      lstm-bench grid grids/default.yaml   measure a grid of shapes
      lstm-bench compare pytorch deepbench what one costs over the other, and where
      lstm-bench compare my-gpu my-cpu     whole runs: which machine wins where
      lstm-bench gate base new             fail where a new run is worse, for CI
      lstm-bench report                    the newest run as tables, figures or a page
      lstm-bench advise 512,1,25           what to run at a shape, and the code
      lstm-bench report --mpe              the paper's table, and this run's beside it
      lstm-bench profile tf-mode2 --shape 512,16,25    one cell, kernel by kernel
      lstm-bench doctor                    this machine and its noise
    """


def _written(code: int) -> int:
    """The exit code, now that all output is written, or cannot be.

    What is left of it goes nowhere: Python would try again, say so, and exit with 120.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        if code == DONE:
            return CUT_OFF if isinstance(error, BrokenPipeError) else _unwritten(error)
    return code


def _unwritten(error: OSError) -> int:
    return _complain(f"cannot write the output: {error.strerror or error}", FAILED)


def _message(error: click.UsageError) -> str:
    """The mistake; where a run was named as an argument, also the option for it."""
    known = error.ctx.command.get_params(error.ctx) if error.ctx else []
    extra = "unexpected extra argument" in error.message
    run = extra and any("--run" in parameter.opts for parameter in known)
    return error.format_message() + ("; a run is named by --run" if run else "")


def _complain(text: str, code: int) -> int:
    from lstm_bench.model.units import clean

    lines = (clean(line) for line in text.splitlines())  # it may quote somebody else's run
    try:
        click.echo("lstm-bench: " + "\n".join(lines), err=True)
    except OSError:
        pass
    return code
