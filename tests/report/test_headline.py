"""The sentence about two implementations says what their numbers say."""

import json
import re
from pathlib import Path

import pytest
from builders import cells, row, run

from lstm_bench.analysis import results, summary
from lstm_bench.analysis.comparison import compare
from lstm_bench.report import fastest, pair_report, run_report
from lstm_bench.report.headline import explaining, headline

PAPER = Path(__file__).parents[2] / "results" / "h200-paper"
HIDDEN, BATCH, STEPS = (128, 256, 512), (1, 16), (10, 100)


SHAPES = [(h, n, t) for h in HIDDEN for n in BATCH for t in STEPS]


def pair(ratio):
    """B takes `ratio(hidden, batch, timesteps)` times as long as A."""
    rows = [row("a", 1.0, *shape) for shape in SHAPES]
    return compare(cells(*rows, *(row("b", ratio(*shape), *shape) for shape in SHAPES)), "a", "b")


def wobble(*shape):
    """A percent or two, so that no group has a spread of zero."""
    return 1 + 0.01 * (sum(shape) % 3)


def mixed(h, n, t):
    return 0.5 if (HIDDEN.index(h) + (n == 1) + (t == 10)) % 2 else 2.0


@pytest.mark.parametrize(
    ("ratio", "sentence"),
    [
        (
            lambda h, *rest: (0.25 if h == 128 else 1.2) * wobble(h, *rest),
            r"Against a, b is 4.0x faster at hidden 128 and 1.2.*x slower from hidden 256 up",
        ),
        (
            lambda h, *rest: {128: 0.25, 256: 0.5, 512: 3.0}[h],
            "Against a, b is 2.0x to 4.0x faster up to hidden 256 and 3.0x slower at hidden 512",
        ),
        (
            lambda h, *rest: 0.5 if h == 128 else 1.0,
            "Against a, b is 2.0x faster at hidden 128 and within noise from hidden 256 up",
        ),
        (
            lambda h, n, t: (8.0 if n == 1 else 2.0) * wobble(h, n, t),
            "b is 4.0x slower than a: 8.1x at batch 1, 2.0x at batch 16",
        ),
        (lambda *shape: 2.0 * wobble(*shape), "b is 2.0x slower than a"),
        (mixed, "It depends on the shape: b is faster at 6 and slower at 6 of 12 shapes than a"),
    ],
    ids=["axis", "same-side", "within-noise", "ends", "mean", "either"],
)
def test_the_sentence_goes_along_the_axis_that_explains_most(ratio, sentence):
    assert re.fullmatch(sentence, headline(pair(ratio)))


def test_unequal_work_is_called_neither_faster_nor_slower():
    rows = [row("a", 1.0), row("b", 0.5, computes="lstm-skip-input")]
    sentence = headline(compare(cells(*rows), "a", "b", across=("work",)))
    assert sentence == "b takes 0.50x the time of a, but they do not do the same work"


def test_an_axis_of_a_shape_or_two_each_explains_nothing():
    rows = [row(name, t * h, hidden=h) for name, t in (("a", 1), ("b", 2)) for h in range(1, 9)]
    assert explaining(compare(cells(*rows), "a", "b")) == ""


GRAPH = "cuDNN 9 standard, graph"


@pytest.mark.parametrize(
    ("paths", "times", "shared", "following", "verdict"),
    [
        ((f"{GRAPH} (fastest of 6)", GRAPH, "cuDNN 9"), (1.0, 1.001, 2.0), "ab", "c", "slower"),
        (("x", "y", "y"), (1.0, 1.001, 2.0), "a", "b", "same"),
        (("generic", "generic", "x"), (1.0, 1.001, 2.0), "a", "b", "same"),  # of unknown code
        (("", "", "x"), (1.0, 1.001, 2.0), "a", "b", "same"),
        (("x", "x", "y"), (1.0, 1.5, 2.0), "a", "b", "slower"),  # beyond the noise
        (("x", "x", "x"), (1.0, 1.001, 1.002), "abc", None, "alone"),
    ],
)
def test_rows_that_ran_the_same_code_within_the_noise_share_a_win(
    paths, times, shared, following, verdict
):
    sides = zip("abc", times, paths, strict=True)
    made = run(*(row(name, seconds, path=path) for name, seconds, path in sides))
    won = summary.winners(summary.times(made.cells), made.noise).iloc[0]
    assert (set(won["shared"]), won["next"], won["verdict"]) == (set(shared), following, verdict)


def test_the_shipped_run_says_where_pytorch_wins_and_where_not():
    made = results.load(PAPER)
    actual = compare(made.cells, "deepbench", "pytorch")
    sentence = "3.0x faster at hidden 128 and 1.09x to 1.17x slower from hidden 256 up"
    assert headline(actual) == f"Against deepbench, pytorch is {sentence}"
    text = " ".join(pair_report.document(actual, [made]).written("table").split())
    assert f"Against deepbench, pytorch is {sentence}." in text


