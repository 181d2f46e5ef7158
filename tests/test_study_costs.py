"""What the study says of headroom, casts and choice, and the shape and words of its figures."""

import pytest
from made_up_profiles import KERNELS, cell, profile, run_of
from made_up_study import BATCH, SHAPES, at, by_batch, cells_of, either
from matplotlib.text import Text

from lstm_bench import profile_figures
from lstm_bench.model import Check, Shape
from lstm_bench.profile import Part
from lstm_bench.study import casts, choice, headroom
from lstm_bench.study.subject import Runs, Subject

CAST = "float16_copy_kernel"
PERSISTENT = [Part("RNN_persist_fp", "kernel", 1.0, 150e-6)]
MS, US = 1e-3, 1e-6


def subject_of(folder, factors, profiles=None, change=lambda record: None):
    cells = cells_of(factors, profiles)
    for record, _ in cells:
        change(record)
    return Subject(run_of(folder / "h200-paper", *cells))


def said(section):
    return " ".join(section.written().split())


def short_of(section):
    return " ".join(section.short.split())


def by_ends(small, middle, large):
    """Of one factor at the smallest batch, another at the largest, a third between."""
    return lambda shape: {BATCH[0]: small, BATCH[-1]: large}.get(shape[1], middle)


# headroom


def test_headroom_is_told_at_both_ends_of_the_batch(tmp_path):
    one = subject_of(tmp_path, {"deepbench-best": by_ends(0.125, 0.5, 0.8)})
    found = headroom.section(Runs(paper=one))
    told = (
        "`pytorch` 8.0x slower (8.0x to 8.0x) at batch 1 and 1.25x slower (1.25x to 1.25x) at batch"
    )
    assert told in " ".join(found.short.split())
    assert "| batch 16 | 2.0x [2.0, 2.0] |" in said(found)


def test_headroom_at_the_smallest_batch_says_what_is_pytorchs_own(tmp_path):
    rows = {"deepbench": 0.8, "deepbench-graph": 0.4, "deepbench-best": by_ends(0.2, 0.4, 0.4)}
    short = short_of(headroom.section(Runs(paper=subject_of(tmp_path, rows))))
    assert (
        "`pytorch`'s 5.00x at batch 1 is a product: 1.25x by PyTorch itself, 2.00x by the graph"
        " and 2.00x by the algorithm." in short
    )


def test_headroom_within_the_noise_is_not_called_one(tmp_path):
    one = subject_of(tmp_path, {"deepbench-best": by_ends(0.125, 0.5, 0.999)})
    found = headroom.section(Runs(paper=one))
    told = "8.0x slower (8.0x to 8.0x) at batch 1 and no clear difference at batch 256"
    assert told in " ".join(found.short.split())
    assert "| batch 256 | (1.00x [1.00, 1.00]) |" in said(found)


@pytest.mark.parametrize(
    ("factors", "told"),
    [
        ({}, "PyTorch in a CUDA graph was not measured."),
        ({"pytorch-graph": 0.6}, "`pytorch-graph`."),
    ],
)
def test_a_graph_is_not_cudnns_and_a_framework_that_has_one_is_named(tmp_path, factors, told):
    one = subject_of(tmp_path, {"deepbench-best": 0.5, **factors})
    text = said(headroom.section(Runs(paper=one)))
    assert "cuDNN's best algorithm, in a CUDA graph where that is faster (below: the best" in text
    told_of = text.split("users of PyTorch may capture one too")[1]
    assert told_of[2:].startswith(told)
    caveat = "PyTorch in a CUDA graph was not measured."
    short = " ".join(headroom.section(Runs(paper=one)).short.split())
    assert short.endswith(caveat) == (not factors)


def test_the_whole_is_the_product_of_pytorch_the_graph_and_the_algorithm(tmp_path):
    factors = {"deepbench": 1.25, "deepbench-graph": 0.5, "deepbench-best": by_batch(0.1, 0.4)}
    one = subject_of(tmp_path, factors)
    steps = headroom.steps_of(one, headroom.STEPS)
    assert list(steps["pytorch"] * steps["deepbench"] * steps["deepbench-graph"]) == pytest.approx(
        [10.0 if batch <= 16 else 2.5 for batch in steps["batch"]]
    )
    text = said(headroom.section(Runs(paper=one)))
    assert "5.00x as long as the best of cuDNN, 0.80x by PyTorch against `deepbench`, 2.50x" in text
    assert "its own choice of algorithm" not in text
    assert "| batch 1 | 10.00x | 0.80x | 2.50x | 5.00x |" in text


