"""Thousands of worlds of one robot, each with its own e, stepped together.

    engine = Engine(go1, n=1024)
    engine.apply(e, ids)                 the numbers of each world
    engine.reset(ids)                    start of an episode
    engine.step(target)                  one control tick: targets -> delay -> motors -> physics
    engine.measured(rng)                 what the robot's own sensors say: delay, gain, bias, noise

Everything is an (n, …) array. `qpos` and `qvel` are live views of the physics.
"""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.geometry import rotate_inverse
from isthmus.sim import parameter_binding
from isthmus.sim.engines.engine import DEFAULT_ENGINE, STATE_ARRAYS, EngineFactory, get_engine
from isthmus.sim.indexing import (
    DrivenJoints,
    SignalSources,
    as_slice,
    driven_joint_columns,
    signal_sources,
    sources_at_rotors,
)
from isthmus.sim.physics import ground, userdata_layout
from isthmus.sim.physics.delays import (
    arrival,
    mean_target,
    read_late,
    signal_history_length,
    target_history_length,
    target_in_force,
)
from isthmus.sim.physics.force_features import motor_error_and_speed
from isthmus.sim.physics.learned_forces import LearnedForces
from isthmus.sim.physics.motor_law import MOTOR_LAW_FIELDS, MotorLaw, lag_decay
from isthmus.sim.robot import Robot, compile_spec

DIVERGED_SPEED = 500.0
"""rad/s or m/s: a world in which anything moves faster has blown up."""


