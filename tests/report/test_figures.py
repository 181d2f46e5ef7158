"""Every figure of any run draws what was measured."""

import dataclasses
import io
import itertools
import math
import xml.etree.ElementTree as ElementTree

import builders
import matplotlib
import numpy as np
import pytest
from builders import no_text_meets_another
from builders import row as cell
from matplotlib import colors
from matplotlib.text import Text

from lstm_bench.report import figures
from lstm_bench.report.colours import style_of

pytestmark = pytest.mark.filterwarnings("error")

NAMES = ("deepbench", "pytorch", "pytorch-amp")
BATCHES = (1, 4, 16)


def run_of(rows, **machine):
    made = builders.run(*rows)
    made.manifest["machine"] = {"cpu": "Some CPU", **machine}
    return made


def grid(names=NAMES, hidden=(8, 64), batch=BATCHES, timesteps=(10, 100, 1000), seconds=None):
    """A run of a whole grid, where later names are slower."""
    rng = np.random.default_rng(1)
    rows = []
    for h in hidden:
        for b in batch:
            for t in timesteps:
                for place, name in enumerate(names, 1):
                    time = seconds(name, h, b, t) if seconds else 1e-6 * t * h * b**0.5 * place
                    noisy = list(time * rng.uniform(0.99, 1.01, 10))
                    row = cell(name, time, h, b, t, noisy)
                    row.computes = "lstm-skip-input" if "skip" in name else "lstm"
                    rows.append(row)
    return rows


def texts(figure):
    return [text.get_text().replace("\n", " ") for text in figure.findobj(Text)]


def lines(figure):
    """The drawn lines by implementation."""
    (ax,) = figure.axes
    return {line.get_label(): line for line in ax.get_lines()}


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def panels(figure):
    """The heat maps by title: the cells' texts and colours, by place."""
    actual = {}
    for ax in figure.axes:
        if not ax.get_title(loc="left"):
            continue  # the colour bar
        spots = {(p.get_x(), p.get_y()): colors.to_hex(p.get_fc(), True) for p in ax.patches}
        words = {tuple(np.subtract(t.get_position(), 0.5)): t.get_text() for t in ax.texts}
        actual[ax.get_title(loc="left")] = {at: (words[at], spots[at]) for at in spots}
    return actual


def at(table, name, value):
    (row,) = table[(table["implementation"] == name) & (table["at"] == value)].to_dict("records")
    return row


def test_a_point_is_the_median_over_the_other_sizes():
    times = {(8, 1): 1.0, (8, 2): 5.0, (8, 3): 2.0, (16, 1): 7.0, (16, 2): 8.0, (16, 3): 30.0}
    rows = [cell("a", s, hidden=h, timesteps=t) for (h, t), s in times.items()]
    table = figures.points(run_of(rows), "hidden")
    assert (at(table, "a", 8)["latency_s"], at(table, "a", 16)["latency_s"]) == (2.0, 8.0)
    assert list(table["shapes"]) == [3, 3]
    passes = [cell("a", s, pass_number=n) for n, s in enumerate((1.0, 9.0, 2.0), 1)]
    assert list(figures.points(run_of(passes), "batch")["latency_s"]) == [2.0]
    by_steps = figures.points(run_of(rows), "timesteps")
    assert list(by_steps["latency_s"]) == [4.0, 6.5, 16.0]


def test_a_row_that_refuses_the_long_shapes_does_not_look_fast():
    rows = [cell("a", s, timesteps=t) for t, s in ((1, 1.0), (2, 2.0), (3, 9.0))]
    rows += [cell("b", 3.0, timesteps=1), cell("b", 4.0, timesteps=2)]
    rows += [cell("b", None, timesteps=3, status="oom")]
    table = figures.points(run_of(rows), "batch")
    assert (at(table, "a", 1)["latency_s"], at(table, "b", 1)["latency_s"]) == (1.5, 3.5)


