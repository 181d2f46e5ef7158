"""A grid over many nodes, without Ray: an engine of this process that loses what it is told to."""

import contextlib
import itertools
import re
from dataclasses import replace

import conftest
import pytest
from conftest import records

from lstm_bench import __version__
from lstm_bench.features.cluster import cluster, ray_cluster, roster
from lstm_bench.features.cluster.cluster import Place
from lstm_bench.features.cluster.node import Agent, Examined, NodeShare, examine
from lstm_bench.model.types import LstmBenchError, Shape
from lstm_bench.runs import nodes, store
from lstm_bench.runs.nodes import Kind

pytestmark = pytest.mark.usefixtures("in_process")

CPU = Kind("cpu", "", "", "Some CPU", 2)
OTHER = Kind("cpu", "", "", "Other CPU", 8)
MACHINE = {"cpu": "Some CPU", "gpus": [], "threads": 2, "lstm_bench": __version__}
MANIFEST = {"plan": {"name": "g"}, "machine": {}, "started_at": "2026-01-01"}


def place(name, kind=CPU, number=0, of=1):
    return Place(f"id-{name}", NodeShare(name, number, of), kind, kind.threads, 2.0)


class Engine:
    """Measures what it is sent when it is asked what came; `lose` says what is lost, and how."""

    def __init__(self, *places, lose=lambda place, job: "", dead=lambda: ()):
        self.places, self.lose, self.dead = places, lose, dead
        self.sent, self.agents, self.sizes = [], {}, []
        self.flying = {}

    def there(self):
        return [place for place in self.places if place.share.node not in self.dead()]

    def send(self, place, plan, job, budget_s):
        assert place not in self.flying
        self.flying[place] = (plan, job, budget_s)
        self.sent.append((place.share.node, job.shape.hidden))
        self.sizes.append(len(self.flying))

    def came(self, timeout_s):
        place, (plan, job, budget_s) = next(iter(self.flying.items()))
        del self.flying[place]
        if reason := self.lose(place, job):
            return [(place, reason)]
        if place not in self.agents:
            self.agents[place] = Agent(plan, place.share, {})
        return [(place, self.agents[place].measure(job.cells, job.finished, budget_s))]


class Watching:
    def __init__(self):
        self.warnings, self.records, self.texts = [], [], []

    def started(self, cells, seconds):
        self.cells = cells

    def doing(self, text):
        self.texts.append(text)

    def finished(self, record):
        self.records.append(record)

    def expect(self, seconds): ...

    def warn(self, text):
        self.warnings.append(text)


def plan_of(shapes=4, **changes):
    return conftest.plan_of({"hidden": list(range(3, 3 + shapes)), **changes})


def measured(tmp_path, engine, plan=None, **more):
    plan = plan or plan_of()
    watching = Watching()
    with store.Store.create(tmp_path / "r", MANIFEST) as sink:
        part = cluster.Target(plan, sink)
        work = cluster.jobs(part, plan.all_cells(), **more)
        outcome = cluster.Dispatch(engine, work, watching).run()
    return outcome, watching, store.read_records(tmp_path / "r")


def test_every_shape_is_measured_once_and_says_where(tmp_path):
    plan = plan_of(fake={"fake": {}, "fake-b": {}}, implementations=["fake", "fake-b"], passes=2)
    engine = Engine(place("a"), place("b"))
    outcome, watching, records = measured(tmp_path, engine, plan)
    assert set(records) == {cell.key for cell in plan.all_cells()}
    assert len(engine.sent) == 4  # all passes of a shape at once
    assert {node for node, _ in engine.sent} == {"a", "b"}
    assert {record.node for record in records.values()} == {"a", "b"}
    assert all(r.device_name and r.versions for r in records.values())
    assert all(record.status == "ok" for record in watching.records)
    assert (outcome.left, outcome.places, outcome.stopped) == (0, 2, "")
    assert max(engine.sizes) == 2


def test_what_came_back_is_on_disk_before_the_next_is_given_out(tmp_path):
    engine, seen = Engine(place("a")), []

    def lose(place, job):
        seen.append(len(store.read_records(tmp_path / "r")))
        return ""

    engine.lose = lose
    measured(tmp_path, engine)
    assert seen == [0, 1, 2, 3]


