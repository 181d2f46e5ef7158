"""The command line: which commands there are, and how a mistake is told."""

from __future__ import annotations

import sys
from typing import Any

import click

from lstm_bench import __version__
from lstm_bench.commands import compare, grid, machine, profile, report
from lstm_bench.commands.options import BAD_INPUT, CUT_OFF, DONE, FAILED, INTERRUPTED
from lstm_bench.model import LstmBenchError, Stopped


class _Group(click.Group):
    """Tells every mistake in one or two lines with exit code 2, for every command."""

    def main(self, args: Any = None, *more: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        try:
            code = super().main(args, *more, **kwargs)
        except LstmBenchError as error:
            code = _complain(str(error), FAILED if isinstance(error, Stopped) else BAD_INPUT)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "lstm-bench"
            text = f"{error.format_message()}{_hint(error)}\ntry `{command} --help`"
            if not (sys.argv[1:] if args is None else args):  # then the message is the help
                click.echo(error.format_message(), err=True)
                text = "no command was given"
            code = _complain(text, BAD_INPUT)
        except (click.Abort, KeyboardInterrupt):
            code = INTERRUPTED
        except OSError as error:  # the output's: what a run writes is told where it happens
            code = _complain(f"cannot write the output: {error.strerror or error}", FAILED)
        sys.exit(code if isinstance(code, int) else DONE)

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
            from lstm_bench.registry import nearest

            near = nearest(args[0] if args else "", self.list_commands(ctx))
            raise click.UsageError(f"{error.message.rstrip('.')}{near}", ctx) from None


@click.group(
    cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="lstm-bench")
def main() -> None:
    """How long does one LSTM layer take, and what does your framework add?

    Every implementation of a shape gets the same weights and inputs, is checked against a float64
    reference, and is timed in turns with all others; differences stand beside the run's noise.

    \b
      lstm-bench list                      what can run here, and what the rest would need
      lstm-bench grid grids/default.yaml   measure a grid of shapes
      lstm-bench compare pytorch deepbench what one costs over the other, and where
      lstm-bench report                    the newest run as tables, figures or a page
      lstm-bench report --mpe              the paper's table, and this run's beside it
      lstm-bench profile tf-mode2 --shape 512,16,25    one cell, kernel by kernel
      lstm-bench doctor                    this machine and its noise
    """


for command in (
    *(grid.grid, compare.compare, report.report, profile.profile),
    *(machine.list_, machine.doctor_),
):
    main.add_command(command)


def _hint(error: click.UsageError) -> str:
    """Where the word that was too many may belong."""
    options = [word for one in error.ctx.command.params for word in one.opts] if error.ctx else []
    extra = "unexpected extra argument" in error.message
    return "; a run is named by --run" if extra and "--run" in options else ""


def _complain(text: str, code: int) -> int:
    from lstm_bench.units import clean

    lines = (clean(line) for line in text.splitlines())  # it may quote somebody else's run
    try:
        click.echo("lstm-bench: " + "\n".join(lines), err=True)
    except OSError:
        pass
    return code