class Simulation:
    def __init__(
        self,
        robot: Robot,
        n: int,
        threads: int = 0,
        edit: Callable[[mujoco.MjSpec], None] | None = None,
        engine: str | EngineFactory = DEFAULT_ENGINE,
    ):
        """n worlds on `threads` threads (0: all). `edit` may change the model, for example put terrain into it.

        `engine` is the name of an engine, or a factory: see `engines/engine.py`.
        """
        if n < 1:
            raise BadInput(f"an engine needs at least one world, not {n}.")
        self.robot, self.n = robot, n
        self.all_ids = np.arange(n)
        target, signals = robot.contract.target, robot.contract.signals
        spec = ground.build_spec(robot, edit)
        own = edit is None and not robot.unit.ground
        bare = robot.model if own else compile_spec(spec, robot.name)
        self.dt = float(bare.opt.timestep)
        self.tick = self.dt * robot.substeps

        self._writes = parameter_binding.resolved_writes(robot)
        self._varied_arrays = {w.array for w in self._writes}
        varied = frozenset(w.array.removeprefix("motor.") for w in self._writes if w.array.startswith("motor."))
        self.motor_law = MotorLaw(robot.motors_of_unit, target.size, self.dt, varied)
        self.learned_forces = LearnedForces(robot, bare, self.dt)
        self.layout = userdata_layout.UserdataLayout(
            motor_count=target.size,
            substeps=robot.substeps,
            target_history=target_history_length(robot.max_delay("action_delay"), robot.substeps, self.dt),
            signal_history=signal_history_length(robot.max_delay("sensor_delay"), self.dt),
            signal_width=sum(s.size for s in signals),
            motor_history=self.learned_forces.history_steps,
            force_dofs=bare.nv if self.learned_forces else 0,
        )
        sources, joints = self._locate_signals(bare)
        self._signal_sources = [(array, as_slice(columns), len(columns)) for array, columns in sources]
        self._reads_model_sensors = any(array == "sensordata" for array, _, _ in self._signal_sources)
        self.driven_joints = None if joints is None else (as_slice(joints[0]), as_slice(joints[1]))
        """Columns of qpos and qvel of the joints behind the targets, if they are joints; of rotors, if a gear parts the two."""
        make_engine = get_engine(engine)
        self.runs_motor_law = make_engine.runs_motor_law
        """Whether the engine runs the motor law within its step; else it runs in NumPy between steps."""
        self._allocate_userdata(spec, sources, joints)
        self.model = compile_spec(spec, robot.name)

        self.engine = make_engine(self.model, n, threads)
        self.qpos, self.qvel = self.engine.array("qpos"), self.engine.array("qvel")
        self.qacc = self.engine.array("qacc_warmstart")
        """Acceleration in the last physics step; MuJoCo keeps it to start its solver."""
        self.ctrl, self.xfrc_applied = self.engine.array("ctrl"), self.engine.array("xfrc_applied")
        self._qfrc_applied = self.engine.array("qfrc_applied")
        self.time = self.engine.array("time")
        self._engine_sensordata = self.engine.array("sensordata")
        self.sensordata = self._engine_sensordata.copy() if self._reads_model_sensors else self._engine_sensordata
        """What the model's own sensors felt in the last physics step; a row of its own where signals are made of it."""
        self._checkpoint_arrays = {name: self.engine.array(name) for name in STATE_ARRAYS}
        self._checkpoint_arrays |= {"sensordata": self.sensordata} if self._reads_model_sensors else {}
        self.userdata = self.layout.views(self.engine.array("userdata"))
        self._motor_fields = {f: self.userdata[f"motor.{f}"] for f in MOTOR_LAW_FIELDS}
        self._motor_state = {f: self.userdata[f"state.{f}"] for f in userdata_layout.MOTOR_STATE_FIELDS}
        self._target_limits = (np.array(target.low or [-np.inf]), np.array(target.high or [np.inf]))
        self.diverged = np.zeros(n, dtype=bool)
        """Worlds whose physics failed in the last step; reset them before the next one."""
        self.binding = self._bind()
        self.e = np.tile(robot.space.nominal, (n, 1))
        """Values in force, (n, d)."""
        self.apply(self.e, self.all_ids)
        self.reset(self.all_ids)

    def _allocate_userdata(self, spec: mujoco.MjSpec, sources: SignalSources, joints: DrivenJoints) -> None:
        """Make room for what motors and sensors remember, and tell the motor law in C where all of it is."""
        spec.nuserdata = self.layout.size
        if self.runs_motor_law:
            q, v = joints or ([0] * self.layout.motor_count, [0] * self.layout.motor_count)
            flags = self.motor_law.flags | (joints is not None) * 16
            numbers = self.layout.native_table(self.motor_law.drive, flags, q, v, sources, self.learned_forces.native_table())
            spec.add_numeric(name="isthmus", data=numbers, size=len(numbers))

    def _locate_signals(self, model: mujoco.MjModel) -> tuple[SignalSources, DrivenJoints]:
        """Where signals and the joints behind the targets are found: see `sources`."""
        sources, joints = signal_sources(self.robot, model), driven_joint_columns(self.robot, model)
        if self.motor_law.rotor_inertia_from_armature and (joints is None or not (model.dof_armature[joints[1]] > 0).all()):
            where = "motors without joints" if joints is None else "joints without armature"
            raise BadInput(f"backlash and springs need rotors: {self.robot.name} has {where}.")
        if self.motor_law.encoders_on_rotor and joints is not None:
            sources = sources_at_rotors(sources, joints)
        return sources, joints

    # e --------------------------------------------------------------------------------------------------------

    def _bind(self) -> parameter_binding.Binding:
        """Collect the per-world arrays that the Space writes to, with their nominal rows."""
        n, width, nbody = self.n, self.layout.signal_width, self.model.nbody
        nominal = {
            "inertia.mass": np.ones(nbody),
            "inertia.com": np.zeros(3 * nbody),
            "inertia.payload": np.zeros(nbody),
            "signal.bias": np.zeros(width),
            "signal.gain": np.ones(width),
            "signal.noise": np.zeros(width),
            **{f"link.{name}": np.zeros(1) for name in parameter_binding.DELAY_FIELDS},
            **ground.nominal_ground_fields(self.robot),
        }
        arrays = {name: np.tile(row, (n, 1)) for name, row in nominal.items()}
        motors = self.motor_law.nominal
        self._nominal_motor_fields = np.repeat(np.stack(list(motors.values()))[None], n, axis=0)
        for i, (name, row) in enumerate(motors.items()):
            nominal[f"motor.{name}"], arrays[f"motor.{name}"] = row, self._nominal_motor_fields[:, i]
        self._compliant_ground = ground.AttachedGround(self) if self.robot.unit.ground else None
        for name in self._varied_arrays - set(nominal):
            source = self.model.opt if name.startswith("opt.") else self.model
            nominal[name] = np.array(getattr(source, name.removeprefix("opt.")), dtype=float).ravel()
            arrays[name] = self.engine.field(name).reshape(n, -1)
        if self.motor_law.rotor_inertia_from_armature and "dof_armature" not in self._varied_arrays:
            self._hand_over_armature(self.engine.field("dof_armature").reshape(n, -1), self.all_ids)
        self._inertial_fields = parameter_binding.InertialFields(self._writes, self.model, self.robot)
        if self._inertial_fields:
            self._inertial_arrays = {f: self.engine.field(f) for f in self._inertial_fields.BODY_FIELDS}
        inputs = set(mujoco.MjModel._setconst_inputs) | {"opt.gravity", "opt.timestep"}
        self._needs_set_const = bool(self._inertial_fields) or bool(self._varied_arrays & inputs)
        return parameter_binding.Binding(self._writes, arrays, nominal)

    def apply(self, e: np.ndarray, ids: np.ndarray) -> None:
        """Give worlds `ids` the values e, (k, d), starting from nominal, derived constants included."""
        self.robot.space.check(e)
        self.e[ids] = e
        self.binding.apply(e, ids)
        if self.motor_law.rotor_inertia_from_armature and "dof_armature" in self._varied_arrays:
            self._hand_over_armature(self.binding.arrays["dof_armature"], ids)
        if self._inertial_fields:
            self._inertial_fields.apply(self.binding.arrays, self._inertial_arrays, ids)
        if self._needs_set_const:
            self.engine.set_const(ids)
        self.apply_ground(ids)
        self._write_motor_fields(ids)

    def apply_ground(self, ids: np.ndarray) -> None:
        """Write the unit's own ground, if it has one, once masses are settled."""
        if self._compliant_ground:
            self._compliant_ground.apply(self.binding.arrays, ids)

    def _hand_over_armature(self, armature: np.ndarray, ids: np.ndarray) -> None:
        """Give rotors of worlds `ids` the armature of their joints, rows of (n or 1, nv). With a spring the links lose it.

        A rotor in a play is most of the time one body with its link, and stays part of its inertia.
        """
        assert self.driven_joints is not None
        rows = ids if len(armature) == self.n else np.array([0])
        self._nominal_motor_fields[ids, MOTOR_LAW_FIELDS.index("rotor_inertia")] = armature[rows][:, self.driven_joints[1]]
        if self.motor_law.has_spring:
            armature[np.ix_(rows, np.arange(armature.shape[1])[self.driven_joints[1]])] = 0.0

    def _write_motor_fields(self, ids: np.ndarray) -> None:
        """Copy the numbers of motors and link into the worlds' own rows."""
        arrays = self.binding.arrays
        self.userdata["params"][ids] = self._nominal_motor_fields[ids]
        for name in parameter_binding.DELAY_FIELDS:
            self.userdata[name][ids] = arrays[f"link.{name}"][ids, 0]

    # Time -----------------------------------------------------------------------------------------------------

    def reset(
        self,
        ids: np.ndarray,
        qpos: np.ndarray | None = None,
        qvel: np.ndarray | None = None,
        sent: np.ndarray | None = None,
    ) -> None:
        """Start worlds `ids` at (qpos, qvel), by default at home and at rest, with motors and buffers settled.

        Where encoders are on rotors of their own, qpos is what they show, and links are as far off as motors push them.
        `sent`, (k, past, m), are the targets that were sent before, newest first; by default the one that holds home.
        """
        self.engine.reset(ids)
        self.qpos[ids] = np.array(self.robot.home) if qpos is None else qpos
        self.qvel[ids] = 0.0 if qvel is None else qvel
        self._write_motor_fields(ids)
        if sent is None:
            sent = np.broadcast_to(np.array(self.robot.default), (len(ids), 1, self.layout.motor_count))
        self.userdata["targets"][ids] = sent[:, np.minimum(np.arange(self.layout.target_history), sent.shape[1] - 1)]
        self._motor_state["lagged"][ids] = self._lagged_target(ids, sent)
        if self.driven_joints is not None:
            self._initialize_rotors(ids)
        self.userdata["memory"][ids] = self._motor_memory_entry(ids)[:, None]
        self.apply_force(np.zeros((len(ids), self.model.nv)), ids)
        self.engine.forward(ids)
        self._copy_sensordata(ids)
        self.userdata["last"][ids] = -1.0
        self.userdata["ring"][ids] = self._true_signals(ids)[:, None]
        self.diverged[ids] = False

    def _initialize_rotors(self, ids: np.ndarray) -> None:
        """Rotors go with their links, or links with their rotors where these are what is seen."""
        assert self.driven_joints is not None
        theta, speed = self.qpos[ids][:, self.driven_joints[0]], self.qvel[ids][:, self.driven_joints[1]]
        self._motor_state["rotor"][ids], self._motor_state["rotor_speed"][ids] = theta, speed
        if self.motor_law.encoders_on_rotor:
            f = {name: row[ids] for name, row in self._motor_fields.items()}
            now = target_in_force(
                self.userdata["targets"][ids], self.userdata["action_delay"][ids], 0, self.robot.substeps, self.dt
            )
            u = self._motor_state["lagged"][ids] if self.motor_law.has_lag else now
            links, touch = self.motor_law.link_state_from_encoders(f, u, theta, speed)
            self.qpos[np.ix_(ids, np.arange(self.qpos.shape[1])[self.driven_joints[0]])] = links
            self._motor_state["touch"][ids] = touch

    def motor_torque(self, ids: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Torques that motors give now, (k, m): what acts on the joints, but behind a gear, where teeth and springs do."""
        if not self.motor_law.has_separate_rotor or self.driven_joints is None:
            return self.ctrl[ids]
        u = self._motor_state["lagged"][ids] if self.motor_law.has_lag else self.userdata["targets"][ids][:, 0]
        return self.motor_law.motor_torque(
            {name: row[ids] for name, row in self._motor_fields.items()}, u, *self._rotor_state(ids)
        )

    def _rotor_state(self, ids: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray]:
        """Angles and speeds of rotors of their own, (k, m)."""
        assert self.driven_joints is not None
        play, state = self._motor_fields["backlash"][ids], {name: row[ids] for name, row in self._motor_state.items()}
        return self.motor_law.rotor_state(
            play, state, self.qpos[ids][:, self.driven_joints[0]], self.qvel[ids][:, self.driven_joints[1]]
        )

    def encoder_state(self) -> tuple[np.ndarray, np.ndarray]:
        """(qpos, qvel) as `reset` takes them: with driven joints as their encoders show them."""
        qpos, qvel = self.qpos.copy(), self.qvel.copy()
        if self.motor_law.encoders_on_rotor and self.driven_joints is not None:
            qpos[:, self.driven_joints[0]], qvel[:, self.driven_joints[1]] = self._rotor_state(slice(None))
        return qpos, qvel

    def correct(self, dq: np.ndarray, dv: np.ndarray) -> None:
        """Rotors that are seen go along with joints that were moved by hand, by (n, nv) each."""
        if self.motor_law.encoders_on_rotor and self.driven_joints is not None:
            self._motor_state["rotor"] += dq[:, self.driven_joints[1]]
            self._motor_state["rotor_speed"] += dv[:, self.driven_joints[1]]

    def apply_force(self, force: np.ndarray, ids: np.ndarray) -> None:
        """Generalised forces, (k, nv), on worlds `ids` from now on, on top of learned ones."""
        if self.learned_forces:
            self.userdata["force"][ids] = force
        else:
            self._qfrc_applied[ids] = force

    def _motor_memory_entry(self, ids: np.ndarray) -> np.ndarray:
        """What learned forces of motors remember of now, (k, 2, m)."""
        if self.driven_joints is None or not self.learned_forces.history_steps:
            return np.zeros((len(ids), 2, self.layout.motor_count))
        q, qd = self.qpos[ids][:, self.driven_joints[0]], self.qvel[ids][:, self.driven_joints[1]]
        return motor_error_and_speed(self.motor_law.drive, self.userdata["targets"][ids][:, 0], q, qd)

    def _lagged_target(self, ids: np.ndarray, sent: np.ndarray) -> np.ndarray:
        """What a motor with lag makes of the targets sent so far, (k, m)."""
        lagged = sent[:, -1]
        if not self.motor_law.has_lag or sent.shape[1] == 1:
            return lagged
        delay, keeps = self.userdata["action_delay"][ids], lag_decay(self._motor_fields["lag"][ids], self.dt)
        arrivals = [arrival(delay, s, self.robot.substeps, self.dt) for s in range(self.robot.substeps)]
        for newest in range(sent.shape[1] - self.layout.target_history, -1, -1):
            for back, fresh in arrivals:
                u = mean_target(sent[:, newest:], back, fresh)
                lagged = u + keeps * (lagged - u)
        return lagged

    def step(self, target: np.ndarray) -> None:
        """Advance every world by one control tick under target, (n, m), inside the contract's limits."""
        self.replay(np.clip(target, *self._target_limits))

    def replay(self, target: np.ndarray) -> None:
        """The same under a target that was sent: the contract's limits are for those who send."""
        sent = self.userdata["targets"]
        sent[:, 1:] = sent[:, :-1].copy()
        sent[:, 0] = target
        self.userdata["tick"][:] = self.time
        self._step_tick()
        # NaN fails every comparison, so this also finds worlds that are no longer numbers.
        self.diverged |= ~(np.abs(self.qvel).max(axis=1) < DIVERGED_SPEED)

    def _step_tick(self) -> None:
        """The physics steps of one tick."""
        if self.runs_motor_law and not self._reads_model_sensors:
            self._advance(self.robot.substeps)
        else:
            for s in range(self.robot.substeps):
                self._substep(s)

    def _substep(self, s: int) -> None:
        """Physics step number s of a tick, with its motors."""
        if self._reads_model_sensors or not self.runs_motor_law:  # sensors of the model's own are only seen between calls
            self._record_signals()
        if not self.runs_motor_law:
            u = target_in_force(self.userdata["targets"], self.userdata["action_delay"], s, self.robot.substeps, self.dt)
            q = qd = qdd = None
            if self.driven_joints is not None:
                q, qd, qdd = (
                    self.qpos[:, self.driven_joints[0]],
                    self.qvel[:, self.driven_joints[1]],
                    self.qacc[:, self.driven_joints[1]],
                )
            self.ctrl[:] = self.motor_law.torque(self._motor_fields, self._motor_state, u, q, qd, qdd)
            if self.learned_forces:
                self._apply_learned_forces(u, q, qd)
        self._advance(1)

    def _apply_learned_forces(self, u: np.ndarray, q: np.ndarray | None, qd: np.ndarray | None) -> None:
        """Learned forces, on top of those that were asked for."""
        memory, now = self.userdata["memory"], np.zeros(self.n, dtype=int)
        if self.learned_forces.history_steps and q is not None and qd is not None:
            now = np.rint(self.time / self.dt).astype(int) % self.learned_forces.history_steps
            memory[self.all_ids, now] = motor_error_and_speed(self.motor_law.drive, u, q, qd)
        self._qfrc_applied[:] = self.userdata["force"]
        columns = slice(None) if self.driven_joints is None else self.driven_joints[1]
        self.learned_forces.add(self._qfrc_applied, self.qpos, self.qvel, self.ctrl, memory, now, columns)

    def _advance(self, steps: int) -> None:
        self.diverged |= self.engine.step(steps)
        self._copy_sensordata(slice(None))

    def _copy_sensordata(self, ids: np.ndarray | slice) -> None:
        if self._reads_model_sensors:
            self.sensordata[ids] = self._engine_sensordata[ids]

    # Signals --------------------------------------------------------------------------------------------------

    def _true_signals(self, ids: np.ndarray | slice = slice(None)) -> np.ndarray:
        """All signals of the contract side by side, as the physics has them, (k, width)."""
        return np.concatenate([self._signal_values(array, columns, ids) for array, columns, _ in self._signal_sources], axis=1)

    def _signal_values(self, array: str, columns: slice | np.ndarray, ids: np.ndarray | slice) -> np.ndarray:
        if array in ("rotor", "rotor_speed"):
            return self._rotor_state(ids)[array == "rotor_speed"][:, columns]
        values = getattr(self, array)[ids][:, columns]
        if array != "qacc":
            return values
        # An accelerometer: the last step's acceleration without gravity, as the body sees it.
        assert isinstance(columns, slice)
        gravity = self.binding.arrays["opt.gravity"][ids] if "opt.gravity" in self._varied_arrays else self.model.opt.gravity
        joint = self.model.dof_jntid[columns.start]
        quat = self.qpos[ids][:, self.model.jnt_qposadr[joint] + 3 :][:, :4]
        return rotate_inverse(quat, values - gravity)

    def _record_signals(self) -> np.ndarray:
        """Write the present into the ring of past signals; return its slot in each world."""
        now = np.rint(self.time / self.dt).astype(int) % self.layout.signal_history
        self.userdata["ring"][self.all_ids, now] = self._true_signals()
        return now

    def noiseless_signals(self) -> np.ndarray:
        """What the sensors would say now without their noise, (n, width): gain · delayed value + bias."""
        arrays = self.binding.arrays
        seen = read_late(self.userdata["ring"], self._record_signals(), self.userdata["sensor_delay"], self.dt)
        if "signal.gain" in self._varied_arrays:
            seen *= arrays["signal.gain"]
        if "signal.bias" in self._varied_arrays:
            seen += arrays["signal.bias"]
        return seen

    def signals(self, rng: np.random.Generator) -> np.ndarray:
        """What the sensors say now, (n, width), float32, noise included."""
        out = self.noiseless_signals().astype(np.float32)
        if "signal.noise" in self._varied_arrays:
            out += rng.standard_normal(out.shape, dtype=np.float32) * self.binding.arrays["signal.noise"].astype(np.float32)
        return out

    # Checkpoints ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Everything that the next step depends on, by name."""
        return {name: np.array(here) for name, here in self._checkpoint_arrays.items()} | {"e": self.e.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        if lacking := sorted({"e", *self._checkpoint_arrays} - state.keys()):
            raise BadInput(f"the saved state lacks {', '.join(lacking)}: another version of Isthmus wrote it; begin anew.")
        self.apply(state["e"], self.all_ids)
        for name, here in self._checkpoint_arrays.items():
            if state[name].shape != here.shape:
                raise BadInput(f"the saved state {name!r} has shape {state[name].shape}, not {here.shape}.")
            here[:] = state[name]
