"""Figures as inline SVG: colours come from the page's style, so that they suit light, dark and paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 130, 12, 42
ROW_LABEL_WIDTH, ROW_HEIGHT = 190, 22
"""Pixels for the names of rows, and between rows."""
COLOUR_COUNT = 8
"""Colours of the page."""


@dataclass(frozen=True)
class Line:
    label: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    low: Sequence[float] | np.ndarray = ()
    """Ends of an interval at each point, if it has one."""
    high: Sequence[float] | np.ndarray = ()
    dashed: bool = False


@dataclass(frozen=True)
class Axis:
    label: str
    low: float
    high: float
    log: bool = False
    start: float = 0.0
    """Pixels of its two ends."""
    end: float = 1.0
    ticks: tuple[float, ...] = field(default=())

    def __call__(self, value: float) -> float:
        f = math.log if self.log else float
        share = (f(min(max(value, self.low), self.high)) - f(self.low)) / ((f(self.high) - f(self.low)) or 1.0)
        return round(self.start + share * (self.end - self.start), 1)


def fitted_axis(label: str, values: Sequence[float], start: float, end: float, log: bool = False) -> Axis:
    """An axis that holds the values, with a few round ticks."""
    good = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
    low, high = min(good), max(good)
    if log:
        low, high = low / 1.1, max(high * 1.1, low * 2)
        ticks = [m * 10.0**k for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)]
    else:
        pad = 0.05 * (high - low) or 0.5
        low, high = low - (pad if low else 0.0), high + pad
        step = 10.0 ** math.floor(math.log10(high - low))
        step = next(s for s in (step * 0.1, step * 0.2, step * 0.5, step, step * 2) if (high - low) / s <= 6)
        ticks = [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return Axis(label, low, high, log, start, end, tuple(t for t in ticks if low <= t <= high))


def svg_figure(body: str, width: int = WIDTH, height: int = HEIGHT, title: str = "", name: str = "") -> str:
    extra = f' id="{escape(name)}"' if name else ""
    return (
        f'<svg{extra} viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"{body}</svg>"
    )


def axes_grid(x: Axis, y: Axis) -> str:
    """Ticks with their numbers, and what the axes are."""
    parts = []
    for t in x.ticks:
        parts.append(f'<line class="grid" x1="{x(t)}" x2="{x(t)}" y1="{y.start}" y2="{y.end}"/>')
        parts.append(f'<text x="{x(t)}" y="{y.start + 16}" text-anchor="middle">{t:g}</text>')
    for t in y.ticks:
        parts.append(f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{y(t)}" y2="{y(t)}"/>')
        parts.append(f'<text x="{x.start - 6}" y="{y(t) + 4}" text-anchor="end">{t:g}</text>')
    middle = (y.start + y.end) / 2
    parts.append(
        f'<text class="axis x" x="{(x.start + x.end) / 2}" y="{y.start + 34}" text-anchor="middle">{escape(x.label)}</text>'
    )
    parts.append(
        f'<text class="axis y" x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
        f"{escape(y.label)}</text>"
    )
    return "".join(parts)


def line_chart(
    lines: Sequence[Line], x: str, y: str, title: str, log: bool = True, marks: Sequence[tuple[float, str]] = ()
) -> str:
    """Lines with their intervals, labelled at the right; `marks` are levels of y with a name."""
    all_x = [float(v) for line in lines for v in line.x]
    all_y = [float(v) for line in lines for v in (*line.y, *line.low, *line.high)] + [m for m, _ in marks]
    ax = fitted_axis(x, all_x, LEFT, WIDTH - RIGHT, log)
    ay = fitted_axis(y, all_y, HEIGHT - BOTTOM, TOP, log)
    parts = [axes_grid(ax, ay)]
    places = _spread_labels([*(ay(_last_finite(line.y)) for line in lines), *(ay(level) for level, _ in marks)])
    for (level, name), place in zip(marks, places[len(lines) :], strict=True):
        parts.append(f'<line class="mark" x1="{ax.start}" x2="{ax.end}" y1="{ay(level)}" y2="{ay(level)}"/>')
        parts.append(f'<text class="note" x="{WIDTH - RIGHT + 8}" y="{place + 4}">{escape(name)}</text>')
    for i, (line, place) in enumerate(zip(lines, places[: len(lines)], strict=True)):
        points = [(ax(a), ay(b)) for a, b in zip(line.x, line.y, strict=True) if math.isfinite(b)]
        if len(line.low):
            edge = [(ax(a), ay(b)) for a, b in zip(line.x, line.low, strict=True)]
            edge += [(ax(a), ay(b)) for a, b in zip(line.x, line.high, strict=True)][::-1]
            parts.append(f'<polygon class="band c{i % COLOUR_COUNT}" points="{_svg_points(edge)}"/>')
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(f'<polyline class="line c{i % COLOUR_COUNT}" points="{_svg_points(points)}"{dash}/>')
        if len(points) <= 12:
            parts += [f'<circle class="dot c{i % COLOUR_COUNT}" cx="{a}" cy="{b}" r="3"/>' for a, b in points]
        parts.append(
            f'<text class="name c{i % COLOUR_COUNT}" x="{WIDTH - RIGHT + 8}" y="{place + 4}">{escape(line.label)}</text>'
        )
    return svg_figure("".join(parts), title=title)


def interval_chart(rows: Sequence[tuple[str, float, float, float, float, bool]], x: str, title: str) -> str:
    """A row each of (name, low, middle, high, value, outside): an interval, and where the value lies."""
    ax, parts, height = _row_axes([row[0] for row in rows], x, [v for row in rows for v in row[1:5]])
    for i, (_, low, middle, high, value, outside) in enumerate(rows):
        y = _row_y(i)
        parts.append(f'<line class="span" x1="{ax(low)}" x2="{ax(high)}" y1="{y}" y2="{y}"/>')
        parts.append(f'<line class="middle" x1="{ax(middle)}" x2="{ax(middle)}" y1="{y - 5}" y2="{y + 5}"/>')
        parts.append(f'<circle class="{"far" if outside else "near"}" cx="{ax(value)}" cy="{y}" r="4.5"/>')
    return svg_figure("".join(parts), height=height, title=title)


def estimate_chart(rows: Sequence[tuple[str, float, float, float, float | None, bool]], x: str, title: str) -> str:
    """A row each of (name, low, value, high, truth, outside): an interval against the span from 0 to 1."""
    ax, parts, height = _row_axes([row[0] for row in rows], x, [0.0, 1.0, *(v for r in rows for v in r[1:5] if v is not None)])
    for i, (_, low, value, high, truth, outside) in enumerate(rows):
        y, kind = _row_y(i), "far" if outside else "near"
        wide = max(ax(high) - ax(low), 1.0)
        parts.append(f'<line class="span" x1="{ax(0.0)}" x2="{ax(1.0)}" y1="{y}" y2="{y}"/>')
        parts.append(f'<rect class="{kind}" x="{ax(low)}" y="{y - 1.5}" width="{wide:.1f}" height="3"/>')
        parts.append(f'<circle class="{kind}" cx="{ax(value)}" cy="{y}" r="4"/>')
        if truth is not None:
            parts.append(f'<path class="truth" d="M{ax(truth)} {y - 6}l5 6l-5 6l-5 -6z"/>')
    return svg_figure("".join(parts), height=height, title=title)


def _row_y(row: int) -> float:
    """Pixels from the top to the middle of a row."""
    return TOP + ROW_HEIGHT * (row + 0.5)


def _row_axes(names: Sequence[str], x: str, values: Sequence[float]) -> tuple[Axis, list[str], int]:
    """The axis, the grid with a name for each row, and the height of a figure of rows."""
    height = TOP + ROW_HEIGHT * len(names) + BOTTOM
    ax = fitted_axis(x, values, ROW_LABEL_WIDTH, WIDTH - 16)
    parts = [axes_grid(ax, Axis("", 0, 1, start=height - BOTTOM, end=TOP))]
    parts += [
        f'<text x="{ROW_LABEL_WIDTH - 8}" y="{_row_y(i) + 4}" text-anchor="end">{escape(n)}</text>' for i, n in enumerate(names)
    ]
    return ax, parts, height


def _svg_points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{a},{b}" for a, b in points)


def _last_finite(y: Sequence[float] | np.ndarray) -> float:
    return next((float(v) for v in list(y)[::-1] if math.isfinite(v)), 1.0)


def _spread_labels(places: list[float], least: float = 15.0) -> list[float]:
    """Places of labels, moved so that none hides another."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    out, before = list(places), -math.inf
    for i in order:
        out[i] = before = max(places[i], before + least)
    over = max(out, default=0.0) - (HEIGHT - BOTTOM + 8)
    return [p - max(over, 0.0) for p in out]
