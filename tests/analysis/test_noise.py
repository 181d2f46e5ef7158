"""The line between a difference and noise."""

import numpy as np
import pytest
from builders import cells, row
from scipy import stats

from lstm_bench.analysis import noise


def pairs(*differences):
    return noise.controls(cells(*doubled("x", *differences)))


def doubled(name, *differences):
    """Both sides of A/A pairs: (difference, time, spread within)."""
    rows = []
    for number, (difference, seconds, spread) in enumerate(differences):
        rng = np.random.default_rng(number)
        for copy in (1, 2):
            time = seconds * (1 + difference * (copy - 1))
            rounds = list(time * (1 + spread * rng.standard_normal(10)))
            rows.append(row(name, time, hidden=number + 1, copy=copy, rounds=rounds))
    return rows


def verdict(first, second, floor):
    first, second = np.array([first]), np.array([second])
    return str(noise.round_verdicts(first, second, np.array([floor]))[0])


def test_a_verdict_is_what_both_the_rounds_and_the_medians_say():
    """The words of the rounds downwards, those of the ratio to the right."""
    floor, ones = np.full(9, 0.05), np.ones((9, 10))
    factors, ratios = np.repeat([0.5, 1.0, 2.0], 3), np.tile([0.5, 1.0, 2.0], 3)
    words = noise.verdicts(ones, ones * factors[:, None], ratios, floor)
    assert [*words[::4]] == ["faster", "same", "slower"]
    assert [*words].count("unsure") == 6


@pytest.mark.parametrize(("ratio", "word"), [(1.099, "same"), (1.101, "slower"), (0.91, "same")])
def test_a_ratio_is_beyond_the_floor_if_it_is_so_many_times_more(ratio, word):
    rounds = np.full((1, 10), 1.2 if word == "slower" else 1.0)
    actual = noise.verdicts(np.ones((1, 10)), rounds, np.array([ratio]), np.array([0.1]))
    assert [*actual] == [word]


def test_a_pair_whose_medians_do_not_differ_is_not_called_different():
    own = [row("a", 1.0, hidden=h, copy=c) for h in range(1, 9) for c in (1, 2)]
    own += [row("a", 1.0, hidden=99), row("a", 1.0, 99, copy=2, rounds=[1.2] * 10 + [1.0] * 30)]
    assert noise.floors(noise.controls(cells(*own))).classes[-1].called_different == 0


def test_a_pair_is_an_implementation_and_its_copy_at_one_shape():
    actual = noise.controls(
        cells(
            row("a", 2.0),
            row("a", 2.1, copy=2),
            row("a", 1.0, hidden=9),
            row("b", 1.0),
            row("b", None, copy=2),
            row("c", 4.0, copy=3),
            row("c", 5.0, copy=4),
        )
    )
    assert list(actual.time_s) == [2.0, 4.0]
    assert list(actual.difference) == pytest.approx([0.05, 0.25])


def test_what_was_not_measured_in_turns_is_no_pair():
    assert (
        len(noise.controls(cells(row("a", 2.0, group="1"), row("a", 2.1, copy=2, group="2")))) == 0
    )


def test_every_metric_has_pairs_of_its_own():
    first = row("a", 2.0)
    other = row("a", 2.0, copy=2, round_throughput_s=[3.0] * 10)
    other.throughput_s = 3.0
    (difference,) = noise.controls(cells(first, other), "throughput").difference
    assert difference == pytest.approx(0.5)


def test_a_machine_that_slows_down_for_some_rounds_is_no_difference():
    """Half of the rounds are a third slower, for both sides; one side is unlucky in its median."""
    first = row("a", 1.0, rounds=[1.0, 1.3, 1.0, 1.3, 1.0])
    other = row("a", 1.3, copy=2, rounds=[1.0, 1.3, 1.3, 1.3, 1.0])
    assert list(noise.controls(cells(first, other)).difference) == [0]


