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

from isthmus.errors import BadInput
from isthmus.sim.engine import Engine
from isthmus.sim.ground import sinking
from isthmus.sim.reality import gear as gears
from isthmus.sim.reality.faults import Wires
from isthmus.sim.reality.missing import Missing
from isthmus.sim.reality.reality import Reality
from isthmus.sim.reality.sensors import SensorErrors
from isthmus.sim.robot import Robot
from isthmus.sim.sources import Joints, Sources
from isthmus.sim.unit import Unit

PERIOD = 0.002
"""s between packets of a virtual robot, and the shortest tick."""
TIMESTEP = 0.001
"""s: longest physics step."""
ITERATIONS = 50
IMPRATIO = 10.0
"""How much harder friction holds than the ground carries: feet at rest do not creep."""
STICTION = ([2 * TIMESTEP, 1.0], [0.9999, 0.9999, 1e-3, 0.5, 2.0])
"""solref and solimp of true stiction: below its breakaway torque a joint creeps by less than 1e-4 rad/s."""


def physics_step(robot: Robot) -> float:
    """s: at most TIMESTEP, at most half of what training takes, and a whole number of times in PERIOD."""
    nominal = float(robot.model.opt.timestep)
    return PERIOD / math.ceil(PERIOD / min(TIMESTEP, nominal / 2) - 1e-9)


class RealEngine(Engine):
    def __init__(
        self,
        robot: Robot,
        reality: Reality,
        n: int = 1,
        threads: int = 0,
        tick: float = PERIOD,
        edit: Callable[[mujoco.MjSpec], None] | None = None,
        compiled: bool = True,
    ):
        """`tick` is the time of one `step`, s, a multiple of the physics step. The rest is as in `Engine`."""
        reality.check(robot)
        step = physics_step(robot)
        substeps = round(tick / step)
        if substeps < 1 or abs(substeps * step - tick) > 1e-9:
            raise BadInput(f"a tick of {tick:g} s is not a multiple of the physics step of {step:g} s.")
        law = reality.unmodelled
        e = reality.e(robot)
        self.reality, self.specimen = reality, robot
        self.gear = gears.Gear.of(robot, law, e) if law.backlash or law.flex else None
        self.missing: Missing | None = None
        home = np.array(robot.home)
        home = home if self.gear is None else self.gear.extend(home, "qpos")

        def prepare(spec: mujoco.MjSpec) -> None:
            if edit is not None:
                edit(spec)
            option = spec.option
            option.timestep = step
            option.solver, option.cone = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtCone.mjCONE_ELLIPTIC
            option.iterations, option.ls_iterations, option.tolerance = ITERATIONS, ITERATIONS, 1e-8
            option.impratio = IMPRATIO
            if law.stribeck or self.gear:
                option.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
            if self.gear:
                gears.add_rotors(spec, robot, self.gear)
            if law.stribeck:
                for joint in spec.joints:
                    joint.solref_friction, joint.solimp_friction = STICTION

        ground = sinking(robot, law.ground_softness) if law.ground_softness else None
        robot = replace(robot, unit=Unit(ground=ground))
        real = replace(robot, substeps=substeps, home=tuple(home.tolist()))
        vars(real)["model"] = vars(robot)["model"] = self.specimen.model  # the same text, compiled already
        super().__init__(real, n, threads, prepare, compiled)
        self.missing = Missing(self, law, self.gear)
        self.errors = SensorErrors(reality.sensors, robot, n)
        self.wires = Wires(reality.faults, robot.contract)
        self.apply(np.tile(e, (n, 1)), self.all)
        self.reset(self.all)

    def _layout(self, model: mujoco.MjModel) -> tuple[Sources, Joints]:
        sources, joints = super()._layout(model)
        if self.gear is None or joints is None:
            return sources, joints
        if self.specimen.motors.encoder == "rotor":
            sources = [(a, self.gear.rotor_columns(c, a) if a in ("qpos", "qvel") else c) for a, c in sources]
        return sources, (self.gear.rotor_columns(joints[0], "qpos"), self.gear.rotor_columns(joints[1], "qvel"))

    # e and episodes -------------------------------------------------------------------------------------------

    def apply(self, e: np.ndarray, ids: np.ndarray) -> None:
        super().apply(e, ids)
        if self.missing:
            self.missing.apply(ids)

    def _wire(self, ids: np.ndarray) -> None:
        super()._wire(ids)
        if self.missing:
            self.missing.wire(ids)

    def reset(
        self,
        ids: np.ndarray,
        qpos: np.ndarray | None = None,
        qvel: np.ndarray | None = None,
        sent: np.ndarray | None = None,
    ) -> None:
        """As in `Engine`; qpos and qvel are those of the robot's own model, and rotors go with their links."""
        if self.gear is not None:
            qpos = None if qpos is None else self.gear.extend(np.asarray(qpos, dtype=float), "qpos")
            qvel = None if qvel is None else self.gear.extend(np.asarray(qvel, dtype=float), "qvel")
        super().reset(ids, qpos, qvel, sent)
        if self.missing:
            self.missing.reset(ids)
            self.errors.reset(ids)

    # Time -----------------------------------------------------------------------------------------------------

    def step(self, target: np.ndarray) -> None:
        """Advance every world by one tick under target, (n, m), as its wiring passes it on."""
        self.drive(self.wires.target(target))

    def drive(self, target: np.ndarray) -> None:
        """Advance by one tick under a target that comes from the robot itself, or has passed its wiring."""
        super().step(target)

    def _march(self) -> None:
        if self.missing is None or not self.missing.busy:
            return super()._march()
        for s in range(self.robot.substeps):
            self.missing.act(s)
            self._substep(s)

    def on_board(self, kp: np.ndarray | float, kd: np.ndarray | float) -> None:
        """From now on targets come from the robot itself, without delay, to motors with these gains."""
        self.view["action_delay"][:] = 0.0
        self.view["motor.kp"][:], self.view["motor.kd"][:] = kp, kd

    def by_link(self) -> None:
        """From now on targets come over the link, with its delay, to motors with their own gains."""
        self._wire(self.all)

    # Signals --------------------------------------------------------------------------------------------------

    def measured(self, rng: np.random.Generator) -> np.ndarray:
        """All signals as they leave the robot, (n, width), float32."""
        return self.wires.signals(self.sensed(rng, self.tick)).astype(np.float32)

    def sensed(self, rng: np.random.Generator, elapsed: float) -> np.ndarray:
        """All signals as the robot's own sensors have them, (n, width), float64; `elapsed` s after the last time."""
        return self.errors.add(super().measured(rng).astype(np.float64), elapsed, rng)

    # Checkpoints ----------------------------------------------------------------------------------------------

    def wear(self, values: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Heat, battery and drift: what outlasts a reset if it is written back. Writes `values` if given."""
        assert self.missing is not None
        arrays = {"heat": self.missing.heat, "used": self.missing.used, "walk": self.errors.walk}
        for name, value in (values or {}).items():
            arrays[name][:] = value
        return {name: array.copy() for name, array in arrays.items()}

    def state(self) -> dict[str, np.ndarray]:
        assert self.missing is not None
        return super().state() | self.wear() | {"anchor": self.missing.anchor.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        assert self.missing is not None
        super().restore(state)
        self.wear({name: state[name] for name in ("heat", "used", "walk")})
        self.missing.anchor[:] = state["anchor"]
