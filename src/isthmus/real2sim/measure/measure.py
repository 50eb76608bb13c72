"""All that is measured of the gap between recordings and a simulator.

recordings -> suspect -> tracks -> noise -> far        the simulator against each short piece of a recording
                                         -> worst      the seconds that it predicts worst, as motion
                                         -> closed     the controller in the loop, in worlds of the belief
                                            -> behaviour, coverage, answers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.checks.findings import Finding
from isthmus.data.episode import Episode
from isthmus.deploy.controller import Controller
from isthmus.real2sim.measure.behaviour import Behaviour, compare_behaviour
from isthmus.real2sim.measure.closed_loop import controlled_stretches, resimulate
from isthmus.real2sim.measure.command_response import CommandResponse, command_responses
from isthmus.real2sim.measure.controller_replay import target_mismatch
from isthmus.real2sim.measure.coverage import Coverage, window_coverage
from isthmus.real2sim.measure.force_region import ForceRegionUse, force_region_use
from isthmus.real2sim.measure.prediction_error import PredictionError, is_motionless, measure_prediction_error
from isthmus.real2sim.measure.worst_prediction import WorstSegment, worst_segment
from isthmus.real2sim.prepare.prepare import prepare
from isthmus.real2sim.prepare.tracks import in_control
from isthmus.sim.robot import Robot
from isthmus.world import Belief

CLOSED_LOOP_WORLDS = 64
"""In which the controller runs."""
RATE_TOLERANCE = 0.02
"""Of the controller's: at another rate nobody can tell what it would have sent."""
MAX_TARGET_MISMATCH = 0.05
"""Of a target's range: where half of what was sent is farther from what a controller would have sent, it was another one."""


