"""What the driver reads of the GPU while its workers use it."""

from __future__ import annotations

import time
from collections.abc import Callable

from lstm_bench import energy, telemetry
from lstm_bench.model.types import Energy
from lstm_bench.replies import Loaded
from lstm_bench.supervisor import WorkerProcess

IDLE_HOLDS_S = 60.0  # how long a reading of the GPU's idle power is good for


class Watch:
    """NVML, for those workers that run on the GPU; of the others it reads nothing."""

    def __init__(self, device: str):
        self._gauge, self._none = telemetry.open_gauge(device), telemetry.open_gauge("cpu")
        self._sampler = telemetry.Sampler(self._gauge)
        reading = self._gauge.reading()
        self._held_before = reading.memory_used_bytes if reading else None
        self._idle_w: float | None = None
        self._idle_at_s = -IDLE_HOLDS_S

    @property
    def reason(self) -> str:
        """What NVML does not tell, and how to get it."""
        return self._gauge.reason

    def start(self, worker: WorkerProcess) -> None:
        """Read from now on."""
        self._sampler.gauge = self._of(worker)
        self._sampler.start()

    def stop(self) -> list[telemetry.Sample]:
        """All that was read since `start`."""
        return self._sampler.stop()

    def memory(self, worker: WorkerProcess) -> dict[str, int]:
        """What a worker holds on the GPU, in bytes by name."""
        return telemetry.held(self._of(worker), worker.pid, self._held_before)

    def energy(self, run_load: Callable[[float], Loaded]) -> Energy:
        """Joules per call of a load; what an idle GPU draws moves with its temperature."""
        if time.monotonic() - self._idle_at_s > IDLE_HOLDS_S:
            self._idle_w, self._idle_at_s = energy.idle_power(self._gauge), time.monotonic()
        return energy.measure(self._gauge, run_load, self._idle_w)

    def close(self) -> None:
        self._gauge.close()

    def _of(self, worker: WorkerProcess) -> telemetry.Gauge:
        return self._gauge if worker.settings.device == "cuda" else self._none
