"""The rows to run instead of those of most users: sentences and bars of a page's first screen."""

from pathlib import Path

import pytest
from builders import row, run

from grids import cell, grid, run_of
from lstm_bench.analysis import results
from lstm_bench.features.advise import advice, sources
from lstm_bench.features.page.instead import Instead
from lstm_bench.model.shape import SHAPE
from lstm_bench.model.types import Shape

RUNS = Path(__file__).parents[3] / "results"


def roles(card):
    return {bar.implementation: bar.role for bar in card.bars}


def test_plain_pytorch_is_held_against_what_is_faster_and_no_less_exact_by_batch():
    made = Instead(run_of(grid({"pytorch": 3, "tf-mode0": 1, "pytorch-half": 0.1})))
    assert made.title == "What to run instead of plain PyTorch (pytorch)"
    first, second = made.cards
    assert (first.at, second.at, first.over) == ("batch 1", "batch 64", "4 shapes")
    assert first.sentence == (
        "You run plain PyTorch at 960 ms. Run tf-mode0: 3.0x faster, the fastest at 4 of 4 shapes."
    )
    assert roles(first) == {
        "pytorch": "you run this",
        "tf-mode0": "run this",
        "pytorch-half": "less exact",
    }
    assert [bar.gain for bar in first.bars] == pytest.approx([1, 3, 30], rel=0.01)
    assert first.bars[0].seconds / first.bars[1].seconds == pytest.approx(first.bars[1].gain)


@pytest.mark.parametrize(
    ("times", "end", "others"),
    [
        (
            {"pytorch": 3, "tf-mode0": 1, "tf-mode2": 1.001},
            "3.0x faster, tied for the fastest at 4 of 4 shapes.",
            ["run this"],
        ),
        (
            {"deepbench": 1, "pytorch": 2, "tf-mode0": 6},
            "Keep it: nothing as exact is faster, the fastest at 4 of 4 shapes.",
            ["next", "C++ reference"],
        ),
        (
            {"pytorch": 1, "tf-mode0": lambda shape: 0.5 if shape[0] == 8 else 3},
            "It depends on the shape: tf-mode0 is faster at 2 and slower at 2 of 4 shapes.",
            ["next"],
        ),
        (
            {"pytorch": 1, "tf-mode0": lambda shape: 0.5 if shape[0] == 8 else 1.001},
            "It depends on the shape: tf-mode0 is faster at 2 and slower at 0 of 4 shapes.",
            ["next"],
        ),
    ],
    ids=["tie", "keep", "either", "some"],
)
def test_advice_is_no_surer_than_the_times(times, end, others):
    first, _ = Instead(run_of(grid(times))).cards
    assert first.sentence.endswith(end)
    assert [bar.role for bar in first.bars] == ["you run this", *others]


def test_a_gain_that_nobody_can_tell_from_noise_is_not_decided():
    rows = [cell("pytorch", 2.6e-3, rounds=1), cell("tf-mode0", 1e-3, rounds=1)]
    (only,) = Instead(run_of(rows)).cards
    assert only.sentence.endswith("Not decided: tf-mode0 may be 2.6x faster.")


def test_a_row_that_cannot_run_some_shapes_says_which_and_is_compared_at_the_others():
    rows = [
        row(name, None, h, n, status="unsupported", reason="too large")
        if (name, h) == ("tf-mode0", 9)
        else row(name, seconds, h, n)
        for name, seconds in (("pytorch", 2e-3), ("tf-mode0", 1e-3))
        for h in (8, 9, 10)
        for n in (1, 16)
    ]
    made = run(*rows)
    made.manifest["plan"]["implementations"][0]["framework"] = "pytorch"
    (first, _) = Instead(made).cards
    assert first.sentence.endswith(
        "Run tf-mode0: 2.0x faster, the fastest at 2 of 2 shapes;"
        " tf-mode0 cannot run hidden 9 (1 of 3 shapes)."
    )
    assert first.over == "2 of 3 shapes"


def test_a_run_of_nothing_that_users_run_names_its_fastest():
    made = Instead(run(row("a", 1e-3), row("b", 2e-3)))
    assert made.title == "What is the fastest"
    assert made.cards[0].sentence == "Run a at 1 ms: the fastest at 1 of 1 shape."
    made = Instead(results.load(RUNS / "h200-kernel"))
    assert made.cards[0].sentence.startswith("Nothing can be deployed; persistent takes 117 us")
    for rows in ([], [cell("pytorch", status="crashed", reason="boom")]):
        assert Instead(run_of(rows, shapes=[(8, 1, 10, 8)])).cards == []


def test_a_tie_goes_to_the_more_exact_row_as_advise_has_it_and_the_note_says_how_to_get_it():
    ladder = results.load(RUNS / "h200-ladder")
    made = Instead(ladder)
    assert made.cards[0].bars[1].implementation == "pytorch-persistent"
    shapes = made.times.shapes[made.times.shapes["batch"] == 1][SHAPE]
    for sizes in shapes.itertuples(index=False, name=None):
        answer = advice.advise(sources.Search([sources.read(ladder, Shape(*sizes))]))
        assert answer.advised["implementation"] == "pytorch-persistent"
    assert "pip install ./lstm_kernels;" in made.note
    assert "lstm_kernels" not in Instead(results.load(RUNS / "cpu-neoverse")).note


@pytest.mark.parametrize(("name", "cards"), [("h200-ladder", 4), ("cpu-neoverse", 2)])
def test_every_card_of_the_shipped_runs_begins_with_plain_pytorch(name, cards):
    made = Instead(results.load(RUNS / name))
    assert len(made.cards) == cards
    for card in made.cards:
        assert card.sentence.startswith("You run plain PyTorch at ")
        assert card.bars[0].implementation == made.now
