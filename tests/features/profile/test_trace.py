"""Traces have what the trace event format asks for, and say what happened when."""

import itertools
import json

from lstm_bench.features.profile.trace import chrome
from lstm_bench.model.profile import Activity

WINDOWS = [(1_000_000, 1_020_000), (1_030_000, 1_050_000)]
RAW = "_Z22persistRNN_init_negMaxIfEvPfi"


def launch(start, end, correlation):
    return Activity("launch", "cudaLaunchKernel", start, end, correlation=correlation)


def traced():
    activities = [
        launch(1_001_000, 1_003_000, 7),
        Activity("kernel", RAW, 1_004_000, 1_009_000, correlation=7),
        Activity("kernel", "second", 1_008_000, 1_012_000, correlation=7),  # before the first ends
        launch(1_031_000, 1_032_000, 8),
        Activity("kernel", RAW, 1_033_000, 1_034_000, correlation=8),
        Activity("copy", "host to device", 1_040_000, 1_041_500, 4096, 9),
        Activity("fill", "memset", 1_042_000, 1_043_000, 64, 10),
    ]
    return chrome(activities, WINDOWS, "pytorch at 8,1,2")


def events(phase, trace=None):
    return [event for event in (trace or traced())["traceEvents"] if event["ph"] == phase]


def tracks():
    return {e["tid"]: e["args"]["name"] for e in events("M") if e["name"] == "thread_name"}


def test_every_event_has_the_fields_that_the_format_requires():
    trace = json.loads(json.dumps(traced(), allow_nan=False))
    required = {"X": {"ts", "dur"}, "M": {"args"}, "s": {"ts", "id"}, "f": {"ts", "id", "bp"}}
    for event in trace["traceEvents"]:
        assert {"name", "ph", "pid", "tid"} | required[event["ph"]] <= set(event)
        if "ts" in event:
            assert "cat" in event
    assert trace["displayTimeUnit"] in ("ms", "ns")


def test_times_are_microseconds_from_the_first_call():
    (first, second) = [e for e in events("X") if e["cat"] == "call"]
    assert (first["ts"], first["dur"], second["ts"]) == (0, 20, 30)
    copy = next(e for e in events("X") if e["cat"] == "copy")
    assert (copy["ts"], copy["dur"], copy["args"]["bytes"]) == (40, 1.5, 4096)


def test_the_process_and_every_track_have_a_name():
    (process,) = [e for e in events("M") if e["name"] == "process_name"]
    assert process["args"]["name"] == "pytorch at 8,1,2"
    assert list(tracks().values()) == ["calls", "host", "kernels", "kernels 2", "copies", "fills"]
    assert {e["tid"] for e in events("X")} == set(tracks())


def test_what_overlaps_lies_on_two_tracks():
    for track in tracks():
        own = sorted((e["ts"], e["ts"] + e["dur"]) for e in events("X") if e["tid"] == track)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(own))


def test_an_arrow_goes_from_each_launch_to_what_it_started_first():
    starts, ends = events("s"), events("f")
    assert [(e["id"], e["ts"]) for e in starts] == [(7, 1), (8, 31)]
    assert [(e["id"], e["ts"]) for e in ends] == [(7, 4), (8, 33)]
    assert {tracks()[e["tid"]] for e in starts} == {"host"}
    assert {tracks()[e["tid"]] for e in ends} == {"kernels"}


def test_a_kernel_has_the_name_that_a_person_reads_and_its_own():
    kernel = next(e for e in events("X") if e["cat"] == "kernel")
    assert kernel["name"] == "persistRNN_init_negMax<float>"
    assert kernel["args"]["raw"] == RAW


def test_nothing_is_a_trace_too():
    trace = chrome([], [], "nothing")
    assert [e["name"] for e in trace["traceEvents"]] == ["process_name"]
