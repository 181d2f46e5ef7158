"""Describes this machine: processor, memory, GPU, governor, load, versions."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstm_bench.driver import gpu
from lstm_bench.model.types import Settings

if TYPE_CHECKING:
    from lstm_bench.runs.nodes import Kind


def threads() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str:
    """The processor's name, from /proc/cpuinfo or, where that has none, from lscpu."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    for line in _output("lscpu").splitlines():
        if line.startswith("Model name:"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def governor() -> str:
    """The frequency governor of the first core, empty where the kernel shows none."""
    return _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip()


def load() -> float:
    return os.getloadavg()[0]


DEVICES = Path("/dev")


def gpus() -> list[dict[str, Any]]:
    """Name, memory and driver of each visible NVIDIA GPU, the one that is used first."""
    return _listed() or []


def has_gpu() -> bool:
    """Return whether there is a GPU to use; without NVML, whether the driver is there."""
    visible = _listed()
    if visible is not None:
        return bool(visible)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    return not hidden and any(DEVICES.glob("nvidia[0-9]*"))


def _listed() -> list[dict[str, Any]] | None:
    """The GPUs that NVML shows; None if it cannot be asked."""
    try:
        import pynvml
    except Exception:  # missing, or broken
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        return [
            {
                "name": pynvml.nvmlDeviceGetName(handle),
                "memory_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                "driver": driver,
                "uuid": gpu.uuid_of(pynvml, handle),
            }
            for handle in gpu.visible_gpus(pynvml)
        ]
    except (LookupError, pynvml.NVMLError):
        return []
    finally:
        pynvml.nvmlShutdown()


def default_device() -> str:
    """Return the device that "auto" means here."""
    return "cuda" if has_gpu() else "cpu"


def kind() -> Kind:
    """The kind of device that this machine measures on."""
    from lstm_bench.runs import nodes

    settings = Settings(device=default_device(), threads=threads())
    return nodes.kind_of({"cpu": cpu_model(), "gpus": gpus()}, settings)


def git_revision(folder: Path) -> str:
    """The commit that a checkout stands at, with + if it was changed; empty outside one."""
    if not (folder / ".git").exists():
        return ""
    revision = _output("git", "-C", str(folder), "rev-parse", "--short=12", "HEAD").strip()
    changed = _output("git", "-C", str(folder), "status", "--porcelain", "-uno").strip()
    return revision + ("+" if changed else "")


#: Variables that change what is measured.
_TELLING = (
    *("OMP_WAIT_POLICY", "OMP_PROC_BIND", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"),
    *("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES"),
    *("LSTM_BENCH_ISA", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"),
    *("LD_PRELOAD", "CUDA_VISIBLE_DEVICES"),
)


def fingerprint() -> dict[str, Any]:
    """The machine's part of a manifest."""
    from lstm_bench import __version__

    return {
        "lstm_bench": __version__,
        "git": git_revision(Path(__file__).resolve().parent.parent.parent),
        "cpu": cpu_model(),
        "architecture": platform.machine(),
        "threads": threads(),
        "memory_bytes": memory_bytes(),
        "governor": governor(),
        "load": round(load(), 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "gpus": gpus(),
        "environment": {name: os.environ[name] for name in _TELLING if name in os.environ},
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
