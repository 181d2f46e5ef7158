"""`lstm-bench model`: what the LSTMs of a model take, and would gain."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lstm_bench.commands import options
from lstm_bench.model.errors import DONE, LstmBenchError

if TYPE_CHECKING:
    from lstm_bench.model.types import Settings

CHILD = "from lstm_bench.features.your_model.in_worker import main\nmain()\n"
WANTED = (
    "FILE.py:NAME such as my_model.py:build, where build() returns a model that calls an nn.LSTM,"
    " and a tuple of its inputs"
)
OTHER = "another interpreter is named by --python pytorch=PATH"


@click.command()
@click.argument("target", metavar="FILE.py:NAME")
@click.option("--list", "only_list", is_flag=True, help="Only list the layers; measure no rows.")
@click.option("--replace", is_flag=True, help="Run the model with lstm_kernels too, in turns.")
@click.option(
    "-i",
    "--implementations",
    "rows",
    metavar="A,B",
    default="",
    help="Measure these, beside PyTorch's, and with --replace lstm_kernels'; default: all"
    " installed rows of the same accuracy.",
)
@options.device
@options.threads
@options.python
@click.option("--fast", is_flag=True, help="5 to 8 rounds, a short warm-up.")
@options.results
@options.writing
def model(target: str, form: str | None, output: str | None, **given: Any) -> int:
    """Say what the LSTMs of a PyTorch model take, and what it would gain by other rows.

    NAME is a function of FILE.py that returns a model and a tuple of its inputs.

    \b
      lstm-bench model my_model.py:build --list         its LSTMs, and their share of the time
      lstm-bench model my_model.py:build                what each would gain, and by which row
      lstm-bench model my_model.py:build --replace      the model before and after lstm_kernels

    The model runs in inference. Its layers go into a grid file, FILE-layers.yaml in this folder.
    """
    import yaml

    from lstm_bench.analysis import results
    from lstm_bench.commands.grid import sampling_flags
    from lstm_bench.commands.run import run
    from lstm_bench.driver import machine, preflight
    from lstm_bench.features.your_model import gains
    from lstm_bench.features.your_model.layer import Layer
    from lstm_bench.frameworks import find
    from lstm_bench.model.types import Settings
    from lstm_bench.runs import nodes
    from lstm_bench.runs.choice import RunOptions

    options.check_folder(output)
    rows = [find(row, "--implementations").name for row in filter(None, given["rows"].split(","))]
    pythons = preflight.environments(given["pythons"])
    settings = Settings(options.device_for(given["device"]), given["threads"] or machine.threads())
    sampling = sampling_flags({}, given["fast"], False, False)
    with options.busy("running the model"):
        answer = _examined(target, settings, pythons, sampling, given["replace"])
    layers = [Layer(**each) for each in answer.pop("layers")]
    file = Path(f"{Path(target.rpartition(':')[0]).stem}-layers.yaml")
    data = gains.grid(target, layers, settings, pythons, rows, given["replace"])
    measured, code = None, DONE
    for layer in layers:
        if layer.calls and layer.name not in data["workloads"]:
            click.echo(f"! {layer.name} is not measured: no row computes such a layer", err=True)
    if data["workloads"]:
        head = f"# The LSTMs of {target}, by `lstm-bench model`.\n"
        options.write_file(file, head + yaml.safe_dump(data, sort_keys=False))
    if data["workloads"] and not given["only_list"]:
        asked = RunOptions(data, file, environments=pythons, sampling=sampling, quiet=True)
        with contextlib.redirect_stdout(sys.stderr):  # what is asked for is the document
            session = run(replace(asked, results=given["results"], skip_missing=True))
        if session.interrupted:
            sys.exit(session.code)
        measured, code = results.load(session.folder), session.code
    on = nodes.kind_of(machine.fingerprint(), settings).brief
    title = f"{target} on {on}, torch {answer['torch']}"
    options.write(gains.document(title, layers, answer, measured), form, output)
    return code


def _examined(
    target: str, settings: Settings, pythons: Mapping[str, str], sampling: Any, replaced: bool
) -> dict[str, Any]:
    """The answer of the process that runs the model."""
    from lstm_bench.driver import preflight, worker_pool
    from lstm_bench.frameworks import FRAMEWORKS
    from lstm_bench.model.types import Sampling, dumps, to_json
    from lstm_bench.runs.plan import Plan

    file, _, name = target.rpartition(":")
    if not Path(file).is_file() or not name.isidentifier():
        raise LstmBenchError(f"found {target!r}, expected {WANTED}")
    sampled = replace(Sampling(), **sampling)
    preflight.device(Plan(name, (), (), settings, sampled))
    python, pytorch = worker_pool.interpreter("pytorch", pythons), FRAMEWORKS["pytorch"]
    if lacks := worker_pool.probe(python, pytorch)["missing"]:
        raise LstmBenchError(f"no {', '.join(lacks)} in {python}: {pytorch.install}; {OTHER}")
    asked = {"file": file, "name": name, "replace": replaced, "sampling": to_json(sampled)}
    asked |= {"device": settings.device, "threads": settings.threads}
    with tempfile.TemporaryDirectory(prefix="lstm-bench-") as folder:
        reply = Path(folder, "reply.json")
        command = worker_pool.with_package(python, CHILD, dumps(asked), str(reply))
        quietly = {"KINETO_LOG_LEVEL": "99"}  # the profiler's own lines
        done = subprocess.run(command, env=quietly | worker_pool.environment(settings))
        crash = {"error": f"its process ended with exit code {done.returncode}"}
        answer: dict[str, Any] = json.loads(reply.read_text()) if reply.exists() else crash
    if "error" in answer:
        raise LstmBenchError(f"{target}: {answer['error']}\nexpected {WANTED}; {OTHER}")
    return answer
