"""What commands print: one JSON object, or tables and bars for people. Logs and bars go to standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

out = Console(soft_wrap=False)
err = Console(stderr=True)


def emit(data: dict[str, Any]) -> None:
    """One JSON object on standard output; NaN becomes null."""
    print(json.dumps(plain(data), ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """The same as JSON can hold it: lists for arrays, null for what is not a number."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def visible(text: str) -> str:
    """With characters that would steer a terminal spelled out: names in a file or from a robot can hold any."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def say(text: str, style: str = "") -> None:
    """A line as it is, however long: names of folders and files may hold anything."""
    out.print(visible(text), style=style, markup=False, highlight=False, soft_wrap=True)


def table(title: str, columns: list[str], rows: list[list[str]], right: tuple[int, ...] = ()) -> Table:
    t = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        t.add_column(column, justify="right" if i in right else "left", overflow="fold", no_wrap=i == 0)
    for row in rows:
        t.add_row(*(Text(visible(cell)) for cell in row))
    return t


WIDE = 90
"""Columns of a terminal that has room for a bar beside its note."""


class Bar:
    """A progress bar with time left; without a terminal, a line every ten seconds."""

    def __init__(self, what: str):
        self.what = what
        self.live = err.is_terminal
        self._next = time.monotonic() + 10.0
        self._start = time.monotonic()
        self._begun: float | None = None
        """Fraction that was already done when we first heard, as in a resumed run."""
        # Where there is little room, the note gives way, and never the time.
        whole, cut = partial(Column, no_wrap=True), Column(no_wrap=True, overflow="ellipsis", ratio=3)
        columns = (
            TextColumn("{task.description}", markup=False, table_column=cut),
            *((BarColumn(bar_width=None, table_column=Column(ratio=1)),) if err.width >= WIDE else ()),
            TextColumn("{task.percentage:>3.0f} %", table_column=whole(min_width=5)),
            TimeElapsedColumn(table_column=whole(min_width=7)),
            TextColumn("left", table_column=whole(min_width=4)),
            TimeRemainingColumn(elapsed_when_finished=False, table_column=whole(min_width=7)),
        )
        self._progress = Progress(*columns, console=err, transient=True, expand=True)
        self._task = self._progress.add_task(what, total=1.0)

    def update(self, fraction: float, note: str = "") -> None:
        if self._begun is None:
            self._begun = fraction
            self._progress.reset(self._task)
            self._progress.update(self._task, completed=fraction)
        label = f"{self.what} {note}".rstrip()
        if self.live:
            self._progress.update(self._task, completed=fraction, description=label)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + 10.0
            spent, done = time.monotonic() - self._start, fraction - self._begun
            left = f", about {spent * (1 - fraction) / done:.0f} s left" if done > 0 else ""
            print(f"{label}: {100 * fraction:.0f} %{left}", file=sys.stderr, flush=True)


@contextmanager
def bar(what: str) -> Iterator[Bar]:
    b = Bar(what)
    if b.live:
        b._progress.start()
    try:
        yield b
    finally:
        if b.live:
            b._progress.stop()