def test_pairs_of_too_few_rounds_are_held_against_each_other_as_they_are():
    first, other = row("a", 1.0, rounds=[1.0, 1.0]), row("a", 1.1, copy=2, rounds=[1.0, 1.2])
    assert list(noise.controls(cells(first, other)).difference) == pytest.approx([0.1])


def test_each_duration_class_has_a_noise_floor_of_its_own():
    actual = pairs(*((d / 1000, 0.01, 0.0) for d in range(1, 22)), (0.5, 5e-5, 0.0))
    short, middle, long = noise.floors(actual)
    assert (short.pairs, short.floor) == (1, pytest.approx(0.5))
    assert (middle.pairs, middle.floor) == (0, None)
    assert (long.pairs, long.floor) == (21, pytest.approx(0.0209))


def test_a_pair_that_stands_out_is_called_different_by_the_floor_of_the_others():
    quiet = [(0.001 * n, 0.01, 0.0) for n in range(20)]
    assert noise.floors(pairs(*quiet)).classes[2].called_different <= 2  # no spread within: hardest
    assert noise.floors(pairs(*quiet, (0.2, 0.01, 0.0))).classes[2].called_different >= 1


def test_the_percentile_without_one_is_numpys_without_it():
    values = np.random.default_rng(1).random(23)
    expected = [np.percentile(np.delete(values, i), 95, method="weibull") for i in range(23)]
    assert noise._without_each(values, np.arange(23)) == pytest.approx(expected)


def test_a_class_with_few_pairs_borrows_the_widest_floor():
    many = [(0.05, 0.01, 0.0)] * 6
    floors = noise.floors(pairs(*[(0.004, 5e-4, 0.0)] * 6, *many))
    assert list(noise.floor_at(floors, [5e-4, 5e-5, 1.0])) == pytest.approx([0.004, 0.05, 0.05])
    lonely = noise.floors(pairs((0.004, 5e-4, 0.0), *many))
    assert float(noise.floor_at(lonely, 5e-4)) == pytest.approx(0.05)
    assert lonely.classes[1].called_different == 0


def test_a_run_with_hardly_any_pair_calls_nothing_below_five_percent():
    assert list(noise.floor_at(noise.floors(pairs()), [1e-5, 1.0])) == [0.05, 0.05]
    few = noise.floors(pairs(*[(0.001, 0.01, 0.0)] * 4))
    assert list(noise.floor_at(few, [1e-5, 1.0])) == [0.05, 0.05]
    wide = noise.floors(pairs((0.2, 0.01, 0.0)))
    assert float(noise.floor_at(wide, 1.0)) == pytest.approx(0.2)


def test_an_implementation_with_ten_pairs_has_a_floor_of_its_own():
    calm, restless = [(0.01, 0.01, 0.0)] * 10, [(0.5, 0.01, 0.0)] * 10
    rows = [*doubled("calm", *calm), *doubled("restless", *restless), *doubled("few", *calm[:9])]
    floors = noise.floors(noise.controls(cells(*rows)))
    assert set(floors.own) == {"calm", "restless"}
    names = ["calm", "restless", "few", "another"]
    assert list(noise.floor_at(floors, [1.0] * 4, names)) == pytest.approx([0.01, 0.5, 0.5, 0.5])
    assert list(noise.floor_at(floors, [1.0, 1e-5])) == pytest.approx([0.5, 0.5])


def test_a_floor_of_its_own_goes_by_duration_class_too():
    own = [(0.2, 5e-5, 0.0)] * 5 + [(0.01, 0.01, 0.0)] * 5
    floors = noise.floors(pairs(*own))
    actual = noise.floor_at(floors, [5e-5, 5e-4, 1.0], ["x"] * 3)
    assert list(actual) == pytest.approx([0.2, 0.2, 0.01])
    assert list(actual) == list(
        noise.floor_at(floors, [5e-5, 5e-4, 1.0])
    )  # alone it is all there is


