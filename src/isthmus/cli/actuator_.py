"""Find the law of the motors: the simplest that predicts what it was not fitted to, and a network only if that helps.

example: isthmus actuator go1 bench.parquet --motors '.*_calf' -o calf.actuator

example: isthmus actuator unit7.twin walk1.mcap walk2.mcap -o unit7.twin
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from isthmus.cli import render
from isthmus.cli.options import check_not_negative
from isthmus.cli.recording_checks import check_recordings
from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import check_writable
from isthmus.robots.dynamics import resolve_robot

if TYPE_CHECKING:
    from isthmus.real2sim.identify.motor_identification import MotorIdentification, MotorModel
    from isthmus.robots.twin import Twin
    from isthmus.sim.robot import Robot


@dataclass(frozen=True)
class Args:
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT")]
    """Robot, as in `isthmus list`, or a model or config file; or a twin."""
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE …")]
    """Tables (.csv, .parquet) with measured torques, or recordings (.mcap) without."""
    motors: str = ".*"
    """Motors that share the law, as a regular expression of their labels."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for the law, NAME.actuator, or for a twin that has it, NAME.twin."""
    torque_constant: float = 0.0
    """N·m per ampere, for tables that have current.LABEL in place of torque.LABEL."""
    horizon: float = 0.0
    """Without torques: seconds that the simulator predicts ahead; 0 chooses it by the noise."""
    laws: tuple[str, ...] = ()
    """Without torques: laws to try on top of what is believed; by default the whole ladder."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.real2sim.identify.motor_law_files import save_law
    from isthmus.robots.twin import Twin

    if not args.files:
        raise BadInput("give at least one table with torques, or one recording.")
    if args.out is not None and args.out.suffix not in (".actuator", ".twin"):
        raise BadInput(f"-o takes a file NAME.actuator or NAME.twin, not {args.out}.")
    check_not_negative(args, "horizon", "torque_constant")
    try:
        re.compile(args.motors)
    except re.error as error:
        raise BadInput(f"--motors takes a regular expression, not {args.motors!r}: {error}.") from None
    kinds = {path.suffix == ".mcap" for path in args.files}
    if len(kinds) > 1:
        raise BadInput("tables with torques and recordings without do not go together.")
    robot, old = resolve_robot(args.robot)
    check_writable(args.out)
    began = time.perf_counter()
    climbed, inputs, notes = _fit_from_motion(args, robot, old) if kinds == {True} else _fit_measured_torques(args, robot)
    found, belief = climbed.motor_model, climbed.belief
    entry = {"recordings": inputs, "actuator": found.chosen_law, "error": {t.name: t.held_out_error for t in found.candidates}}
    entry |= {"findings": notes, "belief": belief.to_dict()} | (
        {"left": climbed.unexplained_noise} if climbed.unexplained_noise else {}
    )
    unit = replace(robot.unit, motors=found.motor_figures, learned_forces=_merged_forces(robot, found))
    if args.out is not None and args.out.suffix == ".twin":
        twin = old or Twin(args.robot, robot.model_hash, belief)
        twin = replace(twin, unit=unit).with_fit(belief, entry).save(args.out)
    elif args.out is not None:
        save_law(args.out, robot, found, inputs)
    if args.json:
        render.emit(_json_record(args, robot, found, inputs, time.perf_counter() - began) | {"findings": notes})
        return 0
    _print_result(robot, found)
    if args.out is not None:
        render.print_line(f"wrote {args.out}")
    return 0


def _fit_measured_torques(args: Args, robot: Robot) -> tuple[MotorIdentification, list[str], list]:
    from isthmus.core.files import content_hash, read_bytes
    from isthmus.real2sim.identify.motor_bench import read_bench
    from isthmus.real2sim.identify.motor_identification import MotorIdentification, fit_to_torque
    from isthmus.real2sim.identify.motor_law_files import belief_with_delay

    bench = read_bench(args.files, robot, args.motors, args.torque_constant)
    with render.progress_bar(f"motors of {robot.name}") as bar:
        found = fit_to_torque(robot, bench, bar.update)
    belief = belief_with_delay(robot, robot.prior, found.command_delay)
    return MotorIdentification(found, belief, {}), [content_hash(read_bytes(path, 2**31)) for path in args.files], []


def _fit_from_motion(args: Args, robot: Robot, old: Twin | None) -> tuple[MotorIdentification, list[str], list]:
    from isthmus.data.mcap.reader import read_episode
    from isthmus.real2sim.identify.identification import prepare_segments
    from isthmus.real2sim.identify.motor_identification import fit_to_motion
    from isthmus.real2sim.identify.motor_laws import MOTOR_LAW_TERMS
    from isthmus.robots import get_robot
    from isthmus.sim.indexing import drives_joints
    from isthmus.world import belief_on_space

    labels = [label for label in robot.contract.target.labels if re.fullmatch(args.motors, label)]
    if not labels:
        raise unknown_name("motor", args.motors, robot.contract.target.labels, f"those of {robot.name}")
    if not drives_joints(robot):
        raise BadInput(f"{robot.name} has no motors of ours that drive joints: `isthmus residual` learns forces on its body.")
    rungs = {rung.name: rung for rung in MOTOR_LAW_TERMS}
    for law in args.laws:
        if law not in rungs:
            raise unknown_name("motor law", law, list(rungs), "--laws")
    ladder = [rung for name, rung in rungs.items() if not args.laws or name in args.laws]
    episodes = [read_episode(path) for path in args.files]
    findings = check_recordings(robot, episodes, args.files, args.json)
    parts = prepare_segments(robot, episodes, robot.prior, args.horizon, findings=findings)
    if parts.held_out is None:
        raise BadInput(f"the recordings give {len(parts.train)} segments: too few to hold some out and judge by them.")
    inputs, known = [x.hash for x in episodes], robot.prior
    if old is not None:
        known = belief_on_space(old.belief_before(inputs, get_robot(old.robot).prior), robot.space, args.robot)
    with render.progress_bar(f"motors of {robot.name}") as bar:
        found = fit_to_motion(
            parts.robot, parts.train, parts.held_out, robot.prior, parts.noise_floor, labels,
            report=bar.update, prior_belief=known, law_terms=ladder,
        )  # fmt: skip
    return found, inputs, [f.to_dict() for f in findings]


def _merged_forces(robot: Robot, found: MotorModel) -> tuple:
    """The robot's forces, with the new one in place of older ones of the same motors."""
    older = tuple(x for x in robot.unit.learned_forces if x.kind != "motor" or not set(x.names) & set(found.labels))
    return (*older, found.learned) if found.learned is not None else older