@pytest.mark.parametrize("alone", [16, 0])
def test_pytorchs_own_factor_is_told_where_it_runs_the_same_algorithm(tmp_path, alone):
    """In one kernel at one batch it is faster than the baseline, elsewhere slower."""
    factors = {"deepbench-graph": 0.5, "deepbench-best": 0.4}
    factors["deepbench"] = lambda shape: 2.0 if shape[1] == 16 else 0.8

    def made(shape, latency):
        return profile(parts=PERSISTENT if shape[1] == alone else KERNELS)

    one = subject_of(tmp_path, factors, {"pytorch": made})
    text = said(headroom.section(Runs(paper=one)))
    told = "at the 12 shapes where it goes step by step as `deepbench` does, it is 1.25x."
    assert (told in text) == ("its own choice of algorithm" in text) == (alone == 16)


def test_without_a_row_between_the_whole_is_not_taken_apart(tmp_path):
    one = subject_of(tmp_path, {"deepbench": 1.25, "deepbench-best": 0.1})
    assert "is a product" not in said(headroom.section(Runs(paper=one)))


@pytest.mark.parametrize(("error", "word"), [(1e-5, "is less exact"), (2e-6, "is no less exact")])
def test_the_best_is_less_exact_only_if_its_error_is_larger(tmp_path, error, word):
    def change(record):
        best = record.implementation == "deepbench-best"
        persistent = best and record.shape.batch == 1
        record.path = "cuDNN 9 persist-static, graph" if persistent else "cuDNN 9 standard"
        found = error if persistent else 1e-3 if best else 1.5e-6
        record.check = Check(found, found, 5e-5, True)

    profiles = {"pytorch": lambda shape, latency: profile(parts=PERSISTENT)}
    one = subject_of(tmp_path, {"deepbench": 1.0, "deepbench-best": 0.5}, profiles, change)
    text = said(headroom.section(Runs(paper=one)))
    assert f"{word} than `deepbench` where it runs a persistent algorithm, at 4 shapes" in text
    assert f"there: {error:.0e}, `deepbench` 2e-06; `pytorch` where it is one kernel" in text


def test_nothing_is_said_of_exactness_where_only_standard_runs(tmp_path):
    def change(record):
        record.path, record.check = "cuDNN 9 standard, graph", Check(1e-6, 1e-6, 5e-5, True)

    one = subject_of(tmp_path, {"deepbench": 1.0, "deepbench-best": 0.5}, change=change)
    assert "exact" not in said(headroom.section(Runs(paper=one)))


@pytest.mark.parametrize(
    "name", ["standard", "persist-static", "persist-dynamic", "persist-static-small-h"]
)
def test_the_table_of_algorithms_fits_the_page(tmp_path, name):
    def change(record):
        record.path = f"cuDNN 9 {name}, graph"

    one = subject_of(tmp_path, dict.fromkeys(headroom.BEST, 0.5), change=change)
    lines = headroom.section(Runs(paper=one)).written().splitlines()
    assert max(map(len, lines)) <= 100


def test_the_title_of_a_figure_is_the_finding_with_two_digits(tmp_path):
    one = subject_of(tmp_path, {"deepbench-best": by_ends(1 / 7.531, 0.5, 1 / 1.316)})
    title = headroom.title_of(one.pair("deepbench-best", "pytorch"))
    assert title == "pytorch over the best of cuDNN: 7.5x at batch 1, 1.3x at batch 256"
    assert headroom.about(123.4) == "120x"


# casts


def amp_of(folder, adds, on_gpu=10 * US, launches=20 * US):
    """`adds` is what AMP adds to a call in seconds; `on_gpu` of it are casts."""

    def value(of, shape):
        return of(shape) if callable(of) else of

    def with_amp(shape, latency):
        own = Part(CAST, "kernel", 5.0, value(on_gpu, shape))
        busy = 200 * US + value(on_gpu, shape)
        return profile(busy, latency, [*KERNELS, own], launch_s=51 * US + launches)

    factors = {"pytorch-half": 1.0, "pytorch-amp": lambda shape: 1 + value(adds, shape) / MS}
    half = {"pytorch-half": lambda shape, latency: profile()}
    return subject_of(folder, factors, {**half, "pytorch-amp": with_amp})


