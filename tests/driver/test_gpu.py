"""NVML describes the GPU, and nothing that it does can stop a run."""

import sys
import threading
import types

import pytest
from fake_nvml import FakeNvml

from lstm_bench.driver import gpu
from lstm_bench.driver.gpu import Gauge, Watch, open_gauge, slowed, summary
from lstm_bench.features.energy.measure import counter_j
from lstm_bench.model.types import Settings, Telemetry


@pytest.fixture
def opened(monkeypatch):
    """Open a gauge on a fake driver; CUDA_VISIBLE_DEVICES as given."""

    def open_on(nvml, visible=None, device="cuda"):
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return open_gauge(device)

    return open_on


def test_a_reading_has_everything_in_the_units_that_its_names_say(opened):
    nvml = FakeNvml()
    gauge = opened(nvml)
    assert gauge.reading() == Telemetry(
        readings=1,
        sm_mhz=1980,
        memory_mhz=3201,
        temperature_c=41,
        power_w=125.5,
        utilisation=0.87,
        memory_used_bytes=5 * 2**30,
        throttled=[],
    )
    assert "nvmlDeviceGetTotalEnergyConsumption" not in nvml.asked  # it is slow
    assert counter_j(gauge) == pytest.approx(10**6, rel=1e-3)
    assert gauge.reason == ""


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x0, []),
        (0x1, []),  # idle
        (0x2, []),  # clocks that someone has set
        (0x4, ["power cap"]),
        (0x1 | 0x20 | 0x40, ["thermal slowdown by software", "thermal slowdown by hardware"]),
        (0x8 | 0x80, ["hardware slowdown", "power brake"]),
        (1 << 40, []),  # of a driver to come
    ],
)
def test_throttling_is_told_by_name(opened, bits, names):
    nvml = FakeNvml()
    gauge = opened(nvml)
    nvml.reasons = bits
    assert gauge.reading().throttled == names


# which GPU


@pytest.mark.parametrize(
    ("visible", "handles"),
    [
        (None, [0, 1, 2]),
        ("2", [2]),
        (" 1 , 0", [1, 0]),
        ("1,-1,0", [1]),
        ("1,9,0", [1]),
        ("GPU-0b33-third", [2]),
        ("GPU-0b2", [1]),  # CUDA takes a UUID that is cut short
        ("MIG-77", [b"MIG-77"]),
    ],
)
@pytest.mark.parametrize("old", [False, True])
def test_the_gpus_that_the_workers_see_come_in_their_order(opened, visible, handles, old):
    nvml = FakeNvml(old=old)
    assert opened(nvml, visible)._handle == handles[0]
    assert gpu.visible_gpus(nvml) == handles


@pytest.mark.parametrize("visible", ["", "-1", "7", "GPU-nobody"])
def test_no_such_gpu_is_said_and_nvml_is_let_go(opened, visible):
    nvml = FakeNvml()
    gauge = opened(nvml, visible)
    assert gauge.reading() is None
    assert "CUDA_VISIBLE_DEVICES" in gauge.reason
    assert nvml.open == 0


# what is missing


def reads_nothing(gauge, *words):
    assert gauge.reading() is None
    assert counter_j(gauge) is None
    assert gauge.processes() == []
    assert "\n" not in gauge.reason
    assert [word for word in words if word not in gauge.reason] == []
    gauge.close()
    return True


DRIVER = ("driver", "NVIDIA_DRIVER_CAPABILITIES")


@pytest.mark.parametrize(
    ("nvml", "device", "words"),
    [
        (FakeNvml(), "cpu", ("CPU", "NVML")),
        (None, "cuda", ("pip install nvidia-ml-py",)),
        *(
            (FakeNvml(fails={"nvmlInit": error}), "cuda", (error, *DRIVER))
            for error in ("LibraryNotFound", "DriverNotLoaded", "NoPermission")
        ),
    ],
)
def test_where_nothing_can_be_read_a_line_says_why(opened, nvml, device, words):
    assert reads_nothing(opened(nvml, device=device), *words)
    assert nvml is None or nvml.open == 0


COUNTER = "nvmlDeviceGetTotalEnergyConsumption"
POWER, TEMPERATURE = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature"
QUERIES = {
    "nvmlDeviceGetClockInfo": ("sm_mhz", "memory_mhz"),
    "nvmlDeviceGetTemperature": ("temperature_c",),
    "nvmlDeviceGetPowerUsage": ("power_w",),
    "nvmlDeviceGetUtilizationRates": ("utilisation",),
    "nvmlDeviceGetMemoryInfo": ("memory_used_bytes",),
}


