"""True stiction of the joints: MuJoCo's dry friction, with a level that falls with speed (Stribeck)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mujoco
import numpy as np

from isthmus.sim.physics.component import Attached, Component
from isthmus.sim.physics.motor_law import MOTOR_LAW_FIELDS
from isthmus.sim.reality import equations
from isthmus.sim.reality.tables import Stribeck

if TYPE_CHECKING:
    from isthmus.sim.simulation import Simulation

STICTION_SOLREF = [0.002, 1.0]
STICTION_SOLIMP = [0.9999, 0.9999, 1e-3, 0.5, 2.0]
"""Solver parameters of true stiction: below its breakaway torque a joint creeps by less than 1e-4 rad/s."""


class AttachedStiction(Attached):
    """Takes the place of the motors' Coulomb friction."""

    every = 1

    def __init__(self, sim: Simulation, law: Stribeck):
        assert sim.driven_joints is not None
        self._sim, self.law, self._dofs = sim, law, sim.driven_joints[1]
        self._frictionloss = sim.engine.field("dof_frictionloss")

    def apply(self, ids: np.ndarray) -> None:
        self._sim.motors.figures[ids, MOTOR_LAW_FIELDS.index("coulomb")] = 0.0

    def before_step(self, substep: int) -> None:
        del substep
        self._frictionloss[:, self._dofs] = equations.stribeck_friction(self._sim.qvel[:, self._dofs], self.law)


def stiction_component(law: Stribeck) -> Component:
    def edit(spec: mujoco.MjSpec) -> None:
        spec.option.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
        for joint in spec.joints:
            joint.solref_friction, joint.solimp_friction = STICTION_SOLREF, STICTION_SOLIMP

    return Component(lambda sim: AttachedStiction(sim, law), edit)
