"""`report --energy`: what it shows, and what it says where nothing is known."""

import json
import math
import re
import statistics

import pytest
from builders import manifest, row
from conftest import REPOSITORY

from lstm_bench.analysis import results
from lstm_bench.features.energy import cells as energy_cells
from lstm_bench.features.energy import report as energy_report
from lstm_bench.features.energy.report import joules
from lstm_bench.model.types import Energy, LstmBenchError, Record, Shape, Telemetry, to_json
from lstm_bench.model.units import WIDTH
from lstm_bench.report import ladder
from lstm_bench.runs import store

SHAPES = tuple(Shape(64, batch, 10, 64) for batch in (1, 8, 32))
TIME_S, IDLE_W = 1e-3, 100.0


def cell(name, shape, gross=None, spread=0.0, copy=1, problem="", idle=IDLE_W, loads=2, **more):
    """A cell of 1 ms a call, of which 0.1 J are idle power: the rest is net, in each of its loads.

    `spread` is how far the rounds lie on either side of the median.
    """
    power = None if gross is None else gross / TIME_S
    energy = Energy(power, idle, 0.5 * loads, 5 * loads, 700 * loads, TIME_S, problem)
    if loads > 1 and power is not None:
        energy.load_w, energy.load_call_s = loads * [power], loads * [TIME_S]
    clock = Telemetry(3, 1980.0, 1755, 3201.0, 48, 300.0, 0.9, 1 << 30, more.pop("throttled", []))
    rounds = [TIME_S * (1 + spread * (n % 3 - 1)) for n in range(21)]
    times = {"latency_s": TIME_S, "throughput_s": TIME_S, "round_throughput_s": rounds}
    return Record(name, shape, 1, copy, "ok", energy=energy, gpu=clock, **times, **more)


@pytest.fixture
def run_of(tmp_path):
    def made(*records):
        rows = tuple(row(r.implementation, 1e-3, r.shape.hidden, r.shape.batch) for r in records)
        (tmp_path / "manifest.json").write_text(json.dumps(manifest(rows)))
        lines = "".join(json.dumps(to_json(r)) + "\n" for r in records)
        (tmp_path / "records.jsonl").write_text(lines)
        return results.load(tmp_path)

    return made


def rows_of(run):
    records = energy_cells.firsts(energy_report.measured(run))
    return energy_report.table_rows(records, run.implementations)


def text_of(run):
    """Unfolded, as far as it is text."""
    return " ".join(energy_report.document(run).written("table").split())


def line_of(run, name):
    """A row as it is drawn, cell by cell."""
    lines = energy_report.document(run).written("table").splitlines()
    return next(re.split(" {2,}", line) for line in lines if line.startswith(name + " "))


def test_a_report_in_full(run_of, golden):
    memory, cap = {"device peak": 1020 << 20, "host peak": 1020 << 20}, {"throttled": ["power cap"]}
    short = "too short to measure: the energy counter moved 2 times"
    run = run_of(
        cell("a", SHAPES[0], 0.2, memory=memory, warnings=["throttled: power cap"], **cap),
        cell("a", SHAPES[0], 0.202, copy=2),
        cell("a", SHAPES[1], 0.2, warnings=["slow clock: 1 MHz where 2 are usual"], **cap),
        cell("a", SHAPES[1], 0.206, copy=2),
        cell("a", SHAPES[2], 0.11, **cap),  # throttled throughout: that is its speed
        cell("a", SHAPES[2], 0.12, spread=0.05, copy=2),
        cell("less-work", SHAPES[0], 0.2468, 0.1, computes="lstm-skip-input"),
        cell("less-work", SHAPES[1], 0.101, idle=106.0),
        cell("less-work", SHAPES[2], problem=short),
        cell("no-idle", SHAPES[0], 0.2, idle=None),
    )
    text = energy_report.document(run).written("table", WIDTH)  # as the command writes it
    assert max(map(len, text.splitlines())) <= WIDTH
    golden("energy", text.replace(run.name, "run"))


