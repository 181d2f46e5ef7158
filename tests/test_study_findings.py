"""The paper's findings: the data choose the word for each, and the reason that stands beside it."""

from pathlib import Path

import pytest
from made_up_profiles import cell, profile, run_of
from made_up_study import HIDDEN, at, busy, by_batch, cells_of, either

from lstm_bench import split
from lstm_bench.comparison import Group
from lstm_bench.intervals import Statistic
from lstm_bench.profile import Part
from lstm_bench.study import amp, findings, launches, modes, rules, subject, twins
from lstm_bench.study.rules import DEPENDS, HOLDS, HOLDS_NOT, UNKNOWN
from lstm_bench.study.subject import Runs, Subject
from lstm_bench.units import WIDTH

ROOT = Path(__file__).resolve().parent.parent
PERSIST = Part("RNN_persist_fp_LSTM", "kernel", 1.0, 90e-6)
PRODUCT = Part("sm80_xmma_gemm_f32f32", "kernel", 1.0, 10e-6)
REPACK = Part("SwapDimension1And2InTensor3", "kernel", 5.0, 40e-6)


def rarely(factor):
    """A factor at two of sixteen shapes, at most one of four; the others are nearly equal."""

    def made(shape):
        rare = shape[0] == HIDDEN[-1] and shape[2] == 1000 and shape[1] in (1, 256)
        return factor if rare else 1 + 0.0005 * either(shape)

    return made


@pytest.fixture
def of(tmp_path):
    """A run of these factors; underscores stand for hyphens."""

    def made(profiles=None, **factors):
        named = {name.replace("_", "-"): factor for name, factor in factors.items()}
        return Subject(run_of(tmp_path / "h200-paper", *cells_of(named, profiles)))

    return made


def found(one, claim):
    """The finding whose claim begins so."""
    (finding,) = [f for f in findings.findings(one) if f.claim.startswith(claim)]
    return finding