@dataclass(frozen=True)
class Gap:
    names: tuple[str, ...]
    """Of the recordings."""
    prediction_error: PredictionError | None
    behaviour: Behaviour | None
    coverage: Coverage | None
    force_regions: tuple[ForceRegionUse, ...]
    findings: tuple[Finding, ...]
    """What is wrong with the recordings."""
    limitations: tuple[str, ...]
    """What could not be measured, and why, a sentence each."""
    worlds: int
    seed: int
    worst_segment: WorstSegment | None = None
    command_responses: tuple[CommandResponse, ...] = ()
    """Of the policy to its commands, in the simulator."""
    motionless: bool = False
    """Nothing moves, so nothing can be told."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "score": asdict(self.prediction_error.score) | {"unit": "noise", "level": 0.95} if self.prediction_error else None,
            "prediction": _prediction_dict(self.prediction_error) if self.prediction_error else None,
            "replay": _replay_dict(self.prediction_error) if self.prediction_error and self.prediction_error.replay else None,
            "worst": _worst_dict(self.worst_segment, self.names) if self.worst_segment else None,
            "behaviour": _behaviour_dict(self.behaviour) if self.behaviour else None,
            "coverage": _coverage_dict(self.coverage, self.names) if self.coverage else None,
            "commands": [a.to_dict() for a in self.command_responses],
            "learned": [asdict(r) for r in self.force_regions],
            "findings": [f.to_dict() for f in self.findings],
            "cannot_tell": list(self.limitations),
            "worlds": self.worlds,
            "seed": self.seed,
        }


def _prediction_dict(error: PredictionError) -> dict[str, Any]:
    components = [{"signal": c.signal, "label": c.label, "unit": c.unit} for c in error.components]
    return {
        "horizons": list(error.horizons),
        "signals": {name: [asdict(m) for m in row] for name, row in error.signals.items()},
        "components": [c | {"noise": error.noise[i], "error": error.error[:, i]} for i, c in enumerate(components)],
        "segments": len(error.segments),
        "belief": {"scores": np.sort(error.world_scores), "best": float(error.world_scores.min())},
    }


def _replay_dict(error: PredictionError) -> dict[str, Any]:
    assert error.replay is not None
    r = error.replay
    return {
        "lost_after": asdict(r.divergence_time),
        "lost": vars(r.diverged),
        "possible": r.achievable_time,
        "length": float(r.time[-1]),
    }


def _worst_dict(segment: WorstSegment, names: Sequence[str]) -> dict[str, Any]:
    where = {
        "file": names[segment.recording],
        "recording": segment.recording,
        "start": segment.start,
        "length": float(segment.time[-1]),
    }
    return where | {"error": segment.error, "unit": "noise"}


def _behaviour_dict(b: Behaviour) -> dict[str, Any]:
    return {"p": b.p_value, "failed": vars(b.failed), "measures": [m.to_dict() for m in b.metrics]}


def _coverage_dict(c: Coverage, names: Sequence[str]) -> dict[str, Any]:
    return {
        "alarms": c.false_alarm_rate,
        "uncovered": vars(c.uncovered),
        "p_uncovered": c.p_uncovered,
        "energy_distance": c.energy_distance,
        "p_alike": c.p_same_distribution,
        "windows": [asdict(u) | {"file": names[u.recording]} for u in c.uncovered_windows],
    }


def measure(
    robot: Robot,
    task: Any,
    controller: Controller,
    episodes: Sequence[Episode],
    belief: Belief,
    names: Sequence[str] = (),
    worlds: int = CLOSED_LOOP_WORLDS,
    seed: int = 0,
    threads: int = 0,
    report: Callable[[float, str], None] = lambda share, what: None,
) -> Gap:
    """The gap of recordings to worlds of the belief; `task`, if there is one, says what the controller is for."""
    names = tuple(names) or tuple(f"recording {i + 1}" for i in range(len(episodes)))
    for name, episode in zip(names, episodes, strict=True):
        check_recorded_with(robot, controller, episode, name)
    prepared = prepare(robot, episodes, names)
    robot, episodes, findings = prepared.robot, prepared.episodes, prepared.findings
    found, noise = prepared.tracks, prepared.noise
    if not prepared.is_comparable:
        why = "the recordings are too short, or hold no signal of the robot that could be compared."
        return Gap(names, None, None, None, (), findings, (f"Cannot tell how far, because {why}",), worlds, seed)
    if is_motionless(in_control(robot, episodes, found), prepared.components, noise):
        why = "nothing moves in the recordings, and nothing was asked to: every simulator that stands still agrees with them."
        nothing = (f"Cannot tell how far or why, because {why}",)
        return Gap(names, None, None, None, (), findings, nothing, worlds, seed, motionless=True)
    report(0.0, "predicting")
    unsaid: list[str] = []
    try:
        distance = measure_prediction_error(
            robot, found, noise, belief, seed, threads, lambda share: report(0.45 * share, "predicting")
        )
    except BadInput as error:
        # A robot that falls at once leaves little, but why it did may show in that.
        distance = None
        unsaid.append(f"Cannot tell how far, because {error}")
    report(0.45, "looking for the worst seconds")
    seconds = worst_segment(robot, found, noise, belief.median(), threads)
    if distance is not None and distance.replay is None:
        unsaid.append("Cannot tell for how long a replay holds, because no stretch without a hole is long enough.")
    parts, lived = controlled_stretches(robot, controller, episodes, found), []
    e = belief.sample(np.random.default_rng(seed + 1), worlds)
    for i, part in enumerate(parts):
        begin, size = 0.5 + 0.4 * i / len(parts), 0.4 / len(parts)
        go = lambda share, begin=begin, size=size: report(begin + size * share, "living through it")  # noqa: E731
        lived.append((part, resimulate(robot, controller, part, e, seed + 2 + i, threads, go)))
    report(0.9, "comparing")
    done = compare_behaviour(robot, task, lived) if lived else None
    covered = window_coverage(robot, lived, seed=seed) if lived else None
    if not lived:
        unsaid.append("Cannot tell what the policy does, because it was in charge for less than a second.")
    learned = tuple(force_region_use(robot, found))
    heard = tuple(command_responses(robot, controller, parts, belief.median(), threads)) if parts else ()
    return Gap(names, distance, done, covered, learned, findings, tuple(unsaid), worlds, seed, seconds, heard)


def check_recorded_with(robot: Robot, controller: Controller, episode: Episode, name: str) -> None:
    """Refuse a recording that is not of this robot under this controller."""
    if episode.contract.robot != robot.contract.robot:
        raise BadInput(f"{name} is a recording of {episode.contract.robot}, but the controller is for {robot.contract.robot}.")
    if len(episode) < 2:
        raise BadInput(f"{name} is empty: it has {len(episode)} ticks.")
    if not np.isfinite(episode.target).all(axis=1).any():
        raise BadInput(f"{name} has no targets: what was sent to the robot must be recorded, or nothing can be replayed.")
    made = episode.origin.get("controller_hash")
    if made and controller.hash and made != controller.hash:
        raise BadInput(
            f"{name} was recorded with another controller ({str(made)[:12]}) than this one ({controller.hash[:12]})."
        )
    if (
        made
        or np.isfinite(episode.wanted).any()
        or abs(episode.contract.rate / controller.manifest.robot.rate - 1.0) > RATE_TOLERANCE
    ):
        return
    if (off := target_mismatch(controller, episode)) > MAX_TARGET_MISMATCH:
        raise BadInput(
            f"{name} does not say what drove the robot, and this controller would have sent other targets: half of them are "
            f"more than {100 * off:.0f} % of their range off; `isthmus identify` takes recordings of any driver."
        )
