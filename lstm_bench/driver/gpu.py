"""Reads the GPU through NVML: clocks, temperature, power, load, throttling, memory.

Nothing here may stop a run: what cannot be read is None, and `Gauge.reason` says in one line what
is missing and how to get it. `docs/explanation/gpu-and-memory.md` says what the figures mean.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lstm_bench.driver.worker_pool import WorkerProcess
from lstm_bench.model.types import Telemetry

#: Why a clock is held down. Left out: an idle GPU (bit 0), and clocks that someone has set (bit 1).
THROTTLING = {
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal slowdown by software",
    0x040: "thermal slowdown by hardware",
    0x080: "power brake",
    0x100: "display clock",
}
_THROTTLING_CALLS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",  # before driver 535
)
_SM, _MEMORY, _CORE_SENSOR = 1, 2, 0  # NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU

_TOO_OLD = "nvidia-ml-py or the driver is too old: pip install --upgrade nvidia-ml-py"
#: Errors that another attempt does not cure, and what to do about them.
_REFUSALS = {
    "NVMLError_NotSupported": "this GPU, or the slice of it that is lent here, does not tell",
    "NVMLError_NoPermission": "NVML asks for more rights: run as root, or ask who runs the machine",
    "NVMLError_FunctionNotFound": _TOO_OLD,
    "AttributeError": _TOO_OLD,
}
_LOST = ("NVMLError_GpuIsLost", "NVMLError_ResetRequired", "NVMLError_GpuNotFound")


class Gauge:
    """One GPU, read through NVML; without NVML it reads nothing and says why."""

    def __init__(self, nvml: Any = None, handle: Any = None, reason: str = ""):
        self._nvml, self._handle, self._ended = nvml, handle, reason
        self._missing: dict[str, str] = {}  # what could not be read, and why
        self._refused: set[str] = set()  # readings that are not asked for again

    @property
    def reason(self) -> str:
        """The readings that are missing and how to get them; empty if none are."""
        if self._ended:
            return self._ended
        causes: dict[str, list[str]] = {}
        for what, why in list(self._missing.items()):
            causes.setdefault(why, []).append(what)
        return "; ".join(f"no {', '.join(names)}: {why}" for why, names in causes.items())

    @property
    def reads(self) -> bool:
        """Return whether there is anything to ask."""
        return self._nvml is not None and not self._ended

    def give_up(self) -> None:
        """Ask no more: an answer did not come."""
        self._ended = self._ended or "telemetry ended in the middle of the run: NVML hangs"

    def reading(self) -> Telemetry | None:
        """The GPU now, in some 15 us; None if there is no GPU to read, or no longer."""
        reasons = self.ask("throttling", *_THROTTLING_CALLS)
        power = self.ask("power", "nvmlDeviceGetPowerUsage")
        rates = self.ask("utilisation", "nvmlDeviceGetUtilizationRates")
        memory = self.ask("memory", "nvmlDeviceGetMemoryInfo")
        reading = Telemetry(
            readings=1,
            sm_mhz=self.ask("SM clock", "nvmlDeviceGetClockInfo", args=(_SM,)),
            memory_mhz=self.ask("memory clock", "nvmlDeviceGetClockInfo", args=(_MEMORY,)),
            temperature_c=self.ask("temperature", "nvmlDeviceGetTemperature", args=(_CORE_SENSOR,)),
            power_w=None if power is None else power / 1000,
            utilisation=None if rates is None else rates.gpu / 100,
            memory_used_bytes=None if memory is None else int(memory.used),
            throttled=[name for bit, name in THROTTLING.items() if (reasons or 0) & bit],
        )
        return None if self._ended else reading

    def processes(self) -> list[Any]:
        """The processes that compute on the GPU, each with its `pid` and `usedGpuMemory`.

        In a container the list is empty, or has the numbers that processes have outside.
        """
        return self.ask("processes", "nvmlDeviceGetComputeRunningProcesses") or []

    def close(self) -> None:
        """Let NVML go; a gauge that is closed reads nothing."""
        nvml, self._nvml = self._nvml, None
        self._ended = self._ended or "the gauge is closed"
        if nvml is not None:
            with contextlib.suppress(Exception):  # a driver that is gone already
                nvml.nvmlShutdown()

    def ask(self, what: str, *names: str, args: tuple[int, ...] = ()) -> Any:
        """The answer of the first of the named functions that exists, or None."""
        if self._nvml is None or self._ended or what in self._refused:
            return None
        for name in names:
            try:
                return getattr(self._nvml, name)(self._handle, *args)
            except Exception as error:  # whatever it throws, the run goes on
                kind, text = type(error).__name__, str(error).strip()
            if kind in _LOST:
                self._ended = f"telemetry ended in the middle of the run: {text or kind}"
                return None
            if _REFUSALS.get(kind) != _TOO_OLD:
                break
        self._missing[what] = _REFUSALS.get(kind, f"NVML failed at times: {text or kind}")
        if kind in _REFUSALS:
            self._refused.add(what)
        return None


def open_gauge(device: str) -> Gauge:
    """The gauge of the GPU that the workers use: the first of CUDA_VISIBLE_DEVICES."""
    if device != "cuda":
        return Gauge(reason=f"no telemetry on a {device.upper()}: NVML reads NVIDIA GPUs only")
    try:
        import pynvml
    except Exception:  # missing, or broken
        return Gauge(reason="no clocks, temperature, power, energy: pip install nvidia-ml-py")
    try:
        pynvml.nvmlInit()
    except Exception as error:
        return Gauge(
            reason=f"no telemetry: NVML does not start ({_text(error)}): install the NVIDIA"
            " driver; a container needs NVIDIA_DRIVER_CAPABILITIES to have utility"
        )
    try:
        return Gauge(pynvml, visible_gpus(pynvml)[0])
    except Exception as error:
        Gauge(pynvml).close()
        return Gauge(reason=f"no telemetry: {_text(error)}: see CUDA_VISIBLE_DEVICES")


def _text(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def visible_gpus(nvml: Any) -> list[Any]:
    """NVML's handles of what the workers see, the one that they use first."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        named = ",".join(map(str, range(nvml.nvmlDeviceGetCount())))
    handles: list[Any] = []
    for name in map(str.strip, named.split(",")):
        try:
            handles.append(_gpu(nvml, name))
        except Exception:
            if not handles:
                raise
            break  # as CUDA does: an unknown name ends the list
    return handles