@pytest.mark.parametrize(
    ("claim", "factors", "word"),
    [
        ("PyTorch is slower than DeepBench", {"deepbench_skip": 0.5}, HOLDS),
        ("PyTorch is slower than DeepBench", {"deepbench_skip": 2.0}, HOLDS_NOT),
        ("PyTorch is slower than DeepBench", {"deepbench": 0.5}, UNKNOWN),
        ("PyTorch beats DeepBench", {"deepbench_skip": by_batch(0.5, 1.5)}, HOLDS),
        ("PyTorch beats DeepBench", {"deepbench_skip": by_batch(1.5, 0.5)}, HOLDS_NOT),
        ("PyTorch beats DeepBench", {"deepbench_skip": either}, DEPENDS),
        ("PyTorch beats DeepBench", {"deepbench_skip": rarely(1.5)}, UNKNOWN),
        ("PyTorch falls behind with", {"deepbench_skip": at(2, 0.8, 0.4)}, HOLDS),
        ("PyTorch falls behind with", {"deepbench_skip": at(2, 0.4, 0.8)}, HOLDS_NOT),
        ("PyTorch falls behind with", {"deepbench_skip": either}, UNKNOWN),
        ("PyTorch beats TensorFlow", {"tf_mode0": 3.0}, HOLDS),
        ("PyTorch beats TensorFlow", {"tf_mode0": 0.5}, HOLDS_NOT),
        ("PyTorch beats TensorFlow", {"tf_mode0": 1.001}, HOLDS_NOT),
        ("PyTorch beats TensorFlow", {"tf_mode0": either}, DEPENDS),
        ("PyTorch beats TensorFlow", {"tf_mode0": rarely(1.5)}, UNKNOWN),
        ("PyTorch beats TensorFlow", {}, UNKNOWN),
        ("modes 1 and 2 are slower", {"tf_mode0": 1, "tf_mode1": 9, "tf_mode2": 7}, HOLDS),
        ("modes 1 and 2 are slower", {"tf_mode0": 8, "tf_mode1": 9, "tf_mode2": 7}, HOLDS_NOT),
        ("modes 1 and 2 are slower", {"tf_mode0": 1, "tf_mode1": 9, "tf_mode2": either}, DEPENDS),
        ("mode 1 beats 2 up to", {"tf_mode1": 10, "tf_mode2": by_batch(15, 5)}, HOLDS),
        ("mode 1 beats 2 up to", {"tf_mode1": 10, "tf_mode2": by_batch(5, 5)}, HOLDS_NOT),
        ("mode 1 beats 2 up to", {"tf_mode1": 10, "tf_mode2": by_batch(15, 15)}, HOLDS_NOT),
        ("mode 1 beats 2 up to", {"tf_mode1": 1, "tf_mode2": either}, DEPENDS),
        ("mode 1 beats 2 from", {"tf_mode1": 10, "tf_mode2": at(2, 5, 15)}, HOLDS),
        ("mode 1 beats 2 from", {"tf_mode1": 10, "tf_mode2": at(2, 15, 5)}, HOLDS_NOT),
        ("mode 1 beats 2 from", {"tf_mode1": 1, "tf_mode2": either}, DEPENDS),
        ("AMP slows PyTorch", {"pytorch_amp": 1.5}, HOLDS),
        ("AMP slows PyTorch", {"pytorch_amp": 0.5}, HOLDS_NOT),
        ("AMP slows PyTorch", {"pytorch_amp": either}, DEPENDS),
        ("AMP slows PyTorch", {"pytorch_amp": rarely(1.5)}, UNKNOWN),
        ("AMP helps PyTorch at all", {"pytorch_amp": at(2, 0.9, 0.5)}, HOLDS),
        ("AMP helps PyTorch at all", {"pytorch_amp": at(2, 1.5, 0.5)}, HOLDS_NOT),
        ("AMP helps PyTorch at all", {"pytorch_amp": either}, DEPENDS),
        ("AMP gains with hidden size in PyTorch", {"pytorch_amp": at(0, 1.5, 0.5)}, HOLDS),
        ("AMP gains with hidden size in PyTorch", {"pytorch_amp": at(0, 0.5, 1.5)}, HOLDS_NOT),
        ("AMP gains with hidden size in PyTorch", {"pytorch_amp": 0.5}, HOLDS_NOT),
        ("AMP gains with hidden size in PyTorch", {"pytorch_amp": either}, UNKNOWN),
        ("AMP gains with timesteps in PyTorch", {"pytorch_amp": at(2, 1.5, 0.5)}, HOLDS),
        ("AMP gains with timesteps in PyTorch", {"pytorch_amp": at(2, 0.5, 1.5)}, HOLDS_NOT),
        (
            "AMP gains with hidden size in mode 0",
            {"tf_mode0": 2, "tf_mode0_amp": at(0, 3, 1)},
            HOLDS,
        ),
        ("AMP gains with timesteps in mode 0", {"tf_mode0": 2, "tf_mode0_amp": 2}, HOLDS_NOT),
        ("AMP helps mode 0 at large", {"tf_mode0": 2, "tf_mode0_amp": at(0, 3, 1)}, HOLDS),
        ("AMP helps mode 0 at large", {"tf_mode0": 2, "tf_mode0_amp": at(0, 1, 3)}, HOLDS_NOT),
        ("AMP helps mode 0 at large", {"tf_mode0": 1, "tf_mode0_amp": either}, DEPENDS),
    ],
)
def test_the_data_choose_the_word_for_a_finding(of, claim, factors, word):
    assert found(of(**factors), claim).word == word


@pytest.mark.parametrize(
    ("share", "word"),
    [(0.2, HOLDS), (0.8, HOLDS_NOT), (lambda s: 0.3 * either(s), UNKNOWN), (None, UNKNOWN)],
)
def test_modes_launch_kernels_as_far_as_the_gpu_waits_for_them(of, share, word):
    """Not by the share of launches in a recorded call, which is 1% in these."""
    profiles = {name: busy(share) for name in modes.MODES[1:]} if share else None
    one = of(profiles, tf_mode1=9.0, tf_mode2=7.0)
    finding = found(one, "modes 1 and 2 mostly prepare")
    assert finding.word == word
    if share == 0.2:
        assert finding.here == "the GPU waits 80%, 80% of a call"


@pytest.mark.parametrize(("kernels", "word"), [(52.0, HOLDS), (50.0, HOLDS_NOT)])
def test_kernels_are_counted(of, kernels, word):
    profiles = {
        "pytorch": lambda shape, latency: profile(),
        "tf-mode0": lambda shape, latency: profile(kernels=kernels),
    }
    assert found(of(profiles, tf_mode0=2.0), "mode 0 runs more kernels").word == word


def test_what_goes_both_ways_is_counted_and_not_called_unclear(of):
    assert found(of(pytorch_amp=either), "AMP slows").here == "faster at 8, slower at 8 of 16"


@pytest.mark.parametrize(
    ("faster", "slower", "shapes", "told"),
    [(3, 3, 30, True), (2, 28, 30, False), (28, 2, 30, False), (1, 1, 4, True), (0, 0, 0, False)],
)
def test_both_ways_means_a_tenth_each_way(faster, slower, shapes, told):
    words = {"faster": faster, "slower": slower, "same": shapes - faster - slower, "unsure": 0}
    nothing = Statistic(1.0, 0.5, 2.0)
    assert rules.both_ways(Group("all", (0, 0), shapes, nothing, nothing, words)) == told


