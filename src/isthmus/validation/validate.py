"""Put a controller through a protocol, stage by stage, with known error rates: in simulation or on a robot.

    certificate = validate("a.controller", on="unit7.twin")
    certificate = validate("a.controller", on="unit7.twin", link="zenoh", operator=operator)

A validation ends with the first stage that does not pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from isthmus.core.errors import BadInput, Interrupted
from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.core.results import Result
from isthmus.deploy.controller import Controller
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.deploy.recorder import recorder_for
from isthmus.deploy.run import never
from isthmus.deploy.signal_map import SignalMap
from isthmus.robots import ROBOTS, get_robot
from isthmus.robots.dynamics import resolve_dynamics
from isthmus.robots.twin import Twin, is_twin
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.task import Task
from isthmus.validation.certificate import Certificate, input_hashes
from isthmus.validation.link_trials import LinkTrialRunner, link_for_trial, recording_path
from isthmus.validation.protocol import Protocol, load_protocol
from isthmus.validation.robot_trials import AskNobody, Operator, TrialRunner, run_stage, stage_seed
from isthmus.validation.simulated_trials import WorstMotion, derive_seed, simulate_stage
from isthmus.validation.stage import StageSetup, check_protocol_fits, default_protocol, set_up_stage
from isthmus.validation.stage_result import StageResult
from isthmus.validation.trial_sheet import read_trial_sheet, write_trial_sheet
from isthmus.world import Belief

MIN_SIM_WORLDS = 50
"""Simulated trials that a prediction needs."""

StageObserver = Callable[[StageSetup, StageResult, WorstMotion | None], None]
"""Called after each stage, with the motion of its worst world if it did not pass in simulation."""


@dataclass(frozen=True)
class ValidationSetup:
    """A controller and what it is tested on."""

    controller: Controller
    name: str
    """Of the controller's file."""
    task: Task
    belief: Belief
    environment: Literal["twin", "prior"]
    twin_hash: str
    tested_on: str
    protocol: Protocol
    stages: tuple[StageSetup, ...]


@dataclass(frozen=True)
class PlanResult(Result, kind="trial-plan"):
    plan: str
    """File of the trial sheet (CSV)."""
    trials: int


def validate(
    controller: Controller | Path | str,
    *,
    on: Path | str = "",
    link: str = "",
    results: Path | str | None = None,
    protocol: Path | str = "",
    stages: tuple[str, ...] = (),
    seed: int = 0,
    sim_worlds: int = 1000,
    run_all: bool = False,
    record: Path | str | None = None,
    speed: float = 1.0,
    operator: Operator | None = None,
    stopping: Callable[[], str] = never,
    on_stage: StageObserver = lambda setup, result, motion: None,
    progress: Progress = silent,
) -> Certificate:
    """The certificate of a controller: trials in simulation, over `link`, or from a filled trial sheet (`results`).

    `on` is a twin or the robot's name (by default the worlds that training assumes); `protocol` a name or a TOML file, by
    default that of the robot's kind; `stages` some of its stages. On a robot, `sim_worlds` simulated trials (0 or at least
    50) serve as control variates, `record` is a folder for a recording of each trial, and `operator` is asked (by default
    nobody is). `run_all` goes on after a stage that does not pass, in simulation only.
    """
    results, record = Path(results) if results else None, Path(record) if record else None
    _check_options(link, results, seed, sim_worlds, run_all, record)
    setup = set_up_test(controller, on, protocol, stages)
    found: list[StageResult] = []
    unit = ""
    if link or results:
        sheet = _sheet_runners(setup, results, seed) if results else None
        for k, own in enumerate(setup.stages):
            if sheet is not None:
                runner: TrialRunner = sheet[own.stage.name]
            else:
                runner = _link_runner(setup, own, link, speed, record, operator or AskNobody(), stopping)
                if not runner.operator.confirm_stage(own.stage):
                    break
            part = _stage_progress(progress, k, len(setup.stages), own.stage.name)
            found.append(run_stage(own, setup.controller, runner, stage_seed(seed, k), sim_worlds, part))
            on_stage(own, found[-1], None)
            unit = runner.unit if isinstance(runner, LinkTrialRunner) else unit
            if not found[-1].passed:
                break
        if not found:
            raise Interrupted("no trial was made.")
    else:
        for k, own in enumerate(setup.stages):
            part = _stage_progress(progress, k, len(setup.stages), own.stage.name)
            result, motion = simulate_stage(own, setup.controller, derive_seed(seed, k), setup.environment, part)
            found.append(result)
            on_stage(own, result, motion)
            if not result.passed and not run_all:
                break
    names = [own.stage.name for own in setup.stages]
    return Certificate(
        passed=len(found) == len(names) and all(stage.passed for stage in found),
        controller=setup.name,
        task=setup.task.name,
        robot=setup.task.robot.name,
        tested_on=link or str(results or "") or setup.tested_on,
        environment="real" if link or results else setup.environment,
        unit=unit,
        protocol=setup.protocol.name,
        description=setup.protocol.doc,
        stages=tuple(found),
        not_reached=tuple(names[len(found) :]),
        inputs=input_hashes(setup.controller, setup.task, setup.belief, setup.twin_hash, setup.protocol),
        seed=seed,
    )