@pytest.mark.parametrize("error", ["NotSupported", "NoPermission"])
@pytest.mark.parametrize("query", QUERIES)
def test_one_query_that_is_refused_leaves_the_others(opened, query, error):
    nvml = FakeNvml(fails={query: error})
    gauge = opened(nvml)
    for _ in range(3):
        reading = gauge.reading()
    missing = {name for name in vars(reading) if getattr(reading, name) is None}
    assert missing - {"lowest_sm_mhz"} == set(QUERIES[query])
    assert ("rights" if error == "NoPermission" else "does not tell") in gauge.reason
    assert nvml.asked.count(query) == len(QUERIES[query])  # once each, not at every reading


@pytest.mark.parametrize(
    ("nvml", "words"),
    [
        (
            FakeNvml(
                fails={"nvmlDeviceGetPowerUsage": "NoPermission", TEMPERATURE: "NoPermission"}
            ),
            "no power, temperature: NVML asks for more rights",
        ),
        (FakeNvml(fails={COUNTER: "NotSupported"}), "no energy: this GPU, or the slice of it"),
        (FakeNvml(without={COUNTER}), "no energy: nvidia-ml-py or the driver is too old: pip in"),
    ],
)
def test_all_that_is_missing_makes_one_line(opened, nvml, words):
    gauge = opened(nvml)
    assert gauge.reading().sm_mhz == 1980
    assert (counter_j(gauge) is None) == ("energy" in words)
    assert gauge.reason.startswith(words)


@pytest.mark.parametrize(
    "nvml",
    [
        FakeNvml(without={"nvmlDeviceGetCurrentClocksEventReasons"}),  # an older package
        FakeNvml(fails={"nvmlDeviceGetCurrentClocksEventReasons": "FunctionNotFound"}),  # driver
    ],
)
def test_the_older_name_of_throttling_serves_too(opened, nvml):
    nvml.reasons = 0x4
    gauge = opened(nvml)
    assert gauge.reading().throttled == ["power cap"]
    assert gauge.reason == ""


def test_an_error_that_passes_costs_one_reading(opened):
    nvml = FakeNvml(fails={"nvmlDeviceGetPowerUsage": "Timeout"})
    gauge = opened(nvml)
    assert gauge.reading().power_w is None
    assert "no power: NVML failed at times: Timeout" in gauge.reason
    nvml.fails.clear()
    assert gauge.reading().power_w == 125.5


def test_a_gpu_that_is_lost_ends_the_telemetry_and_nothing_else(opened):
    nvml = FakeNvml(lost_at_s=1.0)
    gauge = opened(nvml)
    assert gauge.reading().sm_mhz == 1980
    nvml.now_s = 1.0
    assert reads_nothing(gauge, "in the middle of the run", "GPU is lost")


def test_even_nonsense_does_not_stop_a_run(opened):
    nvml = FakeNvml()
    nvml.nvmlDeviceGetTemperature = lambda *_: 1 / 0
    gauge = opened(nvml)
    reading = gauge.reading()
    assert (reading.temperature_c, reading.sm_mhz) == (None, 1980)
    nvml.nvmlShutdown = lambda: 1 / 0
    for _ in range(2):
        gauge.close()
    assert gauge.reading() is None


# memory


def worker_on(device, pid=17):
    """A worker on a device."""
    return types.SimpleNamespace(pid=pid, settings=Settings(device=device))


def process(pid, used):
    return types.SimpleNamespace(pid=pid, usedGpuMemory=used)


def test_memory_of_a_process_if_nvml_lists_it_else_of_the_device(opened, monkeypatch):
    nvml = FakeNvml()
    opened(nvml)
    watch, nvml.used = Watch("cuda"), 8 * 2**30
    assert watch.memory(worker_on("cuda")) == {"device by NVML": 3 * 2**30}
    nvml.processes = [process(16, 1), process(17, 2**30)]
    assert watch.memory(worker_on("cuda")) == {"process by NVML": 2**30}
    assert watch.memory(worker_on("cpu")) == {}
    nvml.processes, nvml.used = [process(17, None)], 0
    assert watch.memory(worker_on("cuda")) == {"device by NVML": 0}
    assert Watch("cpu").memory(worker_on("cuda")) == {}


# samples


