"""Thousands of worlds of one robot, each with its own e, stepped together.

    sim = Simulation(go1, n=1024)
    sim.apply(e, ids)                 the parameters of each world
    sim.reset(ids)                    start of an episode
    sim.step(target)                  one control tick: targets -> delay -> motors -> physics
    sim.signals(rng)                  what the robot's own sensors say: delay, gain, bias, noise

A robot in an `Engine`, with physics composed of components (see `physics/component.py`). Everything is an (n, …) array; `qpos`
and `qvel` are live views of the physics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import mujoco
import numpy as np

from isthmus.core.errors import BadInput
from isthmus.sim import parameter_binding
from isthmus.sim.engines.engine import DEFAULT_ENGINE, STATE_ARRAYS, EngineFactory, get_engine
from isthmus.sim.indexing import as_slice, driven_joint_columns, signal_sources, sources_at_rotors
from isthmus.sim.physics.component import Attached, Component, StateIndex, training_components
from isthmus.sim.physics.delays import signal_history_length, target_history_length
from isthmus.sim.physics.learned_forces import LearnedForces
from isthmus.sim.physics.motor_law import MotorLaw
from isthmus.sim.physics.motors import Motors
from isthmus.sim.physics.sensors import Sensors
from isthmus.sim.physics.userdata_layout import UserdataLayout
from isthmus.sim.robot import Robot, compile_spec

DIVERGED_SPEED = 500.0
"""rad/s or m/s: a world in which anything moves faster has blown up."""
_SET_CONST_INPUTS = frozenset(mujoco.MjModel._setconst_inputs) | {"opt.gravity", "opt.timestep"}

P = TypeVar("P", bound=Attached)


class Simulation:
    def __init__(
        self,
        robot: Robot,
        n: int,
        threads: int = 0,
        edit: Callable[[mujoco.MjSpec], None] | None = None,
        engine: str | EngineFactory = DEFAULT_ENGINE,
        components: tuple[Component, ...] | None = None,
    ):
        """n worlds on `threads` threads (0: all). `edit` may change the model, for example put terrain into it.

        `engine` is the name of an engine, or a factory: see `engines/engine.py`. `components` are the physics, by default
        those of training.
        """
        if n < 1:
            raise BadInput(f"a simulation needs at least one world, not {n}.")
        self.robot, self.n = robot, n
        self.all_ids = np.arange(n)
        components = training_components(robot) if components is None else components
        spec = robot.spec()
        scene = robot.model
        if edit is not None:
            edit(spec)
            scene = compile_spec(spec, robot.name)
        for component in components:
            component.edit(spec)
        self.dt = float(spec.option.timestep)
        self.tick = self.dt * robot.substeps

        self.writes = parameter_binding.resolve_targets(robot, scene)
        self.varied_arrays = {w.array for w in self.writes}
        """Arrays that parameters write to."""
        varied_motor_fields = frozenset(a.removeprefix("motor.") for a in self.varied_arrays if a.startswith("motor."))
        self.motor_law = MotorLaw(robot.motors_of_unit, robot.contract.target.size, self.dt, varied_motor_fields)
        self.learned_forces = LearnedForces(robot, scene, self.dt)
        self.index = _locate_signals(robot, scene, self.motor_law)
        for component in components:
            self.index = component.index(self.index)
        self.driven_joints = None
        """Columns of qpos and qvel of the joints behind the targets, if they are joints; of rotors behind a gearbox."""
        if self.index.driven is not None:
            self.driven_joints = as_slice(self.index.driven[0]), as_slice(self.index.driven[1])
        self.reads_model_sensors = any(array == "sensordata" for array, _ in self.index.sources)
        self.layout = _userdata_layout(robot, self.dt, self.learned_forces, scene.nv + len(self.index.qvel_followers))
        make_engine = get_engine(engine)
        self.runs_motor_law = make_engine.runs_motor_law
        """Whether the engine runs the motor law within its step; else it runs in NumPy between steps."""
        self._allocate_userdata(spec)
        self.model = compile_spec(spec, robot.name)

        self.engine = make_engine(self.model, n, threads)
        self._bind_arrays()
        target = robot.contract.target
        self._target_limits = (np.array(target.low or [-np.inf]), np.array(target.high or [np.inf]))
        self.diverged = np.zeros(n, dtype=bool)
        """Worlds whose physics failed in the last step; reset them before the next one."""
        self._attach(components)
        self.e = np.tile(robot.space.nominal, (n, 1))
        """Values in force, (n, d)."""
        self.apply(self.e, self.all_ids)
        self.reset(self.all_ids)

    def _bind_arrays(self) -> None:
        self.qpos, self.qvel = self.engine.array("qpos"), self.engine.array("qvel")
        self.qacc = self.engine.array("qacc_warmstart")
        """Acceleration in the last physics step; MuJoCo keeps it to start its solver."""
        self.ctrl, self.xfrc_applied = self.engine.array("ctrl"), self.engine.array("xfrc_applied")
        self.qfrc_applied = self.engine.array("qfrc_applied")
        self.time = self.engine.array("time")
        self._engine_sensordata = self.engine.array("sensordata")
        self.sensordata = self._engine_sensordata.copy() if self.reads_model_sensors else self._engine_sensordata
        """Readings of the model's own sensors in the last physics step; a copy where signals are made of them."""
        self._checkpoint_arrays = {name: self.engine.array(name) for name in STATE_ARRAYS}
        self._checkpoint_arrays |= {"sensordata": self.sensordata} if self.reads_model_sensors else {}
        self.userdata = self.layout.views(self.engine.array("userdata"))

    def _attach(self, components: tuple[Component, ...]) -> None:
        self.parts = [component.attach(self) for component in components]
        """The components at work, in their order."""
        self.motors, self.sensors = self.part(Motors), self.part(Sensors)
        self._parts_between_steps = [p for p in self.parts if p.every]
        self._needs_set_const = any(p.needs_set_const for p in self.parts) or bool(self.varied_arrays & _SET_CONST_INPUTS)
        self.binding = self._bind()

    def _allocate_userdata(self, spec: mujoco.MjSpec) -> None:
        """Make room for what motors and sensors remember, and tell the motor law in C where all of it is."""
        spec.nuserdata = self.layout.size
        if self.runs_motor_law:
            none = [0] * self.layout.motor_count
            q, v = self.index.driven or (none, none)
            flags = self.motor_law.flags | (self.index.driven is not None) * 16
            forces = self.learned_forces.native_table()
            table = self.layout.native_table(self.motor_law.drive, flags, q, v, self.index.sources, forces)
            spec.add_numeric(name="isthmus", data=table, size=len(table))

    def part(self, kind: type[P]) -> P:
        """The attached component of that type."""
        for part in self.parts:
            if isinstance(part, kind):
                return part
        raise BadInput(f"this simulation of {self.robot.name} has no {kind.__name__}.")

    # e --------------------------------------------------------------------------------------------------------

    def _bind(self) -> parameter_binding.Binding:
        """Collect the per-world arrays that the Space writes to, with their nominal rows."""
        nominal, arrays = {}, {}
        for part in self.parts:
            for name, (row, array) in part.parameters().items():
                nominal[name], arrays[name] = row, array
        for name in self.varied_arrays - set(nominal):
            source = self.model.opt if name.startswith("opt.") else self.model
            nominal[name] = np.array(getattr(source, name.removeprefix("opt.")), dtype=float).ravel()
            arrays[name] = self.engine.field(name).reshape(self.n, -1)
        return parameter_binding.Binding(self.writes, arrays, nominal)

    def apply(self, e: np.ndarray, ids: np.ndarray) -> None:
        """Give worlds `ids` the values e, (k, d), starting from nominal, derived constants included."""
        self.robot.space.check(e)
        self.e[ids] = e
        self.binding.apply(e, ids)
        for part in self.parts:
            part.write_model(ids)
        if self._needs_set_const:
            self.engine.set_const(ids)
        for part in self.parts:
            part.apply(ids)

    # Time -----------------------------------------------------------------------------------------------------

    def reset(
        self,
        ids: np.ndarray,
        qpos: np.ndarray | None = None,
        qvel: np.ndarray | None = None,
        sent: np.ndarray | None = None,
    ) -> None:
        """Start worlds `ids` at (qpos, qvel), by default at home and at rest, with motors and buffers settled.

        qpos and qvel are those of the robot's own model; appended rotors go with their links. Where encoders are on rotors of
        their own, qpos is what they show, and links are as far off as motors push them. `sent`, (k, past, m), are the targets
        that were sent before, newest first; by default the one that holds home.
        """
        index = self.index
        self.engine.reset(ids)
        self.qpos[ids] = _append_columns(np.array(self.robot.home) if qpos is None else qpos, index.qpos_followers)
        self.qvel[ids] = 0.0 if qvel is None else _append_columns(qvel, index.qvel_followers)
        if sent is None:
            sent = np.broadcast_to(np.array(self.robot.default), (len(ids), 1, self.layout.motor_count))
        for part in self.parts:
            part.start(ids, sent)
        self.apply_force(np.zeros((len(ids), self.model.nv)), ids)
        self.engine.forward(ids)
        self._copy_sensordata(ids)
        for part in self.parts:
            part.reset(ids)
        self.diverged[ids] = False

    def step(self, target: np.ndarray) -> None:
        """Advance every world by one control tick under target, (n, m), clipped to the contract's limits."""
        for part in self.parts:
            target = part.target(target)
        self.replay(np.clip(target, *self._target_limits))

    def replay(self, target: np.ndarray) -> None:
        """Advance by one tick under a target as the motors got it: not clipped, not changed by wiring."""
        sent = self.userdata["targets"]
        sent[:, 1:] = sent[:, :-1].copy()
        sent[:, 0] = target
        self.userdata["tick"][:] = self.time
        if self._parts_between_steps:
            for substep in range(self.robot.substeps):
                self.step_once(substep)
        else:
            self._advance(self.robot.substeps)
        # NaN fails every comparison, so this also finds worlds that are no longer numbers.
        self.diverged |= ~(np.abs(self.qvel).max(axis=1) < DIVERGED_SPEED)

    def step_once(self, substep: int) -> None:
        """One physics step of a tick, with what components do before it."""
        for part in self._parts_between_steps:
            if substep % part.every == 0:
                part.before_step(substep)
        self._advance(1)

    def _advance(self, steps: int) -> None:
        self.diverged |= self.engine.step(steps)
        self._copy_sensordata(slice(None))

    def _copy_sensordata(self, ids: np.ndarray | slice) -> None:
        if self.reads_model_sensors:
            self.sensordata[ids] = self._engine_sensordata[ids]

    def apply_force(self, force: np.ndarray, ids: np.ndarray) -> None:
        """Generalised forces, (k, nv), on worlds `ids` from now on, on top of learned ones."""
        if self.learned_forces:
            self.userdata["force"][ids] = force
        else:
            self.qfrc_applied[ids] = force

    # Motors and signals ---------------------------------------------------------------------------------------

    def motor_torque(self, ids: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Torques of the motors now, (k, m): what acts on the joints, or on rotors behind a gear."""
        return self.motors.torque(ids)

    def encoder_state(self) -> tuple[np.ndarray, np.ndarray]:
        """(qpos, qvel) as `reset` takes them: with driven joints as their encoders show them."""
        return self.motors.encoder_state()

    def correct(self, dq: np.ndarray, dv: np.ndarray) -> None:
        """Tell the motors that joints were moved from outside, by (n, nv) each."""
        self.motors.correct(dq, dv)

    def noiseless_signals(self) -> np.ndarray:
        """What the sensors would say now without noise, (n, width), float64: gain · delayed value + bias."""
        return self.sensors.noiseless()

    def signals(self, rng: np.random.Generator) -> np.ndarray:
        """What the robot's sensors say now, (n, width), float32, noise included."""
        return self.unrounded_signals(rng, self.tick).astype(np.float32, copy=False)

    def unrounded_signals(self, rng: np.random.Generator, elapsed: float) -> np.ndarray:
        """The same before rounding to float32; `elapsed` s after the last reading, for errors that drift."""
        values = self.sensors.read(rng)
        for part in self.parts:
            values = part.signals(values, elapsed, rng)
        return values

    # Checkpoints ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Everything that the next step depends on, by name."""
        found = {name: np.array(here) for name, here in self._checkpoint_arrays.items()} | {"e": self.e.copy()}
        for part in self.parts:
            found |= part.state()
        return found

    def restore(self, state: dict[str, np.ndarray]) -> None:
        needed = {"e", *self._checkpoint_arrays, *(name for part in self.parts for name in part.state())}
        if lacking := sorted(needed - state.keys()):
            raise BadInput(f"the saved state lacks {', '.join(lacking)}: another version of Isthmus wrote it; begin anew.")
        self.apply(state["e"], self.all_ids)
        for name, here in self._checkpoint_arrays.items():
            if state[name].shape != here.shape:
                raise BadInput(f"the saved state {name!r} has shape {state[name].shape}, not {here.shape}.")
            here[:] = state[name]
        for part in self.parts:
            part.restore(state)


def _locate_signals(robot: Robot, model: mujoco.MjModel, motor_law: MotorLaw) -> StateIndex:
    """Where signals and the joints behind the targets are found in the state."""
    sources, joints = signal_sources(robot, model), driven_joint_columns(robot, model)
    if motor_law.rotor_inertia_from_armature and (joints is None or not (model.dof_armature[joints[1]] > 0).all()):
        where = "motors without joints" if joints is None else "joints without armature"
        raise BadInput(f"backlash and springs need rotors: {robot.name} has {where}.")
    if motor_law.encoders_on_rotor and joints is not None:
        sources = sources_at_rotors(sources, joints)
    return StateIndex(sources, joints)


def _userdata_layout(robot: Robot, dt: float, learned_forces: LearnedForces, nv: int) -> UserdataLayout:
    return UserdataLayout(
        motor_count=robot.contract.target.size,
        substeps=robot.substeps,
        target_history=target_history_length(robot.max_delay("action_delay"), robot.substeps, dt),
        signal_history=signal_history_length(robot.max_delay("sensor_delay"), dt),
        signal_width=sum(s.size for s in robot.contract.signals),
        motor_history=learned_forces.history_steps,
        force_dofs=nv if learned_forces else 0,
    )


def _append_columns(rows: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
    """Rows, (…, k), with copies of some of their columns at the end."""
    if not columns:
        return rows
    rows = np.asarray(rows, dtype=float)
    return np.concatenate([rows, rows[..., list(columns)]], axis=-1)
