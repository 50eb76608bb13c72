"""A stage on one robot: the task as the stage has it, and its worlds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from isthmus.core.constants import MODEL_GRAVITY
from isthmus.core.errors import BadInput
from isthmus.sim.physics.disturbances import Disturbance
from isthmus.sim.reality import Reality
from isthmus.sim.reality.tables import Unmodelled
from isthmus.sim.robot import Robot
from isthmus.sim.scenes.terrain import Terrain
from isthmus.tasks.task import Level, Task
from isthmus.validation.protocol import ParameterChange, Protocol, Stage
from isthmus.world import Belief


@dataclass(frozen=True)
class StageSetup:
    stage: Stage
    task: Task
    """With the stage's episode, commands, forces and ground."""
    belief: Belief
    """As wide as the stage takes it."""
    parameter_changes: Mapping[str, tuple[tuple[str, ...], ParameterChange]]
    """By pattern: the parameters that it names here."""
    parameter_fades: Mapping[str, float]
    """Part that each parameter loses until the end of the episode."""
    setup_values: Mapping[str, tuple[float, ...]]
    reality: Reality | None
    """Physics that training lacks."""
    skipped_parts: tuple[str, ...]
    """What of the stage this robot cannot have, as sentences."""

    def sample_worlds(
        self, rng: np.random.Generator, n: int, setup: Mapping[str, float | np.ndarray] | None = None
    ) -> np.ndarray:
        """e of n independent worlds, (n, d), inside the hard bounds; `setup` is what an operator has set, for all or (n,)."""
        space = self.belief.space
        e = self.belief.sample(rng, n)
        for names, change in self.parameter_changes.values():
            columns = [space.index(name) for name in names]
            if change.times is not None:
                e[:, columns] *= rng.uniform(*change.times, (n, 1))
            elif change.range is not None:
                even = Belief.from_ranges(space, dict.fromkeys(names, change.range))
                e[:, columns] = even.sample(rng, n)[:, columns]
        for name, values in self.setup_values.items():
            e[:, space.index(name)] = rng.choice(values, n) if setup is None else setup[name]
        return np.clip(e, space.low, space.high)

    def sample_conditions(self, rng: np.random.Generator) -> tuple[dict[str, float], np.ndarray]:
        """What one trial asks for: the setup, and the command as training draws it, (k,)."""
        setup = {name: float(rng.choice(values)) for name, values in self.setup_values.items()}
        command = self.task.command
        if command is None:
            return setup, np.zeros(0)
        low, high = np.array(command.signal.low), np.array(command.signal.high)
        middle = (low + high) / 2
        value = middle + self.stage.command * (rng.uniform(low, high) - middle)
        # A robot is told numbers that people can say.
        value = np.round(np.where(rng.uniform() < command.zero_fraction, 0.0, value), 2)
        return setup, np.clip(value, low, high)

    def faded_parameters(self, e: np.ndarray, episode_fraction: float) -> np.ndarray:
        """e, (n, d), after this part of the episode, 0 to 1."""
        space, e = self.belief.space, e.copy()
        for name, loss in self.parameter_fades.items():
            e[:, space.index(name)] *= 1.0 - loss * episode_fraction
        return np.clip(e, space.low, space.high)


def set_up_stage(stage: Stage, task: Task, belief: Belief) -> StageSetup:
    """The stage on the robot of the task, of which `belief` says what is known."""
    robot, out = task.robot, []
    names = robot.space.names
    numbers, fades = {}, {}
    for pattern, change in stage.worlds.items():
        found = tuple(name for name in names if re.fullmatch(pattern, name))
        if not found:
            out.append(f"{robot.name} has no parameter {pattern}")
            continue
        numbers[pattern] = found, _check_within_bounds(change, found, robot, stage)
    for pattern, loss in stage.fade.items():
        found = [name for name in names if re.fullmatch(pattern, name)]
        fades |= dict.fromkeys(found, loss)
        if not found:
            out.append(f"{robot.name} has no parameter {pattern} that could fade")
    setup = {name: values for name, values in stage.setup.items() if name in names}
    out += [f"{robot.name} has no parameter {name} to set up" for name in stage.setup if name not in names]
    for name, values in setup.items():
        for value in values:
            try:
                robot.space.vector({name: value})
            except BadInput as error:
                raise BadInput(f"stage {stage.name!r}: {error}") from None
    reality = None
    if stage.unmodelled != Unmodelled():
        if robot.unit:
            out.append("missing physics does not go together with the motors, ground and forces of a twin")
        else:
            reality = Reality(robot.name, unmodelled=stage.unmodelled)
            reality.check(robot)
    shaped, more = _stage_task(stage, task)
    return StageSetup(stage, shaped, belief.scaled(stage.width), numbers, fades, setup, reality, (*out, *more))


def _check_within_bounds(change: ParameterChange, names: tuple[str, ...], robot: Robot, stage: Stage) -> ParameterChange:
    if change.range is not None:
        for name in names:
            p = robot.space[name]
            if not p.low <= change.range[0] <= change.range[1] <= p.high:
                raise BadInput(
                    f"stage {stage.name!r}: {name} from {change.range[0]:g} to {change.range[1]:g} {p.unit} leaves its hard "
                    f"bounds [{p.low:g}, {p.high:g}]."
                )
    return change


def _stage_task(stage: Stage, task: Task) -> tuple[Task, list[str]]:
    robot, forces, out = task.robot, stage.forces, []
    disturbance, terrain = Disturbance(), None
    if robot.morphology.base:
        weight = MODEL_GRAVITY * float(robot.model.body_subtreemass[robot.model.body(robot.morphology.base).id])
        disturbance = Disturbance(
            push_speed=forces.push,
            push_every=forces.every,
            steady_force=forces.steady * weight,
            gust_force=forces.gust * weight,
            gust_time=forces.gust_time,
        )
    elif forces.push or forces.steady or forces.gust:
        out.append(f"{robot.name} has no base that pushes and wind could move")
    if stage.ground is not None:
        if robot.morphology.feet and any(geom.name == "floor" for geom in robot.spec().geoms):
            terrain = Terrain(kinds=stage.ground.kinds, height=stage.ground.height)
        else:
            out.append(f"{robot.name} does not walk on the ground")
    level = Level(stage.name, command=stage.command, roughness=stage.ground.roughness if stage.ground else 0.0)
    shaped = replace(task, disturbance=disturbance, terrain=terrain, levels=(level,), parameter_shift=None)
    return replace(shaped, episode=stage.episode or task.episode), out


def check_protocol_fits(protocol: Protocol, robot: Robot) -> None:
    """A protocol for robots with legs makes no sense for one without."""
    kind = robot_kind(robot)
    if protocol.robots not in ("any", kind):
        raise BadInput(
            f"the protocol {protocol.name} is for {protocol.robots} robots, which {robot.name} is not; "
            f"try --protocol {default_protocol(robot)}."
        )


def robot_kind(robot: Robot) -> str:
    return "legged" if robot.morphology.feet else "aerial" if robot.morphology.flies else "bench"


def default_protocol(robot: Robot) -> str:
    return robot_kind(robot)
