"""`lstm-bench model`: the LSTMs of a model, their gains, and the model with lstm_kernels."""

import json
import shutil
import sys
from pathlib import Path

import builders
import pytest
import yaml
from builders import row

import lstm_bench
from lstm_bench.features.your_model import gains
from lstm_bench.features.your_model.gains import Gain
from lstm_bench.features.your_model.layer import Layer
from lstm_bench.frameworks import FRAMEWORKS, IMPLEMENTATIONS
from lstm_bench.model.types import LstmBenchError, Settings
from lstm_bench.runs import grid

HERE = Path(__file__).parent
with_torch = [pytest.mark.frameworks, pytest.mark.xdist_group("frameworks")]
FIVE = {
    "layers.0": ("16,3,20", "zero, carried", "full", 2),
    "layers.1": ("16->24x2bi,3,20", "zero", "full", 1),
    "packed": ("20,3,20,16~20/12/7", "given", "packed", 1),
    "scripted.cells.0": ("12,3,20,16", "zero", "full", 1),
    "idle": ("", "", "", 0),
}


@pytest.fixture
def five(tmp_path):
    """The file of models, in the folder where commands are typed."""
    shutil.copy(HERE / "five_lstms.py", tmp_path)
    return "five_lstms.py"


class TestWithTorch:
    pytestmark = with_torch

    def test_each_lstm_is_listed_measured_and_replaced(self, five, typed, tmp_path):
        """From end to end: a model's layers, a grid of them, their times, and the model's."""
        words = ("--device", "cpu", "--threads", 1, "--fast", "-i", "pytorch-native", "--replace")
        done = typed("model", f"{five}:build", *words, "--format", "json")
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        shown = {
            layer["name"]: tuple(layer[key] for key in ("shape", "state", "lengths", "calls"))
            for layer in facts["layers"]
        }
        assert shown == FIVE
        assert all((layer["share"] > 0) == (layer["calls"] > 0) for layer in facts["layers"])
        by_row = {layer["name"]: {*layer["gains"]} for layer in facts["layers"]}
        assert by_row.pop("idle") == set()
        rows = {"pytorch", "pytorch-native", "lstm-kernels"}  # the last by --replace
        assert all(measured == rows for measured in by_row.values())
        assert len(facts["with lstm_kernels"]) == 3
        assert all(layer["gains"].get("pytorch", [1, 1])[1] == 1 for layer in facts["layers"])
        assert len(facts["after_s"]) == len(facts["before_s"]) == 5
        assert sum(facts["paths"].values()) == 4  # of the five calls torch.jit makes one
        assert facts["difference"] < 1e-4
        assert facts["repeat"] == 0
        assert "left      scripted.cells.0: scripted by torch.jit" in done.stderr

        data = yaml.safe_load((tmp_path / "five_lstms-layers.yaml").read_text())
        assert {name: one["cpu"] for name, one in data["workloads"].items()} == {
            name: shape for name, (shape, *_) in FIVE.items() if shape
        }
        report = typed("report", "--workloads", "--format", "json")
        assert {one["workload"] for one in json.loads(report.stdout)["workloads"]} == {*by_row}
        assert typed("grid", "five_lstms-layers.yaml", "--dry-run").returncode == 0

    def test_a_listed_model_has_its_grid_and_no_run(self, five, typed, tmp_path):
        done = typed("model", f"{five}:build", "--list", "--device", "cpu", "--threads", 1)
        assert done.returncode == 0, done.stderr
        assert "16->24x2bi,3,20" in done.stdout
        assert "never called" in done.stdout
        assert "building" not in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 100
        assert (tmp_path / "five_lstms-layers.yaml").exists()
        assert not (tmp_path / "results").exists()

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("without_lstm", r"Sequential called no nn.LSTM \(it has GRU\)"),
            ("never_called", r"Idle called no nn.LSTM \(it has idle, layers.0, layers.1,"),
            ("raising", r"input.size\(-1\) must be equal to input_size"),
            ("no_tuple", "found Tensor in the place of its inputs"),
            ("missing", "has no attribute 'missing'"),
        ],
    )
    def test_a_model_that_cannot_be_examined_is_refused(self, name, said):
        from lstm_bench.features.your_model import in_worker

        file = str(HERE / "five_lstms.py")
        with pytest.raises(Exception, match=said):
            in_worker.examine(file, name, "cpu", 1, {"rounds": 5}, False)

    def test_what_a_model_raises_is_an_error_with_what_to_type(self, five, typed):
        done = typed("model", f"{five}:raising", "--device", "cpu", "--threads", 1)
        assert done.returncode == 2
        assert "in forward" in done.stderr
        assert "five_lstms.py:raising: RuntimeError: input.size(-1) must be" in done.stderr
        assert "expected FILE.py:NAME such as my_model.py:build" in done.stderr
        assert done.stdout == ""

    def test_layers_are_listed_from_python(self, monkeypatch):
        monkeypatch.syspath_prepend(HERE)
        import five_lstms

        model, inputs = five_lstms.build()
        table = lstm_bench.layers(model, *inputs)
        assert table.set_index("name").loc[list(FIVE), "calls"].to_dict() == {
            name: calls for name, (*_, calls) in FIVE.items()
        }
        assert table.attrs["seconds"] > 0
        with pytest.raises(LstmBenchError, match="called no nn"):
            lstm_bench.layers(*five_lstms.without_lstm()[:1], *five_lstms.without_lstm()[1])

    def test_a_state_is_carried_from_pass_to_pass_and_each_shape_is_a_layer(self, monkeypatch):
        monkeypatch.syspath_prepend(HERE)
        import five_lstms
        import torch

        table = lstm_bench.layers(five_lstms.Streaming(), torch.zeros(5, 2, 4))
        assert list(table["name"]) == ["lstm", "lstm#2"]
        assert list(table["shape"]) == ["6,2,1,4", "6,2,5,4"]
        assert list(table["state"]) == ["carried", "carried"]
        assert list(table["calls"]) == [2, 1]

    def test_what_no_row_computes_is_listed_and_not_measured(self, monkeypatch):
        monkeypatch.syspath_prepend(HERE)
        import five_lstms

        model, inputs = five_lstms.unlike_any_row()
        table = lstm_bench.layers(model, *inputs)
        layers = [
            Layer(**{key: one[key] for key in ("name", "path", "kind", "shape", "precision")})
            for one in table.to_dict("records")
        ]
        assert list(table["shape"]) == ["", "6,3,2,4"]
        assert list(table["precision"]) == ["fp32", "torch.float64"]
        assert not grid_of(*layers)["workloads"]


