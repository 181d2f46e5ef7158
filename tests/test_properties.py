"""Promises that hold for any input, not for the ones that somebody thought of."""

import csv
import io
import json
import re

import msgspec
import pytest
from builders import cells, row, run
from conftest import at_most
from hypothesis import example, given
from hypothesis import strategies as st

from lstm_bench.analysis import noise
from lstm_bench.analysis.comparison import compare
from lstm_bench.features.page import page
from lstm_bench.model.types import LstmBenchError, Record, Shape, dumps, to_json
from lstm_bench.model.units import clean
from lstm_bench.report import paper_table, run_report
from lstm_bench.report.document import Document, Table, text
from lstm_bench.runs import choice

names = st.text(min_size=1, max_size=30).filter(lambda s: not re.search(r"[\ud800-\udfff]", s))
times = st.floats(1e-8, 1e3)
sizes = st.integers(1, 3)
rounds = st.lists(times, max_size=12)
statuses = st.sampled_from(
    ["crashed", "oom", "timeout", "wrong", "unsupported", "interrupted", "missing"]
)


@st.composite
def rows(draw):
    ok = draw(st.booleans())
    return row(
        draw(st.sampled_from(["a", "b", "deepbench", "pytorch", "<x>", "=1"])),
        draw(times) if ok else None,
        *(draw(sizes) for _ in range(3)),
        **({"round_latency_s": draw(rounds)} if ok else {"status": draw(statuses)}),
        copy=draw(st.integers(1, 3)),
        group=draw(st.sampled_from(["", "g"])),
        computes=draw(st.sampled_from(["lstm", "lstm-skip-input"])),
        precision=draw(st.sampled_from(["fp32", "fp16"])),
    )


quick = at_most(30)


@quick
@given(st.lists(rows(), max_size=12))
def test_any_run_can_be_reported_in_every_format(some):
    made = run(*some)
    for document in (run_report.document(made), paper_table.document(made)):
        for form in ("table", "github", "csv", "latex"):
            document.written(form)
        json.loads(document.written("json"))


@quick
@given(st.lists(rows(), min_size=2, max_size=12))
def test_any_two_can_be_compared_and_the_interval_holds_the_value(some):
    frame = cells(*some)
    actual = sorted(set(frame.loc[frame["copy"] == 1, "implementation"]))
    if len(actual) < 2:
        return
    comparison = compare(frame, actual[0], actual[1], across=None)
    group = comparison.group()
    if not group.shapes:
        return
    assert group.mpe.value <= 1
    assert group.ratio.value > 0
    if group.shapes >= 4:
        assert group.ratio.low <= group.ratio.value <= group.ratio.high
    mirrored = compare(frame, actual[1], actual[0], across=None).group()
    assert mirrored.ratio.value == pytest.approx(1 / group.ratio.value, rel=1e-9)


@quick
@given(st.lists(st.tuples(rounds, rounds), max_size=8), st.floats(0, 0.5))
def test_a_verdict_turned_round_is_its_opposite(pairs, floor):
    first, second = noise.by_round([a for a, _ in pairs]), noise.by_round([b for _, b in pairs])
    width = min(first.shape[1], second.shape[1])
    first, second = first[:, :width], second[:, :width]
    floors = noise.np.full(len(pairs), floor)
    opposite = {"faster": "slower", "slower": "faster", "same": "same", "unsure": "unsure"}
    there = noise.round_verdicts(first, second, floors)
    back = noise.round_verdicts(second, first, floors)
    assert [opposite[str(w)] for w in there] == [str(w) for w in back]


@given(names)
@example("0\u20280")  # separates lines, and is no control character
@example("0\u20290")
def test_any_name_stays_in_its_cell(name):
    document = Document([Table("t", [{"name": name, "n": 1}], (text("name", "name"),))])
    (actual,) = csv.DictReader(io.StringIO(document.written("csv")))
    assert actual["n"] == "1"
    assert not actual["name"].startswith(("=", "+", "-", "@"))
    table = document.written("table").splitlines()
    assert len(table) <= 3
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", "".join(table))
    assert json.loads(document.written("json"))["t"][0]["name"] == name


@given(st.text())
def test_cleaned_text_has_no_control_characters(value):
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", clean(value))


@given(st.text(max_size=120))
def test_a_run_name_is_one_plain_folder_or_refused(name):
    try:
        kept = choice.run_name(name)
    except LstmBenchError:
        return
    assert "/" not in kept
    assert not kept.startswith(".")
    assert len(kept) <= 100


@at_most(10)
@given(names, st.text(max_size=60))
def test_nothing_of_a_run_becomes_markup_in_the_page(name, reason):
    html = page.html(run(row(name, 1.0), row("b", None, reason=reason, path=name)))
    script = html[html.index('type="application/json"') :]
    inside = script[script.index(">") + 1 : script.index("</script>")]
    json.loads(inside)  # no string of the run ended it early
    assert "<" not in inside


@given(
    st.builds(
        Record,
        implementation=names,
        shape=st.builds(Shape, *(st.integers(1, 2**31) for _ in range(4))),
        pass_number=st.integers(1, 9),
        copy=st.integers(1, 9),
        status=st.just("ok") | statuses,
        reason=st.text(max_size=50),
        latency_s=st.none() | times,
        round_latency_s=rounds,
        memory=st.dictionaries(st.text(max_size=5), st.integers(0, 2**40), max_size=2),
    )
)
def test_a_record_comes_back_as_it_was_written(record):
    line = dumps(to_json(record))
    assert "\n" not in line
    assert msgspec.json.decode(line, type=Record) == record
