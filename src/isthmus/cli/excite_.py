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

from isthmus.cli import render
from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable
from isthmus.robots.dynamics import resolve_dynamics, resolve_robot

if TYPE_CHECKING:
    from isthmus.real2sim.identify.excitation import Experiment
    from isthmus.real2sim.identify.excitation_signals import CommandSteps, Multisine
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief

INTERVAL_LEVEL = 0.9


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
    from isthmus.real2sim.identify.excitation import ExperimentEvaluator, excite
    from isthmus.real2sim.identify.excitation_signals import CommandSteps
    from isthmus.real2sim.residual.prior import free_parameters

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
    robot, twin = resolve_robot(args.robot)
    if twin is not None and args.belief is not None:
        raise BadInput("a twin brings its own belief; --belief is for robots.")
    belief = resolve_dynamics(args.belief, robot)[1]
    for name in args.only:
        robot.space.index(name)
    names = args.only or free_parameters(robot, belief)
    if not names:
        raise BadInput("nothing is left to find out: every parameter is fixed.")
    check_writable(args.out)
    began = time.perf_counter()
    course = _parametrization(args.policy, robot, args.seconds)
    judge = ExperimentEvaluator(
        robot, belief, course, args.horizon, names, unexplained_noise=twin.unexplained_noise if twin else None
    )
    with render.progress_bar(f"experiments with {robot.name}") as bar:
        found = excite(judge, args.tries, args.seed, lambda done, worth: bar.update(done, f"worth {worth:.1f} nats"))
    if found.limit_excess > 0:
        raise BadInput(
            f"no experiment keeps inside the limits of {robot.name}: the best exceeds them by "
            f"{100 * found.limit_excess:.0f} %; "
            "more --tries may help."
        )
    plain = judge.experiment(course.baseline())
    parent = twin.hash if twin else belief.hash
    commands = course.command_entries(found.commands) if isinstance(course, CommandSteps) else []
    if args.out is not None:
        _write_experiment(args.out, robot, belief, found, parent, commands)
    if args.json:
        render.emit(_json_record(args, robot, belief, found, plain, parent, commands, time.perf_counter() - began))
        return 0
    _print_result(robot, belief, found, plain)
    if commands:
        render.print_line("give these commands to the policy: isthmus run POLICY.controller --command " + " ".join(commands))
    if args.out is not None:
        render.print_line(f"wrote {args.out}")
    return 0


def _parametrization(policy: Path | None, robot: Robot, seconds: float) -> Multisine | CommandSteps:
    """Waves of the motors, or commands to the policy of a run."""
    from isthmus.real2sim.identify.excitation_signals import CommandSteps, Multisine

    if policy is None:
        return Multisine(robot, seconds)
    from isthmus.learn import runs
    from isthmus.learn.policies.base_controller import check_robot

    run = runs.load(policy)
    task = replace(run.task, robot=robot)
    check_robot(run, task, f"the policy {policy}")
    return CommandSteps(runs.load_actor(run), task, seconds)


def _write_experiment(path: Path, robot: Robot, belief: Belief, found: Experiment, parent: str, commands: list[str]) -> None:
    if path.suffix == ".controller":
        from isthmus.deploy.trajectory_player import save_player

        hashes = robot.model_hash, robot.space.hash, belief.hash
        save_player(path, robot.contract, robot.default, found.targets, *hashes)
        return
    import numpy as np

    from isthmus.data.episode import Episode
    from isthmus.data.mcap.writer import write_episode
    from isthmus.sim.simulation import Simulation

    engine, rows = Simulation(robot, 1), []
    engine.apply(belief.median()[None], engine.all_ids)
    engine.reset(engine.all_ids)
    for u in found.targets:
        rows.append(engine.noiseless_signals()[0])
        engine.step(u[None])
    y = np.array(rows)
    expected = {n: list(found.expected_belief().interval(n, INTERVAL_LEVEL)) for n in found.space.names}
    origin = {"source": "sim", "parents": [parent], "expected": expected} | ({"commands": commands} if commands else {})
    signals = {name: y[:, where] for name, where in robot.contract.slices().items()}
    times = np.arange(len(y)) / robot.contract.rate
    write_episode(path, Episode(robot.contract, times, signals, found.targets, found.targets, origin=origin))


def _interval_rows(belief: Belief, found: Experiment, plain: Experiment) -> list[tuple[str, Any, Any, Any]]:
    after, other = found.expected_belief(), plain.expected_belief()
    return [
        (n, belief.interval(n, INTERVAL_LEVEL), after.interval(n, INTERVAL_LEVEL), other.interval(n, INTERVAL_LEVEL))
        for n in found.space.names
    ]


def _json_record(
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
        "level": INTERVAL_LEVEL,
        "worth": found.information_gain_nats,
        "worth_by_hand": plain.information_gain_nats,
        "parameters": {
            n: dict(zip(names, map(list, ranges), strict=True)) for n, *ranges in _interval_rows(belief, found, plain)
        },
        "commands": commands,
        "seconds": seconds,
    }


def _print_result(robot: Robot, belief: Belief, found: Experiment, plain: Experiment) -> None:
    rows = []
    for name, *ranges in _interval_rows(belief, found, plain):
        rows.append([name, robot.space[name].unit, *(f"{low:.3g} to {high:.3g}" for low, high in ranges)])
    rows.sort(key=lambda row: row[0])
    render.out.print(render.table("90 % intervals", ["parameter", "unit", "now", "expected", "by hand"], rows))
    render.print_line(
        f"worth {found.information_gain_nats:.1f} nats; one by hand of the same length {plain.information_gain_nats:.1f}."
    )
