"""When numbers of a world become others in the middle of an episode."""

from __future__ import annotations

import numpy as np

from isthmus.tasks.task import Change


class Changes:
    def __init__(self, change: Change | None, n: int, tick: float):
        self.change, self.tick = change, tick
        self.until = np.full(n, np.inf)
        """s until the next change in each world."""

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters that change, all at once."""
        return self.change.names if self.change else ()

    def reset(self, ids: np.ndarray, rng: np.random.Generator) -> None:
        """Draw the first change of new episodes in worlds `ids`."""
        if self.change is not None:
            self.until[ids] = rng.uniform(*self.change.every, len(ids))

    def advance(self, rng: np.random.Generator) -> np.ndarray:
        """One tick later: the worlds that change now."""
        if self.change is None:
            return np.zeros(0, dtype=int)
        self.until -= self.tick
        due = np.nonzero(self.until <= 0)[0]
        self.reset(due, rng)
        return due

    def state(self) -> dict[str, np.ndarray]:
        return {"until": self.until.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.until = state["until"].copy()