def test_a_claim_of_parts_breaks_before_it_depends_and_depends_before_it_is_unknown():
    assert rules.both(HOLDS, DEPENDS, HOLDS_NOT) == HOLDS_NOT
    assert rules.both(HOLDS, DEPENDS, UNKNOWN) == DEPENDS
    assert rules.both(HOLDS, HOLDS) == HOLDS


def test_the_summary_counts_the_four_words_and_names_what_broke(of):
    one = of(tf_mode0=3.0, deepbench_skip=either, pytorch_amp=0.5)
    short = findings.section(Runs(paper=one)).short
    words = [finding.word for finding in findings.findings(one)]
    told = [f"{words.count(HOLDS)} hold", f"{words.count(HOLDS_NOT)} do not"]
    told += [f"{words.count(DEPENDS)} depend on the shape", f"{words.count(UNKNOWN)} cannot be"]
    assert ", ".join(told) in short
    assert "Not so here: AMP slows PyTorch on the whole" in short
    assert "Here at some shapes only: PyTorch is slower than DeepBench" in short


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("12x slower", "7.4x slower", "12x and 7.4x slower"),
        ("1.50x slower", "1.20x faster", "1.50x slower, 1.20x faster"),
        ("no clear difference", "no clear difference", "no clear difference"),
        ("12x slower", "no clear difference", "12x slower, no clear difference"),
    ],
)
def test_two_results_read_as_one(first, second, told):
    assert findings._joined(first, second) == told


def test_a_factor_that_falls_stands_beside_the_time_that_grows(of):
    steps = at(2, 1.0, 10.0)
    skip = at(2, 0.5, 9.0)
    one = of(pytorch=steps, deepbench_skip=skip)
    assert found(one, "PyTorch falls behind").here == "2.00x at 10, 1.11x at 1000"
    text = written(findings._deepbench(one))
    assert "takes 500 us more at 10 timesteps and 1 ms more at 1000 timesteps than one of" in text


def written(parts):
    return " ".join(" ".join(parts).split())


def persistent(where):
    """A profile in which one kernel holds the recurrence at some shapes; busy for a fifth."""

    def made(shape, latency):
        more = {"parts": [PERSIST, PRODUCT]} if where(shape) else {}
        return profile(0.2 * latency, latency, **more)

    return made


def never(shape):
    return False


def test_a_gain_of_amp_is_told_by_the_algorithm_it_comes_with(of):
    profiles = {"pytorch": persistent(never), "pytorch-amp": persistent(lambda s: s[1] == 16)}
    one = of(profiles, pytorch_amp=lambda s: 0.25 if s[1] == 16 else 1.0)
    text = written(amp.parts(one))
    assert "runs another algorithm at 4 of 16 shapes: there what AMP gains is not the" in text
    assert "| 128 | neither | AMP only | neither | neither |" in text
    assert "| one kernel in AMP only | 4 | 4.00x | 0.25x |" in text
    assert "| step by step in both | 12 | (1.00x) | 1.00x |" in text
    assert "where both go step by step? No: 1.00x at 128, 1.00x at 1024" in text


def test_an_algorithm_that_stays_is_said_to_stay(of):
    profiles = dict.fromkeys(("pytorch", "pytorch-amp"), persistent(never))
    one = of(profiles, pytorch_amp=at(0, 1.5, 0.5))
    text = written(amp.parts(one))
    assert "another algorithm at 0 of 16 shapes. Which" in text
    assert "where both go step by step? Yes: 0.67x at 128, 2.00x at 1024" in text


def test_one_kernel_at_some_timesteps_only_is_counted(of):
    profiles = {"pytorch": persistent(never), "pytorch-amp": persistent(lambda s: s[2] == 10)}
    assert "fp32 0, AMP 1 of 2" in written(amp.parts(of(profiles, pytorch_amp=0.5)))


@pytest.mark.parametrize(("on", "told"), [(False, "TF32 is off here"), (True, "TF32 is on")])
def test_amp_is_told_with_what_fp32_is(of, on, told):
    one = of(pytorch_amp=0.5)
    one.run.manifest["plan"]["settings"]["tf32"] = on
    assert told in written(amp.parts(one))


