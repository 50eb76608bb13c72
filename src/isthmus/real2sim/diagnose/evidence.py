"""All that recordings say about why a robot did not do what it did in simulation, before anybody judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.progress import sub_progress
from isthmus.deploy.controller import Controller
from isthmus.real2sim.diagnose.baseline import EvidenceBaseline, evidence_baseline, hypothesis_results
from isthmus.real2sim.diagnose.baseline_fit import UNEXPLAINED_NOISE_RATIO
from isthmus.real2sim.diagnose.extended_parameters import with_finer_steps
from isthmus.real2sim.diagnose.frames import MIN_LOG_EVIDENCE, frame_errors
from isthmus.real2sim.diagnose.joint_flexibility import fit_joint_flexibility
from isthmus.real2sim.diagnose.joint_refit import MIN_SEARCH_EVIDENCE, refine_explanations
from isthmus.real2sim.diagnose.laplace_evidence import Hypothesis, LaplaceResult
from isthmus.real2sim.diagnose.link import LinkQuality, link_quality
from isthmus.real2sim.diagnose.outcome import ScoreSpread, TaskOutcome, task_outcome
from isthmus.real2sim.diagnose.rest_evidence import posture_mistakes, unit_mistakes
from isthmus.real2sim.diagnose.sensor_evidence import sensor_errors
from isthmus.real2sim.diagnose.sensor_noise import signal_noises
from isthmus.real2sim.diagnose.wiring_evidence import RemappingEvidence, refit_best_remappings
from isthmus.real2sim.measure.controller_replay import ControllerReplay, replay_controller
from isthmus.real2sim.measure.measure import Gap
from isthmus.real2sim.prepare.noise import NOISE_ONLY_RATIO
from isthmus.real2sim.prepare.prepare import Prepared
from isthmus.real2sim.prepare.tracks import Track
from isthmus.sim.robot import Robot
from isthmus.world import Belief

MAX_EXPLANATIONS = 12
"""Explanations that are kept, and at least the best one of every cause."""


FIT_PROGRESS, COMPARE_PROGRESS, REMAP_PROGRESS = (0.0, 0.65), (0.65, 0.75), (0.8, 0.95)
"""Shares of the time that parts of the search take, from and to; drives that may bend come between the latter two."""


@dataclass(frozen=True)
class Explanation:
    """One explanation."""

    cause: str
    name: str
    evidence: float
    """Log, over that of numbers inside the belief and nothing else."""
    amounts: tuple[float, ...] = ()
    """Of what it adds, in units of how large they may well be."""
    value: float | None = None
    """Of a number, in its unit."""
    kind: str = ""
    """`noise` of a sensor that is noisier than was believed; else nothing."""


@dataclass(frozen=True)
class Evidence:
    explanations: tuple[Explanation, ...]
    """Best first: numbers beyond the belief, sensors, missing physics, wiring."""
    soft: float
    """Log evidence of numbers anywhere over that of numbers inside the belief."""
    baseline_error: float
    """What the best numbers leave, in units of the sensors' noise."""
    best_error: float
    """What the best explanation leaves."""
    link: LinkQuality
    replay: ControllerReplay
    numbers: dict[str, float]
    """The best ones, inside the belief or not."""
    outcome: TaskOutcome | None = None
    """What the policy did, and does in simulation; None where that cannot be told."""

    def best_evidence(self, cause: str) -> float:
        return max((c.evidence for c in self.explanations if c.cause == cause), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "clues": [asdict(c) for c in self.explanations],
            "soft": self.soft,
            "left": self.baseline_error,
            "rest": self.best_error,
            "packets": self.link.shares,
            "parrot": asdict(self.replay),
            "numbers": self.numbers,
            "outcome": asdict(self.outcome) if self.outcome else None,
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Evidence:
        clues = tuple(Explanation(**{**c, "amounts": tuple(c["amounts"])}) for c in data["clues"])
        done, link, said = data.get("outcome"), LinkQuality(data["packets"]), ControllerReplay(**data["parrot"])
        if done:
            done = TaskOutcome(**done | {k: ScoreSpread(**done[k]) for k in ("believed_score", "found_score")})
        return Evidence(clues, data["soft"], data["left"], data["rest"], link, said, data["numbers"], done)


def gather_evidence(
    prepared: Prepared,
    controller: Controller,
    belief: Belief,
    threads: int = 0,
    report: Callable[[float, str], None] = lambda share, what: None,
    gap: Gap | None = None,
    task: Any = None,
) -> Evidence:
    """Evidence for every cause; `gap` is what `measure` found, where that is known.

    Link quality, controller replay and mistakes at rest are judged by the recordings as they are, all else by the cleaned ones.
    """
    robot, found = prepared.robot, prepared.in_control().tracks
    at_rest = [Explanation("wiring", text, evidence) for text, evidence in unit_mistakes(robot, prepared.raw, belief)]
    link, said = link_quality(prepared.raw), replay_controller(controller, prepared.raw)
    report(0.0, "fitting numbers")
    # A drone that is predicted in the steps of its training is late by half of one, and numbers would make up for that.
    fine = with_finer_steps(robot) if robot.morphology.flies else robot
    try:
        fitting = sub_progress(lambda share, note="", /: report(share, "fitting numbers"), *FIT_PROGRESS)
        at = evidence_baseline(fine, found, belief, threads, not link.is_clearly_bad, fitting)
    except BadInput:
        # A robot that the guard stops at once leaves little, but that may be enough.
        at_rest += [Explanation("wiring", text, evidence) for text, evidence in posture_mistakes(robot, prepared.raw)]
        if not at_rest and link.evidence <= 0 and not said.differs:
            raise
        return Evidence(tuple(at_rest), 0.0, 1.0, 1.0, link, said, {})
    clues, rest = at_rest, 1.0
    # A bad network leaves much that looks like anything, and it takes long to try it all.
    if not link.is_clearly_bad:
        more, rest = _search_explanations(robot, fine, found, belief, at, bool(at_rest), threads, report)
        noisy = [n for n in signal_noises(robot, prepared.tracks, belief) if n.evidence > 0]
        more += [Explanation("sensor", n.text, n.evidence, value=n.sigma, kind="noise") for n in noisy]
        clues = sorted([*more, *at_rest], key=lambda c: -c.evidence)
    values = belief.space.subset(at.fit.names).from_unconstrained(at.fit.point.z)
    numbers = dict(zip(at.fit.names, map(float, values), strict=True))
    done = None
    if gap is not None and gap.behaviour is not None:
        report(REMAP_PROGRESS[1], "living through it")
        covered = gap.coverage
        done = task_outcome(robot, task, controller, prepared.episodes, found, belief, at, gap.behaviour, covered, threads)
    first = {c.cause: c for c in reversed(clues)}
    kept = tuple(c for i, c in enumerate(clues) if i < MAX_EXPLANATIONS or first[c.cause] is c)
    return Evidence(kept, at.laplace.outside_gain, at.fit.noise_ratio, rest, link, said, numbers, done)


def _search_explanations(
    robot: Robot,
    fine_robot: Robot,
    tracks: Sequence[Track],
    belief: Belief,
    baseline: EvidenceBaseline,
    at_rest: bool,
    threads: int,
    report: Callable[[float, str], None],
) -> tuple[list[Explanation], float]:
    """All that explains recordings, and what the best of it leaves; `at_rest`: a mistake is known already."""
    followed, told, rest = not baseline.fit.residual.estimator.smooth, [], baseline.fit.noise_ratio
    report(COMPARE_PROGRESS[0], "comparing explanations")
    if not followed:
        comparing = sub_progress(lambda share, note="", /: report(share, "comparing explanations"), *COMPARE_PROGRESS)
        told, rest = refine_explanations(baseline, belief, hypothesis_results(baseline), comparing)
    report(COMPARE_PROGRESS[1], "bending drives")
    bent = fit_joint_flexibility(baseline, tracks, belief, threads) if baseline.fit.noise_ratio > NOISE_ONLY_RATIO else None
    clues, bends = [], False
    if bent is not None and bent.evidence > 0:
        clues, bends = (
            [Explanation("physics", "spring", bent.evidence, value=bent.stiffness)],
            bent.evidence > MIN_SEARCH_EVIDENCE,
        )
        rest = min(rest, bent.noise_ratio)
    report(REMAP_PROGRESS[0], "undoing mistakes")
    undone = frame_errors(robot, tracks)
    # Where a robot on its feet is as believed but for springs or a mistake, it takes long to try more, and nothing is gained.
    enough = followed and bends
    if baseline.fit.noise_ratio > UNEXPLAINED_NOISE_RATIO and rest > NOISE_ONLY_RATIO and not enough:
        undoing = sub_progress(lambda share, note="", /: report(share, "undoing mistakes"), *REMAP_PROGRESS)
        undone += refit_best_remappings(fine_robot, tracks, belief, baseline, threads, undoing)
    if followed and not enough and not any(u.noise_ratio < UNEXPLAINED_NOISE_RATIO and u.evidence > 0 for u in undone):
        told = hypothesis_results(baseline)
    rest = min([rest, *(u.noise_ratio for u in undone if u.evidence > 0)])
    if not at_rest and not bends:
        # What comes in another frame or unit agrees with nothing, and few samples of what shakes do not agree either.
        least = max([MIN_LOG_EVIDENCE, *(u.evidence for u in undone if u.remapping.kind in ("frame", "order", "sign", "unit"))])
        clues += [Explanation("sensor", d.text, d.evidence) for d in sensor_errors(robot, tracks) if d.evidence > least]
    return [*clues, *_to_explanations(baseline, belief, told), *map(_remapping_explanation, undone)], rest


def _to_explanations(
    baseline: EvidenceBaseline, belief: Belief, results: Sequence[tuple[Hypothesis | None, LaplaceResult]]
) -> list[Explanation]:
    if not results:
        return []
    (_, nothing), *found = results
    names = baseline.fit.names
    space, out = belief.space.subset(names), []
    for block, one in found:
        assert block is not None
        value = None
        if block.cause == "outside":
            i = names.index(block.name)
            z = one.z.copy()
            z[i] += one.amounts[0]
            value = float(space.from_unconstrained(np.clip(z, -20.0, 20.0))[i])
        shares = tuple(float(c) for c in one.amounts / block.spread)
        out.append(Explanation(block.cause, block.name, one.evidence - nothing.evidence, shares, value))
    return out


def _remapping_explanation(evidence: RemappingEvidence) -> Explanation:
    return Explanation("wiring", evidence.remapping.text, evidence.evidence)