def grid_of(*layers, device="cpu", only=("fake",), replaced=False):
    return gains.grid("m.py:build", layers, Settings(device, 2), {}, only, replaced)


def layer(name="a", shape="8,1,1", share=0.1, precision="fp32", kind="LSTM", **more):
    return Layer(name, name, kind, shape, precision=precision, shares=[share] * 5, **more)


def run_on_gpu(**latencies):
    """A run on a GPU of rows, each in its own precision."""
    names = {name.replace("_", "-"): latency for name, latency in latencies.items()}
    precisions = {name: IMPLEMENTATIONS[name].precision for name in names}
    rows = [
        row(name, latency, device="cuda", precision=precisions[name])
        for name, latency in names.items()
    ]
    run = builders.run(*rows)
    run.manifest["plan"]["settings"]["device"] = "cuda"
    return run


def lines_of(run, *layers):
    """The text of the document of a model with these layers."""
    model = {"before_s": [10e-3] * 5, "after_s": [], "paths": {}, "difference": 0.0, "repeat": 0.0}
    return gains.document("m.py:build", layers, model, run).written("table", 100)


def test_a_model_gains_what_its_layers_no_longer_take():
    layers = [layer("a", share=0.4), layer("b", share=0.2), layer("c", share=0.1)]
    assert gains.whole_gain(layers, {}) == Gain(1, 1, 1)
    chosen = {"a": Gain(1.0, 2.0, 4.0), "b": Gain(2.0, 2.0, 2.0)}
    assert gains.whole_gain(layers, chosen) == pytest.approx((1 / 0.9, 1 / 0.7, 1 / 0.6))


def test_the_range_of_a_gain_has_that_of_the_share():
    unsteady = layer(share=0.2)
    unsteady.shares = [0.1, 0.2, 0.3]
    whole = gains.whole_gain([unsteady], {"a": Gain(2.0, 2.0, 2.0)})
    assert whole == pytest.approx((1 / 0.95, 1 / 0.9, 1 / 0.85))


