"""When numbers of a world become others in the middle of an episode."""

from __future__ import annotations

import numpy as np

from isthmus.tasks.task import ParameterShift


class ParameterShiftSchedule:
    def __init__(self, shift: ParameterShift | None, n: int, tick: float):
        self.shift, self.tick = shift, tick
        self.seconds_left = np.full(n, np.inf)
        """s until the next change in each world."""

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters that change, all at once."""
        return self.shift.parameters if self.shift else ()

    def reset(self, ids: np.ndarray, rng: np.random.Generator) -> None:
        """Draw the first change of new episodes in worlds `ids`."""
        if self.shift is not None:
            self.seconds_left[ids] = rng.uniform(*self.shift.interval, len(ids))

    def advance(self, rng: np.random.Generator) -> np.ndarray:
        """One tick later: the worlds that change now."""
        if self.shift is None:
            return np.zeros(0, dtype=int)
        self.seconds_left -= self.tick
        due = np.nonzero(self.seconds_left <= 0)[0]
        self.reset(due, rng)
        return due

    def state(self) -> dict[str, np.ndarray]:
        return {"until": self.seconds_left.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.seconds_left = state["until"].copy()
