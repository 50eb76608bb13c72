"""Harder only when ready: the level of a task's curriculum, decided by recent episodes."""

from __future__ import annotations

import numpy as np

from isthmus.tasks.task import Level


class Curriculum:
    def __init__(self, levels: tuple[Level, ...], start: int = 0, window: int = 200):
        self.levels, self.index, self.window = levels, start, window
        self.recent_scores = np.zeros(0)
        """Scores of the latest episodes at this level, oldest first; a failure counts with the score it reached."""

    @property
    def level(self) -> Level:
        return self.levels[self.index]

    def record(self, scores: np.ndarray, start_levels: np.ndarray) -> bool:
        """Note finished episodes and the levels at which they began; return True if the level went up."""
        if self.index == len(self.levels) - 1:
            return False
        self.recent_scores = np.concatenate([self.recent_scores, scores[start_levels == self.index]])[-self.window :]
        if len(self.recent_scores) < self.window or self.recent_scores.mean() < self.level.score:
            return False
        self.index += 1
        self.recent_scores = np.zeros(0)
        return True

    def state(self) -> dict[str, np.ndarray]:
        return {"index": np.array([self.index]), "recent": self.recent_scores.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.index = int(state["index"][0])
        self.recent_scores = state["recent"].copy()