def test_a_pair_of_a_restless_implementation_is_judged_by_its_own_kind():
    calm = doubled("calm", *[(0.001, 0.01, 1e-4)] * 100)
    restless = [(0.05, 0.01, 1e-4)] * 7 + [(0.15, 0.01, 1e-4)] * 3
    for own, called in ((restless, 0), (restless[1:], 3)):  # nine pairs are too few
        floors = noise.floors(noise.controls(cells(*calm, *doubled("restless", *own))))
        assert floors.classes[2].floor < 0.06
        assert sum(each.called_different for each in floors) == called


def test_where_few_pairs_make_five_percent_the_floor_no_pair_within_it_is_called_different():
    few = pairs((0.001, 1.0, 1e-4), (0.03, 1.0, 1e-4), (0.001, 1.0, 1e-4))
    many = pairs(*[(0.001, 1.0, 1e-4)] * 9, (0.03, 1.0, 1e-4))
    assert [sum(each.called_different for each in noise.floors(own)) for own in (few, many)] == [
        0,
        1,
    ]


ONE = [1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 0.99, 1.0, 1.0, 1.0]
RISING = [1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.01, 1.05, 1.03, 1.04]
NAN = float("nan")


@pytest.mark.parametrize(
    ("first", "second", "floor", "word"),
    [
        ([1.0] * 2, [2.0] * 2, 0.0, "unsure"),  # few rounds decide nothing
        ([1.0, 1.01, 0.99], [2.0, 2.01, 2.02], 0.05, "slower"),
        ([1.0, 1.01, 0.99], [1.05, 1.2, 1.4], 0.05, "unsure"),
        (ONE, [1.05 * v for v in ONE], 0.02, "slower"),  # more than the noise floor
        ([1.05 * v for v in ONE], ONE, 0.02, "faster"),
        (ONE, [1.05 * v for v in ONE], 0.06, "same"),
        (ONE, ONE, 0.0, "same"),
        ([1.0] * 10, RISING, 0.001, "slower"),
        ([1.0] * 10, RISING, 0.03, "unsure"),  # it reaches into the floor
        ([1.0] * 10, [1.3, 0.8, 1.3, 0.8, 1.3, 1.3, 0.8, 1.3, 0.8, 1.3], 0.02, "unsure"),
        ([1.0] * 5 + [NAN] * 3, [2.0] * 8, 0.0, "slower"),  # rounds of one side do not count
        ([1.0] * 2 + [NAN] * 6, [2.0] * 8, 0.0, "unsure"),
        ([1.0] * 10, [1.1, 1.11, 1.09, 1.1, 1.1, 1.12, 1.08, 1.1, 9.0, 1.1], 0.02, "slower"),
    ],
)
def test_the_rounds_decide_a_verdict(first, second, floor, word):
    assert verdict(first, second, floor) == word


@pytest.mark.parametrize("rounds", [3, 4])
def test_the_chance_of_few_rounds_is_scipys_t_test(rounds):
    values = np.random.default_rng(rounds).normal(0.3, 1.0, (40, rounds))
    expected = [stats.ttest_1samp(v, 0.0, alternative="greater").pvalue for v in values]
    assert noise._chance(values) == pytest.approx(np.array(expected))


