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

from isthmus.cli import show
from isthmus.cli.checks import not_negative
from isthmus.cli.looked import looked_through
from isthmus.errors import BadInput, unknown
from isthmus.files import check_places

if TYPE_CHECKING:
    from isthmus.identify.study import Errors, Parts
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief


STEPS = 40
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
class _Step:
    """One thing that was learned, and what it did."""

    what: Literal["ground", "force"]
    robot: Robot
    """With it."""
    error: tuple[float, float]
    """Of what it was learned from, and of what was held out."""
    kept: bool
    explains: bool
    """Whether nothing but noise is left."""
    told: tuple[tuple[float, float], tuple[float, float]]
    """Errors without and with it, each of what it was learned from and of what was held out."""
    fields: dict[str, Any]
    """For a JSON object."""
    left: dict[str, float]
    """σ by signal of what it leaves."""


def run(args: Args) -> int:
    from isthmus.data.reader import read
    from isthmus.identify.study import prepare
    from isthmus.identify.twin import Twin
    from isthmus.robots import get_robot
    from isthmus.world import adopt

    _check(args)
    twin, out = Twin.load(args.twin), args.out or args.twin
    design = get_robot(twin.robot)
    robot = twin.on(design, str(args.twin))
    stages = _stages(args, robot)
    episodes = [read(path) for path in args.recordings]
    check_places(out)
    began = time.perf_counter()
    findings = looked_through(robot, episodes, args.recordings, args.json)
    parts = prepare(robot, episodes, robot.prior, args.horizon, findings=findings)
    if parts.held_out is None:
        raise BadInput(f"the recordings give {len(parts.train)} segments: too few to hold some out and judge by them.")
    sizes = {"fitted": len(parts.train), "held_out": len(parts.held_out)}
    inputs, notes = [x.hash for x in episodes], [f.to_dict() for f in findings]
    before = adopt(twin.before(inputs, design.prior), robot.space, str(args.twin))
    if not args.json:
        show.say(
            f"{robot.name}: {sizes['fitted']} segments learned from, {sizes['held_out']} held out, {parts.ahead:.2g} s ahead"
        )
    first = error = _errors(parts, parts.robot)
    steps: list[_Step] = []
    for stage in stages:
        step = _ground(parts, before, error) if stage == "ground" else _force(args, parts, error)
        steps.append(step)
        if not args.json:
            _tell(step)
        if step.kept:
            entry = {"recordings": inputs, "learned": step.what, "findings": notes, "error": _changed(error, step.error)}
            belief = twin.belief if step.what == "force" else step.robot.prior
            twin = replace(twin, unit=step.robot.unit).fitted(belief, entry | {"left": step.left, "belief": belief.to_dict()})
            parts, error = replace(parts, robot=step.robot), step.error
        if step.explains and stage != stages[-1]:
            if not args.json:
                show.say("Nothing but noise is left: no force was learned.")
            break
    kept = any(step.kept for step in steps)
    if kept:
        twin = twin.save(out)
    if args.json:
        show.emit({
            "twin": str(out) if kept else None,
            "twin_hash": twin.hash,
            "inputs": inputs,
            "findings": notes,
            "error": _changed(first, error),
            "kept": kept,
            "learned": [step.what for step in steps if step.kept],
            **{key: value for step in steps for key, value in step.fields.items()},
            "horizon": parts.ahead,
            "segments": sizes,
            "seconds": time.perf_counter() - began,
        })  # fmt: skip
    elif kept:
        show.say(f"wrote {out}")
    return 0 if kept else 1


def _check(args: Args) -> None:
    from isthmus.identify.twin import is_twin

    if not is_twin(args.twin):
        raise BadInput(f"{args.twin} is not a twin; make one with `isthmus identify ROBOT RECORDINGS -o NAME.twin`.")
    if not args.recordings:
        raise BadInput("give at least one recording.")
    if args.out is not None and not is_twin(args.out):
        raise BadInput(f"-o takes a file NAME.twin, not {args.out}.")
    not_negative(args, "horizon")


def _stages(args: Args, robot: Robot) -> list[Literal["ground", "force"]]:
    """What to learn, in order."""
    from isthmus.sim.ground import walks
    from isthmus.sim.unit import MOST_LEARNED

    names = [robot.model.joint(j).name for j in range(robot.model.njnt)]
    for name in args.joints:
        if name not in names:
            raise unknown("joint", name, names, f"those of {robot.name}")
    if args.only != "ground" and len(robot.unit.learned) >= MOST_LEARNED:
        raise BadInput(f"{args.twin} has {MOST_LEARNED} learned forces already, as many as a twin can have.")
    if args.only == "ground" and not walks(robot):
        raise BadInput(f"--only ground is for robots on feet, and {robot.name} has none.")
    if args.only == "ground" and robot.unit.ground:
        raise BadInput(f"{args.twin} has a ground of its own already; begin from a twin without.")
    ground = walks(robot) and not robot.unit.ground and args.only != "force"
    return [*(["ground"] if ground else []), *(["force"] if args.only != "ground" else [])]