def test_a_shape_of_a_lost_node_is_measured_elsewhere(tmp_path):
    gone = []

    def lose(place, job):
        if place.share.node == "b":
            gone.append("b")
        return "its node was lost" if place.share.node == "b" else ""

    engine = Engine(place("a"), place("b"), lose=lose, dead=lambda: gone)
    outcome, watching, records = measured(tmp_path, engine)
    assert len(records) == 4
    assert all(record.status == "ok" and record.node == "a" for record in records.values())
    assert outcome.left == 0
    assert [w for w in watching.warnings if "node b is lost" in w]
    assert "1 lost" in watching.texts[-1]


def test_a_shape_that_is_always_lost_fails_and_the_run_goes_on(tmp_path):
    engine = Engine(place("a"), place("b"), lose=lambda _, job: "boom" * (job.shape.hidden == 4))
    outcome, _, records = measured(tmp_path, engine)
    bad = [record for record in records.values() if record.shape.hidden == 4]
    assert [record.status for record in bad] == ["crashed"]
    assert re.search("lost 3 times: .*boom", bad[0].reason)
    assert sum(record.status == "ok" for record in records.values()) == 3
    assert sum(hidden == 4 for _, hidden in engine.sent) == cluster.MAX_LOSSES
    assert {node for node, hidden in engine.sent if hidden == 4} == {"a", "b"}
    assert (outcome.left, outcome.stopped) == (0, "")


def test_a_failed_shape_does_not_replace_times_that_it_had(tmp_path):
    plan = plan_of(1)
    finished = [cell.key for cell in plan.all_cells()]
    engine = Engine(place("a"), lose=lambda *_: "boom")
    _, _, records = measured(tmp_path, engine, plan, finished=finished)
    assert records == {}


def test_a_node_that_loses_everything_gets_no_more(tmp_path):
    engine = Engine(place("a"), place("b"), lose=lambda at, _: "boom" * (at.share.node == "b"))
    _, watching, records = measured(tmp_path, engine, plan_of(12))
    assert all(record.status == "ok" for record in records.values())
    assert len(records) == 12
    assert sum(node == "b" for node, _ in engine.sent) == cluster.MAX_LOST_SHAPES
    assert any("node b gets no more" in warning for warning in watching.warnings)


def test_without_a_node_the_run_stops_and_keeps_what_it_has(tmp_path):
    count = itertools.count()
    dead = []

    def lose(place, job):
        if next(count) < 2:
            return ""
        dead.append("a")
        return "its node was lost"

    outcome, _, records = measured(tmp_path, Engine(place("a"), lose=lose, dead=lambda: dead))
    assert len(records) == 2
    assert (outcome.left, outcome.interrupted) == (2, False)
    assert "no node is left" in outcome.stopped


def test_a_shape_that_was_begun_goes_on_where_it_was(tmp_path):
    plan = plan_of(6)
    kinds = dict.fromkeys(plan.shapes[:2], OTHER)
    engine = Engine(place("a"), place("b", OTHER))
    measured(tmp_path, engine, plan, kinds=kinds)
    assert {node for node, hidden in engine.sent if hidden in (3, 4)} == {"b"}
    outcome, _, _ = measured(tmp_path / "2", Engine(place("a")), plan, kinds=kinds)
    assert outcome.left == 2
    assert "no node of Other CPU, 8 threads" in outcome.stopped


