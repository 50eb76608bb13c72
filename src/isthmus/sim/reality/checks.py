"""Whether a reality makes sense for a robot; if not, why, in one sentence."""

from __future__ import annotations

import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.data.contract import NO_LIMIT
from isthmus.sim.indexing import drives_joints
from isthmus.sim.reality import gearbox as gears
from isthmus.sim.reality.reality_file import Reality
from isthmus.sim.reality.sensor_errors import SensorErrors
from isthmus.sim.reality.tables import Unmodelled
from isthmus.sim.reality.wiring_faults import WiringFaults
from isthmus.sim.robot import Robot


def check_reality(reality: Reality, robot: Robot) -> None:
    if reality.robot != robot.name:
        raise BadInput(f"this reality is one of {reality.robot}, not of {robot.name}.")
    e = reality.e(robot)
    check_unmodelled(reality, robot, e)
    target = robot.contract.target
    for label in reality.faults.flip:
        if label in target.labels and target.low and target.low[target.component_index(label)] >= 0:
            raise BadInput(f"flip makes no sense for {label} of {robot.name}, which cannot push the other way.")
    WiringFaults(reality.faults, robot.contract)
    SensorErrors(reality.sensors, robot, 1)


def check_unmodelled(reality: Reality, robot: Robot, e: np.ndarray) -> None:
    law, name = reality.unmodelled, robot.name
    limits = robot.motors.torque_limit or robot.contract.safety.effort
    needs = (
        (("backlash", "flex", "stribeck"), drives_joints(robot), "whose motors do not drive joints"),
        (("battery_sag", "heating"), robot.motors.drive != "native", "whose motors are those of its model"),
        (("heating",), bool(limits) and max(limits) < NO_LIMIT, "whose largest torque is not known"),
        (("drag", "cable"), bool(robot.morphology.base), "which has no base that moves freely"),
        (("ground_softness",), robot.morphology.legged, "which has no feet"),
        (("rotor_drag", "ground_effect", "thrust_asymmetry"), robot.morphology.flies, "which has no rotors"),
    )
    for entries, met, why in needs:
        for entry in entries:
            if getattr(law, entry) and not met:
                raise BadInput(f"{entry} makes no sense for {name}, {why}.")
    for motor in law.thrust_asymmetry:
        if motor not in robot.contract.target.labels:
            raise unknown_name("motor", motor, robot.contract.target.labels, f"thrust_asymmetry of {name}")
    for entry, kind, field in (("stribeck", "motor:", "/coulomb"), ("ground_softness", "geom:", "/solref")):
        for param in robot.space.params:
            written = any(t.startswith(kind) and field in t for t in param.targets)
            if getattr(law, entry) and param.name in reality.params and written:
                raise BadInput(
                    f"{entry} takes the place of the parameter {param.name!r}; a reality of {name} gives one of the two."
                )
    if law.backlash or law.flex:
        _check_gearbox(law, robot, e)


def _check_gearbox(law: Unmodelled, robot: Robot, e: np.ndarray) -> None:
    from isthmus.sim.reality.simulation import physics_timestep

    gear = gears.Gearbox.for_robot(robot, law, e)
    if min(gear.inertia) <= 0:
        joint = gear.joints[int(np.argmin(gear.inertia))]
        raise BadInput(f"backlash and flex need a rotor: joint {joint} of {robot.name} has no armature; give it one in params.")
    stiffest = gear.max_stiffness(physics_timestep(robot))
    if law.flex is not None and law.flex > stiffest:
        raise BadInput(f"flex = {law.flex:g} is too stiff to simulate for {robot.name}: at most {stiffest:.4g}, or none.")