def _ground(parts: Parts, before: Belief, error: tuple[float, float]) -> _Step:
    from isthmus.identify.ground import tread
    from isthmus.sim.ground import sink

    assert parts.held_out is not None
    robot, steps = parts.robot, itertools.count(1)
    with show.bar(f"the ground under {robot.name}") as bar:
        found = tread(
            robot, parts.train, parts.held_out, robot.prior, parts.floor, before,
            report=lambda step, cost: bar.update(min(next(steps) / STEPS, 0.97), f"cost {cost:.3g}"),
        )  # fmt: skip
    known, soft = found.tried
    tried = {t.name: {"fitted": t.fitted, "held_out": t.held_out} for t in found.tried}
    fields: dict[str, Any] = {"ground": None, "tried": tried}
    if found.ground:
        robot = replace(robot, prior=found.belief, unit=replace(robot.unit, ground=found.ground))
        fields["ground"] = found.ground.to_dict() | {"sink": sink(robot, found.ground), "at_bounds": list(found.at_bounds)}
        fields["ground"] |= {f"{name}_interval": list(ends) for name, ends in found.intervals.items()}
    told = ((known.fitted, known.held_out), (soft.fitted, soft.held_out))
    if not found.ground:
        return _Step("ground", robot, error, False, known.explains, told, fields, found.left)
    return _Step("ground", robot, _errors(parts, robot), True, soft.explains, told, fields, found.left)


def _force(args: Args, parts: Parts, before: tuple[float, float]) -> _Step:
    from isthmus.identify.fit import by_signal
    from isthmus.identify.missing import learn
    from isthmus.identify.rollout import feature_names, with_force

    robot = parts.robot
    names = args.joints or tuple(robot.model.joint(j).name for j in range(robot.model.njnt))
    with show.bar(f"learning what {robot.name} lacks") as bar:
        learned = learn(
            robot, parts.train, robot.prior.median(), parts.floor, "body", names, args.seed,
            report=lambda done, found: bar.update(done, f"cost {found.cost:.3g}"),
        )  # fmt: skip
    forced = with_force(robot, learned)
    both = _predicted(parts, forced)
    error = both[0].overall, both[1].overall
    largest = dict(zip(_acted(robot, names), map(float, learned.net.unit), strict=True))
    fields = {"largest": largest, "features": list(feature_names(robot, learned))}
    left = by_signal(robot, both[0].rms)
    return _Step("force", forced, error, error[1] < before[1], False, (before, error), fields, left)


def _errors(parts: Parts, robot: Robot) -> tuple[float, float]:
    """Of predictions of what was learned from, and of what was held out, in units of the noise."""
    fitted, held_out = _predicted(parts, robot)
    return fitted.overall, held_out.overall


def _predicted(parts: Parts, robot: Robot) -> tuple[Errors, Errors]:
    from isthmus.identify.study import errors

    assert parts.held_out is not None
    e = robot.prior.median()
    fitted, held_out = (errors(robot, s, parts.floor, parts.floor, [e])[0] for s in (parts.train, parts.held_out))
    return fitted, held_out


def _changed(before: tuple[float, float], after: tuple[float, float]) -> dict[str, dict[str, float]]:
    return {when: {"fitted": e[0], "held_out": e[1]} for when, e in (("before", before), ("after", after))}


def _tell(step: _Step) -> None:
    from isthmus.sim.ground import UNITS

    what = {"ground": "on soft ground", "force": "with the force"}[step.what]
    rows = [[part, f"{b:.3g}", f"{a:.3g}"] for part, b, a in zip(("learned from", "held out"), *step.told, strict=True)]
    show.out.print(show.table("", ["error / noise", "without", what], rows, right=(1, 2)))
    if not step.kept:
        told = {"ground": "Ground that gives way does", "force": "The force does"}[step.what]
        show.say(f"{told} not predict better what it was not learned from, so it was not kept.")
    elif step.what == "ground":
        found = step.fields["ground"]
        show.say(f"The ground gives way: round feet sink in by {1e3 * found['sink']:.2g} mm while it stands.")
        rows = [[n, u, f"{found[n]:.4g}", "{:.4g} to {:.4g}".format(*found[f"{n}_interval"])] for n, u in UNITS.items()]
        show.out.print(show.table("", ["at a point of contact", "unit", "found", "90 %"], rows, right=(2, 3)))
        for name in found["at_bounds"]:
            show.say(f"{name} is at the end of what is looked for.")
    else:
        rows = [[name, f"{size:.3g}"] for name, size in sorted(step.fields["largest"].items(), key=lambda x: -x[1])[:12]]
        show.out.print(show.table("", ["degree of freedom", "largest force"], rows, right=(1,)))


def _acted(robot: Robot, names: tuple[str, ...]) -> list[str]:
    """A name for each number of the force."""
    found = []
    for name in names:
        free = len(robot.model.joint(name).qpos0) == 7
        found += [f"{name} {what} {axis}" for what in ("force", "torque") for axis in "xyz"] if free else [name]
    return found