def test_a_value_that_one_row_refuses_altogether_stays_to_the_others():
    rows = [
        cell(n, 1.0 * b * t, batch=b, timesteps=t) for n in "ab" for b in (1, 2) for t in (1, 3)
    ]
    rows += [cell("a", 4.0, batch=4), cell("b", None, batch=4, status="unsupported")]
    table = figures.points(run_of(rows), "batch")
    assert list(table["at"]) == [1, 2, 4, 1, 2]
    assert list(table["latency_s"]) == [1.0, 2.0, 4.0, 1.0, 2.0]  # with one timestep: all have it
    assert table.attrs["along"]


def test_a_line_rests_on_the_same_other_sizes_at_every_tick_where_there_are_any():
    rows = [cell("a", 1.0 * t, batch=b, timesteps=t) for b in (1, 2) for t in (10, 100)]
    rows += [cell("a", 1000.0, batch=2, timesteps=1000)]  # the run ended here
    table = figures.points(run_of(rows), "batch")
    assert list(table["latency_s"]) == [55.0, 55.0]
    apart = [cell("a", 1.0, batch=1, timesteps=10), cell("a", 2.0, batch=2, timesteps=20)]
    assert list(figures.points(run_of(apart), "batch")["latency_s"]) == [1.0, 2.0]
    figure = figures.time_by(run_of(apart), "batch")
    assert any("each point's own" in text for text in texts(figure))
    assert joined(figure) == {False}
    whole = figures.time_by(run_of(rows), "batch")
    assert not any("each point's own" in text for text in texts(whole))
    assert joined(whole) == {True}


def joined(figure):
    """True of lines that go from point to point, False of points alone."""
    return {line.get_linestyle() != "None" for line in figure.axes[0].get_lines()}


def test_without_a_common_shape_rows_stand_on_their_own_and_the_figure_says_so():
    run = run_of([cell("a", 1.0, timesteps=10), cell("b", 7.0, timesteps=20)])
    assert list(figures.points(run, "batch")["latency_s"]) == [1.0, 7.0]
    assert any("none is common" in text for text in texts(figures.time_by(run, "batch")))
    table = figures.points(run_of(grid()), "hidden")  # an input as wide as the state is alike
    assert (set(table["shapes"]), table.attrs["along"]) == ({9}, True)


def test_the_interval_of_one_shape_has_the_order_statistics_of_its_rounds():
    """It is the fourth of 15 from either side: 96.5%."""
    rounds = list(np.random.default_rng(3).lognormal(0, 0.3, 15))
    actual = figures.interval(np.array([np.median(rounds)]), [rounds], over_shapes=False)
    assert actual == pytest.approx((sorted(rounds)[3], sorted(rounds)[-4]))
    assert list(figures.interval(np.array([2.0]), [[2.0]], over_shapes=False)) == [2.0, 2.0]


@pytest.mark.parametrize("count", [6, 7, 12])
def test_the_interval_holds_the_true_median_in_95_of_100_cases(count):
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(250):
        times = rng.lognormal(0, 1.5, count)
        low, high = figures.interval(times, [[]] * count, over_shapes=True)
        hits += low <= 1 <= high
    assert hits / 250 >= 0.93


def test_the_rounds_of_all_passes_count():
    rows = [cell("a", 1.0), cell("a", 1.0, rounds=[0.5] * 10 + [1.5] * 10, pass_number=2)]
    (row,) = figures.points(run_of(rows), "batch").to_dict("records")
    assert row["low_s"] < 1.0 < row["high_s"]


def test_of_few_shapes_the_bars_speak_of_just_these():
    few = figures.time_by(run_of(grid(timesteps=(10, 100))), "batch")  # four at each batch size
    assert any("over the rounds of these shapes" in text for text in texts(few))
    many = figures.time_by(run_of(grid(timesteps=(10, 100, 1000))), "batch")  # six
    assert any("over shapes;" in text for text in texts(many))