@pytest.mark.parametrize(
    ("factor", "share", "told"),
    [
        (1.5, 0.1, "saves 450 us of GPU time a call (0.25x), but the host adds 950 us"),
        (0.5, 0.4, "saves 400 us of GPU time a call (0.33x), and the host saves 100 us"),
        (2.0, 0.6, "adds 600 us of GPU time a call (2.00x), and the host adds 400 us"),
    ],
)
def test_why_says_what_the_gpu_saves_and_what_the_host_adds(of, factor, share, told):
    one = of({"pytorch": busy(0.6), "pytorch-amp": busy(share)}, pytorch_amp=factor)
    pair = one.pair("pytorch", "pytorch-amp")
    assert twins.why(twins.of_rows(one, "pytorch", "pytorch-amp"), pair).startswith(told)


def test_why_mode_0_is_slower_is_told_by_algorithm_and_by_what_it_does_besides(of):
    """At hidden 128 PyTorch runs one kernel; else both go step by step, mode 0 repacks."""

    def tensorflow(shape, latency):
        return profile(0.5e-3, latency, [PRODUCT, REPACK], kernels=56.0)

    profiles = {"pytorch": persistent(lambda s: s[0] == 128), "tf-mode0": tensorflow}
    text = written(modes.parts(of(profiles, tf_mode0=at(0, 5.0, 3.0))))
    assert "Mode 0 against PyTorch: 3.9x slower." in text
    assert "| one kernel in PyTorch only | 8 | 5.00x | 2.50x | 8% | 3.7 ms | +5 |" in text
    assert "| step by step in both | 8 | 3.00x | 2.50x | 15% | 1.7 ms | +5 |" in text
    assert "it runs 5 more kernels; GPU time of repack is 40 us more, which explains 2% of" in text
    assert "| 1024 | 40 us | 300 us |" in text


def test_where_mode_0_takes_no_longer_nothing_is_explained(of):
    profiles = dict.fromkeys(("pytorch", "tf-mode0"), persistent(never))
    text = written(modes.parts(of(profiles, tf_mode0=0.5)))
    assert "Mode 0 against PyTorch: 2.0x faster." in text
    assert "longer" not in text.split("|")[0]


@pytest.mark.parametrize(
    ("kernels", "latency", "told"),
    [
        (20.0, 5.0, "runs 2.55x fewer kernels than mode 1 (2 a step against 5.1), but each costs"),
        (20.0, 2.0, "and each costs the host less time"),
        (80.0, 9.0, "runs 1.57x more kernels than mode 1 (8 a step against 5.1), but each costs"),
    ],
)
def test_fewer_kernels_that_cost_more_each_are_no_plain_gain(of, kernels, latency, told):
    profiles = {
        "tf-mode1": lambda shape, latency: profile(1e-3, latency, kernels=5.1 * shape[2]),
        "tf-mode2": lambda shape, latency: profile(1e-3, latency, kernels=kernels / 10 * shape[2]),
    }
    text = written(modes.parts(of(profiles, tf_mode1=9.0, tf_mode2=latency)))
    assert told in text


def kernels_by(few, many):
    """So many kernels at hidden 128, and so many elsewhere."""

    def made(shape, latency):
        found = few if shape[0] == 128 and shape[1] == 1 else many
        return profile(0.2 * latency, latency, kernels=found, launches=found)

    return made


def launched(of, pytorch):
    rows = {"pytorch": pytorch, **{name: kernels_by(300.0, 300.0) for name in modes.MODES}}
    return written(
        launches.parts(of(rows, **dict.fromkeys(("tf_mode0", "tf_mode1"), 2.0), tf_mode2=2))
    )


def test_kernels_are_the_median_number_with_its_ends(of):
    text = launched(of, kernels_by(2.0, 2000.0))
    assert "| `pytorch` | 2,000 | 2 to 2,000 | 2 |" in text
    assert "Kernels of a call at 1000 timesteps" in text
    assert "Each is a launch of its own. " in text
    assert "launching" not in text


def test_a_row_whose_kernels_are_launched_together_is_named(of):
    text = launched(of, lambda shape, latency: profile(0.2 * latency, latency, launches=1.0))
    assert "Each is a launch of its own, but not in `pytorch` (at 16 shapes)." in text


def test_a_median_of_counts_is_the_median(tmp_path):
    shapes = [(64, 1, 10), (128, 1, 10)]
    cells = [
        (cell("pytorch", shape), profile(kernels=n, launches=n))
        for shape, n in zip(shapes, (2.0, 200.0), strict=True)
    ]
    run = run_of(tmp_path / "run", *cells)
    (row,) = split.device_rows(split.read(run).on_device)
    assert (row["kernels"], row["launches"]) == (101.0, 101.0)


def test_the_section_of_the_shipped_run_fits_its_page():
    text = findings.section(subject.read(ROOT / "results")).written()
    assert all(len(line) <= WIDTH for line in text.splitlines() if not line.startswith("!["))
