"""One clock for columns that come from several: ticks, and what each column last said at each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.units import conversion_factor
from isthmus.data.importers import Table

MAX_TICKS = 20_000_000
GAP_FACTOR = 3.5
"""Steps longer than this many median ones are gaps."""


class TimeSpec(Protocol):
    """What a mapping says about time."""

    @property
    def column(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def rate(self) -> float: ...


@dataclass(frozen=True)
class TickGrid:
    time: np.ndarray
    """(T,) s since the first tick, strictly increasing."""
    source_rows: np.ndarray
    """(T,) row of the reference column that a tick takes its values from."""
    stamps: np.ndarray | None
    """(T,) s since the table's zero, when that was logged."""
    start: float
    """s since the table's zero, when the first tick was logged."""
    source_size: int
    """Rows of the reference column."""
    source_lines: np.ndarray | None = None

    def describe_tick(self, tick: int) -> str:
        """Where a tick is, for people: its line where the source has lines, else its time."""
        if self.source_lines is not None:
            return f"line {self.source_lines[self.source_rows[tick]]}"
        return f"{self.time[tick]:.3f} s"


def tick_grid(table: Table, spec: TimeSpec, columns: Sequence[str], rate: float, where: str) -> tuple[TickGrid, list[str]]:
    """The ticks of a table, and what was wrong with its time stamps. Those that go back, repeat or are missing are dropped."""
    if not columns:
        raise BadInput(f"{where} maps no column at all.")
    if spec.rate < 0:
        raise BadInput(f"{where}: time: rate must be positive.")
    reference = table[spec.column or columns[0]]
    stamps, warnings = reference.stamps, []
    if spec.column:
        # Unix times in nanoseconds lose their fine digits unless the start comes off first.
        raw = reference.values
        base = raw[np.isfinite(raw)][:1].sum()
        moments = (raw - base) * conversion_factor(spec.unit, "s", f"{where}: time")
    elif stamps is not None:
        moments = stamps - stamps[0]
    elif spec.rate:
        moments = np.arange(len(reference.values)) / spec.rate
    else:
        raise BadInput(f"{where}: {table.source} has no time stamps; give the time's column or the rate.")
    rows = np.flatnonzero(_strictly_increasing(moments))
    if len(rows) < len(moments):
        warnings.append(_dropped_rows_warning(moments, rows, table.lines))
    if not len(rows):
        raise BadInput(f"{table.source} has no usable time stamps in {reference.name!r}.")
    start = 0.0 if stamps is None else float(stamps[rows[0]])
    time = moments[rows] - moments[rows[0]]
    found = TickGrid(time, rows, None if stamps is None else stamps[rows], start, len(moments), table.lines)
    warnings += _gap_warnings(found)
    if spec.rate and (spec.column or stamps is not None):
        found = _resample(found, spec.rate, where)
    steps = np.diff(found.time)
    if len(steps) and not 0.9 < rate * np.median(steps) < 1.1:
        warnings.append(
            f"the recording has {1 / np.median(steps):.4g} ticks per second, the robot's contract {rate:g}; "
            "`rate` under [time] resamples."
        )
    return found, warnings


def _strictly_increasing(moments: np.ndarray) -> np.ndarray:
    """Which are later than all before them."""
    finite = np.isfinite(moments)
    filled = np.where(finite, moments, -np.inf)
    before = np.concatenate([[-np.inf], np.maximum.accumulate(filled)[:-1]])
    return finite & (filled > before)


def _dropped_rows_warning(moments: np.ndarray, kept: np.ndarray, lines: np.ndarray | None) -> str:
    lost = np.setdiff1d(np.arange(len(moments)), kept)
    step = np.diff(moments, prepend=np.nan)[lost]
    kinds = {"missing": np.isnan(moments[lost]).sum(), "repeated": (step == 0).sum(), "backwards": (step < 0).sum()}
    shown = ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n)
    place = f"line {lines[lost[0]]}" if lines is not None else f"row {lost[0]}"
    return f"{len(lost)} rows dropped, because time did not go on ({shown or 'behind'}); the first at {place}."


def _gap_warnings(grid: TickGrid) -> list[str]:
    steps = np.diff(grid.time)
    if not len(steps):
        return []
    usual = np.median(steps)
    late = np.flatnonzero(steps > GAP_FACTOR * usual)
    if not len(late):
        return []
    worst = late[np.argmax(steps[late])]
    return [
        f"{len(late)} gaps in time, the longest {steps[worst]:.3g} s at {grid.describe_tick(int(worst))} "
        f"(usual step {usual:.3g} s)."
    ]


def _resample(grid: TickGrid, rate: float, where: str) -> TickGrid:
    span = grid.time[-1] * rate
    if span > MAX_TICKS:
        raise BadInput(f"{where}: time: {grid.time[-1]:.4g} s at {rate:g} Hz are more than {MAX_TICKS} ticks.")
    # A hair of tolerance, so that a tick exactly on a time stamp takes that stamp's value.
    time = np.arange(int(span + 1e-6) + 1) / rate
    at = np.searchsorted(grid.time, time + 1e-6 / rate, side="right") - 1
    stamps = None
    if grid.stamps is not None:
        # Other topics are asked at the tick itself, not at the older moment of the reference.
        stamps = grid.stamps[at] + (time - grid.time[at])
    return TickGrid(time, grid.source_rows[at], stamps, grid.start, grid.source_size, grid.source_lines)


class ZeroOrderHold:
    """held[column]: (T,) the column's last value at each tick, NaN before its first."""

    def __init__(self, table: Table, grid: TickGrid):
        self.table, self.grid = table, grid
        self.warnings: list[str] = []
        self._row_indices: dict[int, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        column = self.table[name]
        if column.stamps is None or self.grid.stamps is None:
            if len(column.values) != self.grid.source_size:
                raise BadInput(
                    f"column {name!r} of {self.table.source} has {len(column.values)} rows, not {self.grid.source_size}."
                )
            return column.values[self.grid.source_rows]
        at = self._latest_rows(name, column.stamps)
        return np.where(at < 0, np.nan, column.values[np.maximum(at, 0)])

    def _latest_rows(self, name: str, stamps: np.ndarray) -> np.ndarray:
        key = id(stamps)
        if key not in self._row_indices:
            ticks = self.grid.stamps
            assert ticks is not None
            at = np.searchsorted(stamps, ticks + 1e-9, side="right") - 1
            self._row_indices[key] = at
            age = ticks - stamps[np.maximum(at, 0)]
            usual = max(float(np.median(np.diff(stamps))) if len(stamps) > 1 else 0.0, 1e-3)
            old = np.flatnonzero((at >= 0) & (age > GAP_FACTOR * usual))
            topic = name.rsplit(".", 1)[0]
            if len(old):
                self.warnings.append(
                    f"{topic} was silent: {len(old)} ticks hold a value up to {age[old].max():.3g} s old, "
                    f"the first at {self.grid.describe_tick(int(old[0]))}."
                )
            if (at < 0).any():
                self.warnings.append(f"{topic} starts late: the first {int((at < 0).sum())} ticks have no value of it.")
        return self._row_indices[key]
