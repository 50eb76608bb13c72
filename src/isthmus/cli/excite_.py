"""Find the experiment that tells most about a robot, within its limits, and what to expect from it.

example: isthmus excite unit7.twin --seconds 10 -o probe.mcap

example: isthmus excite pendulum --only joint_friction strength -o probe.controller
example: isthmus excite unit7.twin --policy runs/walk --only ground_friction payload
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from isthmus.cli import show
from isthmus.cli.worlds import robot_of, worlds_of
from isthmus.errors import BadInput
from isthmus.files import check_places

if TYPE_CHECKING:
    from isthmus.identify.courses import Walks, Waves
    from isthmus.identify.excite import Experiment
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief

LEVEL = 0.9


@dataclass(frozen=True)
class Args:
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT")]
    """Twin whose unknowns the experiment is for; or a robot, as in `isthmus list`, or a model or config file."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for the targets: NAME.controller to run on the robot, or NAME.mcap with what is expected to be recorded."""
    policy: Path | None = None
    """Run whose policy moves the robot: the experiment is then commands to it, not targets of the motors."""
    seconds: float = 10.0
    """Length of the experiment."""
    only: tuple[str, ...] = ()
    """Parameters to learn about; by default all that are not known."""
    belief: Path | None = None
    """With a robot: what is believed of it; by default its prior."""
    horizon: float = 0.5
    """Seconds that the fit will predict ahead."""
    tries: int = 400
    """Experiments to simulate."""
    seed: int = 0
    """Seed of the search."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.identify.courses import Walks
    from isthmus.identify.excite import Judge, excite
    from isthmus.identify.fit import free

    if args.out is not None and args.out.suffix not in (".mcap", ".controller"):
        raise BadInput(f"-o takes a file NAME.mcap or NAME.controller, not {args.out}.")
    if args.policy is not None and args.out is not None and args.out.suffix == ".controller":
        raise BadInput("with --policy the controller is that of the policy; the commands are printed, and go into NAME.mcap.")
    if not 1.0 <= args.seconds <= 600.0:
        raise BadInput("--seconds must be between 1 and 600.")
    if not 0.02 <= args.horizon <= 0.5 * args.seconds:
        raise BadInput("--horizon must be between 0.02 and half the length of the experiment.")
    if not 1 <= args.tries <= 100_000:
        raise BadInput("--tries must be between 1 and 100,000.")
    robot, twin = robot_of(args.robot)
    if twin is not None and args.belief is not None:
        raise BadInput("a twin brings its own belief; --belief is for robots.")
    belief = worlds_of(args.belief, robot)[1]
    for name in args.only:
        robot.space.index(name)
    names = args.only or free(robot, belief)
    if not names:
        raise BadInput("nothing is left to find out: every parameter is fixed.")
    check_places(args.out)
    began = time.perf_counter()
    course = _course(args.policy, robot, args.seconds)
    judge = Judge(robot, belief, course, args.horizon, names, left=twin.left if twin else None)
    with show.bar(f"experiments with {robot.name}") as bar:
        found = excite(judge, args.tries, args.seed, lambda done, worth: bar.update(done, f"worth {worth:.1f} nats"))
    if found.beyond > 0:
        raise BadInput(
            f"no experiment keeps inside the limits of {robot.name}: the best exceeds them by {100 * found.beyond:.0f} %; "
            "more --tries may help."
        )
    plain = judge.experiment(course.by_hand())
    parent = twin.hash if twin else belief.hash
    commands = course.entries(found.orders) if isinstance(course, Walks) else []
    if args.out is not None:
        _write(args.out, robot, belief, found, parent, commands)
    if args.json:
        show.emit(_record(args, robot, belief, found, plain, parent, commands, time.perf_counter() - began))
        return 0
    _tell(robot, belief, found, plain)
    if commands:
        show.say("give these commands to the policy: isthmus run POLICY.controller --command " + " ".join(commands))
    if args.out is not None:
        show.say(f"wrote {args.out}")
    return 0


def _course(policy: Path | None, robot: Robot, seconds: float) -> Waves | Walks:
    """Waves of the motors, or commands to the policy of a run."""
    from isthmus.identify.courses import Walks, Waves

    if policy is None:
        return Waves(robot, seconds)
    from isthmus.learn import runs
    from isthmus.learn.residual import check_robot

    run = runs.load(policy)
    task = replace(run.task, robot=robot)
    check_robot(run, task, f"the policy {policy}")
    return Walks(runs.load_actor(run), task, seconds)


def _write(path: Path, robot: Robot, belief: Belief, found: Experiment, parent: str, commands: list[str]) -> None:
    if path.suffix == ".controller":
        from isthmus.identify.player import save_player

        save_player(path, robot, belief, found.targets)
        return
    import numpy as np

    from isthmus.data.episode import Episode
    from isthmus.data.recording import write
    from isthmus.sim.engine import Engine

    engine, rows = Engine(robot, 1), []
    engine.apply(belief.median()[None], engine.all)
    engine.reset(engine.all)
    for u in found.targets:
        rows.append(engine.noiseless()[0])
        engine.step(u[None])
    y = np.array(rows)
    expected = {n: list(found.belief().interval(n, LEVEL)) for n in found.space.names}
    origin = {"source": "sim", "parents": [parent], "expected": expected} | ({"commands": commands} if commands else {})
    signals = {name: y[:, where] for name, where in robot.contract.slices().items()}
    times = np.arange(len(y)) / robot.contract.rate
    write(path, Episode(robot.contract, times, signals, found.targets, found.targets, origin=origin))


def _rows(belief: Belief, found: Experiment, plain: Experiment) -> list[tuple[str, Any, Any, Any]]:
    after, other = found.belief(), plain.belief()
    return [(n, belief.interval(n, LEVEL), after.interval(n, LEVEL), other.interval(n, LEVEL)) for n in found.space.names]


def _record(
    args: Args,
    robot: Robot,
    belief: Belief,
    found: Experiment,
    plain: Experiment,
    parent: str,
    commands: list[str],
    seconds: float,
) -> dict[str, Any]:
    names = ("before", "expected", "expected_by_hand")
    return {
        "robot": robot.name,
        "inputs": [parent],
        "file": str(args.out) if args.out else None,
        "experiment_seconds": args.seconds,
        "level": LEVEL,
        "worth": found.worth,
        "worth_by_hand": plain.worth,
        "parameters": {n: dict(zip(names, map(list, ranges), strict=True)) for n, *ranges in _rows(belief, found, plain)},
        "commands": commands,
        "seconds": seconds,
    }


def _tell(robot: Robot, belief: Belief, found: Experiment, plain: Experiment) -> None:
    rows = []
    for name, *ranges in _rows(belief, found, plain):
        rows.append([name, robot.space[name].unit, *(f"{low:.3g} to {high:.3g}" for low, high in ranges)])
    rows.sort(key=lambda row: row[0])
    show.out.print(show.table("90 % intervals", ["parameter", "unit", "now", "expected", "by hand"], rows))
    show.say(f"worth {found.worth:.1f} nats; one by hand of the same length {plain.worth:.1f}.")
