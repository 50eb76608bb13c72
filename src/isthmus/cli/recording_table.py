"""What is in a recording or a foreign table, for a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from isthmus.cli import render

if TYPE_CHECKING:
    from isthmus.data.recordings import RecordingInfo, TableInfo, ValueRange


def summary(robot: str, ticks: int, duration: float, rate: float) -> str:
    return f"{robot}, {ticks} ticks, {duration:.2f} s at {rate:.4g} Hz"


def print_title(path: Path, text: str) -> None:
    _print_line(str(path), "bold", whole=True)
    _print_line(text)


def print_list(title: str, lines: Sequence[str]) -> None:
    if lines:
        render.out.print()
        _print_line(title, "bold")
        for line in lines:
            _print_line(f"- {line}")


def print_recording(path: Path, info: RecordingInfo) -> None:
    state = "complete" if info.complete else "cut: it ends at the last complete chunk"
    print_title(path, f"{summary(info.robot, info.ticks, info.duration, info.rate)}, {state}")
    _print_line(_origin_text(info.origin))
    if info.missed:
        _print_line(f"missed deadlines: {info.missed}")
    rows = [[name, r.unit, str(r.size), *_range_cells(r)] for name, r in info.signals.items()]
    rows += [[f"status.{name}", "", "1", *_range_cells(r)] for name, r in info.status.items()]
    _print_table("", ["signal", "unit", "size", "lowest", "highest", "missing"], rows, right=(2, 3, 4, 5))
    counts = Counter((e.level, e.name) for e in info.events)
    if counts:
        first = {(e.level, e.name): e for e in reversed(info.events)}
        rows = [
            [level, name, str(n), f"{first[level, name].time:.2f}", first[level, name].text]
            for (level, name), n in counts.items()
        ]
        _print_table("events", ["level", "name", "times", "first s", "text"], rows, right=(2, 3))


def print_columns(path: Path, info: TableInfo) -> None:
    print_title(path, f"{info.format}, {len(info.columns)} columns; not a recording of ours")
    rows = []
    for name, c in info.columns.items():
        low, high, missing = _range_cells(c)
        rows.append([name, c.kind, str(c.count), missing if c.kind == "number" else "", low, high])
    _print_table("", ["column", "kind", "count", "missing", "lowest", "highest"], rows, right=(2, 3, 4, 5))
    print_list("notes", info.notes)


def _range_cells(r: ValueRange) -> list[str]:
    return [*("" if math.isnan(x) else f"{x:.4g}" for x in (r.low, r.high)), str(r.missing or "")]


def _print_line(text: str, style: str = "", whole: bool = False) -> None:
    """A line without markup and emoji. `whole` is not wrapped, however long."""
    render.out.print(Text(render.printable(text), style), soft_wrap=whole)


def _print_table(title: str, columns: list[str], rows: list[list[str]], right: tuple[int, ...]) -> None:
    render.out.print()
    render.out.print(render.table(title, columns, rows, right))


def _origin_text(origin: Mapping[str, Any]) -> str:
    started = origin.get("started")
    parts = [f"source {origin.get('source', 'unknown')}"]
    parts += [f"{name} {origin[name]}" for name in ("unit", "task", "file") if origin.get(name)]
    parts += [f"controller {str(origin['controller_hash'])[:12]}"] if origin.get("controller_hash") else []
    if isinstance(started, int | float) and 0 < started < 2**33:
        parts.append(f"started {datetime.fromtimestamp(started, UTC):%Y-%m-%d %H:%M:%S} UTC")
    return ", ".join(parts)
