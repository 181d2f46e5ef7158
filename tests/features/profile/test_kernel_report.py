"""`report --kernels` and the table of one cell: what they say, and what they refuse to say."""

import json

import pytest
from builders import KERNELS, OPERATORS, cell, operators, profile
from builders import profiled as run_of

from lstm_bench.features.page import sections
from lstm_bench.features.profile import cells as profiled_cells
from lstm_bench.features.profile import report as kernel_report
from lstm_bench.features.profile.cells import Split
from lstm_bench.model.profile import CallDepth, Frame, Launch, Part
from lstm_bench.model.types import LstmBenchError
from lstm_bench.runs import store

SHAPES = [(64, 1, 10), (128, 1, 10), (256, 1, 10)]
LONG = "deepbench-persist-dynamic"


WAY = [
    Frame("Python", "torch.nn.modules.module.Module._call_impl"),
    Frame("Python", "torch.nn.modules.rnn.LSTM.forward"),
    Frame("dispatcher", "c10::impl::wrap<c10::Pointer<int (at::Tensor)>, int>::call"),
    Frame("library", "dnnl::primitive::execute"),
]


def whole(*names, **more):
    """Every name at every shape."""
    return [(cell(name, shape), profile(**more)) for name in names for shape in SHAPES]


def written(folder, *cells, form="table", **more):
    return kernel_report.document(run_of(folder / "run", *cells), **more).written(form)


def data(folder, *cells, **more):
    return json.loads(written(folder, *cells, form="json", **more))


def line_of(text, start):
    return next(line for line in text.splitlines() if line.startswith(start))


def test_the_split_is_latency_busy_gap_and_host():
    split = Split(cell("a"), profile(busy=200e-6, wall=1e-3, kernel_s=150e-6))
    assert split.host_s == pytest.approx(800e-6)
    assert split.gap_s == pytest.approx(700e-6)
    assert (split.active, split.moving, split.idle) == pytest.approx((0.15, 0.05, 0.8))
    assert split.active + split.moving + split.idle == pytest.approx(1)
    assert split.launching == pytest.approx(0.051)


def test_a_row_is_the_median_over_the_shapes_that_all_rows_have(tmp_path):
    cells = [(cell("a", s, latency=t), profile()) for s, t in zip(SHAPES, (1, 2, 9), strict=True)]
    cells += [(cell("b", s, latency=1), profile()) for s in SHAPES[:2]]
    rows = {row["implementation"]: row for row in data(tmp_path, *cells)["where"]}
    assert (rows["a"]["latency_s"], rows["a"]["cells"]) == (1.5, 2)


def everything(folder):
    """A run with whatever the report has a line for."""
    other = profile(instead="no CUPTI: pip install nvidia-cuda-cupti")
    other.source = "torch.profiler"
    walls = {"wall": 1.38e-3, "busy": 0.5e-3, "kernel_s": 0.4e-3}
    cells = [*whole("deepbench"), *whole("pytorch", **walls), (cell("tf-mode0", SHAPES[0]), other)]
    cells += whole("graph", launches=1.0, launch_s=0.9e-3, busy=1.05e-3)
    cells += [(cell("a", s, latency=150e-6), profile(busy=9e-5, wall=9e-4)) for s in SHAPES]
    cells += [(cell("fast", SHAPES[1]), profile(wall=0.7e-3))]
    cells += [(cell("pytorch@1", s, device="cpu"), operators()) for s in SHAPES]
    phases = [Part("input product", "phase", 1.0, 2e-4), Part("cell", "phase", 10.0, 1e-4)]
    phases = operators(phases, wall=None)
    cells += [(cell("less", s, device="cpu", computes="lstm-skip-input"), phases) for s in SHAPES]
    cells += [(cell("bare", s), None) for s in SHAPES[:2]]
    for n, problem in enumerate(("the profiler lost 12 records", "the profiler lost 7 records")):
        cells.append((cell("x", SHAPES[n]), profile(problem=problem)))
    return run_of(folder / "run", *cells)


@pytest.mark.parametrize("all_of_it", [False, True])
def test_a_report_in_full(tmp_path, golden, all_of_it):
    document = kernel_report.document(everything(tmp_path), everything=all_of_it)
    golden("kernels-all" if all_of_it else "kernels", document.written("table", 100))


