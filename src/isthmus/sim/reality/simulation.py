"""n worlds of one reality: the training engine with finer steps, another solver and the physics that training lacks.

    engine = RealEngine(go1, reality, n=64, tick=0.02)
    engine.step(target)            one control tick, targets through the robot's wiring
    engine.measured(rng)           what the robot sends: sensors with their errors, through the wiring

With an empty reality it converges to `Engine` as both steps shrink. Faults of the network are not here but in
`VirtualRobot`: they concern packets, not worlds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import mujoco
import numpy as np

from isthmus.core.errors import BadInput
from isthmus.sim.engines.engine import DEFAULT_ENGINE, EngineFactory
from isthmus.sim.indexing import DrivenJoints, SignalSources
from isthmus.sim.physics.ground import ground_from_sink_depth
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.reality import gearbox as gears
from isthmus.sim.reality.motor_derating import UnmodelledPhysics
from isthmus.sim.reality.reality_file import Reality
from isthmus.sim.reality.sensor_errors import SensorErrors
from isthmus.sim.reality.wiring_faults import WiringFaults
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation

PACKET_PERIOD = 0.002
"""s between packets of a virtual robot, and the shortest tick."""
MAX_TIMESTEP = 0.001
"""s: longest physics step."""
SOLVER_ITERATIONS = 50
IMPRATIO = 10.0
"""How much harder friction holds than the ground carries: feet at rest do not creep."""
STICTION_SOLVER_PARAMS = ([2 * MAX_TIMESTEP, 1.0], [0.9999, 0.9999, 1e-3, 0.5, 2.0])
"""solref and solimp of true stiction: below its breakaway torque a joint creeps by less than 1e-4 rad/s."""


def physics_timestep(robot: Robot) -> float:
    """s: at most TIMESTEP, at most half of what training takes, and a whole number of times in PERIOD."""
    nominal = float(robot.model.opt.timestep)
    return PACKET_PERIOD / math.ceil(PACKET_PERIOD / min(MAX_TIMESTEP, nominal / 2) - 1e-9)


class RealSimulation(Simulation):
    def __init__(
        self,
        robot: Robot,
        reality: Reality,
        n: int = 1,
        threads: int = 0,
        tick: float = PACKET_PERIOD,
        edit: Callable[[mujoco.MjSpec], None] | None = None,
        engine: str | EngineFactory = DEFAULT_ENGINE,
    ):
        """`tick` is the time of one `step`, s, a multiple of the physics step. The rest is as in `Engine`."""
        reality.check(robot)
        step = physics_timestep(robot)
        substeps = round(tick / step)
        if substeps < 1 or abs(substeps * step - tick) > 1e-9:
            raise BadInput(f"a tick of {tick:g} s is not a multiple of the physics step of {step:g} s.")
        law = reality.unmodelled
        e = reality.e(robot)
        self.reality, self.original_robot = reality, robot
        self.gearbox = gears.Gearbox.for_robot(robot, law, e) if law.backlash or law.flex else None
        self.unmodelled_physics: UnmodelledPhysics | None = None
        home = np.array(robot.home)
        home = home if self.gearbox is None else self.gearbox.append_rotors(home, "qpos")

        def prepare(spec: mujoco.MjSpec) -> None:
            if edit is not None:
                edit(spec)
            option = spec.option
            option.timestep = step
            option.solver, option.cone = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtCone.mjCONE_ELLIPTIC
            option.iterations, option.ls_iterations, option.tolerance = SOLVER_ITERATIONS, SOLVER_ITERATIONS, 1e-8
            option.impratio = IMPRATIO
            if law.stribeck or self.gearbox:
                option.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
            if self.gearbox:
                gears.add_rotors(spec, robot, self.gearbox)
            if law.stribeck:
                for joint in spec.joints:
                    joint.solref_friction, joint.solimp_friction = STICTION_SOLVER_PARAMS

        ground = ground_from_sink_depth(robot, law.ground_softness) if law.ground_softness else None
        robot = replace(robot, unit=UnitPhysics(ground=ground))
        real = replace(robot, substeps=substeps, home=tuple(home.tolist()))
        vars(real)["model"] = vars(robot)["model"] = self.original_robot.model  # the same text, compiled already
        super().__init__(real, n, threads, prepare, engine)
        self.unmodelled_physics = UnmodelledPhysics(self, law, self.gearbox)
        self.sensor_errors = SensorErrors(reality.sensors, robot, n)
        self.wiring_faults = WiringFaults(reality.faults, robot.contract)
        self.apply(np.tile(e, (n, 1)), self.all_ids)
        self.reset(self.all_ids)

    def _locate_signals(self, model: mujoco.MjModel) -> tuple[SignalSources, DrivenJoints]:
        sources, joints = super()._locate_signals(model)
        if self.gearbox is None or joints is None:
            return sources, joints
        if self.original_robot.motors.encoder == "rotor":
            sources = [(a, self.gearbox.rotor_columns(c, a) if a in ("qpos", "qvel") else c) for a, c in sources]
        return sources, (self.gearbox.rotor_columns(joints[0], "qpos"), self.gearbox.rotor_columns(joints[1], "qvel"))

    # e and episodes -------------------------------------------------------------------------------------------

    def apply(self, e: np.ndarray, ids: np.ndarray) -> None:
        super().apply(e, ids)
        if self.unmodelled_physics:
            self.unmodelled_physics.apply(ids)

    def _write_motor_fields(self, ids: np.ndarray) -> None:
        super()._write_motor_fields(ids)
        if self.unmodelled_physics:
            self.unmodelled_physics.override_motor_fields(ids)

    def reset(
        self,
        ids: np.ndarray,
        qpos: np.ndarray | None = None,
        qvel: np.ndarray | None = None,
        sent: np.ndarray | None = None,
    ) -> None:
        """As in `Engine`; qpos and qvel are those of the robot's own model, and rotors go with their links."""
        if self.gearbox is not None:
            qpos = None if qpos is None else self.gearbox.append_rotors(np.asarray(qpos, dtype=float), "qpos")
            qvel = None if qvel is None else self.gearbox.append_rotors(np.asarray(qvel, dtype=float), "qvel")
        super().reset(ids, qpos, qvel, sent)
        if self.unmodelled_physics:
            self.unmodelled_physics.reset(ids)
            self.sensor_errors.reset(ids)

    # Time -----------------------------------------------------------------------------------------------------

    def step(self, target: np.ndarray) -> None:
        """Advance every world by one tick under target, (n, m), as its wiring passes it on."""
        self.step_motor_target(self.wiring_faults.target(target))

    def step_motor_target(self, target: np.ndarray) -> None:
        """Advance by one tick under a target that comes from the robot itself, or has passed its wiring."""
        super().step(target)

    def _step_tick(self) -> None:
        if self.unmodelled_physics is None or not self.unmodelled_physics.acts_between_steps:
            return super()._step_tick()
        for s in range(self.robot.substeps):
            self.unmodelled_physics.before_step(s)
            self._substep(s)

    def set_onboard_gains(self, kp: np.ndarray | float, kd: np.ndarray | float) -> None:
        """From now on targets come from the robot itself, without delay, to motors with these gains."""
        self.userdata["action_delay"][:] = 0.0
        self.userdata["motor.kp"][:], self.userdata["motor.kd"][:] = kp, kd

    def restore_link_control(self) -> None:
        """From now on targets come over the link, with its delay, to motors with their own gains."""
        self._write_motor_fields(self.all_ids)

    # Signals --------------------------------------------------------------------------------------------------

    def signals(self, rng: np.random.Generator) -> np.ndarray:
        """All signals as they leave the robot, (n, width), float32."""
        return self.wiring_faults.signals(self.signals_before_wiring(rng, self.tick)).astype(np.float32)

    def signals_before_wiring(self, rng: np.random.Generator, elapsed: float) -> np.ndarray:
        """All signals as the robot's own sensors have them, (n, width), float64; `elapsed` s after the last time."""
        return self.sensor_errors.add(super().signals(rng).astype(np.float64), elapsed, rng)

    # Checkpoints ----------------------------------------------------------------------------------------------

    def wear_state(self, values: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Heat, battery and drift: what outlasts a reset if it is written back. Writes `values` if given."""
        assert self.unmodelled_physics is not None
        arrays = {
            "heat": self.unmodelled_physics.full_load_minutes,
            "used": self.unmodelled_physics.battery_seconds,
            "walk": self.sensor_errors.bias_walk,
        }
        for name, value in (values or {}).items():
            arrays[name][:] = value
        return {name: array.copy() for name, array in arrays.items()}

    def state(self) -> dict[str, np.ndarray]:
        assert self.unmodelled_physics is not None
        return super().state() | self.wear_state() | {"anchor": self.unmodelled_physics.cable_anchor.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        assert self.unmodelled_physics is not None
        super().restore(state)
        self.wear_state({name: state[name] for name in ("heat", "used", "walk")})
        self.unmodelled_physics.cable_anchor[:] = state["anchor"]
