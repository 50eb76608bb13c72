"""`learn_residual`: physics that no parameter explains, learned from recordings and added to a twin.

ground    of a robot on feet: compliant ground, kept if it predicts held-out segments better
force     a learned force for the rest, kept if the held-out error falls
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import check_writable
from isthmus.core.plain import to_plain
from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.core.results import Result
from isthmus.real2sim.identify.fit import noise_by_signal
from isthmus.real2sim.identify.force_features import force_feature_names, with_learned_force
from isthmus.real2sim.identify.identification import PreparedSegments, prepare_segments
from isthmus.real2sim.identify.learned_force import learn_force
from isthmus.real2sim.identify.missing_physics import fit_ground
from isthmus.real2sim.recordings import Recordings, check_recordings, load_recordings
from isthmus.real2sim.residual.prediction_errors import PredictionErrors, prediction_errors
from isthmus.real2sim.result_parts import (
    ErrorChange,
    ErrorPair,
    FindingRecord,
    SegmentCounts,
    check_not_negative,
    check_twin_path,
    finding_records,
)
from isthmus.robots import get_robot
from isthmus.robots.dynamics import load_twin
from isthmus.robots.twin import Twin
from isthmus.sim.physics.ground import sink_depth
from isthmus.sim.physics.unit_physics import MAX_LEARNED_FORCES
from isthmus.sim.robot import Robot
from isthmus.world import Belief, belief_on_space

TYPICAL_GROUND_STEPS = 40
"""Gauss-Newton steps of the two fits of a ground, for the progress bar."""

Learnable = Literal["ground", "force"]


@dataclass(frozen=True)
class GroundRecord:
    """Compliant ground at one point of contact."""

    stiffness: float
    """N/m"""
    damping: float
    """N·s/m"""
    sink: float
    """m that round feet sink in while the robot stands."""
    at_bounds: tuple[str, ...]
    """Figures at the end of their search range."""
    stiffness_interval: tuple[float, float]
    """90 %"""
    damping_interval: tuple[float, float]


@dataclass(frozen=True)
class ResidualResult(Result, kind="residual"):
    robot: str
    twin: str | None
    """File that was written."""
    twin_hash: str
    inputs: tuple[str, ...]
    """Hashes of the recordings."""
    findings: tuple[FindingRecord, ...]
    error: ErrorChange
    """Without and with everything that was kept."""
    kept: bool
    learned: tuple[Learnable, ...]
    """What was kept."""
    ground: GroundRecord | None
    """Compliant ground, if it was kept."""
    candidates: Mapping[str, ErrorPair]
    """Ground -> its error, if grounds were compared."""
    force_error: ErrorChange | None
    """Without and with the learned force, kept or not; None if none was learned."""
    largest_force: Mapping[str, float]
    """Degree of freedom -> N or N·m that the learned force is limited to."""
    features: tuple[str, ...]
    """Inputs of the learned force."""
    horizon: float
    """s"""
    segments: SegmentCounts
    seconds: float


@dataclass(frozen=True)
class LearnedResidual:
    """A twin in memory, and the result."""

    twin: Twin
    result: ResidualResult


@dataclass(frozen=True)
class _Stage:
    """One thing that was learned."""

    kind: Learnable
    robot: Robot
    """With it, if it was kept."""
    error: ErrorPair
    kept: bool
    leaves_only_noise: bool
    unexplained_noise: dict[str, float]
    """Standard deviation by signal of the residual."""
    fields: dict
    """Fields of the result."""


def learn_residual(
    twin: Twin | Path | str,
    recordings: Recordings,
    out: Path | None = None,
    *,
    only: Learnable | None = None,
    joints: tuple[str, ...] = (),
    horizon: float = 0.0,
    seed: int = 0,
    progress: Progress = silent,
) -> ResidualResult:
    """Learn compliant ground and a force on `joints` (default: all), and write the twin if held-out errors fall.

    `out` is by default the file of the twin; `horizon` is in s, 0 chooses it by the noise.
    """
    out = Path(twin) if out is None and not isinstance(twin, Twin) else out
    return learn_residual_twin(
        twin, recordings, out, only=only, joints=joints, horizon=horizon, seed=seed, progress=progress
    ).result


def learn_residual_twin(
    twin: Twin | Path | str,
    recordings: Recordings,
    out: Path | None = None,
    *,
    only: Learnable | None = None,
    joints: tuple[str, ...] = (),
    horizon: float = 0.0,
    seed: int = 0,
    progress: Progress = silent,
) -> LearnedResidual:
    """As `learn_residual`, with the Twin in memory."""
    where = "the twin" if isinstance(twin, Twin) else str(twin)
    unit = load_twin(twin)
    check_twin_path(out)
    check_not_negative("horizon", horizon)
    design = get_robot(unit.robot)
    robot = unit.apply_to(design, where)
    stages = _stages_to_learn(robot, only, joints, where)
    episodes, names = load_recordings(recordings)
    check_writable(out)
    start = time.perf_counter()
    findings = check_recordings(robot, episodes, names, hint=" Correct them.")
    parts = prepare_segments(robot, episodes, robot.prior, horizon, findings=findings)
    if parts.held_out is None:
        raise BadInput(f"the recordings give {len(parts.train)} segments: too few to hold some out.")
    inputs, records = tuple(x.hash for x in episodes), finding_records(findings)
    prior = belief_on_space(unit.belief_before(inputs, design.prior), robot.space, where)
    first = error = _overall_errors(parts, parts.robot)
    kept: list[Learnable] = []
    fields: dict = {"ground": None, "candidates": {}, "force_error": None, "largest_force": {}, "features": ()}
    for i, kind in enumerate(stages):
        part = sub_progress(progress, i / len(stages), (i + 1) / len(stages))
        if kind == "ground":
            stage = _learn_ground(parts, prior, error, part)
        else:
            stage = _learn_force(parts, joints, seed, error, part)
        fields |= stage.fields
        if stage.kept:
            entry = {
                "recordings": list(inputs),
                "learned": kind,
                "findings": to_plain(records),
                "error": to_plain(ErrorChange(error, stage.error)),
            }
            belief = unit.belief if kind == "force" else stage.robot.prior
            unit = replace(unit, unit=stage.robot.unit).with_fit(
                belief, entry | {"left": stage.unexplained_noise, "belief": belief.to_dict()}
            )
            parts, error = replace(parts, robot=stage.robot), stage.error
            kept.append(kind)
        if stage.leaves_only_noise:
            break
    if kept and out is not None:
        unit = unit.save(out)
    result = ResidualResult(
        robot=robot.name,
        twin=str(out) if kept and out is not None else None,
        twin_hash=unit.hash,
        inputs=inputs,
        findings=records,
        error=ErrorChange(first, error),
        kept=bool(kept),
        learned=tuple(kept),
        **fields,
        horizon=parts.horizon_seconds,
        segments=SegmentCounts(len(parts.train), len(parts.held_out) if parts.held_out else 0),
        seconds=time.perf_counter() - start,
    )
    return LearnedResidual(unit, result)


def _stages_to_learn(robot: Robot, only: Learnable | None, joints: tuple[str, ...], where: str) -> list[Learnable]:
    """What to learn, in order."""
    names = _joint_names(robot)
    for name in joints:
        if name not in names:
            raise unknown_name("joint", name, names, f"those of {robot.name}")
    if only != "ground" and len(robot.unit.learned_forces) >= MAX_LEARNED_FORCES:
        raise BadInput(f"{where} has {MAX_LEARNED_FORCES} learned forces already, as many as a twin can have.")
    if only == "ground" and not robot.morphology.legged:
        raise BadInput(f"compliant ground is for robots on feet, and {robot.name} has none.")
    if only == "ground" and robot.unit.ground:
        raise BadInput(f"{where} has compliant ground already; start from a twin without.")
    ground = robot.morphology.legged and not robot.unit.ground and only != "force"
    return [*(["ground"] if ground else []), *(["force"] if only != "ground" else [])]


def _joint_names(robot: Robot) -> tuple[str, ...]:
    return tuple(robot.model.joint(j).name for j in range(robot.model.njnt))


def _learn_ground(parts: PreparedSegments, prior: Belief, error: ErrorPair, progress: Progress) -> _Stage:
    assert parts.held_out is not None
    robot, steps = parts.robot, itertools.count(1)
    found = fit_ground(
        robot,
        parts.train,
        parts.held_out,
        robot.prior,
        parts.noise_floor,
        prior,
        report=lambda step, cost: progress(min(next(steps) / TYPICAL_GROUND_STEPS, 0.97), f"ground, cost {cost:.3g}"),
    )
    known, soft = found.candidates
    fields: dict = {"candidates": {t.name: ErrorPair(t.train_error, t.held_out_error) for t in found.candidates}}
    if found.ground is None:
        return _Stage("ground", robot, error, False, known.leaves_only_noise, found.unexplained_noise, fields)
    robot = replace(robot, prior=found.belief, unit=replace(robot.unit, ground=found.ground))
    fields["ground"] = GroundRecord(
        *(found.ground.stiffness, found.ground.damping, sink_depth(robot, found.ground), found.at_bounds),
        *(found.intervals["stiffness"], found.intervals["damping"]),
    )
    return _Stage("ground", robot, _overall_errors(parts, robot), True, soft.leaves_only_noise, found.unexplained_noise, fields)


def _learn_force(parts: PreparedSegments, joints: tuple[str, ...], seed: int, error: ErrorPair, progress: Progress) -> _Stage:
    robot = parts.robot
    names = joints or _joint_names(robot)
    learned = learn_force(
        robot,
        parts.train,
        robot.prior.median(),
        parts.noise_floor,
        "body",
        names,
        seed,
        report=lambda done, found: progress(done, f"force, cost {found.cost:.3g}"),
    )
    forced = with_learned_force(robot, learned)
    fitted, held_out = _prediction_errors(parts, forced)
    after = ErrorPair(fitted.overall, held_out.overall)
    fields = {
        "force_error": ErrorChange(error, after),
        "largest_force": dict(zip(_force_component_names(robot, names), map(float, learned.net.unit), strict=True)),
        "features": force_feature_names(robot, learned),
    }
    left = noise_by_signal(robot, fitted.rms)
    return _Stage("force", forced, after, after.held_out < error.held_out, False, left, fields)


def _overall_errors(parts: PreparedSegments, robot: Robot) -> ErrorPair:
    return ErrorPair(*(errors.overall for errors in _prediction_errors(parts, robot)))


def _prediction_errors(parts: PreparedSegments, robot: Robot) -> tuple[PredictionErrors, PredictionErrors]:
    """On segments that are fitted to and on held-out ones, at the median of the robot's belief."""
    assert parts.held_out is not None
    e = robot.prior.median()
    fitted, held_out = (
        prediction_errors(robot, s, parts.noise_floor, parts.noise_floor, [e])[0] for s in (parts.train, parts.held_out)
    )
    return fitted, held_out


def _force_component_names(robot: Robot, names: tuple[str, ...]) -> list[str]:
    """A name for each component of the force."""
    found = []
    for name in names:
        free = len(robot.model.joint(name).qpos0) == 7
        found += [f"{name} {what} {axis}" for what in ("force", "torque") for axis in "xyz"] if free else [name]
    return found
