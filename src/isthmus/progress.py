"""How far long work has come, told to whoever shows it."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[float], None]
"""Told the share that is done, 0 to 1."""


def silent(share: float) -> None:
    """Tells nobody."""


def part(report: Report, begin: float, end: float) -> Report:
    """Of a piece of the work: from `begin` to `end` of the whole."""
    return lambda share: report(begin + (end - begin) * min(max(share, 0.0), 1.0))


def counted(report: Report, most: int) -> Callable[[int, float], None]:
    """Of a search that takes at most so many steps: what it is told after each, with the number of the step and its cost."""
    return lambda step, cost: report(min((step + 1) / most, 1.0))
