"""What commands print: one JSON object, or tables and bars for people. Logs and bars go to standard error."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from isthmus.core import progress as progress_protocol
from isthmus.core.plain import to_plain


def discard_stdout() -> None:
    """Nobody reads standard output any more: what is still written to it goes nowhere, and the work goes on."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _OutputConsole(Console):
    def on_broken_pipe(self) -> None:
        discard_stdout()


out = _OutputConsole(soft_wrap=False)
err = Console(stderr=True)


def emit(data: dict[str, Any]) -> None:
    """One JSON object on standard output; NaN becomes null."""
    try:
        print(json.dumps(to_plain(data), ensure_ascii=False, allow_nan=False))
    except BrokenPipeError:
        discard_stdout()


def printable(text: str) -> str:
    """With characters that would steer a terminal spelled out: names in a file or from a robot can hold any."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_line(text: str, style: str = "") -> None:
    """A line as it is, however long: names of folders and files may hold anything."""
    out.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


MIN_LAST_COLUMN_WIDTH = 18
"""Columns that the last column of a table has at least, if it needs them; it is the one that may be broken, between words."""
STACKED_INDENT = 4
"""Spaces before what stands under a row."""


def table(title: str, columns: list[str], rows: list[list[str]], right: tuple[int, ...] = ()) -> Table | Text:
    """A table as wide as the terminal. Columns for which there is no room stand under their rows, each with its name."""
    rows = [[printable(cell) for cell in row] for row in rows]
    side = _columns_that_fit(columns, rows, out.width)
    if side < len(columns):
        return _stacked_table(title, columns, rows, right, side)
    t = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        t.add_column(column, justify="right" if i in right else "left", overflow="fold", no_wrap=i < len(columns) - 1)
    for row in rows:
        t.add_row(*map(Text, row))
    return t


def _widths(columns: list[str], rows: list[list[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]


def _columns_that_fit(columns: list[str], rows: list[list[str]], width: int) -> int:
    """Columns that have room side by side, at least one."""
    widths = _widths(columns, rows)
    widths[-1] = min(widths[-1], MIN_LAST_COLUMN_WIDTH)
    return max([k for k in range(1, len(widths) + 1) if sum(widths[:k]) + 2 * (k - 1) <= width], default=1)


def _stacked_table(title: str, columns: list[str], rows: list[list[str]], right: tuple[int, ...], side: int) -> Text:
    widths = _widths(columns, rows)

    def line(cells: list[str]) -> str:
        pads = [" " * (w - cell_len(cell)) for w, cell in zip(widths[:side], cells[:side], strict=True)]
        return "  ".join(p + c if i in right else c + p for i, (c, p) in enumerate(zip(cells, pads, strict=False))).rstrip()

    found = Text(f"{title}\n" if title else "", style="", overflow="fold")
    found.stylize("italic")
    found.append(line(columns), "bold")
    for row in rows:
        under = "; ".join(f"{c} {cell}".strip() for c, cell in zip(columns[side:], row[side:], strict=True) if cell)
        indent = " " * STACKED_INDENT
        parts = textwrap.wrap(under, out.width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
        found.append("\n" + "\n".join([line(row), *parts]))
    return found


WIDE_TERMINAL = 90
"""Columns of a terminal that has room for a bar beside its note."""


RemainingTime = Callable[[float | None], float | None]
"""Of several commands: s left in all, from what the one at work says it still needs, if it does; None if nobody knows."""
_total_remaining: RemainingTime | None = None


@contextmanager
def show_total_remaining(total_remaining: RemainingTime) -> Iterator[None]:
    """Bars that are shown meanwhile also tell what is left in all."""
    global _total_remaining  # noqa: PLW0603
    before, _total_remaining = _total_remaining, total_remaining
    try:
        yield
    finally:
        _total_remaining = before


def format_duration(seconds: float) -> str:
    """A time, as people say it."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class _TotalRemainingColumn(ProgressColumn):
    """What is left of all commands, counting down."""

    max_refresh = 0.5

    def __init__(self, total_remaining: RemainingTime):
        self._remaining = total_remaining
        super().__init__(Column(no_wrap=True))

    def render(self, task: Task) -> Text:
        seconds = self._remaining(task.time_remaining)
        return Text(f"in all {format_duration(seconds)}" if seconds is not None else "")


class ProgressBar:
    """A progress bar with time left; without a terminal, a line every ten seconds."""

    def __init__(self, what: str):
        self.what = what
        self.live = err.is_terminal
        self._next_line_time = time.monotonic() + 10.0
        self._start = time.monotonic()
        self._initial_fraction: float | None = None
        """Fraction that was already done when we first heard, as in a resumed run."""
        self._largest_fraction = 0.0
        # Where there is little room, the note gives way, and never the time.
        whole, cut = partial(Column, no_wrap=True), Column(no_wrap=True, overflow="ellipsis", ratio=3)
        columns = (
            TextColumn("{task.description}", markup=False, table_column=cut),
            *((BarColumn(bar_width=None, table_column=Column(ratio=1)),) if err.width >= WIDE_TERMINAL else ()),
            TextColumn("{task.percentage:>3.0f} %", table_column=whole(min_width=5)),
            TimeElapsedColumn(table_column=whole(min_width=7)),
            TextColumn("left", table_column=whole(min_width=4)),
            TimeRemainingColumn(elapsed_when_finished=False, table_column=whole(min_width=7)),
            *((_TotalRemainingColumn(_total_remaining),) if _total_remaining is not None else ()),
        )
        self._progress = Progress(*columns, console=err, transient=True, expand=True)
        self._task = self._progress.add_task(what, total=1.0)

    def update(self, fraction: float, note: str = "") -> None:
        """Where a search begins again the bar waits: it never goes back."""
        fraction = self._largest_fraction = max(fraction, self._largest_fraction)
        if self._initial_fraction is None:
            self._initial_fraction = fraction
            self._progress.reset(self._task)
            self._progress.update(self._task, completed=fraction)
        label = f"{self.what} {note}".rstrip()
        if self.live:
            self._progress.update(self._task, completed=fraction, description=label)
        elif time.monotonic() >= self._next_line_time:
            self._next_line_time = time.monotonic() + 10.0
            spent, done = time.monotonic() - self._start, fraction - self._initial_fraction
            own = spent * (1 - fraction) / done if done > 0 else None
            in_all = _total_remaining(own) if _total_remaining is not None else None
            told = [f"{100 * fraction:.0f} %"]
            told += [f"about {own:.0f} s left"] if own is not None else []
            told += [f"{format_duration(in_all)} in all"] if in_all is not None else []
            print(f"{label}: {', '.join(told)}", file=sys.stderr, flush=True)


@contextmanager
def progress_bar(what: str) -> Iterator[ProgressBar]:
    b = ProgressBar(what)
    if b.live:
        b._progress.start()
    try:
        yield b
    finally:
        if b.live:
            b._progress.stop()


@contextmanager
def deferred_progress_bar(what: str) -> Iterator[progress_protocol.Progress]:
    """A progress bar that appears with its first report, so that lines can be printed before it."""
    with ExitStack() as stack:
        bars: list[ProgressBar] = []

        def report(fraction: float, note: str = "", /) -> None:
            if not bars:
                bars.append(stack.enter_context(progress_bar(what)))
            bars[0].update(fraction, note)

        yield report
