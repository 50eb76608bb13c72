"""What to do: a robot, a command, what is good and bad, where an episode starts and ends, and how it gets harder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from isthmus.data.contract import Signal
from isthmus.sim.physics.disturbances import Disturbance
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.robot import Robot
from isthmus.sim.scenes.terrain import Terrain
from isthmus.tasks.state import State
from isthmus.world import Belief


@dataclass(frozen=True)
class RewardTerm:
    name: str
    weight: float
    value: Callable[[State], Tensor]


@dataclass(frozen=True)
class Command:
    """What the robot is asked to do: a signal that the operator sends, drawn uniformly in training."""

    signal: Signal
    """Its limits are the full range."""
    resample_interval: tuple[float, float] = (4.0, 8.0)
    """s until a new command is drawn; in evaluation a command holds for the whole episode."""
    zero_fraction: float = 0.1
    """Fraction of commands that are zero."""


@dataclass(frozen=True)
class ParameterShift:
    """Numbers of the world that become others in the middle of an episode: a load is put on, the floor turns to ice."""

    parameters: tuple[str, ...]
    """Parameters of the Space that are drawn anew, all at once."""
    interval: tuple[float, float]
    """s between changes, drawn uniformly."""


@dataclass(frozen=True)
class Level:
    """One step of the curriculum. The next one comes when the policy copes with this one."""

    name: str
    command: float = 1.0
    """Fraction of the command's range, about its middle."""
    width: float = 1.0
    """Fraction of the prior's range."""
    disturbance: float = 1.0
    """Fraction of the disturbance's strength."""
    roughness: float = 0.0
    """Fraction of the terrain's roughness."""
    score: float = 0.0
    """Mean score of recent episodes from which on the policy is ready for the next level."""


@dataclass(frozen=True)
class ObservationTerm:
    """One part of the actor's observation: a signal, how it is prepared, and a factor."""

    signal: str
    transform: str = "value"
    """`value`, `offset` (minus the default pose), `gravity` (a quaternion to the down direction), `angle` (sine and
    cosine) or `attitude` (a quaternion to its rotation matrix)."""
    scale: float = 1.0
    subtract: str = ""
    """Another signal of the same size that is subtracted first."""


@dataclass(frozen=True)
class GaitClock:
    """A rhythm under the policy: targets move with a clock, and the policy's action is added to that.

    With no action the robot lifts its feet in turn, so learning starts from stepping instead of from falling
    (Iscen et al., "Policies Modulating Trajectory Generators", 2018). The clock is part of the policy's memory.

        lift(t) = lift · max(0, sin 2π (frequency · t + offset)) · gate
    """

    frequency: float
    """Steps per second of one leg."""
    offset: tuple[float, ...]
    """Phase of each target component, in cycles."""
    lift: tuple[float, ...]
    """Height of the movement of each component, in the target's unit."""
    gate: str
    """Signal that starts the rhythm: it stands still where this signal is zero."""


@dataclass(frozen=True)
class LinearFeedback:
    """Linear feedback under the policy, as the inner loop of a flight controller: gain · signal is added to the action."""

    observation: ObservationTerm
    gain: tuple[tuple[float, ...], ...]
    """One row per action, one column per component of the prepared signal."""


@dataclass(frozen=True)
class PolicySpec:
    """The shape of a policy for this task: what it observes, how long it remembers, how far it reaches."""

    observations: tuple[ObservationTerm, ...]
    action_scale: tuple[float, ...] | float
    """Change of the target per unit of action, in the target's unit."""
    mixer: tuple[tuple[float, ...], ...] = ()
    """How actions combine into targets, one row per target component; empty means one action each. A quadrotor's
    actions are total thrust, roll, pitch and yaw: noise in one then does not tumble the others."""
    action_names: tuple[str, ...] = ()
    """Names of the actions, where they are mixed; otherwise they are the target's components."""
    history: int = 1
    """Observations stacked, newest last."""
    action_clip: float = 4.0
    """Largest action."""
    gait_clock: GaitClock | None = None
    feedback: tuple[LinearFeedback, ...] = ()


@dataclass(frozen=True)
class CriticTerm:
    """A true quantity that the critic sees, with a label per component."""

    name: str
    labels: tuple[str, ...]
    value: Callable[[State], Tensor]


@dataclass(frozen=True)
class Task:
    name: str
    robot: Robot
    episode: float
    """s."""
    rewards: tuple[RewardTerm, ...]
    policy: PolicySpec
    score: Callable[[State], Tensor]
    """How well the task is done right now, 0 to 1, (n,); an episode's score is its mean over the full length."""
    metrics: dict[str, Callable[[State], Tensor]]
    """Quantities that an evaluation reports, averaged over ticks; the first is the error that the task is about."""
    terminations: tuple[RewardTerm, ...] = ()
    """Terms whose value is True where the episode ends badly; the weight is added to the reward then."""
    success_threshold: float = 0.5
    """An episode succeeds if it does not fail and its score is at least this."""
    start: Callable[[np.random.Generator, int, Robot, float], tuple[np.ndarray, np.ndarray]] | None = None
    """(rng, k, robot, width) -> qpos, qvel of k episode starts."""
    command: Command | None = None
    disturbance: Disturbance = field(default_factory=Disturbance)
    parameter_shift: ParameterShift | None = None
    terrain: Terrain | None = None
    levels: tuple[Level, ...] = (Level("full"),)
    critic: tuple[CriticTerm, ...] = ()
    """True state that the critic sees, besides the command, the disturbance and e."""
    privileged: tuple[str, ...] = ()
    """What a teacher is told beside e, because no sensor measures it: names of parts of `critic`, or `force`, the disturbance.

    What cannot be found out from the past does not belong here: a student could not follow.
    """
    only_positive_rewards: bool = False
    """Clip each tick's reward at zero: falling early must never pay."""
    doc: str = ""

    def with_ranges(self, ranges: Mapping[str, tuple[float, float]]) -> Task:
        """The same task in worlds with these ranges; what is not named stays as the prior has it."""
        prior = self.robot.prior.replace(*Belief.from_ranges(self.robot.space, ranges).factors)
        return replace(self, robot=replace(self.robot, prior=prior))

    def on(self, robot: Robot) -> Task:
        """The same task with the motors, ground and learned forces of one unit; its own prior stays."""
        return replace(self, robot=replace(self.robot, unit=robot.unit))

    def nominal_unit(self) -> Task:
        """The same task with a robot as designed, without the motors, ground and forces of one unit."""
        return replace(self, robot=replace(self.robot, unit=UnitPhysics()))


def unmeasured_signals(task: Task) -> tuple[Signal, ...]:
    """What no sensor of any robot measures: the disturbance and e."""
    force = (Signal("force", "m/s²", ("x", "y", "z"), "body"),) if task.robot.morphology.base else ()
    return (*force, Signal("e", "1", task.robot.space.names))


def privileged_signals(task: Task) -> tuple[Signal, ...]:
    """What a teacher is told beside the robot's signals: nothing that a sensor measures."""
    state = tuple(Signal(seen.name, "1", seen.labels) for seen in task.critic if seen.name in task.privileged)
    return (*state, *(s for s in unmeasured_signals(task) if s.name in (*task.privileged, "e")))
