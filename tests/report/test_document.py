"""One document, five formats, and nothing from a run gets out of its cell."""

import csv
import io
import json

import pytest

from lstm_bench.model.types import LstmBenchError
from lstm_bench.model.units import clean, percent, seconds, short, span, times
from lstm_bench.report.document import FORMATS, Document, Table, chosen_format, number, text

NASTY = '=1+1|<b>\x1b[31mred\n"x" & 50% $y$ _z {w} \\v'


def document(name="pytorch"):
    rows = [{"name": name, "time_s": 0.00123, "list": ["a", "b"], "none": float("nan")}]
    table = Table("times", rows, (text("name", "name"), number("time", "time_s", seconds)), "Times")
    return Document(["before", table, "after"], {"run": "r"})


def test_a_document_in_every_format(golden):
    """People see microseconds, machines seconds; nothing of a name is markup or a formula."""
    made = document()
    made.parts += [document(NASTY).parts[1], "after `all` of it"]
    golden("document", "\n\n".join(f"--- {form}\n\n{made.written(form)}" for form in FORMATS))
    assert json.loads(made.written("json"))["times"][0] == {
        **{"name": "pytorch", "time_s": 0.00123, "list": ["a", "b"]},
        "none": None,  # no NaN
    }


def test_tables_of_one_name_are_one_csv():
    first = Table("t", [{"a": 1}], (number("a", "a"),))
    other = Table("u", [{"b": 1}], (number("b", "b"),))
    assert Document([first, other, first]).written("csv") == "a\n1\n1"
    assert Document(["nothing"]).written("csv") == ""


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\t=1"])
def test_a_spreadsheet_does_not_run_a_name(name):
    (row,) = csv.DictReader(io.StringIO(document(name).written("csv")))
    assert row["name"].lstrip("'").strip() == name.strip()
    assert row["name"][0] in "' "


def test_the_files_name_chooses_the_format():
    forms = {"md": "github", "csv": "csv", "json": "json", "tex": "latex", "txt": "table"}
    assert {end: chosen_format(None, f"x.{end}") for end in forms} == forms
    assert chosen_format("csv", "x.md") == "csv"
    assert chosen_format(None, "-") == "table"
    for name, what in (("x.xlsx", r"expected \.txt, \.md"), ("x.html", "--html")):
        with pytest.raises(LstmBenchError, match=what):
            chosen_format(None, name)


def wide():
    rows = [{"name": f"row-{n}", **{f"c{m}": f"{n}{m}" * 5 for m in range(9)}} for n in range(3)]
    columns = [text("name", "name"), *(number(f"column {m}", f"c{m}") for m in range(9))]
    lines = "a note that is longer than the terminal is wide, and has to be folded somewhere"
    table = Table("wide", rows, columns, "a title that is longer than many terminals are wide")
    return Document([table, lines, "  an indented one, which " * 4])


@pytest.mark.parametrize("width", [40, 55, 80, 100, 200])
def test_a_terminal_of_any_width_shows_every_column_and_cuts_no_line(width):
    lines = wide().written("table", width).splitlines()
    assert max(map(len, lines)) <= width
    heads = [line for line in lines if line.startswith("name ")]
    assert sum(line.count("column") for line in heads) == 9
    assert all(sum(line.startswith(f"row-{n} ") for line in lines) == len(heads) for n in range(3))
    assert (len(heads) == 1) == (width == 200)


@pytest.mark.parametrize("width", [40, 60])
def test_a_column_that_is_wider_than_the_terminal_is_folded(width):
    says = "what a row is for, at such length that it takes more than one line of any terminal"
    table = Table("t", [{"name": "a-row", "says": says}], [text("name", "name"), text("-", "says")])
    lines = table.drawn("table", width).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(line.removeprefix("a-row").strip() for line in lines[2:]) == says


def test_a_word_that_is_wider_than_its_column_is_broken():
    kernel = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3"
    rows = [{"name": kernel, "family": "recurrent GEMM"}]
    table = Table("x", rows, [text("name", "name"), text("family", "family")], keys=1)
    drawn = table.drawn(width=60)
    assert max(map(len, drawn.splitlines())) <= 60
    assert "".join(line.split()[0] for line in drawn.splitlines()[2:]) == kernel
    assert "recurrent GEMM" in drawn


def test_text_is_folded_to_the_terminal_and_a_line_of_a_list_is_indented():
    text = "first\n  item " + "one-way, " * 30 + "\nlast"
    lines = Document([text]).written("table", 60).splitlines()
    assert (lines[0], lines[-1]) == ("first", "last")
    assert all(45 < len(line) <= 60 for line in lines[1:-2])
    assert all(line.startswith(" " * 6 + "one") for line in lines[2:-1])
    assert max(map(len, Document([text]).written("github").splitlines())) <= 100


def test_an_empty_table_is_drawn():
    assert Table("t", [], (number("a", "a"),)).drawn().strip().startswith("a")


def test_a_sparse_column_is_there_if_a_row_has_a_value():
    columns = [text("name", "a"), *(number(key, key, sparse=True) for key in "bcd")]
    rows = [{"a": "x", "b": None, "c": 0, "d": 1.0}, {"a": None, "b": float("nan"), "c": 0, "d": 0}]
    table = Table("t", rows, columns)
    assert [column.heading for column in table.columns] == ["name", "d"]
    assert [table.columns[0].show(row) for row in rows] == ["x", "-"]


def test_units():
    assert [seconds(v) for v in (1.5, 0.0123, 9.997e-4, 3e-6, 2e-9, None)] == [
        *("1.5 s", "12.3 ms", "1 ms", "3 us", "2 ns", "-")
    ]
    assert [span(v) for v in (45, 200, 7500)] == ["45 s", "3 min 20 s", "2 h 5 min"]
    assert percent(0.123) == "12.3%"
    assert [short(v) for v in (12.345, 0.0853, 1234.5, 0.0)] == ["12.35", "0.0853", "1234", "0.00"]
    assert times(float("nan")) == "-"
    assert clean("a\nb\x00\u202ec") == "a bc"


def test_a_table_that_goes_on_below_says_again_which_row_it_is():
    rows = [{"a": "one", "b": name, "x": "1" * 20, "y": "2" * 20} for name in ("two", "three")]
    columns = [text(key, key) for key in "abxy"]
    first, second = Table("t", rows, columns, keys=2).drawn(width=40).split("\n\n")
    assert first.splitlines()[2:] == ["one  two    " + "1" * 20, "one  three  " + "1" * 20]
    assert second.splitlines()[2:] == ["one  two    " + "2" * 20, "one  three  " + "2" * 20]


def test_a_heading_is_folded_only_where_the_table_has_no_room():
    columns = (text("row", "a"), number("vs a-long-name", "b"))
    table = Table("t", [{"a": "x" * 12, "b": "1.00x"}], columns)
    assert "vs a-long-name" in table.drawn(width=40)
    lines = table.drawn(width=21).splitlines()
    assert [" ".join(line.split()) for line in lines[:3]] == ["row vs", "a-long-", "name"]
    assert max(map(len, lines)) <= 21
    assert "vs a-long-name" in table.drawn("github", width=21)