@pytest.mark.parametrize("rounds", [5, 10, 15])
def test_the_chance_is_the_trimmed_mean_over_its_error(rounds):
    """Yuen (1974): the error is that of the values pulled in to the last that are kept."""
    values = np.random.default_rng(rounds).normal(0.3, 1.0, (40, rounds))
    values[:, 1] = 50.0  # a round that went wrong
    expected = []
    for own in values:
        error = stats.mstats.trimmed_stde(own, (0.2, 0.2), (True, True))
        t = stats.trim_mean(own, 0.2) / error
        expected.append(stats.t.sf(t, rounds - 2 * (rounds // 5) - 1))
    assert noise._chance(values) == pytest.approx(np.array(expected), rel=1e-3)


def test_a_clear_case_is_called_among_many_equal_ones_from_five_rounds():
    rng = np.random.default_rng(4)
    first, second = (np.exp(rng.normal(0, 0.01, (100, 5))) for _ in range(2))
    second[:3] *= 10
    words = noise.round_verdicts(first, second, np.full(100, 0.03))
    assert list(words[:3]) == ["slower"] * 3
    assert set(words[3:]) <= {"same", "unsure"}


def test_discoveries_are_scipys_false_discovery_control():
    p = np.random.default_rng(2).random(60) ** 4
    expected = stats.false_discovery_control(p) <= noise.FALSE_DISCOVERIES
    assert 0 < expected.sum() < 60
    assert list(noise._discoveries(p)) == list(expected)


def test_pairs_with_too_few_rounds_to_be_tested_do_not_make_others_less_sure():
    first = np.ones((10, 5))
    second = np.tile([1.02, 1.03, 1.04, 1.06, 1.01], (10, 1))  # 2.8%
    assert set(noise.round_verdicts(first[:1], second[:1], np.zeros(1))) == {"slower"}
    second[1:, 2:] = np.nan
    words = noise.round_verdicts(first, second, np.zeros(10))
    assert list(words) == ["slower"] + ["unsure"] * 9


def test_sixteen_rounds_or_more_are_joined_into_eight_lots_of_neighbours_by_their_median():
    few = np.arange(15.0)
    assert list(noise.in_lots(few[None, :])[0]) == list(few)
    many = np.arange(24.0)
    many[0] = 1000.0  # an outlier in a lot of three
    joined = noise.in_lots(many[None, :])[0]
    assert list(joined[:8]) == [2.0, 4.0, 7.0, 10.0, 13.0, 16.0, 19.0, 22.0]
    assert np.isnan(joined[8:]).all()


def test_each_row_has_lots_of_its_own_rounds_however_many_and_wherever_they_are():
    rows = np.full((2, 40), np.nan)
    rows[0, 8::2] = np.arange(16.0)  # every other round
    rows[1] = 7.0
    lots = noise.in_lots(rows)
    assert list(lots[0][:8]) == [0.5 + 2 * n for n in range(8)]
    assert [np.isfinite(row).sum() for row in lots] == [8, 8]


def test_two_workers_that_keep_their_pace_for_a_while_are_seldom_called_different():
    rng = np.random.default_rng(3)

    def pace(shapes=400, rounds=100, keeps=0.8):
        steps = rng.normal(0, 1, (shapes, rounds))
        for n in range(1, rounds):
            steps[:, n] = keeps * steps[:, n - 1] + (1 - keeps**2) ** 0.5 * steps[:, n]
        return np.exp(0.08 * steps + rng.normal(0, 0.08, steps.shape))

    words = noise.round_verdicts(pace(), pace(), np.full(400, 0.015))
    assert np.isin(words, ("faster", "slower")).mean() < noise.FALSE_DISCOVERIES
    apart = noise.round_verdicts(pace(), 1.25 * pace(), np.full(400, 0.015))
    assert (apart == "slower").mean() > 0.95


def test_one_lucky_shape_among_many_equal_ones_is_not_called():
    rng = np.random.default_rng(3)
    first = np.exp(rng.normal(0, 0.01, (200, 10)))
    second = np.exp(rng.normal(0, 0.01, (200, 10)))
    alone = [
        str(noise.round_verdicts(first[i : i + 1], second[i : i + 1], np.zeros(1))[0])
        for i in range(200)
    ]
    together = noise.round_verdicts(first, second, np.zeros(200))
    assert sum(word in ("faster", "slower") for word in alone) > 5  # 5% of 200 by chance
    assert np.isin(together, ("faster", "slower")).sum() <= 1


def test_rows_of_rounds_are_padded_and_what_is_no_time_is_left_out():
    actual = noise.by_round([[1.0, 2.0], [], [3.0, -1.0, 0.0]])
    assert actual.shape == (3, 3)
    assert np.isnan(actual).sum() == 6
    assert noise.by_round([]).shape == (0, 0)
    assert list(noise.row_median(np.array([[3.0, np.nan, 1.0], [4.0, 1.0, 2.0]]))) == [2.0, 2.0]
    assert np.isnan(noise.row_median(np.full((1, 2), np.nan))).all()