@pytest.mark.parametrize(
    ("adds", "told"),
    [
        (at(2, 100 * US, 500 * US), "By timesteps it is 100 us at 10 and 500 us at 1000."),
        (-100 * US, "AMP adds nothing"),
    ],
)
def test_what_amp_adds_is_told_of_short_and_of_long_calls(tmp_path, adds, told):
    text = casts.section(Runs(paper=amp_of(tmp_path, adds))).written()
    assert told in " ".join(text.split())


def test_what_amp_adds_in_a_second_run_stands_beside_it(tmp_path):
    one, other = (amp_of(tmp_path / name, adds) for name, adds in (("a", 2e-4), ("b", 3e-4)))
    short = short_of(casts.section(Runs(paper=one, repeats=(other,))))
    assert (
        "AMP adds 200 us to a call (quartiles 200 us to 200 us; in `h200-paper` 300 us)." in short
    )


@pytest.mark.parametrize(
    ("on_gpu", "told"),
    [
        (
            10 * US,
            "is 2% of what AMP adds (10 us in the median, 10 us at hidden 128). What the host",
        ),
        (300 * US, "(300 us in the median, 300 us at hidden 128), at least half of it."),
        (lambda shape: 200 * US * either(shape) ** 0.5, "cannot be told whether it is half of it."),
    ],
)
def test_casts_are_the_bottleneck_only_if_they_are_half_of_what_amp_adds(tmp_path, on_gpu, told):
    one = amp_of(tmp_path, 400 * US, on_gpu)
    assert told in short_of(casts.section(Runs(paper=one)))


def test_what_is_neither_the_gpus_nor_inside_launches_is_called_not_profiled(tmp_path):
    text = said(casts.section(Runs(paper=amp_of(tmp_path, 400 * US))))
    assert "AMP adds 400 us to a call (quartiles 400 us to 400 us)" in text
    assert "Of this 10 us is time of the GPU and, while watched, 20 us is inside launches" in text
    assert "the rest, 92% of it, was not profiled" in text
    assert "| timesteps 1000 | 8 | 400 us | 400 us to 400 us | 10 us | 10 us | 20 us |" in text


def test_launches_that_explain_it_all_leave_no_rest(tmp_path):
    text = said(casts.section(Runs(paper=amp_of(tmp_path, 400 * US, launches=500 * US))))
    assert "nothing is left" in text
    assert "was not profiled" not in text


# choice


def test_what_half_gains_is_told_apart_by_the_algorithm(tmp_path):
    def half(shape, latency):
        return profile(parts=PERSISTENT if shape[1] == 16 else KERNELS)

    factors = {"pytorch-half": lambda shape: 0.2 if shape[1] == 16 else 0.5}
    profiles = {"pytorch": lambda shape, latency: profile(), "pytorch-half": half}
    text = said(choice.section(Runs(paper=subject_of(tmp_path, factors, profiles))))
    assert "gains 2.00x at the 12 shapes where both precisions run the recurrence alike" in text
    assert "5.00x at the 4 shapes where one runs it as one kernel" in text


def test_without_profiles_nothing_is_said_of_algorithms(tmp_path):
    text = said(choice.section(Runs(paper=subject_of(tmp_path, {"pytorch-half": 0.5}))))
    assert "one kernel" not in text
    assert "how many times faster half precision is than fp32" in text


@pytest.mark.parametrize("on", [False, True])
def test_a_run_without_tf32_says_what_that_means_for_fp32(tmp_path, on):
    one = subject_of(tmp_path, {"pytorch-half": 0.5})
    one.run.manifest["plan"]["settings"]["tf32"] = on
    text = said(choice.section(Runs(paper=one)))
    assert ("it would give fp32 was not measured" in text) is not on


