"""`excite`: design the excitation that is most informative about the undetermined parameters of a robot, within its limits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable
from isthmus.core.progress import Progress, silent
from isthmus.core.results import Result
from isthmus.data.episode import Episode
from isthmus.data.mcap.writer import write_episode
from isthmus.real2sim.identify.excitation import Experiment, ExperimentEvaluator, design_experiment
from isthmus.real2sim.identify.excitation_signals import CommandSteps, Multisine
from isthmus.real2sim.residual.prior import free_parameters
from isthmus.real2sim.result_parts import INTERVAL_LEVEL, check_not_negative
from isthmus.robots.dynamics import resolve_dynamics, resolve_robot
from isthmus.sim.simulation import Simulation

if TYPE_CHECKING:
    from isthmus.robots.dynamics import DynamicsSource, RobotSource
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief

MIN_SECONDS = 1.0
MAX_SECONDS = 600.0
MIN_HORIZON = 0.02
"""s"""
MAX_TRIES = 100_000


@dataclass(frozen=True)
class ExpectedInterval:
    """Intervals of a parameter, of ExcitationResult.level."""

    before: tuple[float, float]
    expected: tuple[float, float]
    """After a fit to the experiment."""
    expected_baseline: tuple[float, float]
    """After a fit to the baseline."""


@dataclass(frozen=True)
class ExcitationResult(Result, kind="excitation"):
    robot: str
    inputs: tuple[str, ...]
    """Hash of the twin or belief."""
    file: str | None
    """Controller or recording that was written."""
    experiment_seconds: float
    """s"""
    level: float
    """Probability of the intervals."""
    information: float
    """nats: log det of the expected reduction of the posterior covariance, halved."""
    baseline_information: float
    """nats of the baseline of the same length: a chirp, or command steps of half the range."""
    parameters: Mapping[str, ExpectedInterval]
    commands: tuple[str, ...]
    """Commands to the policy as `isthmus run --command` takes them, if a policy moves the robot."""
    seconds: float


@dataclass(frozen=True)
class DesignedExperiment:
    """The experiment and its baseline in memory, and the result."""

    experiment: Experiment
    baseline: Experiment
    result: ExcitationResult


def excite(
    robot: RobotSource,
    out: Path | None = None,
    *,
    seconds: float = 10.0,
    policy: Path | None = None,
    only: tuple[str, ...] = (),
    dynamics: DynamicsSource | None = None,
    horizon: float = 0.5,
    tries: int = 400,
    seed: int = 0,
    progress: Progress = silent,
) -> ExcitationResult:
    """The best of `tries` experiments of `seconds`, written to NAME.controller (to run) or NAME.mcap (as it is expected).

    With a `policy`, a run's folder, the experiment is commands to it instead of motor targets. `dynamics` is the present belief
    of a robot that is no twin; `horizon`, s, is that of the fit to come.
    """
    return design_excitation(
        robot,
        out,
        seconds=seconds,
        policy=policy,
        only=only,
        dynamics=dynamics,
        horizon=horizon,
        tries=tries,
        seed=seed,
        progress=progress,
    ).result


def design_excitation(
    robot: RobotSource,
    out: Path | None = None,
    *,
    seconds: float = 10.0,
    policy: Path | None = None,
    only: tuple[str, ...] = (),
    dynamics: DynamicsSource | None = None,
    horizon: float = 0.5,
    tries: int = 400,
    seed: int = 0,
    threads: int = 0,
    progress: Progress = silent,
) -> DesignedExperiment:
    """As `excite`, with the experiments in memory."""
    if out is not None and out.suffix not in (".mcap", ".controller"):
        raise BadInput(f"an experiment is written to a file NAME.mcap or NAME.controller, not {out}.")
    if policy is not None and out is not None and out.suffix == ".controller":
        raise BadInput("with a policy the controller is that of the policy; the commands are printed, and go into NAME.mcap.")
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise BadInput(f"an experiment takes {MIN_SECONDS:g} to {MAX_SECONDS:g} seconds.")
    if not MIN_HORIZON <= horizon <= 0.5 * seconds:
        raise BadInput(f"the horizon must be between {MIN_HORIZON} s and half the length of the experiment.")
    if not 1 <= tries <= MAX_TRIES:
        raise BadInput(f"tries must be between 1 and {MAX_TRIES:,}.")
    check_not_negative("seed", seed)
    model, twin = resolve_robot(robot)
    if twin is not None and dynamics is not None:
        raise BadInput("a twin brings its own belief; give another one only with a robot.")
    belief = resolve_dynamics(dynamics, model)[1]
    for name in only:
        model.space.index(name)
    names = only or free_parameters(model, belief)
    if not names:
        raise BadInput("nothing is left to identify: every parameter is fixed.")
    check_writable(out)
    start = time.perf_counter()
    signal = _excitation_signal(policy, model, seconds)
    evaluator = ExperimentEvaluator(
        model, belief, signal, horizon, names, threads, unexplained_noise=twin.unexplained_noise if twin else None
    )
    found = design_experiment(evaluator, tries, seed, lambda done, nats: progress(done, f"{nats:.1f} nats"))
    if found.limit_excess > 0:
        raise BadInput(
            f"no experiment keeps inside the limits of {model.name}: the best exceeds them by "
            f"{100 * found.limit_excess:.0f} %; more tries may help."
        )
    baseline = evaluator.experiment(signal.baseline())
    parent = twin.hash if twin else belief.hash
    commands = signal.command_entries(found.commands) if isinstance(signal, CommandSteps) else []
    if out is not None:
        _write_experiment(out, model, belief, found, parent, commands)
    after, other = found.expected_belief(), baseline.expected_belief()
    intervals = {
        n: ExpectedInterval(*(b.interval(n, INTERVAL_LEVEL) for b in (belief, after, other))) for n in found.space.names
    }
    result = ExcitationResult(
        robot=model.name,
        inputs=(parent,),
        file=str(out) if out is not None else None,
        experiment_seconds=seconds,
        level=INTERVAL_LEVEL,
        information=found.information_gain_nats,
        baseline_information=baseline.information_gain_nats,
        parameters=intervals,
        commands=tuple(commands),
        seconds=time.perf_counter() - start,
    )
    return DesignedExperiment(found, baseline, result)


def _excitation_signal(policy: Path | None, robot: Robot, seconds: float) -> Multisine | CommandSteps:
    """Multisine targets of the motors, or commands to the policy of a run."""
    if policy is None:
        return Multisine(robot, seconds)
    from isthmus.learn import runs
    from isthmus.learn.policies.base_controller import check_robot

    run = runs.load(policy)
    task = replace(run.task, robot=robot)
    check_robot(run, task, f"the policy {policy}")
    return CommandSteps(runs.load_actor(run), task, seconds)


def _write_experiment(path: Path, robot: Robot, belief: Belief, found: Experiment, parent: str, commands: list[str]) -> None:
    """The targets as a controller, or the recording that is expected in the median world."""
    if path.suffix == ".controller":
        from isthmus.deploy.trajectory_player import save_player  # imports onnx

        hashes = robot.model_hash, robot.space.hash, belief.hash
        save_player(path, robot.contract, robot.default, found.targets, *hashes)
        return
    simulation, rows = Simulation(robot, 1), []
    simulation.apply(belief.median()[None], simulation.all_ids)
    simulation.reset(simulation.all_ids)
    for u in found.targets:
        rows.append(simulation.noiseless_signals()[0])
        simulation.step(u[None])
    y = np.array(rows)
    expected = {n: list(found.expected_belief().interval(n, INTERVAL_LEVEL)) for n in found.space.names}
    origin = {"source": "sim", "parents": [parent], "expected": expected} | ({"commands": commands} if commands else {})
    signals = {name: y[:, where] for name, where in robot.contract.slices().items()}
    times = np.arange(len(y)) / robot.contract.rate
    write_episode(path, Episode(robot.contract, times, signals, found.targets, found.targets, origin=origin))