def test_energy_is_the_median_over_the_shapes_that_all_rows_have(run_of):
    run = run_of(
        cell("a", SHAPES[0], 0.2),
        cell("a", SHAPES[1], 0.8),
        cell("b", SHAPES[0], 0.4),
        cell("b", SHAPES[1], problem="too short to measure"),
    )
    first, second = rows_of(run)
    assert (first["gross_j"], first["net_j"]) == (pytest.approx(0.2), pytest.approx(0.1))
    assert second["gross_j"] == pytest.approx(0.4)
    assert (first["clock_mhz"], first["lowest_mhz"], first["temperature_c"]) == (1980, 1755, 48)


def test_utilisation_and_the_memory_clock_are_nvmls_and_an_old_record_has_neither(run_of):
    old = cell("b", SHAPES[0], 0.2)
    old.gpu.memory_mhz = old.gpu.utilisation = None
    actual = rows_of(run_of(cell("a", SHAPES[0], 0.2), old))
    assert [(each["memory_mhz"], each["utilisation"]) for each in actual] == [
        (3201.0, 0.9),
        (None, None),
    ]


def test_the_page_on_clocks_names_columns_that_the_report_has(run_of):
    page = (REPOSITORY / "docs/explanation/gpu-and-memory.md").read_text()
    rows = re.findall(r"^\| (.+) \| .+ \| (.+) \|$", page, re.M)
    named = {name for _, shown in rows for name in re.findall(r"`([^`-]+)`", shown)}
    drawn = line_of(run_of(cell("a", SHAPES[0], 0.2)), "implementation")
    assert {"SM MHz", "mem MHz", "temp", "util"} <= named
    assert named - {"GPU active"} <= {*drawn}
    readings = [what for what, _ in rows]
    assert {"SM and memory clock", "utilisation", "memory used on the GPU"} <= {*readings}


def test_rows_are_not_compared_where_the_gpu_was_another_for_some(run_of):
    """It is so where lost cells are measured on another day, or by an older version."""
    same = [cell(name, SHAPES[0], 0.2, idle=watts) for name, watts in (("a", 100.0), ("b", 104.0))]
    other = [cell(name, SHAPES[1], 0.8, idle=watts) for name, watts in (("a", 100.0), ("b", 106.0))]
    run = run_of(*same, *other)
    assert [actual["gross_j"] for actual in rows_of(run)] == pytest.approx([0.2, 0.2])
    assert (
        "at 1 shape the GPU was another for some rows, or much warmer (100 W and 106 W idle): rows"
        " are not compared there"
    ) in text_of(run)
    assert "the GPU was another" not in text_of(run_of(*same))


def test_energy_that_an_old_run_has_stored_is_derived_anew(run_of):
    """Its problem was one of net energy: the power is there, and counts."""
    run = run_of(cell("a", SHAPES[0], 0.102, problem="too short to measure: 2 W over idle"))
    path = run.folder / "records.jsonl"
    line = json.loads(path.read_text())
    line["energy"] |= {"gross_j": 99.0, "net_j": None}
    path.write_text(json.dumps(line) + "\n")
    (row,) = rows_of(run)
    assert (row["gross_j"], row["net_j"]) == (pytest.approx(0.102), None)
    assert "without energy" not in text_of(run)


def test_a_row_of_which_most_times_are_uncertain_is_an_estimate(run_of):
    """Half of the 0.2 J is idle power: what 95 of 100 pairs of rounds differ by moves that half."""
    run = run_of(
        *(cell("shaky", s, 0.2468, spread=0.035) for s in SHAPES[:2]),
        *(cell("steady", s, 0.2, spread=0.024) for s in SHAPES[:2]),
        cell("half", SHAPES[0], 0.2, spread=0.025),
        cell("half", SHAPES[1], 0.2),
    )
    assert line_of(run, "shaky")[1] == "~250 mJ"
    assert line_of(run, "steady")[1] == line_of(run, "half")[1] == "200 mJ"
    sentence = (
        "in 3 of 6 cells gross is an estimate, which two runs on one GPU need not agree on to 5%"
    )
    assert sentence in text_of(run)


def test_some_shapes_are_shown_and_where_there_is_no_energy_how_many_others_have_it(run_of):
    memory = {"host peak": 3 << 20}
    run = run_of(
        cell("a", SHAPES[0], 0.2),
        cell("a", SHAPES[1], 0.8, spread=0.5),
        Record("a", SHAPES[2], 1, 1, "ok", memory=memory),
    )
    (actual,) = json.loads(energy_report.document(run, ["batch=8"]).written("json"))["energy"]
    assert (actual["gross_j"], actual["estimates"]) == (pytest.approx(0.8), 1)
    text = " ".join(energy_report.document(run, ["batch=32"]).written("table").split())
    assert "no energy here; the run has it at 2 other shapes" in text