def test_unsteady_shares_that_add_up_to_more_than_all_leave_a_gain_above_zero():
    layers = [layer("a"), layer("b")]
    for each in layers:
        each.shares = [0.1, 0.4, 0.9]
    whole = gains.whole_gain(layers, dict.fromkeys("ab", Gain(10, 20, 40)))
    assert 1 < whole.low < whole.ratio < whole.high


def test_a_row_is_held_against_pytorch_in_the_precision_of_the_model():
    run = builders.run(row("pytorch", 4e-3), row("onnxruntime", 1e-3), row("slow", 8e-3))
    ratios = {name: gain.ratio for name, gain in gains.gains(run, layer()).items()}
    assert ratios == {"pytorch": 1, "onnxruntime": pytest.approx(4), "slow": pytest.approx(0.5)}
    low, ratio, high = gains.gains(run, layer())["onnxruntime"]
    assert low < ratio < high
    assert gains.gains(run, layer(shape="9,1,1")) == {}


@pytest.mark.parametrize(
    ("precision", "counted"),
    [
        ("fp32", {"pytorch", "lstm-kernels"}),
        ("tf32", {"pytorch", "lstm-kernels", "pytorch-tf32"}),
        ("fp16", {"pytorch", "lstm-kernels", "pytorch-tf32", "pytorch-half"}),
    ],
)
def test_a_row_counts_unless_it_is_coarser_than_the_model(precision, counted):
    run = run_on_gpu(pytorch=4e-3, lstm_kernels=1e-3, pytorch_tf32=2e-3, pytorch_half=1e-3)
    assert {*gains.gains(run, layer(precision=precision))} == counted


def test_a_finer_row_that_is_faster_is_a_gain():
    """PyTorch on a GPU is TF32 unless it is told otherwise: fp32 may still be faster."""
    text = lines_of(run_on_gpu(pytorch_tf32=4e-3, lstm_kernels=1e-3), layer(precision="tf32"))
    assert "lstm-kernels  4.0x" in text
    assert "with the fastest rows: 1.08x" in text


@pytest.mark.parametrize(
    ("precision", "device", "theirs", "ours"),
    [
        ("fp32", "cuda", "pytorch", "lstm-kernels"),
        ("tf32", "cuda", "pytorch-tf32", "lstm-kernels-tf32"),
        ("fp16", "cuda", "pytorch-half", "lstm-kernels-half"),
        ("amp-fp16", "cuda", "pytorch-amp", "lstm-kernels-half"),
        ("bf16", "cpu", "pytorch-bf16", None),
        ("fp16", "cpu", "", None),
        ("torch.float64", "cuda", "", ""),
    ],
)
def test_each_precision_has_the_row_that_calls_a_layer_as_a_model_does(
    precision, device, theirs, ours
):
    assert gains.plain_row(precision, device) == theirs
    assert ours is None or gains.plain_row(precision, device, "lstm-kernels") == ours


def test_a_grid_of_layers_is_one_that_can_be_measured(tmp_path):
    layers = [layer("encoder.lstm", "16->24x2bi,3,20~20/12/7"), layer("0"), layer("idle", "")]
    data = yaml.safe_load(yaml.safe_dump(grid_of(*layers), sort_keys=False))
    plan = grid.plan(data, tmp_path / "m.yaml", device="cpu", threads=2)
    assert [one.name for one in plan.workloads] == ["encoder.lstm", "0"]
    assert [one.name for one in plan.implementations] == ["pytorch", "fake"]


@pytest.mark.parametrize(
    ("file", "name"), [("_my model.v2.py", "my-model-v2-layers"), ("__.py", "layers")]
)
def test_a_grid_is_named_after_the_file_whatever_that_is_called(file, name):
    assert gains.grid(f"{file}:build", [], Settings("cpu", 2), {}, (), False)["name"] == name


def test_without_a_choice_all_installed_rows_of_the_same_accuracy_are_measured(monkeypatch):
    answers = {name: {"missing": ["jax"] * (name == "jax")} for name in FRAMEWORKS}
    monkeypatch.setattr(gains.doctor, "survey", lambda *_: answers)
    names = grid_of(layer(), only=())["implementations"]
    assert names[0] == "pytorch"
    assert {"pytorch-native", "onnxruntime", "openvino"} <= {*names}
    assert not {"fake", "deepbench", "jax-scan", "pytorch-bf16", "pytorch-int8"} & {*names}