def test_what_a_graph_takes_to_launch_is_not_known():
    split = Split(cell("graph"), profile(launches=1.0, launch_s=0.9e-3))
    assert split.launching != split.launching


def test_the_parts_of_each_row_come_with_family_and_share(tmp_path):
    rows = data(tmp_path, *whole("deepbench"), top=2)["parts"]
    assert {row["shape"] for row in rows} == {"128,1,10"}  # the middle of three
    assert [(row["family"], row["share"]) for row in rows] == [
        ("recurrent GEMM", pytest.approx(0.6)),
        ("cell", pytest.approx(0.3)),
        ("input GEMM", pytest.approx(0.1)),
    ]
    assert "sm80_xmma" not in written(tmp_path / "again", *whole("deepbench"), top=2)


def test_only_the_chosen_shapes_count(tmp_path):
    run = run_of(tmp_path / "run", *whole("a"))
    text = kernel_report.document(run, conditions=["hidden=256"]).written("table")
    assert "only hidden=256: 1 of 3 shapes" in text
    assert "a at 256,1,10" in text


def test_chosen_shapes_without_a_profile_are_no_table(tmp_path):
    bare, *others = whole("a")
    run = run_of(tmp_path / "run", (bare[0], None), *others)
    with pytest.raises(LstmBenchError, match="none of the chosen shapes"):
        kernel_report.document(run, conditions=[f"hidden={bare[0].shape.hidden}"])


def test_profiling_that_slowed_calls_is_said_in_figures(tmp_path):
    walls = (1.0, 1.05, 1.21, 1.38, 1.12)
    cells = [(cell("a", (8, 1, t)), profile(wall=w * 1e-3)) for t, w in enumerate(walls, 1)]
    cells.append((cell("a", (8, 1, 9), latency=150e-6), profile(busy=9e-5, wall=9e-4)))  # too short
    run = run_of(tmp_path / "run", *cells)
    line = kernel_report.check(profiled_cells.read(run).good)
    assert line.startswith("3 of 5 cells over 200 us took more than 10% longer or shorter when")
    assert "(21% in the median, 38% at most)" in line


def test_the_split_adds_up_to_the_latency(tmp_path):
    (facts,) = data(tmp_path, (cell("a"), profile(wall=1.3e-3)))["cells"]
    pieces = ("busy_s", "gap_s", "around_s", "unexplained_s")
    assert sum(facts[piece] for piece in pieces) == pytest.approx(facts["latency_s"])


def test_a_cell_busy_for_longer_than_its_call_is_busy_all_the_time(tmp_path):
    (row,) = data(tmp_path, *whole("graph", busy=1.05e-3))["shares"]
    assert (row["active"], row["moving"], row["idle"]) == (1, 0, 0)


def test_a_profile_of_a_cell_without_a_time_makes_up_for_none_that_is_missing(tmp_path):
    wrong = cell("a", latency=None, status="wrong"), profile()
    cells = [*whole("b"), (cell("c"), None), (cell("d"), None), wrong]
    assert "not profiled: 2 cells with times" in written(tmp_path, *cells)


def test_a_profile_with_a_problem_is_never_shown(tmp_path):
    bad = [
        (cell("a", SHAPES[0]), profile(problem="the profiler lost 12 records")),
        (cell("a", SHAPES[1]), profile(problem="the profiler lost 7 records")),
        (cell("b"), profile(problem="the kernels per call are no whole number (3, 4): lost")),
        (cell("c"), profile(busy_s=None)),
        (cell("d", status="oom", latency=None), profile()),
        (cell("e"), profile(wall=0.0)),
    ]
    actual = data(tmp_path, *whole("good"), *bad)
    assert actual["left_out"] == {
        "the profiler lost some records": 2,
        "the kernels per call are no whole number: lost": 1,
        "the profile has no times": 1,
        "the cell has no time": 1,
        "the profiled call has no time": 1,
    }
    assert [row["implementation"] for row in actual["where"]] == ["good"]
    assert "latency" not in written(tmp_path / "only", *bad)


def test_a_control_is_not_a_row(tmp_path):
    rows = data(tmp_path, (cell("a"), profile()), (cell("a", copy=2), profile()))["where"]
    assert [row["cells"] for row in rows] == [1]