def _json_record(args: Args, robot: Robot, found: MotorModel, inputs: list[str], seconds: float) -> dict[str, Any]:
    from isthmus.real2sim.identify.motor_law_files import law_record

    return {"file": str(args.out) if args.out else None, "inputs": inputs, **law_record(robot, found), "seconds": seconds}


def _print_result(robot: Robot, found: MotorModel) -> None:
    from isthmus.real2sim.identify.motor_identification import NETWORK
    from isthmus.real2sim.identify.motor_laws import LAW_PARAMETER_PREFIX, MOTOR_LAW_TERMS

    doc = {rung.name: rung.doc for rung in MOTOR_LAW_TERMS} | {NETWORK: "and what a network finds on top"}
    unit = "N·m" if found.unit == "N·m" else "error / noise"
    rows = [
        [
            t.name + (" ←" if t.name == found.chosen_law else ""),
            doc.get(t.name, ""),
            f"{t.train_error:.4g}",
            f"{t.held_out_error:.4g}",
        ]
        for t in found.candidates
    ]
    render.out.print(
        render.table(
            f"{len(found.labels)} motors of {robot.name}", ["law", "", f"fitted, {unit}", "held out"], rows, right=(2, 3)
        )
    )
    chosen = next(t for t in found.candidates if t.name == found.chosen_law)
    rows = [[name.removeprefix(LAW_PARAMETER_PREFIX), f"{value:.4g}"] for name, value in chosen.values.items()]
    render.out.print(render.table("", ["figure", "found"], rows, right=(1,)))
    if not any(t.name == NETWORK for t in found.candidates):
        render.print_line("Nothing but noise is left: no other law was tried.")
    elif found.learned is None:
        render.print_line("A network does not predict better what it was not fitted to: none is needed.")