def test_what_replaces_the_layers_is_measured_whatever_rows_are_chosen():
    layers = [layer(precision="tf32"), layer("b", precision="fp16"), layer("c", precision="fp32")]
    layers[2].kind = "Own"  # left as it is
    names = grid_of(*layers, device="cuda", replaced=True)["implementations"]
    theirs, ours = ["pytorch-tf32", "pytorch-half", "pytorch"], ["tf32", "half"]
    assert names == [*theirs, *(f"lstm-kernels-{name}" for name in ours), "fake"]
    assert grid_of(*layers, device="cuda")["implementations"] == [*theirs, "fake"]


@pytest.mark.parametrize("target", ["no_file.py:build", "five_lstms.py", "five_lstms.py:1"])
def test_a_target_that_is_none_is_refused_with_an_example(five, lstm_bench, target):
    done = lstm_bench("model", target, code=2)
    assert f"found {target!r}, expected FILE.py:NAME such as my_model.py:build" in done.stderr


def test_an_interpreter_without_torch_is_named_with_what_to_type(five, lstm_bench, monkeypatch):
    from lstm_bench.driver import worker_pool

    monkeypatch.setattr(worker_pool, "probe", lambda *_: {"missing": ["torch"]})
    done = lstm_bench("model", f"{five}:build", code=2)
    assert f"no torch in {sys.executable}: pip install torch numpy" in done.stderr
    assert "--python pytorch=PATH" in done.stderr


def test_the_document_says_what_was_expected_and_what_came(tmp_path):
    run = builders.run(row("pytorch", 4e-3), row("onnxruntime", 1e-3))
    layers = [layer(calls=2, share=0.6, state="zero", lengths="full")]
    model = {
        "before_s": [10e-3] * 5,
        "after_s": [5e-3] * 5,
        "paths": {"kernels": 2},
        "difference": 1e-6,
        "repeat": 0.0,
    }
    document = gains.document("m.py:build on a CPU", layers, model, run)
    assert document.facts["with the fastest rows"].ratio == pytest.approx(10 / 5.5)
    assert document.facts["measured"].ratio == pytest.approx(2)
    text = document.written("table", 100)
    assert "onnxruntime" in text
    assert "expected of the whole model with the fastest rows: 1.82x" in text
    assert "calls of LSTMs that it saw: 2 by kernels" in text
    assert max(map(len, text.splitlines())) <= 100


def test_no_gain_is_promised_where_no_row_is_faster_for_sure():
    run = builders.run(row("pytorch", 4e-3), row("onnxruntime", 8e-3))
    text = lines_of(run, layer(share=0.6, state="zero", lengths="full"))
    assert "none is faster" in text
    assert "expected of the whole model with the fastest rows: no gain" in text


def test_a_gain_without_times_is_unknown_with_the_reason():
    start, lack = "expected of the whole model with", "or PyTorch's has no time"
    ours = f"{start} lstm_kernels: unknown: lstm-kernels-tf32 {lack}"
    text = lines_of(run_on_gpu(pytorch_tf32=4e-3, pytorch=8e-3), layer(precision="tf32"))
    assert f"{start} the fastest rows: no gain" in text
    assert ours in text
    text = lines_of(run_on_gpu(pytorch_tf32=4e-3, lstm_kernels_tf32=None), layer(precision="tf32"))
    assert "none is faster" not in text
    assert f"{start} the fastest rows: unknown: every other row {lack}" in text
    assert ours in text
    text = lines_of(run_on_gpu(lstm_kernels_tf32=4e-3), layer(precision="tf32"))
    assert ours in text
    text = lines_of(run_on_gpu(pytorch_tf32=4e-3), layer(precision="tf32", kind="Own"))
    assert f"{start} lstm_kernels: no gain" in text


class FakeEvent:
    """Half a second lies between any event of a GPU and the next."""

    now = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        FakeEvent.now += 500.0
        self.at = FakeEvent.now

    def elapsed_time(self, other):
        return other.at - self.at


@pytest.mark.frameworks
@pytest.mark.xdist_group("frameworks")
def test_on_a_gpu_calls_are_timed_by_its_events(monkeypatch):
    import torch

    from lstm_bench.features.your_model.in_worker import WatchedModel

    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    watched = WatchedModel(torch.nn.LSTM(4, 6), (torch.zeros(5, 2, 4),))
    watched.on_gpu = True
    time_s = watched.timed()
    (only,) = watched.listed()
    assert only.shares == [pytest.approx(0.5 / time_s)]