def test_a_bar_is_the_same_whoever_stands_beside_it():
    run = run_of(grid())
    alone, beside = figures.points(run, "batch", ["pytorch"]), figures.points(run, "batch")
    assert at(alone, "pytorch", 4) == at(beside, "pytorch", 4)


def test_lines_and_bars_are_the_points_in_milliseconds():
    run = run_of(grid())
    table = figures.points(run, "timesteps")
    figure = figures.time_by(run, "timesteps")
    mine = table[table["implementation"] == "pytorch"]
    assert list(lines(figure)["pytorch"].get_ydata()) == pytest.approx(
        list(1e3 * mine["latency_s"])
    )
    (ax,) = figure.axes
    ends = [segment[:, 1] for segment in ax.collections[1].get_segments()]
    assert np.array(ends) == pytest.approx(1e3 * mine[["low_s", "high_s"]].to_numpy())


def test_lines_stand_beside_their_tick_never_nearer_to_another():
    names = [f"row{n}" for n in range(40)]
    figure = figures.time_by(run_of(grid(names)), "batch")
    for line in lines(figure).values():
        for value, x in zip(BATCHES, line.get_xdata(), strict=True):
            assert abs(math.log(x / value)) < math.log(4) / 4


def test_axes_carry_units_and_are_logarithmic_with_the_grids_own_ticks():
    (ax,) = figures.time_by(run_of(grid()), "batch").axes
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == (
        "batch size (sequences)",
        "latency of one call (ms)",
    )
    assert sorted(ax.get_xticks()) == list(BATCHES)
    assert {t.get_text() for t in ax.get_xticklabels()} == {"1", "4", "16"}
    assert all(any(c.isdigit() for c in t.get_text()) for t in ax.get_yticklabels())


def test_times_that_hardly_differ_are_drawn_from_zero():
    rows = [cell("a", 1.0 + b / 100, batch=b) for b in BATCHES]
    (ax,) = figures.time_by(run_of(rows), "batch").axes
    assert ax.get_yscale() == "linear"
    assert ax.get_ylim()[0] == 0


def test_tick_labels_of_a_dense_axis_keep_their_distance():
    rows = [cell("a", 1.0, batch=b) for b in range(1, 201)]
    figure = figures.time_by(run_of(rows), "batch")
    figure.draw_without_rendering()
    (ax,) = figure.axes
    boxes = sorted((t.get_window_extent() for t in ax.get_xticklabels()), key=lambda box: box.x0)
    assert len(boxes) > 5
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def test_an_implementation_keeps_its_look_in_all_figures():
    run = run_of(grid([*NAMES, "tf-mode0", "made-up"]))
    drawn = figures.drawn(run)
    for stem in [stem for stem in drawn if stem.startswith("time-by")]:
        names = NAMES if stem.endswith("pytorch") else [*NAMES, "tf-mode0", "made-up"]
        assert set(lines(drawn[stem])) == set(names)
        for name, line in lines(drawn[stem]).items():
            assert line.get_color() == style_of(name).colour
            assert line.get_marker() == style_of(name).marker
            assert line.is_dashed() == bool(style_of(name).dash)
    (patch,) = drawn["winners-fp32"].legends[0].get_patches()
    assert colors.to_hex(patch.get_facecolor()) == style_of("deepbench").colour


def test_the_legend_is_ordered_as_the_lines_end_and_marks_who_computes_less():
    figure = figures.time_by(run_of(grid(["deepbench", "deepbench-skip", "slow"])), "batch")
    assert legend(figure) == ["slow", "deepbench-skip*", "deepbench"]
    assert any("* computes less (lstm-skip-input)" in text for text in texts(figure))


def test_a_cell_of_the_winners_names_the_fastest_and_how_far_the_next_is():
    run = run_of(grid(["deepbench-skip", "pytorch", "tf-mode0"], timesteps=(10, 100)))
    actual = panels(figures.winners(run))
    assert list(actual) == ["timesteps 10", "timesteps 100"]
    assert len(actual["timesteps 10"]) == 2 * len(BATCHES)
    assert set(actual["timesteps 10"].values()) == {
        ("PT\n1.50x", style_of("pytorch").colour + "ff")
    }
    assert legend(figures.winners(run)) == ["pytorch: fastest at 12 of 12"]