def test_a_run_without_profiles_says_what_to_type(tmp_path):
    run = run_of(tmp_path / "run", (cell("a"), None))
    with pytest.raises(
        LstmBenchError, match=r"no cell .* 1 cell; .*lstm-bench grid GRID --profile"
    ):
        kernel_report.document(run)


ORDERS = {
    "self": ["aten::addmm", "aten::sigmoid_", "aten::lstm"],
    "total": ["aten::lstm", "aten::addmm", "aten::sigmoid_"],
    "calls": ["aten::sigmoid_", "aten::addmm", "aten::lstm"],
    "memory": ["aten::lstm", "aten::addmm", "aten::sigmoid_"],
    "name": ["aten::addmm", "aten::lstm", "aten::sigmoid_"],
}


@pytest.mark.parametrize(("sort", "order"), ORDERS.items())
def test_parts_are_sorted_as_asked(sort, order):
    table = kernel_report.cell_document(cell("a"), operators(), sort).tables[1]
    assert [row["name"] for row in table.rows] == order
    assert set(ORDERS) == set(profiled_cells.SORTS)


def test_one_cell_in_full(golden):
    actual = profile(wall=1.21e-3)
    actual.depth = CallDepth(WAY, stacks=30, of=40)
    warned = cell("pytorch", warnings=["disturbed: another process took the cores during a block"])
    made = {"cell-gpu": (warned, actual), "cell-cpu": (cell("pytorch"), operators())}
    for name, (record, kept) in made.items():
        document = kernel_report.cell_document(record, kept, top=2)
        golden(name, document.written("table", 100))
        assert len(json.loads(document.written("json"))["parts"]) == 3


def test_one_cell_has_a_line_for_each_grid_and_block_of_a_kernel(tmp_path):
    """Also once it was kept with a run; kernels that CUPTI did not see have dashes."""
    launches = [Launch((132, 1, 2), (64, 1, 1), 40, 25, 165e-6)]
    launches += [Launch((16, 4, 1), (256, 1, 1), 128, 1, 30e-6)]
    parts = [Part("product", "kernel", 26.0, 195e-6, launches=launches), *KERNELS[1:]]
    made = run_of(tmp_path / "run", (cell("pytorch"), profile(parts=parts)))
    ((record, kept),) = store.read_profiles(made.folder)
    assert kept.parts[0].launches == launches
    document = kernel_report.cell_document(record, kept)
    text = document.written("table")
    assert line_of(text, "name").split()[-3:] == ["grid", "block", "regs"]
    lines = [line.split() for line in text.splitlines() if line.startswith("product")]
    assert [line[-3:] for line in lines] == [["132x1x2", "64", "40"], ["16x4", "256", "128"]]
    assert [line[-7:-3] for line in lines] == [
        *(["25", "165", "us", "60%"], ["1", "30", "us", "11%"])
    ]
    assert line_of(text, "elemWiseRNNcell").split()[-3:] == ["-", "-", "-"]
    assert max(map(len, text.splitlines())) <= 100
    rows = json.loads(document.written("json"))["parts"]
    assert [rows[0][key] for key in profiled_cells.LAUNCH] == [[132, 1, 2], [64, 1, 1], 40]
    assert (rows[1]["name"], rows[1]["grid"]) == ("elemWiseRNNcell<float>", None)
    assert "grid" not in kernel_report.cell_document(cell("a"), operators()).written("table")


def test_one_cell_with_a_problem_shows_nothing_else():
    actual = kernel_report.cell_document(cell("a"), profile(problem="the profiler saw no kernel"))
    assert actual.tables == []
    assert "the profiler saw no kernel" in actual.written("table")


def test_the_way_into_the_library_is_known_level_by_level():
    actual = operators()
    actual.depth = CallDepth(WAY, stacks=30, of=40)
    rows = json.loads(kernel_report.cell_document(cell("a"), actual).written("json"))["depth"]
    assert [row["level"] for row in rows] == ["Python", "dispatcher", "library"]
    assert [name for row in rows for name in row["names"]] == [frame.name for frame in WAY]


def test_a_depth_that_is_not_known_says_why():
    actual = operators()
    actual.depth = CallDepth(problem="no C++ compiler")
    text = kernel_report.cell_document(cell("pytorch"), actual).written("table")
    assert "call depth not measured: no C++ compiler" in text


