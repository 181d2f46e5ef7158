"""The time left, as a run tells it while it goes."""

from lstm_bench.model.types import Cell, Record, Shape
from lstm_bench.report.progress import Clockwork, PlainProgress, result_line

CELL = Cell("a", Shape(64, 1, 10, 64))
RECORD = Record("a", Shape(64, 1, 10, 64), 1, 1, "ok", latency_s=1e-3, rounds=3)


class Clock:
    """Passes when it is told to."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


def started(cells, guess_s):
    clock = Clock()
    progress = Clockwork(clock)
    progress.started(cells * [CELL], guess_s)
    return progress, clock


def test_the_guess_counts_down_until_the_run_has_learnt_better():
    progress, clock = started(10, 100.0)
    assert progress.left_s() == 100
    clock.seconds += 40
    progress.finished(RECORD)
    assert progress.left_s() == 60  # a cell alone says little: shapes take unlike times
    progress.expect(360.0)
    clock.seconds += 20
    assert progress.left_s() == 340


def test_some_time_is_left_as_long_as_cells_are():
    progress, clock = started(1, 10.0)
    clock.seconds += 500
    assert 0 < progress.left_s() <= 50
    progress.finished(RECORD)
    assert progress.left_s() == 0
    assert started(0, 0.0)[0].left_s() == 0


def test_a_line_tells_how_many_cells_are_done_and_what_is_left():
    lines = []
    progress = PlainProgress(lines.append)
    progress.started(2 * [CELL], 0.0)
    progress.finished(RECORD)
    progress.finished(RECORD)
    assert [line.split(",")[0] for line in lines] == ["[1/2", "[2/2"]
    assert "0 s left" in lines[1]


def test_that_a_row_cannot_run_is_told_once_and_counted_every_time():
    lines = []
    progress = PlainProgress(lines.append)
    progress.started(5 * [CELL], 1.0)
    for number in (1, 2):
        for name in ("a", "b"):
            shape = Shape(64, number, 10, 64)
            progress.finished(Record(name, shape, 1, 1, "missing", reason="no torch in x"))
    progress.finished(RECORD)
    assert all(line.endswith(" missing: no torch in x") for line in lines[:2])
    assert (len(lines), progress.done) == (3, 5)


def test_a_kind_of_warning_is_named_once_and_what_nobody_can_act_on_not_at_all():
    record = Record("a", RECORD.shape, 1, 1, "ok", latency_s=1e-3, rounds=3)
    record.warnings = ["disturbed: x", "disturbed: y", "capped: z"]
    assert result_line(record).endswith("  disturbed, capped")
    record.warnings = ["not converged: the interval is wider than was asked"]
    assert result_line(record) == result_line(RECORD)


def test_times_stand_in_one_column_whatever_the_shapes_and_the_names():
    lines = []
    progress = PlainProgress(lines.append)
    long = Cell("deepbench-persist-dynamic", Shape(1024, 256, 1000, 512), copy=2)
    progress.started([CELL, long], 0.0)
    progress.finished(RECORD)
    progress.finished(Record(long.implementation, long.shape, 1, 2, "ok", latency_s=1e-3, rounds=3))
    assert len({line.index(" ms") for line in lines}) == 1
