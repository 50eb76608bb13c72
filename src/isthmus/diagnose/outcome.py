"""Did it work, would it work in simulation, and would it work in the simulator as corrected? The controller in the loop.

What the recordings show is compared with worlds of the belief, and with the world that was found in them. From these three
follows whether a policy is to blame, and what a repair is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.data.episode import Episode
from isthmus.deploy.controller import Controller
from isthmus.deploy.rules import BIT, DAMPED
from isthmus.diagnose.base import Base
from isthmus.gap.behaviour import Behaviour, behaviour
from isthmus.gap.closed import relive, stretches
from isthmus.gap.coverage import Coverage
from isthmus.gap.tracks import Track
from isthmus.sim.robot import Robot
from isthmus.world import Belief

DRAWS = 16
"""Worlds that agree with the recordings."""
LEVEL = (0.05, 0.95)
WHOLE = 0.75
"""Of an episode: what is shorter is no whole one."""


@dataclass(frozen=True)
class Spread:
    """A score, over worlds."""

    mean: float
    low: float
    high: float
    """Of most worlds."""

    @staticmethod
    def of(worlds: np.ndarray) -> Spread:
        good = np.nan_to_num(worlds)
        return Spread(float(good.mean()), *map(float, np.quantile(good, LEVEL)))


@dataclass(frozen=True)
class Outcome:
    stopped: bool
    """The guard had to stop the robot."""
    success: float
    """Share of the recordings, by length, in which the task was done; and of worlds of the belief, and of those as found."""
    believed_success: float
    found_success: float
    score: float
    """The same of the task's score, 0 to 1."""
    believed_score: Spread
    found_score: Spread
    p_uncovered: float
    """How likely a world of the belief is to go as often where others do not."""
    whole: bool = True
    """Every recording is about as long as an episode: success is only defined over one."""

    @property
    def failed(self) -> bool:
        return self.whole and (self.stopped or self.success < 0.5)


def outcome(
    robot: Robot,
    task: Any,
    controller: Controller,
    episodes: Sequence[Episode],
    found: Sequence[Track],
    belief: Belief,
    at: Base,
    lived: Behaviour,
    covered: Coverage | None,
    threads: int = 0,
) -> Outcome | None:
    """`lived` and `covered` are of worlds of the belief, as `gap.whole` has them; None where the task has no score in them."""
    parts = stretches(robot, controller, episodes, found)
    if task is None or not parts:
        return None
    e = worlds_found(at, belief)
    again = behaviour(robot, task, [(part, relive(robot, controller, part, e, i, threads)) for i, part in enumerate(parts)])
    scores = [_of(b, "score") for b in (lived, again)]
    successes = [_of(b, "success") for b in (lived, again)]
    if any(m is None for m in (*scores, *successes)):
        return None
    bits = sum(BIT[rule] for rule in DAMPED)
    rules = [np.nan_to_num(episode.status["rules"]).astype(int) for episode in episodes if "rules" in episode.status]
    return Outcome(
        stopped=any(bool((r & bits).any()) for r in rules),
        success=float(successes[0].recorded),
        believed_success=float(np.nan_to_num(successes[0].worlds).mean()),
        found_success=float(np.nan_to_num(successes[1].worlds).mean()),
        score=float(scores[0].recorded),
        believed_score=Spread.of(scores[0].worlds),
        found_score=Spread.of(scores[1].worlds),
        p_uncovered=covered.p_uncovered if covered is not None else 1.0,
        whole=min(len(part) for part in parts) >= WHOLE * task.episode * robot.contract.rate,
    )


def _of(b: Behaviour, name: str) -> Any:
    return next((m for m in b.measures if (m.group, m.name) == ("tracking", name)), None)


def worlds_found(at: Base, belief: Belief, n: int = DRAWS, seed: int = 0) -> np.ndarray:
    """(n, all) worlds that agree with the recordings: draws around the best numbers, as wide as those are known."""
    fitted, d = at.fitted, len(at.fitted.names)
    root = np.linalg.cholesky(np.linalg.inv(at.quadratic.G[:d, :d] + fitted.prior.precision))
    z = fitted.point.z + np.random.default_rng(seed).standard_normal((n, len(root))) @ root.T
    return fitted.residual.world(z, belief.median())