def test_the_way_into_the_library_is_kept_with_the_run(tmp_path):
    kept = operators()
    kept.depth = CallDepth(WAY, stacks=30, of=40)
    made = run_of(tmp_path / "run", (cell("pytorch"), kept), (cell("libtorch"), operators()))
    depths = [profile.depth for _, profile in store.read_profiles(made.folder)]
    assert depths == [kept.depth, None]


def test_operators_of_a_gpu_row_are_shown_as_operators():
    actual = operators()
    actual.device = "cuda"
    text = kernel_report.cell_document(cell("pytorch"), actual).written("table")
    assert line_of(text, "name").split() == [
        *("name", "family", "calls", "self", "total", "share", "memory")
    ]


def test_names_are_shown_without_what_all_of_them_have():
    short = kernel_report.short_name
    assert short("void at::native::vectorized_elementwise_kernel<8>") == (
        "vectorized_elementwise_kernel<8>"
    )
    assert short("std::enable_if<!(false), void>::type internal::gemvx::kernel<int>") == (
        "gemvx::kernel<int>"
    )
    assert short("tensorflow::(anonymous namespace)::split_v_kernel<float>") == (
        "split_v_kernel<float>"
    )


@pytest.mark.parametrize("form", ["table", "github", "csv", "json", "latex"])
def test_every_format_takes_it_and_the_table_fits_a_page(tmp_path, form):
    parts = [
        *KERNELS,
        *OPERATORS,
        Part("device to host", "copy", 1.0, 1e-3, size=2**40),
        Part("memset", "fill", 1.0, 1e-3, size=2**30),
        Part("RNN_persist_fp" + "x" * 300, "kernel", 1000.0, 9e-3),
        Part("Cast_GPU", "kernel", 1.0, 1e-3),
        Part("transpose", "kernel", 1.0, 1e-3),
        Part("what\nis this", "kernel", 1.0, 1e-3),
    ]
    cells = whole(LONG, busy=8.99e-3, parts=parts, wall=9.99e-3)
    cells += [(cell(LONG + "@1", s, device="cpu"), operators(parts)) for s in SHAPES]
    text = written(tmp_path, *cells, form=form)
    assert text
    if form == "table":
        assert max(map(len, text.splitlines())) <= 100
        text = kernel_report.cell_document(*cells[0]).written("table")
        assert max(map(len, text.splitlines())) <= 100


def test_the_page_has_its_tables_with_all_parts_in_one(tmp_path):
    run = run_of(tmp_path / "run", *whole("a"), *whole("b"))
    tables = [*sections.sections_of(kernel_report.document(run))]
    assert [table["title"] for table in tables] == [
        *("Where the time of a call goes", "Shares of the latency"),
        *("Time on the device by family, mean over the same shapes", "Parts"),
    ]
    where, *_, parts = tables
    assert where["rows"][0][:3] == ["a", ["200 us", 2e-4], ["800 us", 8e-4]]
    assert {row[0] for row in parts["rows"]} == {"a at 128,1,10", "b at 128,1,10"}
    assert all(len(row) == len(parts["columns"]) for row in parts["rows"])


def test_the_command_shows_it_and_refuses_what_does_not_go_together(lstm_bench, tmp_path):
    run_of(tmp_path / "results" / "r", *whole("deepbench", "pytorch"))
    done = lstm_bench("report", "--kernels", "--where", "hidden=64", "--sort", "name")
    assert (done.returncode, done.stderr) == (0, "")
    assert "where the time of a call goes" in done.stdout
    where = ["--where", "hidden=64"]
    for wrong in (["--kernels", "--mpe"], ["--sort", "name"], [*where, "--energy"]):
        done = lstm_bench("report", *wrong)
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) <= 2
    for wrong in ([*where, "--figures", "f"], [*where, "--html", "p.html"]):
        assert lstm_bench("report", *wrong).returncode == 2
    done = lstm_bench("report", "--html", "p.html", "--figures", "f")
    assert done.returncode == 0
    assert "Where the time of a call goes" in (tmp_path / "p.html").read_text()
    assert (tmp_path / "f" / "gpu-activity.svg").exists()