def _gpu(nvml: Any, name: str) -> Any:
    """A GPU by its number or by its UUID, which may be cut short."""
    if name in ("", "-1"):
        raise LookupError("there is no GPU, or every one is hidden")
    if name.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        if uuid_of(nvml, handle).startswith(name):
            return handle
    return nvml.nvmlDeviceGetHandleByUUID(name.encode())  # a MIG slice is not in the list


def uuid_of(nvml: Any, handle: Any) -> str:
    """Return the identifier of a board; empty where NVML does not say."""
    try:
        uuid = nvml.nvmlDeviceGetUUID(handle)
    except (AttributeError, nvml.NVMLError):
        return ""
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)


PATIENCE_S = 2.0  # for a last reading, which takes microseconds


class Watch:
    """Reads the GPU in a thread while workers on it are timed; of other workers it reads nothing.

    `start` and `stop` may be called again and again.
    """

    def __init__(self, device: str, interval_s: float = 0.02):
        self.gauge, self.interval_s = open_gauge(device), interval_s
        before = self.gauge.reading()
        self._used_before = before.memory_used_bytes if before else None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._samples: list[Telemetry] = []

    def start(self, worker: WorkerProcess) -> None:
        """Read now and from now on; where there is nothing to read there is no thread either."""
        self._samples, self._stop = [], threading.Event()
        if self.gauge.reads and worker.settings.device == "cuda":
            self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
            self._thread.start()

    def stop(self) -> list[Telemetry]:
        """Return all readings, a last one included; a driver that hangs is asked no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
            if self._thread.is_alive():
                self.gauge.give_up()
            self._thread = None
        return list(self._samples)

    def _run(self) -> None:
        stop, samples = self._stop, self._samples
        last = False
        while not last:
            last = stop.is_set()
            if reading := self.gauge.reading():
                samples.append(reading)
            stop.wait(self.interval_s)

    def memory(self, worker: WorkerProcess) -> dict[str, int]:
        """The bytes that a worker's process holds on the GPU, by the name for its record.

        Where NVML does not list the process, what the device holds over what it held before there
        were workers has to serve: that is all of them, and whoever else came.
        """
        if worker.settings.device != "cuda":
            return {}
        for process in self.gauge.processes():
            if process.pid == worker.pid and process.usedGpuMemory is not None:
                return {"process by NVML": int(process.usedGpuMemory)}
        reading = self.gauge.reading()
        if not reading or reading.memory_used_bytes is None or self._used_before is None:
            return {}
        return {"device by NVML": max(0, reading.memory_used_bytes - self._used_before)}

    def close(self) -> None:
        self.gauge.close()


def summary(readings: Sequence[Telemetry]) -> Telemetry:
    """Readings in short; what none of them has stays None."""

    def over(reduce: Callable[[list[Any]], Any], name: str) -> Any:
        values = _known(getattr(reading, name) for reading in readings)
        return reduce(values) if values else None

    seen = {name for reading in readings for name in reading.throttled}
    return Telemetry(
        readings=len(readings),
        sm_mhz=over(statistics.median, "sm_mhz"),
        lowest_sm_mhz=over(min, "sm_mhz"),
        memory_mhz=over(statistics.median, "memory_mhz"),
        temperature_c=over(max, "temperature_c"),
        power_w=over(statistics.fmean, "power_w"),
        utilisation=over(statistics.fmean, "utilisation"),
        memory_used_bytes=over(max, "memory_used_bytes"),
        throttled=[name for name in THROTTLING.values() if name in seen],
    )


def _known(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


SLOWER_CLOCK = 0.97  # share of the usual clock, which goes in steps of 15 MHz: under 1%


def slowed(this: Telemetry, usual: Sequence[Telemetry]) -> str:
    """Say why a block ran slower than the cell's other blocks; empty if it did not.

    A cell that is throttled all the time is what it is: only what most others do not show counts.
    """
    if not usual:
        return ""
    for reason in this.throttled:
        shown = sum(reason in other.throttled for other in usual)
        if 2 * shown < len(usual):
            return f"throttled: {reason}"
    clocks = _known(other.sm_mhz for other in usual)
    if this.sm_mhz is None or not clocks:
        return ""
    clock = statistics.median(clocks)
    if this.sm_mhz < SLOWER_CLOCK * clock:
        why = f", {' and '.join(this.throttled)}" if this.throttled else ""
        return f"slow clock: {this.sm_mhz:.0f} MHz where {clock:.0f} are usual{why}"
    return ""