#: 32 shapes, of which the faster row cannot run a quarter.
LARGE = [(h, n, t) for h in (96, 320, 768, 1280) for n in (1, 6, 40, 200) for t in (7, 48)]


def with_gaps(hidden=1280, **times):
    """Rows of so many seconds; the first cannot run one hidden size."""
    first = next(iter(times))
    return run(
        *(
            row(name, None, *shape, status="unsupported", reason="too large")
            if (name, shape[0]) == (first, hidden)
            else row(name, seconds * wobble(*shape), *shape)
            for shape in LARGE
            for name, seconds in times.items()
        )
    )


def groups(made):
    return json.loads(run_report.document(made).written("json"))["groups"]


def test_a_row_that_lacks_shapes_is_the_fastest_where_it_is_and_says_where_it_cannot_run():
    made = with_gaps(drop=1e-3, libtorch=2e-3, slow=3e-3)
    for group in groups(made):
        assert (group["fastest"], group["next"], group["shapes"]) == ("drop", "libtorch", 8)
        assert (group["has"], group["wins"], group["ratio_shapes"]) == (6, 6, 6)
        assert group["ratio"] == pytest.approx(2.0, rel=0.02)
    text = run_report.document(made).written("table")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "1 fp32 drop 6 of 6 1.01 ms at 6 1e-07 libtorch 2.0x at 6" in lines
    assert "drop cannot run hidden 1280 (8 of 32 shapes)" in lines


def test_what_only_some_sizes_have_does_not_hide_the_group_of_the_others(lstm_bench, write_grid):
    """One size of five, from the command line: the headline had lost that group."""
    fakes = {
        "fake-slow": {"call_s": 0.003},
        "fake-fast": {"call_s": 0.001, "fault": "unsupported", "hidden": 6},
    }
    sizes = {"hidden": [2, 3, 4, 5, 6], "batch": 1, "implementations": [*fakes], "fake": fakes}
    assert lstm_bench("grid", write_grid(**sizes)).returncode == 0
    text = lstm_bench("report").stdout
    table = text[: text.index("precision")]
    assert table.count("fake-fast  ") == 3
    last = next(line for line in table.splitlines() if line.strip().startswith("6 "))
    assert last.split()[2:5] == ["fake-slow", "1", "of"]
    assert "fake-fast cannot run hidden 6 (1 of 5 shapes)" in text


def test_a_row_of_one_shape_does_not_lead_those_of_all():
    shapes = [(h, n) for h in (1, 2, 3) for n in (1, 16)]
    rows = [row(name, s, *shape) for name, s in (("a", 2.0), ("b", 3.0)) for shape in shapes]
    made = run(*rows, row("rare", 1.0, 1, 1))
    assert [(each["fastest"], each["next"]) for each in groups(made)] == [("a", "b")] * 2
    text = run_report.document(made).written("table")
    assert "rare is the fastest at 1 shape; it has no time at 5 of 6 shapes" in text


def test_rows_with_gaps_stand_where_they_are_against_each_of_the_others():
    """Neither as fast as the fastest where they have no time, nor last for a gap."""
    rows = [row(n, s, hidden=h) for n, s in (("a", 1.0), ("b", 2.0), ("c", 4.0)) for h in (1, 2, 3)]
    made = run(*rows, *(row("some", 3.0, hidden=h) for h in (1, 2)))
    times = summary.times(made.cells)
    assert fastest.ranked(times, times.names, [True] * 3) == ["a", "b", "some", "c"]


def test_a_sentence_on_two_rows_says_over_how_many_shapes_it_is():
    made = with_gaps(drop=1e-3, libtorch=2e-3)
    actual = compare(made.cells, "libtorch", "drop")
    assert headline(actual) == (
        "drop is 2.0x faster than libtorch, at the 24 of 32 shapes that both have"
    )


def test_a_row_with_few_shapes_leaves_the_others_theirs_and_says_how_many_it_has():
    rows = [row(n, h * s, hidden=h) for n, s in (("a", 1.0), ("b", 2.0)) for h in (1, 2, 3, 4)]
    made = run(*rows, *(row("few", 3.0 * h, hidden=h) for h in (1, 2)))
    text = run_report.document(made).written("table")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "a fp32 4/4 2.5 s 1.00x 1e-07" in lines  # over four shapes, not over two
    assert "few fp32 2/2 4.5 s at 2 3.00x at 2 1e-07" in lines
    assert "times: median over the 4 shapes that all implementations have" in text
    assert "at N: over N shapes" in text
