"""The facts about a framework; the `rows.py` of its folder fills them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from lstm_bench.model.types import Implementation


@dataclass(frozen=True)
class Cost:
    """The cost of a call of an implementation, and of all that goes before the first."""

    call_s: float
    step_s: float  # for each timestep
    rate: float  # useful operations a second: of each thread on a CPU, of the whole GPU
    few: float  # at this batch size half of the rate is reached
    build_s: float = 0.02
    first_s: float = 0.01  # the first call, beyond what later ones take
    build_step_s: float = 0.0  # to compile one timestep


@dataclass(frozen=True)
class Style:
    """The style of a line; `dash` is in multiples of its width, empty for a solid one."""

    colour: str
    marker: str = "o"  # one of Matplotlib's
    dash: tuple[float, ...] = ()


DASHED, DOTTED = (4, 1.5), (1, 1.5)
CPU, CUDA = ("cpu",), ("cuda",)


@dataclass(frozen=True)
class Framework:
    """Everything that the tool knows of a framework; all behind `install` is optional."""

    name: str
    requires: tuple[str, ...]  # importable modules
    distributions: tuple[str, ...]  # their versions are recorded
    install: str  # the one command that would make it run
    _: KW_ONLY
    module: str = ""  # its folder, if not called after it
    short: tuple[str, str] = ("", "")  # part of its rows' names, and what figures write for it
    on_top_of: str = ""  # the framework whose interpreter it uses, unless it has its own
    reference: bool = False  # it shows what is possible: a program cannot use it
    baseline: bool = False  # summaries compare with its row of the same name
    noise: tuple[int, str] | None = None  # its row for `doctor`; the lowest number comes first
    quick_to_describe: bool = False  # `list` and `doctor` ask its session what it lacks
    #: Variables of every worker, unless the user has set them.
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)
    #: By device and beginning of a row's name, as runs took; `experiments/estimates.py` compares.
    costs: Mapping[str, Mapping[str, Cost]] = field(default_factory=dict, compare=False)
    start_s: tuple[float, float] = (0.8, 0.8)  # until a worker is ready, on a CPU and on a GPU
    #: How many times longer half precision takes on CPUs without it: with AVX-512, and others.
    emulated: tuple[float, float] = (1.0, 1.0)
    colour: str = ""  # for rows not in `styles`, in lighter and darker tones
    styles: Mapping[str, Style] = field(default_factory=dict, compare=False)
    #: The lines that run a row on a device, for `advise`; see `frameworks/code.py`.
    code: Callable[[Implementation, str], str] | None = None
    threads_code: str = "# CPU threads: {}"  # the line that sets a row's own number of threads

    @property
    def folder(self) -> str:
        return self.module or self.name.replace("-", "_")

    def row(
        self,
        name: str,
        note: str,
        precision: str = "fp32",
        devices: tuple[str, ...] = ("cpu", "cuda"),
        /,
        *,
        default_on: tuple[str, ...] = (),
        computes: str = "lstm",
        **options: Any,
    ) -> Implementation:
        """A way of running the layer with this framework; its session reads the options."""
        return Implementation(
            name,
            self.name,
            precision,
            self.folder,
            options=options,
            computes=computes,
            devices=devices,
            note=note,
            default_on=default_on,
        )