def test_winners_can_be_deployed_and_the_reference_stands_below():
    run = run_of(grid(["deepbench", "pytorch", "tf-mode0"], timesteps=(10,)))
    run.manifest["plan"]["implementations"][0]["framework"] = "deepbench"
    figure = figures.winners(run)
    (board,) = panels(figure).values()
    assert {text for text, _ in board.values()} == {"PT\n1.50x\nC++ 2x"}
    assert legend(figure) == ["pytorch: fastest at 6 of 6"]
    assert any("C++ reference" in text for text in texts(figure))


def test_each_class_of_accuracy_has_winners_of_its_own_and_so_have_all():
    rows = grid(["pytorch", "tf-mode0", "pytorch-half", "tf-mode0-amp"])
    for row in rows:
        if row.implementation.endswith(("half", "amp")):
            row.precision, row.latency_s = "fp16", row.latency_s / 100
    drawn = figures.drawn(run_of(rows))
    assert legend(drawn["winners-fp32"]) == ["pytorch: fastest at 18 of 18"]
    assert legend(drawn["winners-half"]) == ["pytorch-half: fastest at 18 of 18"]
    assert "Fastest in half precision" in " ".join(texts(drawn["winners-half"]))
    assert legend(drawn["winners-any"]) == ["pytorch-half: fastest at 18 of 18"]
    assert "Fastest in any precision" in " ".join(texts(drawn["winners-any"]))


def test_a_win_within_the_noise_is_pale_and_says_so():
    rows = [cell("pytorch", 1.0), cell("tf-mode0", 1.0), cell("tf-mode0", 1.0, copy=2)]
    (spot,) = panels(figures.winners(run_of(rows)))["timesteps 1"].values()
    assert spot == ("PT\nsame", style_of("pytorch").colour + figures.PALE)


def test_of_very_many_timesteps_some_panels_are_shown_and_the_figure_says_so():
    figure = figures.winners(run_of(grid("ab", (8,), (1,), range(1, 60))))
    assert len(panels(figure)) == 20
    assert any("20 of 59 panels are shown" in text for text in texts(figure))


def test_the_passes_have_panels_of_their_own():
    rows = [cell(n, s) for n, s in (("a", 1.0), ("b", 2.0)) for _ in range(2)]
    for row in rows[::2]:
        row.shape = dataclasses.replace(row.shape, training=True)
    boards = panels(figures.winners(run_of(rows)))
    assert {name: len(board) for name, board in boards.items()} == {
        "timesteps 1": 1,
        "timesteps 1, training": 1,
    }


def test_what_was_not_measured_stays_empty():
    rows = [cell(n, s, hidden=h, batch=h) for n, s in (("a", 1.0), ("b", 2.0)) for h in (8, 16)]
    (board,) = panels(figures.winners(run_of(rows))).values()
    assert set(board) == {(0, 0), (1, 1)}


def test_amps_gain_is_the_time_without_it_over_the_time_with_it():
    def seconds(name, h, b, t):
        return (1.0 if h == 8 else 0.25) if name.endswith("-amp") else 0.5

    run = run_of(grid(["pytorch", "pytorch-amp", "tf-mode1", "tf-mode1-amp"], seconds=seconds))
    figure = figures.amp_gain(run)
    actual = panels(figure)
    assert list(actual) == ["pytorch", "tf-mode1"]
    same = [cell(name, 1.0) for name in ("pytorch", "pytorch-amp")]
    ((spot,),) = [board.values() for board in panels(figures.amp_gain(run_of(same))).values()]
    assert spot == ("(1.00)", colors.to_hex(matplotlib.colormaps["RdBu"](0.5), True))
    slow, fast = actual["tf-mode1"][0, 0], actual["tf-mode1"][1, 0]
    assert (slow[0], fast[0]) == ("0.50", "2.00")
    ends = matplotlib.colormaps["RdBu"](0.0), matplotlib.colormaps["RdBu"](1.0)
    assert (slow[1], fast[1]) == tuple(colors.to_hex(end, True) for end in ends)
    assert any("faster at 18 and slower at 18 of 36 cells" in text for text in texts(figure))
    ticks = {tick.get_text() for tick in figure.axes[-1].get_xticklabels()}
    assert ticks == {"2x slower", "1.5x slower", "equal", "1.5x faster", "2x faster"}


