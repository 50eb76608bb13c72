"""Tables in windows of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from isthmus.cli import render

COLUMNS = ["parameter", "nominal", "prior", "unit", ""]
ROWS = [
    ["ground_friction", "0.8", "0.2 to 1.5", "1", "sliding friction between foot and ground"],
    ["[b]com_x[/b]", "0", "-0.02 to 0.02", "m", "shift of the trunk's centre of mass"],
    ["length_ä", "", "", "kg·m²/s", ""],
]


def printed(monkeypatch, width: int, columns=COLUMNS, rows=ROWS) -> list[str]:
    file = io.StringIO()
    monkeypatch.setattr(render, "out", Console(file=file, width=width))
    render.out.print(render.table("world", columns, rows, right=(1,)))
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [30, 45, 60, 80, 140])
def test_no_word_is_broken_and_nothing_is_lost(monkeypatch, width):
    lines = printed(monkeypatch, width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).replace(";", "").split()
    for row in ROWS:
        for cell in row:
            assert all(word in words for word in cell.split())


@pytest.mark.parametrize("width", [60, 140])
def test_what_has_room_is_side_by_side_and_begins_in_one_column(monkeypatch, width):
    lines = printed(monkeypatch, width)
    starts = {next(line for line in lines if row[0] in line).index(row[2]) for row in ROWS[:2]}
    assert starts == {next(line for line in lines if "parameter" in line).index("prior")}


def test_what_stands_under_a_row_says_what_it_is(monkeypatch):
    lines = printed(monkeypatch, 45)
    assert any(line.startswith(" ") and "unit kg·m²/s" in line for line in lines)


def test_a_table_without_rows_is_its_head(monkeypatch):
    assert "parameter" in "\n".join(printed(monkeypatch, 30, rows=[]))
