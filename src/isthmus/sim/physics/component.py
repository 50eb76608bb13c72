"""Physics in parts: what a simulation of a robot is composed of.

A `Component` may edit the model before it is compiled and say where signals and driven joints are found; attached to a
simulation it becomes an `Attached`, whose hooks are called in the order of the components:

    apply(e)     parameters written from nominal → write_model → derived constants (mj_setConst) → apply
    reset        state written → start → forward pass → reset
    step         target → (before_step, physics step) × substeps; one engine call for all substeps if nobody needs before_step
    signals      sensors → signals
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mujoco
import numpy as np

if TYPE_CHECKING:
    from isthmus.sim.indexing import DrivenJoints, SignalSources
    from isthmus.sim.robot import Robot
    from isthmus.sim.simulation import Simulation

Parameters = dict[str, tuple[np.ndarray, np.ndarray]]
"""Arrays that a Space can write to, by name: the nominal row, (columns,), and the values per world, (n, columns)."""


@dataclass(frozen=True)
class StateIndex:
    """Columns of the state behind signals and motors."""

    sources: SignalSources
    driven: DrivenJoints
    qpos_followers: tuple[int, ...] = ()
    """Columns of qpos that appended degrees of freedom (rotors of a gearbox) start at …"""
    qvel_followers: tuple[int, ...] = ()
    """… and of qvel."""


class Attached:
    """A component at work in the worlds of one simulation. All hooks do nothing unless overridden."""

    every: int = 0
    """Physics steps between calls of before_step; 0: never."""
    needs_set_const: bool = False
    """Whether write_model changes fields that MuJoCo derives constants from."""

    def parameters(self) -> Parameters:
        """Arrays of its own that parameters act on."""
        return {}

    def write_model(self, ids: np.ndarray) -> None:
        """Write model fields of worlds `ids`, whose parameters are in place."""

    def apply(self, ids: np.ndarray) -> None:
        """Take over the parameters of worlds `ids`, whose derived constants are up to date."""

    def start(self, ids: np.ndarray, sent: np.ndarray) -> None:
        """Settle worlds `ids` before the forward pass of a reset; `sent`, (k, past, m), are earlier targets, newest first."""

    def reset(self, ids: np.ndarray) -> None:
        """Clear the memory of worlds `ids` after the forward pass of a reset."""

    def target(self, target: np.ndarray) -> np.ndarray:
        """What reaches the motors of a target that was sent, (n, m)."""
        return target

    def before_step(self, substep: int) -> None:
        """Write what the next physics step needs; `substep` counts from 0 within a tick."""

    def signals(self, values: np.ndarray, elapsed: float, rng: np.random.Generator) -> np.ndarray:
        """What leaves the robot of signals, (n, width), `elapsed` s after the last reading."""
        del elapsed, rng
        return values

    def state(self) -> dict[str, np.ndarray]:
        """What its next step depends on beyond the engine's arrays, by name."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """The inverse of `state`; other names are ignored."""


def _no_edit(spec: mujoco.MjSpec) -> None:
    del spec


def _same_index(index: StateIndex) -> StateIndex:
    return index


def _nothing(sim: Simulation) -> Attached:
    del sim
    return Attached()


@dataclass(frozen=True)
class Component:
    attach: Callable[[Simulation], Attached] = _nothing
    edit: Callable[[mujoco.MjSpec], None] = _no_edit
    """Changes to the model before it is compiled. Degrees of freedom are only appended."""
    index: Callable[[StateIndex], StateIndex] = _same_index


def training_components(robot: Robot) -> tuple[Component, ...]:
    """The physics that policies are trained in: that of the robot's design and of its unit."""
    from isthmus.sim.physics.ground import compliant_ground
    from isthmus.sim.physics.inertia_fields import InertialFields
    from isthmus.sim.physics.learned_forces import AppliedForces
    from isthmus.sim.physics.motors import Motors
    from isthmus.sim.physics.sensors import Sensors

    ground = (compliant_ground(),) if robot.unit.ground else ()
    return (Component(InertialFields), Component(Sensors), Component(Motors), Component(AppliedForces), *ground)