def test_of_many_timesteps_amps_gain_is_the_geometric_mean():
    def seconds(name, h, b, t):
        return 1.0 if not name.endswith("-amp") else 1 / t

    run = run_of(grid(["pytorch", "pytorch-amp"], timesteps=(1, 2, 4, 8, 16), seconds=seconds))
    actual = panels(figures.amp_gain(run))
    assert {text for board in actual.values() for text, _ in board.values()} == {"4.00"}


def test_every_figure_is_written_twice_and_the_same_run_gives_the_same_bytes(tmp_path):
    run = run_of(grid(hidden=(8,), timesteps=(10, 100)))
    first = figures.write(run, tmp_path / "new" / "folder")
    stems = ["time-by-batch-all", "time-by-batch-pytorch", "time-by-timesteps-all"]
    stems += ["time-by-timesteps-pytorch", "time-by-hidden-all", "winners-fp32", "amp-gain"]
    assert {p.name for p in first} == {f"{s}.{end}" for s in stems for end in ("png", "svg")}
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "none"}):
        second = figures.write(run_of(grid(hidden=(8,), timesteps=(10, 100))), tmp_path)
    for path, again in zip(first, second, strict=True):
        assert path.read_bytes() == again.read_bytes()
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
            continue
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert b"<text" not in path.read_bytes()  # no font is needed to look at it


ODD = [
    "$x^2$",
    "_under_score",
    "<script>&amp;",
    "$unclosed",
    r"\frac{1}{2}",
    "Größe",
    "%s {0} --> ",
]


def test_markup_in_names_is_not_interpreted():
    run = run_of(grid(ODD, timesteps=(10,)), cpu="$g$ <i>")
    assert sorted(legend(figures.time_by(run, "batch"))) == sorted(ODD)
    for figure in (figures.time_by(run, "batch"), figures.winners(run)):
        odd = [text for text in figure.findobj(Text) if "$" in text.get_text()]
        assert odd
        assert not any(text.get_parse_math() for text in odd)
        written = io.BytesIO()
        figure.savefig(written, format="svg")
        tags = {e.tag.rpartition("}")[2] for e in ElementTree.fromstring(written.getvalue()).iter()}
        assert not tags & {"script", "b", "i"}


def test_labels_have_characters_of_the_font_and_keep_both_ends_of_long_names():
    names = ["\N{CJK UNIFIED IDEOGRAPH-6F22}", "a\nb\tc", *(f"{'x' * 200}-{n}" for n in range(3))]
    figure = figures.time_by(run_of(grid(names)), "batch")
    figure.draw_without_rendering()
    labels = legend(figure)
    assert labels[3:] == [r"a\nb\tc", r"\u6f22"]
    assert {label[-2:] for label in labels[:3]} == {"-0", "-1", "-2"}
    (ax,) = figure.axes
    assert ax.get_window_extent().width > 0.5 * figure.bbox.width


def one_shape():
    return grid(hidden=(8,), batch=(1,), timesteps=(10,))


def interrupted():
    rows = grid()[:20]
    return [*rows, cell("deepbench", None, 64, 16, 1000, status="interrupted")]


def wide(name, hidden, width):
    made = cell(name, 1.0, hidden)
    made.shape = dataclasses.replace(made.shape, input_size=width)
    return made


