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
from mujoco.batch import Batch, SimulationError

from isthmus.errors import BadInput
from isthmus.sim import bind, ground, native, wiring
from isthmus.sim.actuators import FIELDS, Actuators, lag_keeps
from isthmus.sim.delay import arrival, arrived, mean_target, read_late, sent_kept, steps_kept
from isthmus.sim.features import remembered
from isthmus.sim.robot import Robot, compile_spec
from isthmus.sim.sources import Joints, Sources, at_rotors, column_sources, compact, target_joints, unrotate
from isthmus.sim.table import Forces

SPEED_CEILING = 500.0
"""rad/s or m/s: a world in which anything moves faster has blown up."""


class Engine:
    def __init__(
        self,
        robot: Robot,
        n: int,
        threads: int = 0,
        edit: Callable[[mujoco.MjSpec], None] | None = None,
        compiled: bool = True,
    ):
        """n worlds on `threads` threads (0: all). `edit` may change the model, for example put terrain into it.

        `compiled` asks for the motor law in C; without it, or without a C compiler, it runs in NumPy.
        """
        if n < 1:
            raise BadInput(f"an engine needs at least one world, not {n}.")
        self.robot, self.n = robot, n
        self.all = np.arange(n)
        target, signals = robot.contract.target, robot.contract.signals
        spec = ground.spec_of(robot, edit)
        own = edit is None and not robot.unit.ground
        bare = robot.model if own else compile_spec(spec, robot.name)
        self.dt = float(bare.opt.timestep)
        self.tick = self.dt * robot.substeps

        self._writes = bind.writes_of(robot)
        self._varied = {w.array for w in self._writes}
        varied = frozenset(w.array.removeprefix("motor.") for w in self._writes if w.array.startswith("motor."))
        self.actuators = Actuators(robot.driven, target.size, self.dt, varied)
        self.forces = Forces(robot, bare, self.dt)
        self.wiring = wiring.Wiring(
            motors=target.size,
            substeps=robot.substeps,
            sent=sent_kept(robot.longest("action_delay"), robot.substeps, self.dt),
            depth=steps_kept(robot.longest("sensor_delay"), self.dt),
            width=sum(s.size for s in signals),
            past=self.forces.past,
            dofs=bare.nv if self.forces else 0,
        )
        sources, joints = self._layout(bare)
        self._sources = [(array, compact(columns), len(columns)) for array, columns in sources]
        self._sensed = any(array == "sensordata" for array, _, _ in self._sources)
        self.joints = None if joints is None else (compact(joints[0]), compact(joints[1]))
        """Columns of qpos and qvel of the joints behind the targets, if they are joints; of rotors, if a gear parts the two."""
        self.compiled = compiled and native.control_callback() is not None
        self._make_room(spec, sources, joints)
        self.model = compile_spec(spec, robot.name)

        self.batch = Batch(self.model, n, nthread=threads)
        self.qpos, self.qvel = self.batch.bind("qpos"), self.batch.bind("qvel")
        self.qacc = self.batch.bind("qacc_warmstart")
        """Acceleration in the last physics step; MuJoCo keeps it to start its solver."""
        self.ctrl, self.xfrc = self.batch.bind("ctrl"), self.batch.bind("xfrc_applied")
        self._qfrc = self.batch.bind("qfrc_applied")
        self.time = self.batch.bind("time").reshape(n)
        self._felt = self.batch.bind("sensordata") if self.model.nsensordata else np.zeros((n, 0))
        self.sensordata = self._felt.copy() if self._sensed else self._felt
        """What the model's own sensors felt in the last physics step; a row of its own where signals are made of it."""
        self._kept = {name: self.batch.bind(name) for name in _STATE}
        self._kept |= {"sensordata": self.sensordata} if self._sensed else {}
        self.view = self.wiring.views(self.batch.bind("userdata"))
        self._fields = {f: self.view[f"motor.{f}"] for f in FIELDS}
        self._motor_state = {f: self.view[f"state.{f}"] for f in wiring.STATES}
        self._limits = (np.array(target.low or [-np.inf]), np.array(target.high or [np.inf]))
        self.blown = np.zeros(n, dtype=bool)
        """Worlds whose physics failed in the last step; reset them before the next one."""
        self.binding = self._bind()
        self.e = np.tile(robot.space.nominal, (n, 1))
        """Values in force, (n, d)."""
        self.apply(self.e, self.all)
        self.reset(self.all)

    def _make_room(self, spec: mujoco.MjSpec, sources: Sources, joints: Joints) -> None:
        """Make room for what motors and sensors remember, and tell the motor law in C where all of it is."""
        spec.nuserdata = self.wiring.size
        if self.compiled:
            q, v = joints or ([0] * self.wiring.motors, [0] * self.wiring.motors)
            flags = self.actuators.flags | (joints is not None) * 16
            numbers = self.wiring.numeric(self.actuators.drive, flags, q, v, sources, self.forces.numbers())
            spec.add_numeric(name="isthmus", data=numbers, size=len(numbers))

    def _layout(self, model: mujoco.MjModel) -> tuple[Sources, Joints]:
        """Where signals and the joints behind the targets are found: see `sources`."""
        sources, joints = column_sources(self.robot, model), target_joints(self.robot, model)
        if self.actuators.borrowed and (joints is None or not (model.dof_armature[joints[1]] > 0).all()):
            where = "motors without joints" if joints is None else "joints without armature"
            raise BadInput(f"backlash and springs need rotors: {self.robot.name} has {where}.")
        if self.actuators.at_rotors and joints is not None:
            sources = at_rotors(sources, joints)
        return sources, joints

    # e --------------------------------------------------------------------------------------------------------

    def _bind(self) -> bind.Binding:
        """Collect the per-world arrays that the Space writes to, with their nominal rows."""
        n, width, nbody = self.n, self.wiring.width, self.model.nbody
        nominal = {
            "inertia.mass": np.ones(nbody),
            "inertia.com": np.zeros(3 * nbody),
            "inertia.payload": np.zeros(nbody),
            "signal.bias": np.zeros(width),
            "signal.gain": np.ones(width),
            "signal.noise": np.zeros(width),
            **{f"link.{name}": np.zeros(1) for name in bind.LINK_FIELDS},
            **ground.nominal(self.robot),
        }
        arrays = {name: np.tile(row, (n, 1)) for name, row in nominal.items()}
        motors = self.actuators.nominal
        self._motors = np.repeat(np.stack(list(motors.values()))[None], n, axis=0)
        for i, (name, row) in enumerate(motors.items()):
            nominal[f"motor.{name}"], arrays[f"motor.{name}"] = row, self._motors[:, i]
        self._surface = ground.Surface(self) if self.robot.unit.ground else None
        for name in self._varied - set(nominal):
            source = self.model.opt if name.startswith("opt.") else self.model
            nominal[name] = np.array(getattr(source, name.removeprefix("opt.")), dtype=float).ravel()
            arrays[name] = self.batch.expand(name).reshape(n, -1)
        if self.actuators.borrowed and "dof_armature" not in self._varied:
            self._lend(self.batch.expand("dof_armature").reshape(n, -1), self.all)
        self._inertia = bind.Inertia(self._writes, self.model, self.robot)
        if self._inertia:
            self._inertial = {f: self.batch.expand(f) for f in self._inertia.FIELDS}
        inputs = set(mujoco.MjModel._setconst_inputs) | {"opt.gravity", "opt.timestep"}
        self._derives = bool(self._inertia) or bool(self._varied & inputs)
        return bind.Binding(self._writes, arrays, nominal)

    def apply(self, e: np.ndarray, ids: np.ndarray) -> None:
        """Give worlds `ids` the values e, (k, d), starting from nominal, derived constants included."""
        self.robot.space.check(e)
        self.e[ids] = e
        self.binding.apply(e, ids)
        if self.actuators.borrowed and "dof_armature" in self._varied:
            self._lend(self.binding.arrays["dof_armature"], ids)
        if self._inertia:
            self._inertia.apply(self.binding.arrays, self._inertial, ids)
        if self._derives:
            self.batch.set_const(ids)
        self.settle_ground(ids)
        self._wire(ids)

    def settle_ground(self, ids: np.ndarray) -> None:
        """Write the unit's own ground, if it has one, once masses are settled."""
        if self._surface:
            self._surface.apply(self.binding.arrays, ids)

    def _lend(self, armature: np.ndarray, ids: np.ndarray) -> None:
        """Give rotors of worlds `ids` the armature of their joints, rows of (n or 1, nv). With a spring the links lose it.

        A rotor in a play is most of the time one body with its link, and stays part of its inertia.
        """
        assert self.joints is not None
        rows = ids if len(armature) == self.n else np.array([0])
        self._motors[ids, FIELDS.index("rotor_inertia")] = armature[rows][:, self.joints[1]]
        if self.actuators.spring:
            armature[np.ix_(rows, np.arange(armature.shape[1])[self.joints[1]])] = 0.0

    def _wire(self, ids: np.ndarray) -> None:
        """Copy the numbers of motors and link into the worlds' own rows."""
        arrays = self.binding.arrays
        self.view["params"][ids] = self._motors[ids]
        for name in bind.LINK_FIELDS:
            self.view[name][ids] = arrays[f"link.{name}"][ids, 0]

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
        self.batch.reset(ids, stage=int(mujoco.mjtStage.mjSTAGE_NONE))
        self.qpos[ids] = np.array(self.robot.home) if qpos is None else qpos
        self.qvel[ids] = 0.0 if qvel is None else qvel
        self._wire(ids)
        if sent is None:
            sent = np.broadcast_to(np.array(self.robot.default), (len(ids), 1, self.wiring.motors))
        self.view["targets"][ids] = sent[:, np.minimum(np.arange(self.wiring.sent), sent.shape[1] - 1)]
        self._motor_state["lagged"][ids] = self._lagged(ids, sent)
        if self.joints is not None:
            self._settle(ids)
        self.view["memory"][ids] = self._remembered(ids)[:, None]
        self.push(np.zeros((len(ids), self.model.nv)), ids)
        self.batch.forward(ids)
        self._feel(ids)
        self.view["last"][ids] = -1.0
        self.view["ring"][ids] = self._raw(ids)[:, None]
        self.blown[ids] = False

    def _settle(self, ids: np.ndarray) -> None:
        """Rotors go with their links, or links with their rotors where these are what is seen."""
        assert self.joints is not None
        theta, speed = self.qpos[ids][:, self.joints[0]], self.qvel[ids][:, self.joints[1]]
        self._motor_state["rotor"][ids], self._motor_state["rotor_speed"][ids] = theta, speed
        if self.actuators.at_rotors:
            f = {name: row[ids] for name, row in self._fields.items()}
            now = arrived(self.view["targets"][ids], self.view["action_delay"][ids], 0, self.robot.substeps, self.dt)
            u = self._motor_state["lagged"][ids] if self.actuators.lag else now
            links, touch = self.actuators.settled(f, u, theta, speed)
            self.qpos[np.ix_(ids, np.arange(self.qpos.shape[1])[self.joints[0]])] = links
            self._motor_state["touch"][ids] = touch

    def efforts(self, ids: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Torques that motors give now, (k, m): what acts on the joints, but behind a gear, where teeth and springs do."""
        if not self.actuators.geared or self.joints is None:
            return self.ctrl[ids]
        u = self._motor_state["lagged"][ids] if self.actuators.lag else self.view["targets"][ids][:, 0]
        return self.actuators.motor({name: row[ids] for name, row in self._fields.items()}, u, *self._rotors(ids))

    def _rotors(self, ids: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray]:
        """Angles and speeds of rotors of their own, (k, m)."""
        assert self.joints is not None
        play, state = self._fields["backlash"][ids], {name: row[ids] for name, row in self._motor_state.items()}
        return self.actuators.encoders(play, state, self.qpos[ids][:, self.joints[0]], self.qvel[ids][:, self.joints[1]])

    def shown(self) -> tuple[np.ndarray, np.ndarray]:
        """(qpos, qvel) as `reset` takes them: with driven joints as their encoders show them."""
        qpos, qvel = self.qpos.copy(), self.qvel.copy()
        if self.actuators.at_rotors and self.joints is not None:
            qpos[:, self.joints[0]], qvel[:, self.joints[1]] = self._rotors(slice(None))
        return qpos, qvel

    def carry(self, dq: np.ndarray, dv: np.ndarray) -> None:
        """Rotors that are seen go along with joints that were moved by hand, by (n, nv) each."""
        if self.actuators.at_rotors and self.joints is not None:
            self._motor_state["rotor"] += dq[:, self.joints[1]]
            self._motor_state["rotor_speed"] += dv[:, self.joints[1]]

    def push(self, force: np.ndarray, ids: np.ndarray) -> None:
        """Generalised forces, (k, nv), on worlds `ids` from now on, on top of learned ones."""
        if self.forces:
            self.view["force"][ids] = force
        else:
            self._qfrc[ids] = force

    def _remembered(self, ids: np.ndarray) -> np.ndarray:
        """What learned forces of motors remember of now, (k, 2, m)."""
        if self.joints is None or not self.forces.past:
            return np.zeros((len(ids), 2, self.wiring.motors))
        q, qd = self.qpos[ids][:, self.joints[0]], self.qvel[ids][:, self.joints[1]]
        return remembered(self.actuators.drive, self.view["targets"][ids][:, 0], q, qd)

    def _lagged(self, ids: np.ndarray, sent: np.ndarray) -> np.ndarray:
        """What a motor with lag makes of the targets sent so far, (k, m)."""
        lagged = sent[:, -1]
        if not self.actuators.lag or sent.shape[1] == 1:
            return lagged
        delay, keeps = self.view["action_delay"][ids], lag_keeps(self._fields["lag"][ids], self.dt)
        arrivals = [arrival(delay, s, self.robot.substeps, self.dt) for s in range(self.robot.substeps)]
        for newest in range(sent.shape[1] - self.wiring.sent, -1, -1):
            for back, fresh in arrivals:
                u = mean_target(sent[:, newest:], back, fresh)
                lagged = u + keeps * (lagged - u)
        return lagged

    def step(self, target: np.ndarray) -> None:
        """Advance every world by one control tick under target, (n, m), inside the contract's limits."""
        self.replay(np.clip(target, *self._limits))

    def replay(self, target: np.ndarray) -> None:
        """The same under a target that was sent: the contract's limits are for those who send."""
        sent = self.view["targets"]
        sent[:, 1:] = sent[:, :-1].copy()
        sent[:, 0] = target
        self.view["tick"][:] = self.time
        self._march()
        # NaN fails every comparison, so this also finds worlds that are no longer numbers.
        self.blown |= ~(np.abs(self.qvel).max(axis=1) < SPEED_CEILING)

    def _march(self) -> None:
        """The physics steps of one tick."""
        if self.compiled and not self._sensed:
            self._physics(self.robot.substeps)
        else:
            for s in range(self.robot.substeps):
                self._substep(s)

    def _substep(self, s: int) -> None:
        """Physics step number s of a tick, with its motors."""
        if self._sensed or not self.compiled:  # sensors of the model's own are only seen between calls
            self._note()
        if not self.compiled:
            u = arrived(self.view["targets"], self.view["action_delay"], s, self.robot.substeps, self.dt)
            q = qd = qdd = None
            if self.joints is not None:
                q, qd, qdd = self.qpos[:, self.joints[0]], self.qvel[:, self.joints[1]], self.qacc[:, self.joints[1]]
            self.ctrl[:] = self.actuators.torque(self._fields, self._motor_state, u, q, qd, qdd)
            if self.forces:
                self._act(u, q, qd)
        self._physics(1)

    def _act(self, u: np.ndarray, q: np.ndarray | None, qd: np.ndarray | None) -> None:
        """Learned forces, on top of those that were asked for."""
        memory, now = self.view["memory"], np.zeros(self.n, dtype=int)
        if self.forces.past and q is not None and qd is not None:
            now = np.rint(self.time / self.dt).astype(int) % self.forces.past
            memory[self.all, now] = remembered(self.actuators.drive, u, q, qd)
        self._qfrc[:] = self.view["force"]
        columns = slice(None) if self.joints is None else self.joints[1]
        self.forces.add(self._qfrc, self.qpos, self.qvel, self.ctrl, memory, now, columns)

    def _physics(self, steps: int) -> None:
        try:
            self.batch.step(nstep=steps)
        except SimulationError:
            self.blown |= np.asarray(self.batch.status) != 0
        self._feel(slice(None))

    def _feel(self, ids: np.ndarray | slice) -> None:
        if self._sensed:
            self.sensordata[ids] = self._felt[ids]

    # Signals --------------------------------------------------------------------------------------------------

    def _raw(self, ids: np.ndarray | slice = slice(None)) -> np.ndarray:
        """All signals of the contract side by side, as the physics has them, (k, width)."""
        return np.concatenate([self._source(array, columns, ids) for array, columns, _ in self._sources], axis=1)

    def _source(self, array: str, columns: slice | np.ndarray, ids: np.ndarray | slice) -> np.ndarray:
        if array in ("rotor", "rotor_speed"):
            return self._rotors(ids)[array == "rotor_speed"][:, columns]
        values = getattr(self, array)[ids][:, columns]
        if array != "qacc":
            return values
        # An accelerometer: the last step's acceleration without gravity, as the body sees it.
        assert isinstance(columns, slice)
        gravity = self.binding.arrays["opt.gravity"][ids] if "opt.gravity" in self._varied else self.model.opt.gravity
        joint = self.model.dof_jntid[columns.start]
        quat = self.qpos[ids][:, self.model.jnt_qposadr[joint] + 3 :][:, :4]
        return unrotate(quat, values - gravity)

    def _note(self) -> np.ndarray:
        """Write the present into the ring of past signals; return its slot in each world."""
        now = np.rint(self.time / self.dt).astype(int) % self.wiring.depth
        self.view["ring"][self.all, now] = self._raw()
        return now

    def noiseless(self) -> np.ndarray:
        """What the sensors would say now without their noise, (n, width): gain · delayed value + bias."""
        arrays = self.binding.arrays
        seen = read_late(self.view["ring"], self._note(), self.view["sensor_delay"], self.dt)
        if "signal.gain" in self._varied:
            seen *= arrays["signal.gain"]
        if "signal.bias" in self._varied:
            seen += arrays["signal.bias"]
        return seen

    def measured(self, rng: np.random.Generator) -> np.ndarray:
        """What the sensors say now, (n, width), float32, noise included."""
        out = self.noiseless().astype(np.float32)
        if "signal.noise" in self._varied:
            out += rng.standard_normal(out.shape, dtype=np.float32) * self.binding.arrays["signal.noise"].astype(np.float32)
        return out

    # Checkpoints ----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Everything that the next step depends on, by name."""
        return {name: np.array(here) for name, here in self._kept.items()} | {"e": self.e.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        if lacking := sorted({"e", *self._kept} - state.keys()):
            raise BadInput(f"the saved state lacks {', '.join(lacking)}: another version of Isthmus wrote it; begin anew.")
        self.apply(state["e"], self.all)
        for name, here in self._kept.items():
            if state[name].shape != here.shape:
                raise BadInput(f"the saved state {name!r} has shape {state[name].shape}, not {here.shape}.")
            here[:] = state[name]


_STATE = ("time", "qpos", "qvel", "act", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied", "userdata")
