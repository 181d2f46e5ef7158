"""NVML as an H200's driver answers: slow ticks of the energy counter, errors, older versions."""

from __future__ import annotations

import random
import types

PERIOD_S, JITTER_S, READ_S = 0.1, 0.011, 0.004
IDLE_W, LOAD_W = 125.0, 455.0
UUIDS = ("GPU-0a11-first", "GPU-0b22-second", "GPU-0b33-third")


class NVMLError(Exception):
    """As in pynvml, every error is a class of its own."""


ERRORS = {
    name: type(f"NVMLError_{name}", (NVMLError,), {})
    for name in (
        *("NotSupported", "NoPermission", "FunctionNotFound", "GpuIsLost", "Timeout"),
        *("LibraryNotFound", "DriverNotLoaded", "InvalidArgument", "NotFound"),
    )
}


class FakeNvml(types.ModuleType):
    """Stands in for `pynvml`; its time passes as the energy counter is read.

    `fails` gives the error that a function raises, `without` what this version does not have,
    `lost_at_s` when the GPU falls off the bus; `old` versions answer in bytes.
    """

    NVMLError = NVMLError

    def __init__(self, fails=None, without=(), lost_at_s=float("inf"), old=False, seed=0):
        super().__init__("pynvml")
        self.fails, self.without = dict(fails or {}), set(without)
        self.lost_at_s, self.old = lost_at_s, old
        self.rng = random.Random(seed)
        self.open, self.asked = 0, []
        self.now_s, self.load = 0.0, (0.0, 0.0)
        self.sm_mhz, self.reasons, self.processes, self.used = 1980, 0, [], 5 * 2**30
        self.shown_mj, self.regular_s = 10**9, -self.rng.uniform(0, PERIOD_S)
        self._plan()

    def answers(self):
        """The answer of each function; a function is called with its arguments."""
        memory = types.SimpleNamespace(used=self.used, total=2**37)
        return {
            "nvmlInit": lambda: setattr(self, "open", self.open + 1),
            "nvmlSystemGetDriverVersion": "580.1",
            "nvmlDeviceGetCount": len(UUIDS),
            "nvmlDeviceGetHandleByIndex": self._by_index,
            "nvmlDeviceGetHandleByUUID": self._by_uuid,
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetUUID": lambda at: UUIDS[at].encode() if self.old else UUIDS[at],
            "nvmlDeviceGetClockInfo": lambda _, kind: {1: self.sm_mhz, 2: 3201}[kind],
            "nvmlDeviceGetTemperature": 41,
            "nvmlDeviceGetPowerUsage": 125_500,
            "nvmlDeviceGetUtilizationRates": types.SimpleNamespace(gpu=87, memory=12),
            "nvmlDeviceGetMemoryInfo": memory,
            "nvmlDeviceGetCurrentClocksEventReasons": self.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": self.reasons,
            "nvmlDeviceGetComputeRunningProcesses": self.processes,
            "nvmlDeviceGetTotalEnergyConsumption": self._counter_mj,
        }

    def __getattr__(self, name):
        if not name.startswith("nvml") or name in self.without or name not in self.answers():
            raise AttributeError(f"module 'pynvml' has no attribute '{name}'")

        def ask(*arguments):
            self.asked.append(name)
            if self.now_s >= self.lost_at_s and name.startswith("nvmlDevice"):
                raise ERRORS["GpuIsLost"]("GPU is lost")
            if name in self.fails:
                raise ERRORS[self.fails[name]](self.fails[name])
            answer = self.answers()[name]
            return answer(*arguments) if callable(answer) else answer

        return ask

    def nvmlShutdown(self):
        self.open -= 1

    def _by_index(self, index):
        if index >= len(UUIDS):
            raise ERRORS["InvalidArgument"]("Invalid Argument")
        return index

    def _by_uuid(self, uuid):
        if uuid != b"MIG-77":
            raise ERRORS["NotFound"]("Not Found")
        return uuid

    def _counter_mj(self, _handle):
        self.now_s += READ_S / 2
        while self.tick_s <= self.now_s:
            self.shown_mj = 10**9 + round(1000 * self.drawn_j(self.tick_s))
            self._plan()
        self.now_s += READ_S / 2
        return self.shown_mj

    def drawn_j(self, until_s):
        start, end = self.load
        return IDLE_W * until_s + (LOAD_W - IDLE_W) * max(0.0, min(until_s, end) - start)

    def _plan(self):
        self.regular_s += PERIOD_S
        self.tick_s = self.regular_s + self.rng.uniform(-JITTER_S, JITTER_S)