def failing():
    rows = grid()
    for row in rows[::4]:
        row.status, row.latency_s, row.round_latency_s = "oom", None, []
    rows[1].latency_s = math.nan
    return rows


def nothing_of_one():
    rows = grid()
    for row in rows:
        if row.implementation == "pytorch":
            row.status, row.latency_s, row.round_latency_s = "crashed", None, []
    return rows


ALL = {"amp-gain", "winners-fp32", "time-by-batch-all", "time-by-timesteps-all"}
ALL |= {"time-by-hidden-all", "time-by-batch-pytorch", "time-by-timesteps-pytorch"}
TIMES = {stem for stem in ALL if stem.startswith("time-by")}
OTHERS = {stem for stem in ALL if not stem.endswith("pytorch")} - {"amp-gain"}
LONG, STEPS = "some-long-name-" * 5, (10, 100, 1000, 10000)
RUNS = {
    "one implementation": (grid(["pytorch"]), TIMES),
    "one made-up implementation": (grid(["x"]), {stem for stem in TIMES if "all" in stem}),
    "one shape": (one_shape(), ALL),
    "one cell": (one_shape()[:1], {stem for stem in TIMES if "all" in stem}),
    "one value on an axis": (grid(batch=(4,)), ALL),
    "failed cells": (failing(), ALL),
    "nothing of one": (nothing_of_one(), ALL - {"amp-gain"}),
    "nothing of any": ([cell("a", None, status="oom", round_latency_s=[])], set()),
    "interrupted": (interrupted(), ALL),
    "no rounds": ([cell(n, 1.0, round_latency_s=[]) for n in NAMES], ALL),
    "forty implementations": (
        grid([f"{'ab' * (n % 9)}{n}" for n in range(40)], (8,), (1, 4), (10,)),
        OTHERS,
    ),
    "long names": (
        grid([f"{LONG}{n}{end}" for n in range(3) for end in ("", "-amp")], (8,), (1, 2), STEPS),
        OTHERS | {"amp-gain"},
    ),
    "odd names": (grid(ODD, timesteps=(10,)), OTHERS),
    "many sizes": (grid(("a", "b"), range(1, 26), range(1, 15), (10,)), OTHERS),
    "many timesteps": (grid(hidden=(8,), batch=(1,), timesteps=range(1, 31)), ALL),
    "inputs of their own": (
        [wide(n, h, i) for n in NAMES for h in (8, 16) for i in (8, 32)],
        ALL,
    ),
    "a wide span": (
        [cell(n, s, batch=b) for n in "ab" for b, s in ((1, 1e-7), (2**40, 1e3))],
        OTHERS,
    ),
    "empty": ([], set()),
}


@pytest.mark.parametrize("kind", RUNS)
def test_every_run_gives_the_figures_it_has_data_for_and_no_text_meets_another(kind):
    rows, stems = RUNS[kind]
    drawn = figures.drawn(run_of(rows))
    assert set(drawn) == stems
    for figure in drawn.values():
        no_text_meets_another(figure)
        assert figure.get_figheight() < 200  # Matplotlib cannot write more


def test_a_run_without_results_writes_nothing(tmp_path):
    assert figures.write(run_of([]), tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def test_a_figure_says_where_it_comes_from_and_how_noisy_that_is():
    rows = [cell("a", 1.0), cell("a", 1.1, copy=2), cell("b", 2.0)]
    (about,) = [t for t in texts(figures.time_by(run_of(rows), "batch")) if "made-up" in t]
    assert "Some CPU, 2 threads, seed 1, AMP in auto; run made-up, 1 of 1 shape" in about
    assert "noise floor 10.0%" in about
    (about,) = [t for t in texts(figures.winners(run_of([*rows, rows[0]]))) if "made-up" in t]
    assert "noise floor 10.0%" in about
    quiet = run_of([cell("a", 1.0)])
    (about,) = [t for t in texts(figures.time_by(quiet, "batch")) if "made-up" in t]
    assert "noise floor not measured" in about
