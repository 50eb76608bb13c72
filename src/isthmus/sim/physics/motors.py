"""The motors of all worlds: their numbers under e and in force, their state, and the law where the engine does not run it.

Numbers are kept twice. `figures` are those under e, written by parameters. Those in force are in each world's userdata row,
where the law reads them: a reality or a robot's own mode may change them within an episode.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from isthmus.sim.physics.component import Attached, Parameters
from isthmus.sim.physics.delays import arrival, mean_target, target_in_force
from isthmus.sim.physics.motor_law import MOTOR_LAW_FIELDS, lag_decay
from isthmus.sim.physics.userdata_layout import MOTOR_STATE_FIELDS

if TYPE_CHECKING:
    from isthmus.sim.robot import Robot
    from isthmus.sim.simulation import Simulation

DELAY_FIELDS = ("action_delay", "sensor_delay")


class Motors(Attached):
    def __init__(self, sim: Simulation):
        self._sim, self.law = sim, sim.motor_law
        self.every = 0 if sim.runs_motor_law else 1
        self.figures = np.repeat(np.stack(list(self.law.nominal.values()))[None], sim.n, axis=0)
        """Under e, (n, fields, m), in the order of MOTOR_LAW_FIELDS."""
        self.delays = {name: np.zeros((sim.n, 1)) for name in DELAY_FIELDS}
        """Under e, s, (n, 1)."""
        self.in_force = {f: sim.userdata[f"motor.{f}"] for f in MOTOR_LAW_FIELDS}
        self.state_arrays = {f: sim.userdata[f"state.{f}"] for f in MOTOR_STATE_FIELDS}
        self._armature_varies = "dof_armature" in sim.varied_arrays
        if self.law.rotor_inertia_from_armature:
            self._armature = sim.engine.field("dof_armature").reshape(sim.n, -1)
            if not self._armature_varies:
                self._move_armature(sim.all_ids)

    def parameters(self) -> Parameters:
        rows = {f"motor.{name}": (row, self.figures[:, i]) for i, (name, row) in enumerate(self.law.nominal.items())}
        return rows | {f"link.{name}": (np.zeros(1), array) for name, array in self.delays.items()}

    # e --------------------------------------------------------------------------------------------------------

    def write_model(self, ids: np.ndarray) -> None:
        if self.law.rotor_inertia_from_armature and self._armature_varies:
            self._move_armature(ids)

    def _move_armature(self, ids: np.ndarray) -> None:
        """Give rotors of worlds `ids` the armature of their joints. With a spring the links lose it.

        A rotor in a play is most of the time one body with its link, and stays part of its inertia.
        """
        assert self._sim.driven_joints is not None
        columns = self._sim.driven_joints[1]
        self.figures[ids, MOTOR_LAW_FIELDS.index("rotor_inertia")] = self._armature[ids][:, columns]
        if self.law.has_spring:
            self._armature[np.ix_(ids, np.arange(self._armature.shape[1])[columns])] = 0.0

    def apply(self, ids: np.ndarray) -> None:
        """Put the figures under e in force in worlds `ids`."""
        userdata = self._sim.userdata
        userdata["params"][ids] = self.figures[ids]
        for name, values in self.delays.items():
            userdata[name][ids] = values[ids, 0]

    def override_gains(self, kp: np.ndarray | float, kd: np.ndarray | float) -> None:
        """From now on targets come from the robot itself, without delay, to motors with these gains."""
        self._sim.userdata["action_delay"][:] = 0.0
        self.in_force["kp"][:], self.in_force["kd"][:] = kp, kd

    def restore_gains(self) -> None:
        """From now on targets come over the link, with its delay, to motors with their own gains."""
        self.apply(self._sim.all_ids)

    # Reset ----------------------------------------------------------------------------------------------------

    def start(self, ids: np.ndarray, sent: np.ndarray) -> None:
        sim = self._sim
        self.apply(ids)
        sim.userdata["targets"][ids] = sent[:, np.minimum(np.arange(sim.layout.target_history), sent.shape[1] - 1)]
        self.state_arrays["lagged"][ids] = self._lagged_target(ids, sent)
        if sim.driven_joints is not None:
            self._start_rotors(ids)

    def reset(self, ids: np.ndarray) -> None:
        self._sim.userdata["last"][ids] = -1.0

    def _start_rotors(self, ids: np.ndarray) -> None:
        """Rotors go with their links, or links with their rotors where encoders are on these."""
        sim, state = self._sim, self.state_arrays
        assert sim.driven_joints is not None
        theta, speed = sim.qpos[ids][:, sim.driven_joints[0]], sim.qvel[ids][:, sim.driven_joints[1]]
        state["rotor"][ids], state["rotor_speed"][ids] = theta, speed
        if self.law.encoders_on_rotor:
            f = {name: row[ids] for name, row in self.in_force.items()}
            targets, delay = sim.userdata["targets"][ids], sim.userdata["action_delay"][ids]
            now = target_in_force(targets, delay, 0, sim.robot.substeps, sim.dt)
            u = state["lagged"][ids] if self.law.has_lag else now
            links, touch = self.law.link_state_from_encoders(f, u, theta, speed)
            sim.qpos[np.ix_(ids, np.arange(sim.qpos.shape[1])[sim.driven_joints[0]])] = links
            state["touch"][ids] = touch

    def _lagged_target(self, ids: np.ndarray, sent: np.ndarray) -> np.ndarray:
        """State of the motors' first-order lag after the targets sent so far, (k, m)."""
        sim, lagged = self._sim, sent[:, -1]
        if not self.law.has_lag or sent.shape[1] == 1:
            return lagged
        delay, keeps = sim.userdata["action_delay"][ids], lag_decay(self.in_force["lag"][ids], sim.dt)
        arrivals = [arrival(delay, s, sim.robot.substeps, sim.dt) for s in range(sim.robot.substeps)]
        for newest in range(sent.shape[1] - sim.layout.target_history, -1, -1):
            for back, fresh in arrivals:
                u = mean_target(sent[:, newest:], back, fresh)
                lagged = u + keeps * (lagged - u)
        return lagged

    # Time -----------------------------------------------------------------------------------------------------

    def before_step(self, substep: int) -> None:
        """The law in NumPy, for engines that do not run it."""
        sim = self._sim
        q = qd = qdd = None
        if sim.driven_joints is not None:
            q, qd = sim.qpos[:, sim.driven_joints[0]], sim.qvel[:, sim.driven_joints[1]]
            qdd = sim.qacc[:, sim.driven_joints[1]]
        sim.ctrl[:] = self.law.torque(self.in_force, self.state_arrays, self.target_in_force(substep), q, qd, qdd)

    def target_in_force(self, substep: int) -> np.ndarray:
        """Targets that motors follow in one physics step of the tick, (n, m), after the action delay."""
        sim = self._sim
        return target_in_force(sim.userdata["targets"], sim.userdata["action_delay"], substep, sim.robot.substeps, sim.dt)

    def torque(self, ids: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Torques of the motors now, (k, m): what acts on the joints, or on rotors behind a gear."""
        sim = self._sim
        if not self.law.has_separate_rotor or sim.driven_joints is None:
            return sim.ctrl[ids]
        u = self.state_arrays["lagged"][ids] if self.law.has_lag else sim.userdata["targets"][ids][:, 0]
        return self.law.motor_torque({name: row[ids] for name, row in self.in_force.items()}, u, *self.rotor_state(ids))

    def rotor_state(self, ids: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray]:
        """Angles and speeds of rotors behind a spring or a play, rad and rad/s, (k, m)."""
        sim = self._sim
        assert sim.driven_joints is not None
        play, state = self.in_force["backlash"][ids], {name: row[ids] for name, row in self.state_arrays.items()}
        return self.law.rotor_state(play, state, sim.qpos[ids][:, sim.driven_joints[0]], sim.qvel[ids][:, sim.driven_joints[1]])

    def encoder_state(self) -> tuple[np.ndarray, np.ndarray]:
        """(qpos, qvel) as `Simulation.reset` takes them: with driven joints as their encoders show them."""
        sim = self._sim
        qpos, qvel = sim.qpos.copy(), sim.qvel.copy()
        if self.law.encoders_on_rotor and sim.driven_joints is not None:
            qpos[:, sim.driven_joints[0]], qvel[:, sim.driven_joints[1]] = self.rotor_state(slice(None))
        return qpos, qvel

    def correct(self, dq: np.ndarray, dv: np.ndarray) -> None:
        """Rotors with encoders go along with joints that were moved from outside, by (n, nv) each."""
        if self.law.encoders_on_rotor and self._sim.driven_joints is not None:
            self.state_arrays["rotor"] += dq[:, self._sim.driven_joints[1]]
            self.state_arrays["rotor_speed"] += dv[:, self._sim.driven_joints[1]]


def link_mobility(robot: Robot, dofs: list[int]) -> np.ndarray:
    """Inverse inertia of links without their rotors, 1/(kg·m²), (len(dofs),)."""
    model = copy.deepcopy(robot.model)
    model.dof_armature[dofs] = 0.0
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model.dof_invweight0[dofs]