@pytest.mark.parametrize(
    ("factor", "told"),
    [
        (1.1, "1.10x (1.10x to 1.10x) and 1.10x (1.10x to 1.10x) slower at batch 1 and 16"),
        (1.002, "not faster at batch 1 and 16: it takes 1.00x (1.00x to 1.00x) and 1.00x"),
        (either, "not to be told from fp32 at batch 1 and 16"),
    ],
)
def test_where_half_precision_does_not_pay_it_says_what_it_is(tmp_path, factor, told):
    def factors(shape):
        return (factor(shape) if callable(factor) else factor) if shape[1] <= 16 else 0.5

    one = subject_of(tmp_path, {"pytorch-half": factors})
    short = short_of(choice.section(Runs(paper=one)))
    twice = "2.00x (2.00x to 2.00x)"
    assert f"is {twice} and {twice} faster at batch 64 and 256 and {told}" in short


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (1.2, "Stay with fp32 at batch 1 and 16. "),
        (0.5, "or measure your own: at DeepBench's shapes it takes 0.50x (0.50x to 0.50x) as long"),
        (either, "as long, slower at 4 and faster at 4 of 8 shapes."),
    ],
)
def test_advice_against_half_precision_tells_of_a_run_that_speaks_for_it(tmp_path, there, told):
    one = subject_of(
        tmp_path / "one", {"pytorch-half": lambda shape: 1.1 if shape[1] <= 16 else 0.5}
    )
    other = subject_of(tmp_path / "other", {"pytorch-half": there})
    short = short_of(choice.section(Runs(paper=one, deepbench=other)))
    assert told in short


def used(section):
    """Batch, timesteps and the column `use` of the table of choices."""
    lines = [line.split("|")[1:4] for line in section.body[1].splitlines()[2:]]
    return {tuple(map(int, line[:2])): line[2].strip() for line in map(list, lines)}


def test_what_to_use_is_in_brackets_where_the_other_precision_is_as_fast(tmp_path):
    """Half is faster by far, but not at hidden 128 and batch 1, and with AMP as without."""

    def half(shape):
        return 0.999 if shape[:2] == (128, 1) else 0.5

    one = subject_of(tmp_path, {"pytorch-half": half, "pytorch-amp": lambda s: 1.001 * half(s)})
    found = used(choice.section(Runs(paper=one)))
    assert found[1, 10] == "(pytorch-half)"
    assert found[16, 10] == "pytorch-half"


def test_ratios_have_times_beside_them(tmp_path):
    rows = {"pytorch-half": 0.5, "deepbench-best": by_ends(0.125, 0.5, 0.8)}
    text = said(choice.section(Runs(paper=subject_of(tmp_path, rows))))
    assert "At hidden 1024 and 1000 timesteps calls take:" in text
    assert "| latency | batch 1 | batch 16 | batch 64 | batch 256 |" in text
    assert "| `deepbench-best` | 125 us | 500 us | 500 us | 800 us |" in text
    assert "| `pytorch-half` | 500 us | 500 us | 500 us | 500 us |" in text


# figures


def test_kernels_are_drawn_where_rows_run_what_they_run_at_most_shapes(tmp_path):
    sizes = [(64, 1, 10), (128, 1, 10), (256, 1, 10), (512, 1, 10), (1024, 1, 10)]

    def parts(name, shape):
        return PERSISTENT if name == "pytorch" and shape[0] in (256, 512) else KERNELS

    cells = [
        (cell(name, shape), profile(parts=parts(name, shape)))
        for name in ("deepbench", "pytorch")
        for shape in sizes
    ]
    one = Subject(run_of(tmp_path / "run", *cells))
    assert profile_figures.usual(one.splits) == Shape(128, 1, 10, 128)
    alike = [split for split in one.splits if split.name == "deepbench"]
    assert profile_figures.usual(alike) == Shape(256, 1, 10, 256)


def test_a_shape_that_most_rows_have_comes_before_their_usual_families(tmp_path):
    cells = [(cell("deepbench", shape), profile()) for shape in SHAPES[:3]]
    cells.append((cell("pytorch", SHAPES[2]), profile()))
    one = Subject(run_of(tmp_path / "run", *cells))
    assert profile_figures.usual(one.splits).label == "{},{},{}".format(*SHAPES[2])


@pytest.mark.parametrize("stretched", [False, True])
def test_activity_has_the_latency_beside_each_bar_and_no_share_of_another_call(tmp_path, stretched):
    busy = 2 * MS if stretched else 0.5 * MS
    one = Subject(run_of(tmp_path / "run", (cell("deepbench"), profile(busy, launch_s=0.4 * MS))))
    figure = profile_figures.activity(one.run, one.splits)
    texts = [text.get_text().replace("\n", " ") for text in figure.findobj(Text)]
    assert "1 ms" in texts
    assert not any("launching" in text.lower() for text in texts)
    assert any("counts as active throughout" in text for text in texts) is stretched
