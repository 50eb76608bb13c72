"""Progress of long work: whoever shows it passes a function, whoever works calls it.

progress(0.4, "fitting numbers")      share that is done, 0 to 1, and what is being done
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    def __call__(self, fraction: float, note: str = "", /) -> None:
        """Called with the share that is done, 0 to 1, and a few words about it."""
        ...


def silent(fraction: float, note: str = "", /) -> None:
    """Shows nothing."""


def sub_progress(progress: Progress, begin: float, end: float) -> Progress:
    """Progress of a part of the work that takes from `begin` to `end` of the whole."""
    return lambda fraction, note="", /: progress(begin + (end - begin) * min(max(fraction, 0.0), 1.0), note)


def step_progress(progress: Progress, max_steps: int) -> Callable[[int, float], None]:
    """Progress of an iteration of at most `max_steps` steps: called after each with its number and its cost."""
    return lambda step, cost: progress(min((step + 1) / max_steps, 1.0))