def test_no_shape_begins_after_the_budget(tmp_path, monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(cluster.time, "monotonic", lambda: float(next(clock)))
    plan, engine = plan_of(30), Engine(place("a"))
    with store.Store.create(tmp_path / "r", MANIFEST) as sink:
        work = cluster.jobs(cluster.Target(plan, sink), plan.all_cells())
        outcome = cluster.Dispatch(engine, work, Watching(), budget_s=60.0).run()
    assert outcome.out_of_budget
    assert 0 < outcome.left < 30
    assert not engine.flying


def test_a_node_far_behind_its_peers_is_named_once_even_before_it_returns():
    paces = cluster.Paces()
    job = cluster.Job(None, Shape(1, 1, 1, 1), [], 10.0)
    for name in "abc":
        paces.note(place(name), 11.0, 10.0)
    paces.note(place("d"), 200.0, 10.0)
    now = cluster.time.monotonic()
    flying = {place("a"): (job, now - 5), place("d"): (job, now - 5)}
    assert [line.split()[1] for line in paces.slow(flying)] == ["d"]
    assert paces.slow(flying) == []
    assert paces.slow({place("e"): (job, now - 50)}) == []
    (line,) = paces.slow({place("e"): (job, now - 150)})
    assert line.startswith("node e is 14 times slower")


def test_the_gpus_of_a_node_share_its_cores_and_none_twice():
    shares = [NodeShare("a", number, 4).cores(range(16)) for number in range(4)]
    assert set.union(*shares) == set(range(16))
    assert sum(map(len, shares)) == 16


# which nodes may measure


def node(name, cpus=2.0, gpus=0):
    return roster.ClusterNode(f"id-{name}", name, cpus, gpus)


def node_of(**changes):
    machine = {**MACHINE, **changes.pop("machine", {})}
    return Examined(machine, "python", {"fake": {"versions": {"numpy": "2"}}}, **changes)


def test_all_faults_of_all_nodes_are_told_at_once():
    examined = {
        "a": node_of(),
        "b": node_of(missing={"pytorch": "no torch in python: pip install torch"}),
        "c": "does not answer within 180 s",
        "d": node_of(machine={"lstm_bench": "0.0.1"}, faults=["tensorflow=/x: no interpreter"]),
        "e": replace(node_of(), interpreters={"fake": {"versions": {"numpy": "1"}}}),
    }
    with pytest.raises(LstmBenchError) as error:
        roster.roster([node(name) for name in examined], examined, plan_of())
    text = str(error.value)
    assert text.startswith("4 of 5 nodes cannot measure this grid:")
    assert "b: pytorch: no torch in python: pip install torch" in text
    assert "c: does not answer" in text
    assert f"d: lstm-bench 0.0.1 in python, expected {__version__}" in text
    assert "d: tensorflow=/x: no interpreter" in text
    assert "e: fake: {'numpy': '1'}, expected {'numpy': '2'} as on a" in text


def test_what_some_node_lacks_is_left_out_everywhere_if_asked():
    examined = {"a": node_of(), "b": node_of(missing={"pytorch": "no torch"})}
    whole = roster.roster([node("a"), node("b")], examined, plan_of(), skip_missing=True)
    assert whole.missing == {"pytorch": "no torch"}
    assert len(whole.places) == 2


GPU = {"name": "Some GPU", "driver": "1", "memory_bytes": 1}


def test_a_gpu_is_a_place_and_nodes_without_one_are_idle():
    plan = replace(plan_of(), settings=replace(plan_of().settings, device="cuda"))
    two = node_of(machine={"gpus": [GPU, GPU], "threads": 16})
    some = roster.roster([node("a", 16, 2), node("b")], {"a": two, "b": node_of()}, plan)
    assert [(p.share.number, p.share.count, p.cpus, p.threads) for p in some.places] == [
        (0, 2, 8, 8),
        (1, 2, 8, 8),
    ]
    assert (some.idle, [kind.name for kind in some.kinds]) == (["b"], ["Some GPU"])
    each = roster.roster(
        [node("a", 16, 2), node("b")], {"a": two, "b": node_of()}, plan, each_its_own=True
    )
    assert [kind.device for kind in each.kinds] == ["cpu", "cuda"]
    with pytest.raises(LstmBenchError, match="none with a GPU"):
        roster.roster([node("b")], {"b": node_of()}, plan)


def test_unlike_gpus_in_one_node_are_a_fault():
    plan = replace(plan_of(), settings=replace(plan_of().settings, device="cuda"))
    both = node_of(machine={"gpus": [GPU, {**GPU, "name": "Other GPU"}]})
    with pytest.raises(LstmBenchError, match=r"unlike GPUs \(Other GPU, Some GPU\)"):
        roster.roster([node("a", 2, 2)], {"a": both}, plan)


def test_a_run_goes_on_with_its_kinds_and_versions_only():
    plan = plan_of()
    nodes_now = roster.roster(
        [node("a"), node("b")],
        {"a": node_of(), "b": node_of(machine={"cpu": "Other CPU"})},
        plan,
    )
    known = roster.known_kinds({"machine": MACHINE}, {}, plan)
    assert [p.share.node for p in roster.resumed(nodes_now, known, "r").places] == ["a"]
    third = roster.known_kinds({"machine": {**MACHINE, "cpu": "Third CPU"}}, {}, plan)
    with pytest.raises(LstmBenchError, match="was measured on Third CPU"):
        roster.resumed(nodes_now, third, "r")
    before = nodes.Node("z", MACHINE, {"fake": {"versions": {"numpy": "1"}}})
    with pytest.raises(LstmBenchError, match=r"other circumstances \(a: fake"):
        roster.resumed(nodes_now, roster.known_kinds({}, {"z": before}, plan), "r")


def test_a_node_tells_what_it_is_and_what_it_lacks():
    here = examine(plan_of())
    assert here.machine["lstm_bench"] == __version__
    assert here.interpreters["fake"]["versions"]
    assert (here.missing, here.faults) == ({}, [])
    lacking = examine(replace(plan_of(), environments={"fake": "/no/such/python"}))
    assert "/no/such/python" in lacking.faults[0]


# the command, with these nodes in place of Ray


@pytest.fixture
def on_nodes(monkeypatch, lstm_bench):
    """Call the command line where `--ray` finds nodes of these processors."""

    def call(cpus, *words):
        class Nodes(Engine):
            def __init__(self):
                super().__init__()
                self.nodes = [node(name) for name in cpus]

            def examined(self, plan):
                return {name: node_of(machine={"cpu": cpu}) for name, cpu in cpus.items()}

            def use(self, places, missing):
                self.places = places

            def around_run(self, places):
                return [({}, ["nothing is measured before it"])] * len(places)

        @contextlib.contextmanager
        def connected(address, env):
            yield Nodes()

        monkeypatch.setattr(ray_cluster, "connected", connected)
        return lstm_bench("grid", *words)

    return call


def test_ray_fills_one_run_and_goes_on_with_it(on_nodes, write_grid, tmp_path):
    alike, grid = dict.fromkeys("ab", "Some CPU"), write_grid(threads="all")
    done = on_nodes(alike, "--run", "r", "--ray", grid)  # the word behind --ray is the grid
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("! nothing is measured before it") == 1  # of each kind once
    assert {r["node"] for r in records(tmp_path / "results/r")} == {"a", "b"}
    assert nodes.read(tmp_path / "results/r").keys() == {"a", "b"}
    manifest = store.read_manifest(tmp_path / "results/r")
    assert manifest["plan"]["settings"]["threads"] == 2
    (tmp_path / "results/r/records.jsonl").write_text("")
    assert on_nodes(alike, "--resume", "r", "--ray").returncode == 0
    assert len(records(tmp_path / "results/r")) == 2
    assert len(store.read_legs(tmp_path / "results/r")) == 2
    assert "is complete" in on_nodes(alike, "--resume", "r", "--ray").stdout
    done = on_nodes({"a": "Third CPU"}, "--resume", "r", "--ray")
    assert (done.returncode, "was measured on Some CPU" in done.stderr) == (2, True)


def test_each_kind_of_device_gets_a_run_of_the_whole_grid(on_nodes, write_grid, tmp_path):
    unlike, grid = {"a": "Some CPU", "b": "Other CPU"}, write_grid()
    assert "2 kinds of device" in on_nodes(unlike, grid, "--ray", "--dry-run").stderr
    assert not (tmp_path / "results").exists()
    done = on_nodes(unlike, grid, "--ray", "--per-device", "--run", "r")
    assert done.returncode == 0, done.stderr
    names = {run.name: len(records(run)) for run in (tmp_path / "results").iterdir()}
    assert names == {"r-some-cpu": 2, "r-other-cpu": 2}
    assert "lstm-bench compare r-other-cpu r-some-cpu" in done.stdout
