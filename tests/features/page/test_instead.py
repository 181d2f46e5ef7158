"""What to run instead of what most users run: the sentences and bars of a page's first screen."""

from pathlib import Path

import pytest
from lstm_bench.report.instead import Instead
from made_up import row, run
from made_up_grid import GRID, cell, grid, run_of

from lstm_bench.analysis import results
from lstm_bench.analysis.noise import SHAPE
from lstm_bench.model.types import Shape
from lstm_bench.report import advice, sources

RUNS = Path(__file__).parents[3] / "results"


def cards(times, **more):
    return Instead(run_of(grid(times), **more)).cards


def roles(card):
    return {bar.implementation: bar.role for bar in card.bars}


def test_plain_pytorch_is_held_against_what_is_faster_and_no_less_exact_by_batch():
    found = Instead(run_of(grid({"pytorch": 3, "tf-mode0": 1, "pytorch-half": 0.1})))
    assert (found.plain, found.title) == (
        "plain PyTorch",
        "What to run instead of plain PyTorch (pytorch)",
    )
    first, second = found.cards
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


def test_a_tie_at_every_shape_is_said_to_be_one():
    (first, _) = cards({"pytorch": 3, "tf-mode0": 1, "tf-mode2": 1.001})
    assert first.sentence.endswith("3.0x faster, tied for the fastest at 4 of 4 shapes.")


def test_what_is_fastest_already_is_kept_and_the_reference_stands_beside_it():
    (first, _) = cards({"deepbench": 1, "pytorch": 2, "tf-mode0": 6})
    assert first.sentence.endswith(
        "Keep it: nothing as exact is faster, the fastest at 4 of 4 shapes."
    )
    assert roles(first) == {
        "pytorch": "you run this",
        "tf-mode0": "next",
        "deepbench": "C++ reference",
    }


def test_a_gain_that_depends_on_the_shape_is_no_advice():
    (first, _) = cards({"pytorch": 1, "tf-mode0": lambda s: 0.5 if s[0] == 8 else 3})
    assert first.sentence.endswith(
        "It depends on the shape: tf-mode0 is faster at 2 and slower at 2 of 4 shapes."
    )
    (first, _) = cards({"pytorch": 1, "tf-mode0": lambda s: 0.5 if s[0] == 8 else 1.001})
    assert first.sentence.endswith(
        "Not decided: tf-mode0 is faster at 2 of 4 shapes, slower at none."
    )


def test_a_gain_that_nobody_can_tell_from_noise_is_not_decided():
    rows = [cell("pytorch", 2.6e-3, rounds=1), cell("tf-mode0", 1e-3, rounds=1)]
    (only,) = Instead(run_of(rows)).cards
    assert only.sentence == (
        "You run plain PyTorch at 2.6 ms. Not decided: tf-mode0 may be 2.6x faster."
    )


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
    assert first.sentence == (
        "You run plain PyTorch at 2 ms. Run tf-mode0: 2.0x faster, the fastest at 2 of 2 shapes;"
        " tf-mode0 cannot run hidden 9 (1 of 3 shapes)."
    )
    assert first.over == "2 of 3 shapes"


def test_a_run_of_nothing_that_users_run_names_its_fastest():
    made = Instead(run(row("a", 1e-3), row("b", 2e-3)))
    assert made.title == "What is the fastest"
    assert made.cards[0].sentence == "Run a at 1 ms: the fastest at 1 of 1 shape."
    made = Instead(results.load(RUNS / "h200-kernel"))
    assert made.cards[0].sentence.startswith("Nothing can be deployed; persistent takes 117 us")


@pytest.mark.parametrize("rows", [[], [cell("pytorch", status="crashed", reason="boom")]])
def test_nothing_measured_has_no_card(rows):
    assert Instead(run_of(rows, shapes=[(8, 1, 10, 8)])).cards == []


def test_a_tie_goes_to_the_more_exact_row_as_advise_has_it_and_the_note_says_how_to_get_it():
    ladder = results.load(RUNS / "h200-ladder")
    made = Instead(ladder)
    assert made.cards[0].bars[1].implementation == "pytorch-persistent"
    shapes = made.of.shapes[made.of.shapes["batch"] == 1][SHAPE]
    for sizes in shapes.itertuples(index=False, name=None):
        found = advice.advise(sources.Search([sources.read(ladder, Shape(*sizes))]))
        assert found.advised["implementation"] == "pytorch-persistent"
    assert "pip install ./lstm_kernels;" in made.note
    assert "lstm_kernels" not in Instead(results.load(RUNS / "cpu-neoverse")).note


def test_every_card_of_the_shipped_runs_begins_with_plain_pytorch():
    for name in ("h200-ladder", "cpu-neoverse"):
        found = Instead(results.load(RUNS / name))
        assert len(found.cards) in (2, 4)
        for card in found.cards:
            assert card.sentence.startswith("You run plain PyTorch at ")
            assert card.bars[0].implementation == found.now
            assert len(card.bars) <= len(GRID)
