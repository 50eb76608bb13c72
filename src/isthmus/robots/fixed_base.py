"""A robot whose body is held: on a stand, in a clamp, hanging from a rope. Its limbs move in the air.

The free joint goes, and with it what only makes sense for a robot that moves about: the signals of its body, its feet, and
parameters that act on those.
"""

from __future__ import annotations

from dataclasses import replace

import mujoco

from isthmus.core.errors import BadInput
from isthmus.data.contract import Safety
from isthmus.sim import parameter_binding
from isthmus.sim.robot import Robot
from isthmus.world import Belief, Space

HELD_PREFIX = "held:"
LIFT_HEIGHT = 1.0
"""m that the body is lifted, so that nothing touches the ground."""


def fixed_base(robot: Robot) -> Robot:
    spec = robot.spec()
    free = [joint for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_FREE]
    if len(free) != 1:
        raise BadInput(f"{robot.name} has no body that could be held: it has {len(free)} free joints, not one.")
    joint = free[0]
    name, body, at = joint.name, joint.parent, int(robot.model.jnt_qposadr[robot.model.joint(joint.name).id])
    body.pos = [*robot.home[at : at + 2], robot.home[at + 2] + LIFT_HEIGHT]
    body.quat = list(robot.home[at + 3 : at + 7])
    for key in list(spec.keys):
        spec.delete(key)
    spec.delete(joint)
    try:
        spec.compile()
        xml = spec.to_xml()
    except ValueError as error:
        raise BadInput(f"{robot.name} cannot be held: {' '.join(str(error).split())}.") from None
    gone = {signal for signal, source in robot.sources.items() if source.partition(":")[2] == name}
    safety = robot.contract.safety
    contract = replace(
        robot.contract,
        robot=f"{robot.name}_held",
        signals=tuple(s for s in robot.contract.signals if s.name not in gone),
        safety=Safety(effort=safety.effort, rest=safety.rest, damping=safety.damping),
    )
    bare = replace(
        robot,
        name=contract.robot,
        xml=xml,
        contract=contract,
        sources={signal: source for signal, source in robot.sources.items() if signal not in gone},
        space=Space(()),
        prior=Belief(Space(())),
        home=(*robot.home[:at], *robot.home[at + 7 :]),
        morphology=replace(
            robot.morphology, roots=(replace(robot.morphology.root, joint=""),), legs=(), rotors=(), mirror=None
        ),
    )
    kept = tuple(p for p in robot.space.params if _still_acts(bare, p, robot.morphology.base))
    space = Space(kept)
    left = {p.name for p in robot.space.params} - set(space.names)
    factors = (factor.without(left) for factor in robot.prior.factors)
    return replace(bare, space=space, prior=Belief(space, tuple(f for f in factors if f is not None)))


def _still_acts(robot: Robot, param, base: str) -> bool:
    """Whether a parameter still finds what it acts on, and that can still move."""
    try:
        writes = parameter_binding.resolve_targets(replace(robot, space=Space((param,))))
    except BadInput:
        return False
    if any(t.startswith("geom:") for t in param.targets):
        return False
    fixed = robot.model.body(base).id if base else -1
    rows = [
        set((w.columns // (3 if w.array == "inertia.com" else 1)).tolist()) for w in writes if w.array.startswith("inertia.")
    ]
    return not rows or any(body != fixed for row in rows for body in row)
