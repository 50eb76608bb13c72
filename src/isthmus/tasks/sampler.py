"""Which worlds an environment begins its episodes in, and what comes back from them."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from isthmus.world import Belief


class Sampler(Protocol):
    def draw(self, rng: np.random.Generator, ids: np.ndarray, belief: Belief) -> np.ndarray:
        """e for new episodes in worlds `ids`, (k, d); `belief` is what the curriculum allows now."""
        ...

    def record(self, ids: np.ndarray, finished: dict[str, np.ndarray]) -> None:
        """Take in the episodes that just ended in worlds `ids`, as `Env.step` describes them."""
        ...

    def state(self) -> dict[str, np.ndarray]: ...

    def restore(self, state: dict[str, np.ndarray]) -> None: ...


class Draws:
    """Independent draws from the belief."""

    def draw(self, rng: np.random.Generator, ids: np.ndarray, belief: Belief) -> np.ndarray:
        return belief.sample(rng, len(ids))

    def record(self, ids: np.ndarray, finished: dict[str, np.ndarray]) -> None:
        pass

    def state(self) -> dict[str, np.ndarray]:
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        pass