def with_loads(apart_w, **more):
    """Two of four loads of 200 W are so many watts off on either side."""
    record = cell("a", SHAPES[0], 0.2, **more)
    record.energy.load_w = [200.0 + sign * apart_w for sign in (1, -1, 1, -1)]
    record.energy.load_call_s = 4 * [TIME_S]
    return record


def both_open(part):
    """Rounds and loads leave this part of gross energy open, each by itself."""
    share = part * 0.2 / 2**0.5  # of what two runs may differ by, in joules
    apart_w = share * 2 / 3.182 / (4 / 3) ** 0.5 / TIME_S
    return with_loads(apart_w, spread=share / 1.96 / 1.4826 / (IDLE_W * TIME_S))


def of_an_older_version(idle):
    record = cell("a", SHAPES[0], 0.2, idle=idle)
    record.energy.call_s, record.round_throughput_s = None, []
    return record


FEW_ROUNDS = cell("a", SHAPES[0], 0.2)
FEW_ROUNDS.round_throughput_s = [TIME_S]
MANY_ROUNDS = cell("a", SHAPES[0], 0.2, spread=0.10)
MANY_ROUNDS.round_throughput_s *= 100  # another run has another pace, however often it is seen


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        (with_loads(3.5), "200 mJ"),  # half their interval by Student, for two runs
        (with_loads(4.0), "~200 mJ"),
        (both_open(0.035), "200 mJ"),  # 3.5% and 3.5% add up to 4.9%, as chance does
        (both_open(0.037), "~200 mJ"),
        (cell("a", SHAPES[0], 0.11, spread=0.05), "~110 mJ"),  # nearly all of it is idle power
        (cell("a", SHAPES[0], 0.5, spread=0.05), "500 mJ"),
        (cell("a", SHAPES[0], 0.2, spread=0.05, idle=None), "~200 mJ"),  # all may be
        (MANY_ROUNDS, "~200 mJ"),
        (FEW_ROUNDS, "~200 mJ"),
        (cell("a", SHAPES[0], 0.240, loads=1), "240 mJ"),
        (cell("a", SHAPES[0], 0.256, loads=1), "~260 mJ"),  # one load is off by 3% of net energy
        (cell("a", SHAPES[0], 0.256), "256 mJ"),
        (of_an_older_version(None), "~200 mJ"),
        (of_an_older_version(IDLE_W), "~200 mJ"),
    ],
)
def test_gross_energy_is_an_estimate_where_two_runs_need_not_agree_on_it(run_of, record, shown):
    assert line_of(run_of(record), "a")[1] == shown


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        (cell("a", SHAPES[0], 0.345, loads=1), ["245 mJ", "6%"]),  # off by 3% as often as not
        (cell("a", SHAPES[0], 0.345, loads=2), ["245 mJ", "4%"]),  # by what the counter resolves
        (cell("a", SHAPES[0], 0.345, loads=4), ["245 mJ", "3%"]),
        (with_loads(3, loads=4), ["100 mJ", "6%"]),  # half their interval by Student: 1.84 times
        (with_loads(6, loads=4), ["100 mJ", "11%"]),
    ],
)
def test_net_energy_is_as_well_known_as_its_loads_tell(run_of, record, shown):
    assert line_of(run_of(record), "a")[2:4] == shown


def test_net_energy_is_the_median_over_the_same_shapes_for_every_row(run_of):
    """Cells that draw hardly more than idle stay in: what is left would be other shapes."""
    run = run_of(
        *(cell("a", s, gross) for s, gross in zip(SHAPES, (0.101, 0.2, 0.4), strict=True)),
        *(cell("b", s, gross) for s, gross in zip(SHAPES, (0.15, 0.2, 0.4), strict=True)),
    )
    first, second = rows_of(run)
    assert first["net_j"] == second["net_j"] == pytest.approx(0.1)
    assert "in 1 of 6 cells the GPU draws less over idle than the loads resolve" in text_of(run)


