"""A wheel with a rotor, and engines of realities, for tests of gears and of missing physics."""

from __future__ import annotations

import numpy as np

from isthmus.data.contract import Contract, Safety, Signal
from isthmus.sim.engines.engine import DEFAULT_ENGINE, EngineFactory
from isthmus.sim.morphology import Morphology, Root
from isthmus.sim.reality import Reality, real_simulation
from isthmus.sim.reality.simulation import PACKET_PERIOD
from isthmus.sim.robot import MotorParams, Robot
from isthmus.sim.simulation import Simulation
from isthmus.world import Belief, Param, Space

LINK, ROTOR, SPRING = 0.05, 0.01, 5.0


def wheel(drive: str = "effort", spring: float = 0.0, **motors) -> Robot:
    """A wheel of inertia LINK with a rotor of ROTOR, on a level axle, held by a spring if there is one."""
    xml = f"""<mujoco><option timestep="0.005" integrator="implicitfast"/><worldbody><body name="wheel">
      <inertial pos="0 0 0" mass="1" diaginertia="{LINK} {LINK} {LINK}"/>
      <joint name="axle" axis="0 0 1" armature="{ROTOR}" stiffness="{spring}"/></body></worldbody>
      <actuator><motor name="axle" joint="axle"/></actuator></mujoco>"""
    signals = (Signal("joint_pos", "rad", ("axle",)), Signal("joint_vel", "rad/s", ("axle",)))
    space = Space((Param("friction", "N·m", 0.0, 0.0, 5.0, ("motor:axle/coulomb",)),))
    return Robot(
        name="wheel", xml=xml, sources={"joint_pos": "qpos", "joint_vel": "qvel"}, motors=MotorParams(drive, **motors),
        space=space, morphology=Morphology((Root("wheel"),)),
        contract=Contract("wheel", 50.0, signals, Signal("torque", "N·m", ("axle",)), safety=Safety(effort=(3.0,))),
        prior=Belief(space), home=(0.0,), default=(0.0,), substeps=4,
    )  # fmt: skip


def real(
    robot: Robot,
    params: dict | None = None,
    n: int = 1,
    engine: str | EngineFactory = DEFAULT_ENGINE,
    tick: float = PACKET_PERIOD,
    **law,
) -> Simulation:
    reality = Reality.from_dict({"robot": robot.name, "params": params or {}, "unmodelled": law})
    return real_simulation(robot, reality, n, threads=1, engine=engine, tick=tick)


def run(engine: Simulation, target, seconds: float) -> np.ndarray:
    """Drive for some time; every tick's (qpos, qvel) of the first world."""
    rows = []
    for _ in range(round(seconds / engine.tick)):
        engine.step(np.array([target] * engine.n, dtype=float))
        rows.append(np.concatenate([engine.qpos[0], engine.qvel[0]]))
    return np.array(rows)
