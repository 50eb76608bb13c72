"""Which worlds an environment begins its episodes in, and what comes back from them."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from isthmus.world import Belief


class Sampler(Protocol):
    def draw(self, rng: np.random.Generator, ids: np.ndarray, belief: Belief) -> np.ndarray:
        """e for new episodes in worlds `ids`, (k, d); `belief` is what the curriculum allows now."""
        ...

    def redraw(self, rng: np.random.Generator, ids: np.ndarray, belief: Belief) -> np.ndarray:
        """e for worlds `ids`, (k, d), whose numbers change in the middle of an episode."""
        ...

    def record(self, ids: np.ndarray, finished: dict[str, np.ndarray]) -> None:
        """Take in the episodes that just ended in worlds `ids`, as `Env.step` describes them."""
        ...

    def metrics(self) -> dict[str, float]:
        """What to log of it now."""
        ...

    def state(self) -> dict[str, np.ndarray]: ...

    def restore(self, state: dict[str, np.ndarray]) -> None: ...


class BeliefSampler:
    """Independent draws from the belief."""

    def draw(self, rng: np.random.Generator, ids: np.ndarray, belief: Belief) -> np.ndarray:
        return belief.sample(rng, len(ids))

    def redraw(self, rng: np.random.Generator, ids: np.ndarray, belief: Belief) -> np.ndarray:
        return belief.sample(rng, len(ids))

    def record(self, ids: np.ndarray, finished: dict[str, np.ndarray]) -> None:
        pass

    def metrics(self) -> dict[str, float]:
        return {}

    def state(self) -> dict[str, np.ndarray]:
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        pass


def succeeded(episodes: dict[str, np.ndarray], success_threshold: float) -> np.ndarray:
    """Which of the episodes did not fail and scored at least `mark`, (k,) bool."""
    return ~episodes["failed"] & (episodes["score"] >= success_threshold)
