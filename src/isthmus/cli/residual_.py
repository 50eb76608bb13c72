"""Learn what no number explains, from recordings, and add it to a twin: the ground under a robot on feet, then a force.

example: isthmus residual unit7.twin walk1.mcap walk2.mcap
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from isthmus.cli import render
from isthmus.cli.options import check_not_negative
from isthmus.cli.recording_checks import check_recordings
from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import check_writable

if TYPE_CHECKING:
    from isthmus.real2sim.identify.identification import PreparedSegments
    from isthmus.real2sim.residual.prediction_errors import PredictionErrors
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief


TYPICAL_FIT_STEPS = 40
"""That the two fits of a ground usually take, for a bar."""


@dataclass(frozen=True)
class Args:
    twin: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TWIN")]
    """Twin whose numbers were found with `isthmus identify`."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RECORDING …")]
    """Recordings of that unit (.mcap)."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for the twin with what was learned; by default the twin itself."""
    only: Literal["ground", "force"] | None = None
    """One of the two; by default, of a robot on feet, first the ground and then a force for what that leaves."""
    joints: tuple[str, ...] = ()
    """Joints that the force acts on; by default all, the body's own included."""
    horizon: float = 0.0
    """Seconds that the simulator predicts ahead; 0 chooses it by the noise."""
    seed: int = 0
    """Seed of the networks."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class _LearnedStage:
    """One thing that was learned, and what it did."""

    kind: Literal["ground", "force"]
    robot: Robot
    """With it."""
    error: tuple[float, float]
    """Of what it was learned from, and of what was held out."""
    kept: bool
    explains_all: bool
    """Whether nothing but noise is left."""
    errors_without_and_with: tuple[tuple[float, float], tuple[float, float]]
    """Errors without and with it, each of what it was learned from and of what was held out."""
    json_fields: dict[str, Any]
    """For a JSON object."""
    unexplained_noise: dict[str, float]
    """σ by signal of what it leaves."""


def run(args: Args) -> int:
    from isthmus.data.mcap.reader import read_episode
    from isthmus.real2sim.identify.identification import prepare_segments
    from isthmus.robots import get_robot
    from isthmus.robots.twin import Twin
    from isthmus.world import belief_on_space

    _check_options(args)
    twin, out = Twin.load(args.twin), args.out or args.twin
    design = get_robot(twin.robot)
    robot = twin.apply_to(design, str(args.twin))
    stages = _stages_to_learn(args, robot)
    episodes = [read_episode(path) for path in args.recordings]
    check_writable(out)
    began = time.perf_counter()
    findings = check_recordings(robot, episodes, args.recordings, args.json)
    parts = prepare_segments(robot, episodes, robot.prior, args.horizon, findings=findings)
    if parts.held_out is None:
        raise BadInput(f"the recordings give {len(parts.train)} segments: too few to hold some out and judge by them.")
    sizes = {"fitted": len(parts.train), "held_out": len(parts.held_out)}
    inputs, notes = [x.hash for x in episodes], [f.to_dict() for f in findings]
    before = belief_on_space(twin.belief_before(inputs, design.prior), robot.space, str(args.twin))
    if not args.json:
        render.print_line(
            f"{robot.name}: {sizes['fitted']} segments learned from, {sizes['held_out']} held out, "
            f"{parts.horizon_seconds:.2g} s ahead"
        )
    first = error = _overall_errors(parts, parts.robot)
    steps: list[_LearnedStage] = []
    for stage in stages:
        step = _learn_ground(parts, before, error) if stage == "ground" else _learn_force(args, parts, error)
        steps.append(step)
        if not args.json:
            _print_stage(step)
        if step.kept:
            entry = {"recordings": inputs, "learned": step.kind, "findings": notes, "error": _error_record(error, step.error)}
            belief = twin.belief if step.kind == "force" else step.robot.prior
            twin = replace(twin, unit=step.robot.unit).with_fit(
                belief, entry | {"left": step.unexplained_noise, "belief": belief.to_dict()}
            )
            parts, error = replace(parts, robot=step.robot), step.error
        if step.explains_all and stage != stages[-1]:
            if not args.json:
                render.print_line("Nothing but noise is left: no force was learned.")
            break
    kept = any(step.kept for step in steps)
    if kept:
        twin = twin.save(out)
    if args.json:
        render.emit({
            "twin": str(out) if kept else None,
            "twin_hash": twin.hash,
            "inputs": inputs,
            "findings": notes,
            "error": _error_record(first, error),
            "kept": kept,
            "learned": [step.kind for step in steps if step.kept],
            **{key: value for step in steps for key, value in step.json_fields.items()},
            "horizon": parts.horizon_seconds,
            "segments": sizes,
            "seconds": time.perf_counter() - began,
        })  # fmt: skip
    elif kept:
        render.print_line(f"wrote {out}")
    return 0 if kept else 1


def _check_options(args: Args) -> None:
    from isthmus.robots.twin import is_twin

    if not is_twin(args.twin):
        raise BadInput(f"{args.twin} is not a twin; make one with `isthmus identify ROBOT RECORDINGS -o NAME.twin`.")
    if not args.recordings:
        raise BadInput("give at least one recording.")
    if args.out is not None and not is_twin(args.out):
        raise BadInput(f"-o takes a file NAME.twin, not {args.out}.")
    check_not_negative(args, "horizon")


def _stages_to_learn(args: Args, robot: Robot) -> list[Literal["ground", "force"]]:
    """What to learn, in order."""
    from isthmus.sim.physics.unit_physics import MAX_LEARNED_FORCES

    names = [robot.model.joint(j).name for j in range(robot.model.njnt)]
    for name in args.joints:
        if name not in names:
            raise unknown_name("joint", name, names, f"those of {robot.name}")
    if args.only != "ground" and len(robot.unit.learned_forces) >= MAX_LEARNED_FORCES:
        raise BadInput(f"{args.twin} has {MAX_LEARNED_FORCES} learned forces already, as many as a twin can have.")
    if args.only == "ground" and not robot.morphology.legged:
        raise BadInput(f"--only ground is for robots on feet, and {robot.name} has none.")
    if args.only == "ground" and robot.unit.ground:
        raise BadInput(f"{args.twin} has a ground of its own already; begin from a twin without.")
    ground = robot.morphology.legged and not robot.unit.ground and args.only != "force"
    return [*(["ground"] if ground else []), *(["force"] if args.only != "ground" else [])]


def _learn_ground(parts: PreparedSegments, before: Belief, error: tuple[float, float]) -> _LearnedStage:
    from isthmus.real2sim.identify.missing_physics import fit_ground
    from isthmus.sim.physics.ground import sink_depth

    assert parts.held_out is not None
    robot, steps = parts.robot, itertools.count(1)
    with render.progress_bar(f"the ground under {robot.name}") as bar:
        found = fit_ground(
            robot, parts.train, parts.held_out, robot.prior, parts.noise_floor, before,
            report=lambda step, cost: bar.update(min(next(steps) / TYPICAL_FIT_STEPS, 0.97), f"cost {cost:.3g}"),
        )  # fmt: skip
    known, soft = found.candidates
    tried = {t.name: {"fitted": t.train_error, "held_out": t.held_out_error} for t in found.candidates}
    fields: dict[str, Any] = {"ground": None, "tried": tried}
    if found.ground:
        robot = replace(robot, prior=found.belief, unit=replace(robot.unit, ground=found.ground))
        fields["ground"] = found.ground.to_dict() | {
            "sink": sink_depth(robot, found.ground),
            "at_bounds": list(found.at_bounds),
        }
        fields["ground"] |= {f"{name}_interval": list(ends) for name, ends in found.intervals.items()}
    told = ((known.train_error, known.held_out_error), (soft.train_error, soft.held_out_error))
    if not found.ground:
        return _LearnedStage("ground", robot, error, False, known.leaves_only_noise, told, fields, found.unexplained_noise)
    return _LearnedStage(
        "ground", robot, _overall_errors(parts, robot), True, soft.leaves_only_noise, told, fields, found.unexplained_noise
    )


def _learn_force(args: Args, parts: PreparedSegments, before: tuple[float, float]) -> _LearnedStage:
    from isthmus.real2sim.identify.fit import noise_by_signal
    from isthmus.real2sim.identify.force_features import force_feature_names, with_learned_force
    from isthmus.real2sim.identify.learned_force import learn_force

    robot = parts.robot
    names = args.joints or tuple(robot.model.joint(j).name for j in range(robot.model.njnt))
    with render.progress_bar(f"learning what {robot.name} lacks") as bar:
        learned = learn_force(
            robot, parts.train, robot.prior.median(), parts.noise_floor, "body", names, args.seed,
            report=lambda done, found: bar.update(done, f"cost {found.cost:.3g}"),
        )  # fmt: skip
    forced = with_learned_force(robot, learned)
    both = _prediction_errors(parts, forced)
    error = both[0].overall, both[1].overall
    largest = dict(zip(_force_component_names(robot, names), map(float, learned.net.unit), strict=True))
    fields = {"largest": largest, "features": list(force_feature_names(robot, learned))}
    left = noise_by_signal(robot, both[0].rms)
    return _LearnedStage("force", forced, error, error[1] < before[1], False, (before, error), fields, left)


def _overall_errors(parts: PreparedSegments, robot: Robot) -> tuple[float, float]:
    """Of predictions of what was learned from, and of what was held out, in units of the noise."""
    fitted, held_out = _prediction_errors(parts, robot)
    return fitted.overall, held_out.overall


def _prediction_errors(parts: PreparedSegments, robot: Robot) -> tuple[PredictionErrors, PredictionErrors]:
    from isthmus.real2sim.residual.prediction_errors import prediction_errors

    assert parts.held_out is not None
    e = robot.prior.median()
    fitted, held_out = (
        prediction_errors(robot, s, parts.noise_floor, parts.noise_floor, [e])[0] for s in (parts.train, parts.held_out)
    )
    return fitted, held_out


def _error_record(before: tuple[float, float], after: tuple[float, float]) -> dict[str, dict[str, float]]:
    return {when: {"fitted": e[0], "held_out": e[1]} for when, e in (("before", before), ("after", after))}


def _print_stage(step: _LearnedStage) -> None:
    from isthmus.sim.physics.ground import GROUND_UNITS

    what = {"ground": "on soft ground", "force": "with the force"}[step.kind]
    rows = [
        [part, f"{b:.3g}", f"{a:.3g}"]
        for part, b, a in zip(("learned from", "held out"), *step.errors_without_and_with, strict=True)
    ]
    render.out.print(render.table("", ["error / noise", "without", what], rows, right=(1, 2)))
    if not step.kept:
        told = {"ground": "Ground that gives way does", "force": "The force does"}[step.kind]
        render.print_line(f"{told} not predict better what it was not learned from, so it was not kept.")
    elif step.kind == "ground":
        found = step.json_fields["ground"]
        render.print_line(f"The ground gives way: round feet sink in by {1e3 * found['sink']:.2g} mm while it stands.")
        rows = [[n, u, f"{found[n]:.4g}", "{:.4g} to {:.4g}".format(*found[f"{n}_interval"])] for n, u in GROUND_UNITS.items()]
        render.out.print(render.table("", ["at a point of contact", "unit", "found", "90 %"], rows, right=(2, 3)))
        for name in found["at_bounds"]:
            render.print_line(f"{name} is at the end of what is looked for.")
    else:
        rows = [[name, f"{size:.3g}"] for name, size in sorted(step.json_fields["largest"].items(), key=lambda x: -x[1])[:12]]
        render.out.print(render.table("", ["degree of freedom", "largest force"], rows, right=(1,)))


def _force_component_names(robot: Robot, names: tuple[str, ...]) -> list[str]:
    """A name for each number of the force."""
    found = []
    for name in names:
        free = len(robot.model.joint(name).qpos0) == 7
        found += [f"{name} {what} {axis}" for what in ("force", "torque") for axis in "xyz"] if free else [name]
    return found