class Readings:
    """A gauge that hands out readings and says when the last one is taken."""

    reads = True

    def __init__(self, *clocks_mhz):
        self.left, self.taken = [Telemetry(sm_mhz=mhz) for mhz in clocks_mhz], threading.Event()

    def reading(self):
        if len(self.left) == 1:
            self.taken.set()
            return self.left[0]
        return self.left.pop(0)


def watch_of(gauge, interval_s=0.02):
    """A watch that reads this gauge."""
    watch = Watch("cpu", interval_s)
    watch.gauge = gauge
    return watch


def test_the_gpu_is_read_until_the_watch_is_stopped():
    gauge = Readings(1, 2, 3)
    watch = watch_of(gauge, interval_s=0)
    watch.start(worker_on("cuda"))
    assert gauge.taken.wait(60)
    samples = watch.stop()
    assert [r.sm_mhz for r in samples[:3]] == [1, 2, 3]
    assert watch.stop() == samples  # no thread goes on


def test_a_block_shorter_than_the_interval_is_read_at_its_edges():
    gauge = Readings(1980)
    watch = watch_of(gauge, interval_s=3600)
    for _ in range(2):
        gauge.taken.clear()
        watch.start(worker_on("cuda"))
        assert gauge.taken.wait(60)
        assert [r.sm_mhz for r in watch.stop()] == [1980, 1980]


def test_a_driver_that_hangs_is_asked_no_more(monkeypatch):
    monkeypatch.setattr(gpu, "PATIENCE_S", 0.05)
    asked, done = threading.Event(), threading.Event()

    def hangs():
        asked.set()
        done.wait(60)

    gauge = Gauge(nvml=object(), handle=None)
    gauge.reading = hangs
    watch = watch_of(gauge)
    watch.start(worker_on("cuda"))
    assert asked.wait(60)
    assert watch.stop() == []
    assert (gauge.reads, "NVML hangs" in gauge.reason) == (False, True)
    done.set()


@pytest.mark.parametrize(
    ("gauge", "device"), [(Gauge(reason="none"), "cuda"), (Readings(1980), "cpu")]
)
def test_where_there_is_nothing_to_read_there_is_no_thread(gauge, device):
    before = threading.active_count()
    watch = watch_of(gauge)
    watch.start(worker_on(device))
    assert threading.active_count() == before
    assert watch.stop() == []


def test_the_summary_is_median_lowest_highest_and_mean():
    readings = [
        Telemetry(1, 1980, None, 3201, 40, 100.0, 1.0, 10, ["power cap"]),
        Telemetry(1, 1200, None, 3201, 60, 200.0, 0.5, 30),
        Telemetry(1, 1950, None, 3201, 50, None, None, 20, ["thermal slowdown by software"]),
    ]
    assert summary(readings) == Telemetry(
        readings=3,
        sm_mhz=1950,
        lowest_sm_mhz=1200,
        memory_mhz=3201,
        temperature_c=60,
        power_w=150.0,
        utilisation=0.75,
        memory_used_bytes=30,
        throttled=["power cap", "thermal slowdown by software"],
    )
    assert summary([]) == Telemetry()
    assert summary([Telemetry()]) == Telemetry(readings=1)


# blocks that ran slower


CAP, BRAKE = "power cap", "power brake"


def at(sm_mhz=None, *throttled):
    return Telemetry(sm_mhz=sm_mhz, throttled=[*throttled])


@pytest.mark.parametrize(
    ("this", "usual", "why"),
    [
        (at(1980), [], ""),
        (at(1980), [at(1980)], ""),
        (at(1965), [at(1980)], ""),  # one step of the clock
        (at(1305), [at(1980)], "slow clock: 1305 MHz where 1980"),
        (at(1980), [at(1305)], ""),  # faster is no reason
        (at(), [at(1980)], ""),
        (at(1305), [at()], ""),
        (at(None, CAP), [], ""),  # what is usual is not known yet
        (at(None, CAP), [at()], "throttled: power cap"),
        (at(None, CAP), [at(None, CAP)], ""),
        (at(None, CAP, BRAKE), [at(None, CAP)], "throttled: power brake"),
        (at(None, CAP), [at(None, CAP), at(None, CAP), at()], ""),
        (at(None, CAP), [at(None, CAP), at(), at()], "throttled: power cap"),
        # throttled like the others, but more
        (at(1500, CAP), [at(1890, CAP)], "slow clock: 1500 MHz where 1890 are usual, power cap"),
    ],
)
def test_a_block_is_slowed_by_what_its_neighbours_do_not_show(this, usual, why):
    reason = slowed(this, usual)
    assert reason.startswith(why)
    assert bool(reason) == bool(why)
