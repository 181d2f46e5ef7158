"""A run on unlike devices: its report splits, and nothing else takes it for one."""

import json

import pytest
from builders import row, written

from lstm_bench.analysis import kinds, results

CPUS = {"a": "Slow CPU", "b": "Slow CPU", "c": "Fast CPU"}
#: Nodes a and b are noisy, c is not.
NOISE = {"a": 0.2, "b": 0.2, "c": 0.001}


def times(latency, noise, side):
    return [latency * (1 + (noise * side if number % 2 else 0)) for number in range(10)]


def mixed(folder, nodes="abc"):
    rows = []
    for number in range(1, 25):
        node = nodes[number % len(nodes)]
        speed = 0.001 if CPUS[node] == "Fast CPU" else 0.01
        where = {"node": node, "device_name": CPUS[node], "group": f"g{number}", "hidden": number}
        for name, factor in (("one", 1.0), ("two", 3.0)):
            rows.append(row(name, speed * factor, **where))
        off = speed * (1 + NOISE[node])
        rows.append(row("one", off, copy=2, rounds=[off] * 10, **where))
    written(folder, *rows)
    lines = [
        json.dumps({"node": node, "machine": {"cpu": CPUS[node], "gpus": [], "threads": 2}})
        for node in nodes
    ]
    (folder / "nodes.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_nodes_of_one_kind_are_one_run(tmp_path):
    run = results.load(mixed(tmp_path / "r", "ab"))
    assert kinds.parts(run) == [run]
    assert set(run.cells["node"]) == {"a", "b"}


def test_each_kind_has_its_cells_its_machine_and_its_noise_floor(tmp_path):
    slow, fast = kinds.parts(results.load(mixed(tmp_path / "r")))
    assert set(slow.cells["node"]) == {"a", "b"}
    assert set(fast.cells["node"]) == {"c"}
    assert fast.manifest["machine"]["cpu"] == "Fast CPU"
    assert len(slow.plan.shapes) + len(fast.plan.shapes) == 24
    floors = [max(n.floor for n in each.noise if n.floor is not None) for each in (slow, fast)]
    assert floors == pytest.approx([0.2, 0.001])


def test_a_report_of_a_mixed_run_says_so_and_splits(tmp_path, lstm_bench):
    mixed(tmp_path / "results" / "r")
    shown = lstm_bench("report", "--run", "r").stdout
    assert shown.startswith("r: mixed, measured on 2 kinds of device")
    assert "Slow CPU, 2 threads: 16 shapes" in shown
    assert "Fast CPU, 2 threads: 8 shapes" in shown
    assert "r@Slow CPU: Slow CPU" in shown
    assert "10 ms" in shown
    assert "1 ms" in shown
    data = json.loads(lstm_bench("report", "--run", "r", "--format", "json").stdout)
    assert len(data["mixed"]) == 2
    assert [(each["device_kind"], each["latency_s"]) for each in data["implementations"]] == [
        ("Slow CPU, 2 threads", pytest.approx(0.01)),
        ("Slow CPU, 2 threads", pytest.approx(0.03)),
        ("Fast CPU, 2 threads", pytest.approx(0.001)),
        ("Fast CPU, 2 threads", pytest.approx(0.003)),
    ]


def test_one_kind_is_reported_and_compared_by_name(tmp_path, lstm_bench):
    mixed(tmp_path / "results" / "r")
    shown = lstm_bench("report", "--run", "r@fast").stdout
    assert "8 shapes" in shown
    assert "10 ms" not in shown
    done = lstm_bench("compare", "one", "two", "--run", "r")
    assert done.returncode == 2
    assert "'r@Slow CPU, 2 threads', 'r@Fast CPU, 2 threads'" in done.stderr
    assert lstm_bench("compare", "one", "two", "--run", "r@slow").returncode == 0
    done = lstm_bench("report", "--run", "r@cpu")
    assert (done.returncode, "2 parts of the run fit" in done.stderr) == (2, True)


@pytest.mark.parametrize("flag", ["--kernels", "--energy", "--ladder"])
def test_what_reads_the_whole_folder_is_refused(tmp_path, lstm_bench, flag):
    mixed(tmp_path / "results" / "r")
    assert lstm_bench("report", "--run", "r", flag).returncode == 2
    done = lstm_bench("report", "--run", "r@fast", flag)
    assert done.returncode == 2
    assert "--per-device" in done.stderr


def test_a_node_line_from_somebody_else_does_no_harm(tmp_path, lstm_bench):
    folder = mixed(tmp_path / "results" / "r", "ab")
    with (folder / "nodes.jsonl").open("a") as file:
        file.write('{"node": "a", "machine": {"cpu": 7}}\n[]\n{"node": 1}\nnonsense\n')
    assert lstm_bench("report", "--run", "r").returncode == 0
