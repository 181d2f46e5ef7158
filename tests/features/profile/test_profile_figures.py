"""The figures of profiles draw what the profiles say."""

import io

import pytest
from builders import cell, no_text_meets_another, operators, profile
from builders import profiled as run_of
from matplotlib import colors
from matplotlib.text import Text

from lstm_bench.features.profile import figures as profile_figures
from lstm_bench.features.profile.families import FAMILIES
from lstm_bench.model.profile import Activity, Part
from lstm_bench.report.colours import contrast

pytestmark = pytest.mark.filterwarnings("error")

SHAPES = [(64, 1, 10), (128, 1, 10), (256, 1, 10)]
RAW = "_Z16gemmSN_TN_kernelIf"


def run(folder, *names, **more):
    return run_of(folder / "run", *((cell(n, s), profile(**more)) for n in names for s in SHAPES))


def bars(figure):
    """The segments of each bar: colour, from, width."""
    (ax,) = figure.axes
    actual = {label.get_text(): [] for label in ax.get_yticklabels()}
    names = list(actual)
    for patch in ax.patches:
        place = round(patch.get_y() + patch.get_height() / 2)
        segment = (colors.to_hex(patch.get_fc()), patch.get_x(), patch.get_width())
        actual[names[place]].append(segment)
    return actual


def texts(figure):
    return [text.get_text().replace("\n", " ") for text in figure.findobj(Text)]


def test_a_bar_is_the_busy_time_by_family_at_the_middle_shape(tmp_path):
    figure = profile_figures.drawn(run(tmp_path, "deepbench", "pytorch"))["kernel-families"]
    actual = bars(figure)
    assert list(actual) == ["deepbench", "pytorch"]
    colours = [profile_figures.COLOURS[f] for f in ("recurrent GEMM", "input GEMM", "cell")]
    assert [segment[0] for segment in actual["pytorch"]] == colours
    assert [segment[2] for segment in actual["pytorch"]] == pytest.approx([0.6, 0.1, 0.3])
    assert any("at 128,1,10" in text for text in texts(figure))
    assert texts(figure).count("200 us / 1 ms") == 2


def test_activity_is_shares_of_the_latency_that_add_up(tmp_path):
    made = run(tmp_path, "deepbench", busy=0.5e-3, kernel_s=0.4e-3)
    (actual,) = bars(profile_figures.drawn(made)["gpu-activity"]).values()
    assert [segment[2] for segment in actual] == pytest.approx([0.4, 0.1, 0.5])
    assert [segment[0] for segment in actual] == list(profile_figures.ACTIVITY.values())


def test_a_device_that_was_busy_for_longer_than_the_latency_has_no_idle_time(tmp_path):
    made = run(tmp_path, "a", busy=1.2e-3)
    (actual,) = bars(profile_figures.drawn(made)["gpu-activity"]).values()
    assert [segment[2] for segment in actual] == pytest.approx([1.0])


def test_a_cpu_has_its_operators_by_family(tmp_path):
    made = run_of(tmp_path / "run", (cell("pytorch", device="cpu"), operators()), device="cpu")
    figures = profile_figures.drawn(made)
    assert list(figures) == ["operator-families"]
    (actual,) = bars(figures["operator-families"]).values()
    assert [segment[2] for segment in actual] == pytest.approx([0.75, 0.125, 0.125])


def test_what_cannot_be_trusted_is_not_drawn(tmp_path):
    assert profile_figures.drawn(run(tmp_path, "a", problem="lost")) == {}
    assert profile_figures.drawn(run_of(tmp_path / "bare", (cell("a"), None))) == {}


@pytest.mark.parametrize("rows", [1, 20])
def test_no_two_texts_overlap_and_none_leaves_the_page(tmp_path, rows):
    names = [f"deepbench-persist-dynamic-{n}" for n in range(rows)]
    parts = [Part(f, "kernel", 1.0, 1e-4) for f in ("RNN_persist", "xmma", "cast", "transpose")]
    parts += [Part(f, "kernel", 1.0, 1e-4) for f in ("tanh", "copy", "zeros", "nobody")]
    made = run(tmp_path, *names, parts=parts, busy=8e-4, kernel_s=4e-4)
    for figure in profile_figures.drawn(made).values():
        figure.savefig(io.BytesIO(), dpi=figure.dpi)
        no_text_meets_another(figure)


def test_every_family_has_a_colour_of_its_own_that_shows_on_white():
    assert tuple(profile_figures.COLOURS) == FAMILIES
    assert len(set(profile_figures.COLOURS.values())) == len(FAMILIES)
    for colour in profile_figures.COLOURS.values():
        assert contrast(colour, "#ffffff") > 1.25


def call(start, late=0):
    """A launch, a product in every one of two steps, and a cell that overlaps the last one."""
    steps = [
        Activity("launch", "cudaLaunchKernel", start + 1000, start + 2000, correlation=start + 1),
        Activity("kernel", RAW, start + 3000, start + 5000, correlation=start + 1),
        Activity("kernel", RAW, start + 6000, start + 8000 + late, correlation=start + 1),
        Activity("kernel", "elemWiseRNNcell", start + 7000, start + 9000, correlation=start + 1),
    ]
    return steps, (start, start + 10_000 + late)


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_timeline_is_the_call_of_median_length(tmp_path, ending):
    (short, first), (middle, second), (long, third) = call(0), call(20_000, 500), call(50_000, 900)
    figure = profile_figures.timeline(
        [*short, *middle, *long],
        [first, second, third],
        tmp_path / f"x.{ending}",
        timesteps=2,
        title="a at 8,1,2",
    )
    assert (tmp_path / f"x.{ending}").stat().st_size > 1000
    (ax,) = figure.axes
    assert ax.get_xlim() == pytest.approx((0, 10.5))
    drawn = {}
    for bar in ax.collections:
        colour = colors.to_hex(bar.get_facecolor()[0])
        spans = [(p.vertices[:, 0].min(), p.vertices[:, 0].max()) for p in bar.get_paths()]
        drawn.setdefault(colour, []).extend(spans)
    assert drawn[profile_figures.COLOURS["recurrent GEMM"]] == [
        *(pytest.approx((3, 5)), pytest.approx((6, 8.5)))
    ]
    assert drawn[profile_figures.COLOURS["cell"]] == [pytest.approx((7, 9))]
    assert drawn[profile_figures.GREY] == [pytest.approx((1, 2))]
    heights = {round(p.vertices[:, 1].min(), 3) for bar in ax.collections for p in bar.get_paths()}
    assert len(heights) == 3  # the host, and two lanes
