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
from isthmus.deploy.guard.rules import DAMP_RULES, RULE_BITS
from isthmus.real2sim.diagnose.baseline import EvidenceBaseline
from isthmus.real2sim.measure.behaviour import Behaviour, compare_behaviour
from isthmus.real2sim.measure.closed_loop import controlled_stretches, resimulate
from isthmus.real2sim.measure.coverage import Coverage
from isthmus.real2sim.prepare.tracks import Track
from isthmus.sim.robot import Robot
from isthmus.world import Belief

FOUND_WORLDS = 16
"""Worlds that agree with the recordings."""
SCORE_QUANTILES = (0.05, 0.95)
MIN_EPISODE_SHARE = 0.75
"""Of an episode: what is shorter is no whole one."""


@dataclass(frozen=True)
class ScoreSpread:
    """A score, over worlds."""

    mean: float
    low: float
    high: float
    """Of most worlds."""

    @staticmethod
    def over_worlds(worlds: np.ndarray) -> ScoreSpread:
        good = np.nan_to_num(worlds)
        return ScoreSpread(float(good.mean()), *map(float, np.quantile(good, SCORE_QUANTILES)))


@dataclass(frozen=True)
class TaskOutcome:
    stopped: bool
    """The guard had to stop the robot."""
    success: float
    """Share of the recordings, by length, in which the task was done; and of worlds of the belief, and of those as found."""
    believed_success: float
    found_success: float
    score: float
    """The same of the task's score, 0 to 1."""
    believed_score: ScoreSpread
    found_score: ScoreSpread
    p_uncovered: float
    """How likely a world of the belief is to go as often where others do not."""
    whole: bool = True
    """Every recording is about as long as an episode: success is only defined over one."""

    @property
    def failed(self) -> bool:
        return self.whole and (self.stopped or self.success < 0.5)


def task_outcome(
    robot: Robot,
    task: Any,
    controller: Controller,
    episodes: Sequence[Episode],
    tracks: Sequence[Track],
    belief: Belief,
    baseline: EvidenceBaseline,
    believed_behaviour: Behaviour,
    coverage: Coverage | None,
    threads: int = 0,
) -> TaskOutcome | None:
    """`lived` and `covered` are of worlds of the belief, as `gap.whole` has them; None where the task has no score in them."""
    parts = controlled_stretches(robot, controller, episodes, tracks)
    if task is None or not parts:
        return None
    e = consistent_worlds(baseline, belief)
    again = compare_behaviour(
        robot, task, [(part, resimulate(robot, controller, part, e, i, threads)) for i, part in enumerate(parts)]
    )
    scores = [_task_metric(b, "score") for b in (believed_behaviour, again)]
    successes = [_task_metric(b, "success") for b in (believed_behaviour, again)]
    if any(m is None for m in (*scores, *successes)):
        return None
    bits = sum(RULE_BITS[rule] for rule in DAMP_RULES)
    rules = [np.nan_to_num(episode.status["rules"]).astype(int) for episode in episodes if "rules" in episode.status]
    return TaskOutcome(
        stopped=any(bool((r & bits).any()) for r in rules),
        success=float(successes[0].recorded),
        believed_success=float(np.nan_to_num(successes[0].worlds).mean()),
        found_success=float(np.nan_to_num(successes[1].worlds).mean()),
        score=float(scores[0].recorded),
        believed_score=ScoreSpread.over_worlds(scores[0].worlds),
        found_score=ScoreSpread.over_worlds(scores[1].worlds),
        p_uncovered=coverage.p_uncovered if coverage is not None else 1.0,
        whole=min(len(part) for part in parts) >= MIN_EPISODE_SHARE * task.episode * robot.contract.rate,
    )


def _task_metric(behaviour: Behaviour, name: str) -> Any:
    return next((m for m in behaviour.metrics if (m.group, m.name) == ("tracking", name)), None)


def consistent_worlds(baseline: EvidenceBaseline, belief: Belief, n: int = FOUND_WORLDS, seed: int = 0) -> np.ndarray:
    """(n, all) worlds that agree with the recordings: draws around the best numbers, as wide as those are known."""
    fitted, d = baseline.fit, len(baseline.fit.names)
    root = np.linalg.cholesky(np.linalg.inv(baseline.laplace.G[:d, :d] + fitted.prior.precision))
    z = fitted.point.z + np.random.default_rng(seed).standard_normal((n, len(root))) @ root.T
    return fitted.residual.parameter_values(z)
