"""n worlds of one reality: the robot with finer steps, another solver and the physics that training lacks.

    sim = real_simulation(go1, reality, n=64, tick=0.02)
    sim.step(target)               one control tick, targets through the robot's wiring
    sim.signals(rng)               what the robot sends: sensors with their errors, through the wiring

With an empty reality it converges to the training simulation as both steps shrink. Faults of the network are not here but in
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
from isthmus.sim.physics.component import Component, training_components
from isthmus.sim.physics.ground import ground_from_sink_depth
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.reality.external_forces import ExternalForces
from isthmus.sim.reality.gearbox import Gearbox, gearbox_component
from isthmus.sim.reality.motor_derating import MotorDerating
from isthmus.sim.reality.reality_file import Reality
from isthmus.sim.reality.sensor_errors import SensorErrors
from isthmus.sim.reality.stiction import stiction_component
from isthmus.sim.reality.wiring_faults import AttachedWiring, WiringFaults
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation

PACKET_PERIOD = 0.002
"""s between packets of a virtual robot, and the shortest tick."""
MAX_TIMESTEP = 0.001
"""s: longest physics step."""
SOLVER_ITERATIONS = 50
IMPRATIO = 10.0
"""How much harder friction holds than the ground carries: feet at rest do not creep."""


def physics_timestep(robot: Robot) -> float:
    """s: at most TIMESTEP, at most half of what training takes, and a whole number of times in PERIOD."""
    nominal = float(robot.model.opt.timestep)
    return PACKET_PERIOD / math.ceil(PACKET_PERIOD / min(MAX_TIMESTEP, nominal / 2) - 1e-9)


def real_simulation(
    robot: Robot,
    reality: Reality,
    n: int = 1,
    threads: int = 0,
    tick: float = PACKET_PERIOD,
    edit: Callable[[mujoco.MjSpec], None] | None = None,
    engine: str | EngineFactory = DEFAULT_ENGINE,
    wired: bool = True,
) -> Simulation:
    """The reality in n worlds, all with its parameters. `tick` is the time of one `step`, s, a multiple of the physics step.

    `wired=False` leaves out the faults of the wiring: targets and signals are those of the robot itself.
    """
    reality.check(robot)
    step = physics_timestep(robot)
    substeps = round(tick / step)
    if substeps < 1 or abs(substeps * step - tick) > 1e-9:
        raise BadInput(f"a tick of {tick:g} s is not a multiple of the physics step of {step:g} s.")
    softness = reality.unmodelled.ground_softness
    ground = ground_from_sink_depth(robot, softness) if softness else None
    real = replace(robot, substeps=substeps, unit=UnitPhysics(ground=ground))
    sim = Simulation(real, n, threads, edit, engine, real_components(real, reality, wired))
    sim.apply(np.tile(reality.e(robot), (n, 1)), sim.all_ids)
    sim.reset(sim.all_ids)
    return sim


def real_components(robot: Robot, reality: Reality, wired: bool = True) -> tuple[Component, ...]:
    """The physics of a reality: what training lacks, then that of training, then errors of sensors and wiring."""
    law = reality.unmodelled
    parts = [Component(edit=lambda spec: _set_solver(spec, physics_timestep(robot)))]
    parts.append(Component(lambda sim: MotorDerating(sim, law)))
    if law.backlash or law.flex:
        parts.append(gearbox_component(robot, Gearbox.for_robot(robot, law, reality.e(robot))))
    if law.stribeck:
        parts.append(stiction_component(law.stribeck))
    parts.append(Component(lambda sim: ExternalForces(sim, law)))
    parts += training_components(robot)
    parts.append(Component(lambda sim: SensorErrors(reality.sensors, robot, sim.n)))
    if wired:
        parts.append(Component(lambda sim: AttachedWiring(WiringFaults(reality.faults, robot.contract))))
    return tuple(parts)


def _set_solver(spec: mujoco.MjSpec, timestep: float) -> None:
    option = spec.option
    option.timestep = timestep
    option.solver, option.cone = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtCone.mjCONE_ELLIPTIC
    option.iterations, option.ls_iterations, option.tolerance = SOLVER_ITERATIONS, SOLVER_ITERATIONS, 1e-8
    option.impratio = IMPRATIO
