"""`fit_actuator`: the motor law of a robot, from tables with measured torques or from recordings of its motion alone.

The simplest law that predicts held-out data as well as any is chosen; a network is added only if it helps.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import check_writable, content_hash, read_bytes
from isthmus.core.plain import to_plain
from isthmus.core.progress import Progress, silent
from isthmus.core.results import Result
from isthmus.data.checks.findings import Finding
from isthmus.data.episode import Episode
from isthmus.real2sim.identify.identification import prepare_segments
from isthmus.real2sim.identify.motor_bench import read_bench
from isthmus.real2sim.identify.motor_identification import MotorIdentification, MotorModel, fit_to_motion, fit_to_torque
from isthmus.real2sim.identify.motor_law_files import belief_with_delay, save_law
from isthmus.real2sim.identify.motor_laws import MOTOR_LAW_TERMS, MotorLawTerm
from isthmus.real2sim.recordings import Recordings, check_recordings, load_recordings
from isthmus.real2sim.result_parts import FindingRecord, check_not_negative, finding_records
from isthmus.robots import get_robot
from isthmus.robots.dynamics import resolve_robot, source_name
from isthmus.robots.twin import Twin
from isthmus.sim.indexing import drives_joints
from isthmus.world import belief_on_space

if TYPE_CHECKING:
    from isthmus.robots.dynamics import RobotSource
    from isthmus.sim.robot import Robot

MAX_TABLE_BYTES = 2**31


@dataclass(frozen=True)
class LawCandidate:
    """One motor law that was fitted."""

    law: str
    values: Mapping[str, float]
    """Parameter -> value."""
    fitted: float
    """Root mean square error in ActuatorResult.unit."""
    held_out: float


@dataclass(frozen=True)
class ActuatorResult(Result, kind="actuator"):
    file: str | None
    """Motor law or twin that was written."""
    inputs: tuple[str, ...]
    """Hashes of the tables or recordings."""
    robot: str
    motors: tuple[str, ...]
    law: str
    """The chosen one."""
    rate: float
    """Hz"""
    delay: float
    """s that commands take; part of the link, not of the motors."""
    unit: str
    """Of the errors: N·m, or multiples of the sensor noise."""
    candidates: tuple[LawCandidate, ...]
    """From the simplest up."""
    network: Mapping[str, Any] | None
    """The learned part of the law, if it has one."""
    findings: tuple[FindingRecord, ...]
    seconds: float


@dataclass(frozen=True)
class FittedActuator:
    """A motor law in memory, the twin that has it, and the result."""

    motor_model: MotorModel
    twin: Twin
    result: ActuatorResult


def fit_actuator(
    robot: RobotSource,
    files: Recordings,
    out: Path | None = None,
    *,
    motors: str = ".*",
    laws: tuple[str, ...] = (),
    torque_constant: float = 0.0,
    horizon: float = 0.0,
    progress: Progress = silent,
) -> ActuatorResult:
    """Fit the law of the motors whose labels match `motors`, and write it to NAME.actuator or into NAME.twin.

    `files` are tables (.csv, .parquet) with torques, or recordings without. `torque_constant`, N·m/A, is for currents.
    Without torques: `laws` are tried on top of the robot's, by default all; `horizon` is in s, 0 chooses it by the noise.
    """
    return fit_actuator_twin(
        robot, files, out, motors=motors, laws=laws, torque_constant=torque_constant, horizon=horizon, progress=progress
    ).result


def fit_actuator_twin(
    robot: RobotSource,
    files: Recordings,
    out: Path | None = None,
    *,
    motors: str = ".*",
    laws: tuple[str, ...] = (),
    torque_constant: float = 0.0,
    horizon: float = 0.0,
    progress: Progress = silent,
) -> FittedActuator:
    """As `fit_actuator`, with the law and the twin in memory."""
    if not files:
        raise BadInput("give at least one table with torques, or one recording.")
    if out is not None and out.suffix not in (".actuator", ".twin"):
        raise BadInput(f"a motor law is written to a file NAME.actuator or NAME.twin, not {out}.")
    check_not_negative("horizon", horizon)
    check_not_negative("torque_constant", torque_constant)
    try:
        re.compile(motors)
    except re.error as error:
        raise BadInput(f"motors are named by a regular expression, not {motors!r}: {error}.") from None
    tables = [Path(f) for f in files if not isinstance(f, Episode) and Path(f).suffix != ".mcap"]
    if 0 < len(tables) < len(files):
        raise BadInput("tables with torques and recordings without do not go together.")
    model, old = resolve_robot(robot)
    check_writable(out)
    start, findings = time.perf_counter(), ()
    if tables:
        found = fit_to_torque(model, read_bench(tuple(tables), model, motors, torque_constant), progress)
        found = MotorIdentification(found, belief_with_delay(model, model.prior, found.command_delay), {})
        inputs = [content_hash(read_bytes(path, MAX_TABLE_BYTES)) for path in tables]
    else:
        found, inputs, findings = _fit_to_motion(model, old, files, motors, laws, horizon, source_name(robot), progress)
    law, belief, records = found.motor_model, found.belief, finding_records(findings)
    entry = {
        "recordings": inputs,
        "actuator": law.chosen_law,
        "error": {t.name: t.held_out_error for t in law.candidates},
        "findings": to_plain(records),
        "belief": belief.to_dict(),
    }
    entry |= {"left": found.unexplained_noise} if found.unexplained_noise else {}
    unit = replace(model.unit, motors=law.motor_figures, learned_forces=_merged_forces(model, law))
    twin = replace(old or Twin(source_name(robot), model.model_hash, belief), unit=unit).with_fit(belief, entry)
    if out is not None and out.suffix == ".twin":
        twin = twin.save(out)
    elif out is not None:
        save_law(out, model, law, inputs)
    result = ActuatorResult(
        file=str(out) if out is not None else None,
        inputs=tuple(inputs),
        robot=model.name,
        motors=law.labels,
        law=law.chosen_law,
        rate=law.rate,
        delay=law.command_delay,
        unit=law.unit,
        candidates=tuple(LawCandidate(t.name, t.values, t.train_error, t.held_out_error) for t in law.candidates),
        network=None if law.learned is None else law.learned.to_dict(),
        findings=records,
        seconds=time.perf_counter() - start,
    )
    return FittedActuator(law, twin, result)


def _fit_to_motion(
    robot: Robot,
    old: Twin | None,
    recordings: Recordings,
    motors: str,
    laws: tuple[str, ...],
    horizon: float,
    where: str,
    progress: Progress,
) -> tuple[MotorIdentification, list[str], tuple[Finding, ...]]:
    """The law from recordings without torques; hashes of the recordings and what is wrong with them."""
    labels = [label for label in robot.contract.target.labels if re.fullmatch(motors, label)]
    if not labels:
        raise unknown_name("motor", motors, robot.contract.target.labels, f"those of {robot.name}")
    if not drives_joints(robot):
        raise BadInput(f"{robot.name} has no motors of ours that drive joints: `isthmus residual` learns forces on its body.")
    terms = _law_terms(laws)
    episodes, names = load_recordings(recordings)
    findings = check_recordings(robot, episodes, names, hint=" Correct them.")
    parts = prepare_segments(robot, episodes, robot.prior, horizon, findings=findings)
    if parts.held_out is None:
        raise BadInput(f"the recordings give {len(parts.train)} segments: too few to hold some out.")
    inputs, prior = [x.hash for x in episodes], robot.prior
    if old is not None:
        prior = belief_on_space(old.belief_before(inputs, get_robot(old.robot).prior), robot.space, where)
    found = fit_to_motion(
        parts.robot,
        parts.train,
        parts.held_out,
        robot.prior,
        parts.noise_floor,
        labels,
        report=progress,
        prior_belief=prior,
        law_terms=terms,
    )
    return found, inputs, findings


def _law_terms(laws: Sequence[str]) -> list[MotorLawTerm]:
    """The named motor laws in the order of the ladder; without names all of them."""
    known = {term.name: term for term in MOTOR_LAW_TERMS}
    for law in laws:
        if law not in known:
            raise unknown_name("motor law", law, list(known), "laws")
    return [term for name, term in known.items() if not laws or name in laws]


def _merged_forces(robot: Robot, law: MotorModel) -> tuple:
    """The robot's learned forces, with the new one in place of older ones of the same motors."""
    older = tuple(x for x in robot.unit.learned_forces if x.kind != "motor" or not set(x.names) & set(law.labels))
    return (*older, law.learned) if law.learned is not None else older