def test_a_row_of_which_most_cells_draw_hardly_more_than_idle_has_no_net(run_of):
    run = run_of(
        *(cell("a", s, gross) for s, gross in zip(SHAPES, (0.101, 0.102, 0.4), strict=True)),
        *(cell("b", s, 0.2) for s in SHAPES),
    )
    assert line_of(run, "a")[2] == "-"
    assert line_of(run, "b")[2] == "100 mJ"


def test_the_spread_that_is_taken_for_one_load_is_what_runs_with_several_show():
    """The figures of study/notes/energy-repeats.md: root mean squares, of resolved net energy."""
    actual = []
    for name in ("h200-energy-1", "h200-energy-2"):
        records = store.read_records(REPOSITORY / "results" / name).values()
        energies = [r.energy for r in records if r.energy.net_uncertainty <= 0.1]
        spreads = [statistics.stdev(e.load_j) / e.net_j for e in energies]
        actual.append(math.sqrt(statistics.fmean(spread**2 for spread in spreads)))
    assert [f"{spread:.1%}" for spread in actual] == ["2.7%", "2.0%"]
    assert max(actual) <= energy_cells.LOAD_SPREAD


def test_without_idle_power_gross_is_power_times_time(run_of):
    run = run_of(cell("a", SHAPES[0], 0.2, idle=None))
    (row,) = rows_of(run)
    assert (row["gross_j"], row["net_j"]) == (pytest.approx(0.2), None)
    assert "in 1 of 1 cell idle power is not known" in text_of(run)


def test_controls_are_not_in_the_table(run_of):
    (row,) = rows_of(run_of(cell("a", SHAPES[0], 0.2), cell("a", SHAPES[0], 0.4, copy=2)))
    assert (row["gross_j"], row["cells"]) == (pytest.approx(0.2), 1)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_other_formats_have_the_raw_numbers(run_of, form):
    text = energy_report.document(run_of(cell("a", SHAPES[0], 0.2))).written(form)
    keys = ("gross_j", "net_j", "net_spread", "estimates", "lowest_mhz")
    assert all(key in text for key in keys)
    assert "~" not in text


def test_a_run_without_any_of_it_says_how_to_get_it(run_of):
    run = run_of(Record("a", SHAPES[0], 1, 1, "ok", latency_s=1e-3))
    with pytest.raises(LstmBenchError, match="lstm-bench grid GRID --energy"):
        energy_report.document(run)


def test_memory_alone_is_worth_a_table(run_of):
    record = Record("a", SHAPES[0], 1, 1, "ok", memory={"host peak": 3 << 20})
    text = energy_report.document(run_of(record)).written("table")
    assert "3 MiB" in text
    assert "gross" not in text.splitlines()[2]


def test_the_page_has_the_table_only_if_there_is_energy(run_of):
    assert not energy_report.on_page(run_of(Record("a", SHAPES[0], 1, 1, "ok"))).parts
    assert energy_report.on_page(run_of(cell("a", SHAPES[0], 0.2))).tables


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (2.0716, "2.07 J"), (0.00123, "1.23 mJ"), (4e-7, "400 nJ"), (5e-6, "5 uJ")],
)
def test_joules(value, text):
    assert joules(value) == text


def test_rows_without_a_common_shape_have_their_own_and_do_not_compare(run_of):
    run = run_of(cell("a", SHAPES[0], 0.2), cell("b", SHAPES[1], 0.4))
    assert [row["gross_j"] for row in rows_of(run)] == pytest.approx([0.2, 0.4])
    assert "own shapes, as none is common to all: do not compare them" in text_of(run)


def test_memory_of_the_host_is_the_same_in_every_report(run_of):
    """It is what the imported framework holds, and what build and first call added."""
    memory = {"host peak": 3 << 20, "import": 600 << 20}
    made = run_of(Record("a", SHAPES[0], 1, 1, "ok", latency_s=1.0, memory=memory))
    (here,) = energy_report.table_rows(energy_report.measured(made), ["a"])
    (there,) = ladder.ladder_of(made, made.cells).rows
    assert here["host_peak"] == there["host_peak"] == 603 << 20
    for document in (energy_report.document(made), ladder.document(made)):
        text = " ".join(document.written("table").split())
        assert "host mem" in text
        assert "on the host with what the imported framework holds" in text