def plan_trials(
    controller: Controller | Path | str,
    sheet: Path,
    *,
    on: Path | str = "",
    protocol: Path | str = "",
    stages: tuple[str, ...] = (),
    seed: int = 0,
) -> PlanResult:
    """Write the conditions of all trials on a robot into a trial sheet (CSV), to be filled in and given as `results`."""
    setup = set_up_test(controller, on, protocol, stages)
    seeds = [stage_seed(seed, k) for k in range(len(setup.stages))]
    return PlanResult(str(sheet), write_trial_sheet(sheet, list(setup.stages), seeds))


def set_up_test(
    controller: Controller | Path | str, on: Path | str = "", protocol: Path | str = "", stages: tuple[str, ...] = ()
) -> ValidationSetup:
    """The controller, its task on the twin or robot `on`, and the stages of the protocol; BadInput if they do not fit."""
    name = Path(controller).name if isinstance(controller, Path | str) else "the controller"
    where = str(controller) if isinstance(controller, Path | str) else name
    policy = OnnxController.load(controller) if isinstance(controller, Path | str) else controller
    task, belief, twin_hash = _resolve_task(where, policy, str(on))
    chosen = load_protocol(str(protocol) or default_protocol(task.robot)).with_stages(stages)
    check_protocol_fits(chosen, task.robot)
    setups = tuple(set_up_stage(stage, task, belief) for stage in chosen.stages)
    environment = "twin" if twin_hash else "prior"
    tested_on = str(on) or f"the prior of {task.robot.name}"
    return ValidationSetup(policy, name, task, belief, environment, twin_hash, tested_on, chosen, setups)


def _resolve_task(where: str, controller: Controller, on: str) -> tuple[Task, Belief, str]:
    """The task of a controller on what simulates its robot, the belief about it, and a twin's hash."""
    manifest = controller.manifest
    try:
        task = get_task(manifest.task)
    except BadInput as error:
        raise BadInput(f"{where} was made for a task that is not known here: {error}") from None
    twin = Path(on)
    if on and not is_twin(twin):
        if on not in ROBOTS and twin.is_file() and twin.suffix not in (".xml", ".urdf", ".toml"):
            raise BadInput(f"--on takes a robot or a twin (.twin), and {on} is neither.")
        if on not in ROBOTS and not twin.exists():
            get_robot(on)
        if on != task.robot.name:
            raise BadInput(f"{where} is a controller of {task.robot.name}, not of {on}.")
    if manifest.model_hash != task.robot.model_hash:
        raise BadInput(f"{where} was trained with another model of {task.robot.name} than the one that is here.")
    SignalMap.from_contracts(manifest, task.robot.contract)
    if not on or not is_twin(twin):
        return task, task.robot.prior, ""
    unit, belief = resolve_dynamics(twin, task.robot)
    return task.on(unit), belief, Twin.load(twin).hash


def _check_options(link: str, results: Path | None, seed: int, sim_worlds: int, run_all: bool, record: Path | None) -> None:
    if link and results:
        raise BadInput("trials happen over a link or are read from a trial sheet: give --link or --results, not both.")
    if seed < 0 or sim_worlds < 0:
        raise BadInput("--seed and --sim-worlds must not be negative.")
    if 0 < sim_worlds < MIN_SIM_WORLDS:
        raise BadInput(f"--sim-worlds must be 0, or at least {MIN_SIM_WORLDS}.")
    if run_all and (link or results):
        raise BadInput("on a robot the first stage that does not pass ends it; --through does not go with --link or --results.")
    if record and not link:
        raise BadInput("--record and --yes go with --link.")


def _stage_progress(progress: Progress, stage: int, stages: int, name: str) -> Progress:
    part = sub_progress(progress, stage / stages, (stage + 1) / stages)
    return lambda fraction, note="", /: part(fraction, note or name)


def _sheet_runners(setup: ValidationSetup, sheet: Path, seed: int) -> dict[str, TrialRunner]:
    """By stage: reads the next outcome of a trial sheet."""
    seeds = [stage_seed(seed, k) for k in range(len(setup.stages))]
    entered = read_trial_sheet(sheet, list(setup.stages), seeds)
    return {
        name: lambda conditions, outcomes=outcomes: outcomes[conditions.trial] if conditions.trial < len(outcomes) else None
        for name, outcomes in entered.items()
    }


def _link_runner(
    setup: ValidationSetup,
    own: StageSetup,
    link: str,
    speed: float,
    record: Path | None,
    operator: Operator,
    stopping: Callable[[], str],
) -> LinkTrialRunner:
    policy = setup.controller
    return LinkTrialRunner(
        own,
        policy,
        connect=lambda conditions: link_for_trial(link, speed, policy, conditions),
        operator=operator,
        stopping=stopping,
        make_recorder=lambda prepared, conditions: (
            recorder_for(recording_path(record, own.stage.name, conditions), policy, prepared) if record else None
        ),
    )
