"""Families of realities, for robots whose differences nobody has been told.

Severities are meant to matter and to leave the robot able to work, but for wiring, where that depends on the controller.
A family that makes no sense for a robot is not drawn for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.constants import MODEL_GRAVITY
from isthmus.core.errors import BadInput, unknown_name
from isthmus.sim.indexing import drives_joints
from isthmus.sim.reality.gearbox import Gearbox
from isthmus.sim.reality.reality_file import Reality
from isthmus.sim.reality.simulation import physics_timestep
from isthmus.sim.reality.tables import Unmodelled
from isthmus.sim.robot import Robot
from isthmus.world import Belief

Rng = np.random.Generator
Draw = Callable[[Rng], Any]

FAMILIES = {
    "nominal": "nothing but finer physics and nominal noise",
    "parametric-inside": "every number drawn from the robot's prior: a good policy copes",
    "parametric-outside": "one or two numbers well outside the prior, none of a sensor",
    "unmodelled": "one kind of physics that training lacks",
    "wiring": "one wiring or configuration fault",
    "link": "one or two faults of the network",
    "sensors": "one sensor error, beyond what the prior allows for",
    "mixed": "numbers outside the prior and missing physics together",
    "severe": "the same at its worst: two or three numbers far outside, and twice the missing physics; only if asked for",
}

BIAS_BY_UNIT = {"rad": 0.06, "rad/s": 0.15, "m": 0.06, "m/s": 0.12, "1": 0.03, "m/s²": 0.6}
"""A bias that matters, by the signal's unit."""
WRONG_UNIT = {"rad": "deg", "rad/s": "deg/s", "m": "mm", "m/s": "mm/s", "m/s²": "g"}
OUTSIDE_DISTANCE = (0.4, 1.1)
"""How far beyond the end of its prior a number outside is, in widths of the prior …"""
MAX_FRACTION_TO_BOUND = 0.45
"""… and at most this part of the way to its hard bound …"""
MIN_FRACTION_NEAR_BOUND = 0.7
"""… of which, if that is nearer than either, at least this part."""
SEVERE_DISTANCE, SEVERE_FRACTION_TO_BOUND = (1.1, 2.2), 0.75
"""The first two of these for what is severe …"""
SEVERE_PHYSICS_FACTOR = 2.0
"""… and by how much its missing physics is stronger."""
MAX_BATTERY_SAG = 0.65
"""Part of a battery's torque that may be gone: a robot that cannot stand tells nothing."""


def hidden(robot: Robot, seed: int, family: str | None = None) -> tuple[str, Reality]:
    """The reality of a seed and the name of its family, which is drawn too unless given. Always the same one."""
    if not 0 <= seed < 2**63:
        raise BadInput(f"a hidden reality needs a seed between 0 and 2⁶³ - 1, not {seed}.")
    rng = np.random.default_rng([seed, zlib.crc32(robot.name.encode())])
    choices = families(robot)
    if family is not None and family not in choices:
        raise unknown_name("family", family, choices, f"those of {robot.name}")
    usual = [name for name in choices if name != "severe"]
    drawn = usual[int(rng.integers(len(usual)))]
    name = family or drawn
    tables = choices[name](rng)
    return name, Reality.from_dict({"robot": robot.name, "seed": int(rng.integers(2**31))} | tables, f"hidden reality {seed}")


HIDDEN_PREFIX = "hidden:"


def parse_reality(text: str, robot: Robot) -> Reality:
    """The reality that a word stands for: a file, hidden:SEED or hidden:SEED:FAMILY, or none for the robot as designed."""
    if not text:
        return Reality(robot.name)
    if not text.startswith(HIDDEN_PREFIX):
        return Reality.load(Path(text))
    seed, _, family = text.removeprefix(HIDDEN_PREFIX).partition(":")
    if not seed.isdecimal():
        raise BadInput(f"a hidden reality is written hidden:SEED or hidden:SEED:FAMILY, with a whole number, not {text!r}.")
    return hidden(robot, int(seed), family or None)[1]


def families(robot: Robot) -> Mapping[str, Draw]:
    """What can be drawn for a robot, by name: rng -> tables of a reality."""
    known = vars(robot)  # found once per robot: it takes a look at all of its numbers
    if "families" not in known:
        known["families"] = _family_draws(robot)
    return known["families"]


def _family_draws(robot: Robot) -> dict[str, Draw]:
    outside, physics, wiring, sensors = (
        _draws_outside_prior(robot),
        unmodelled_draws(robot),
        _wiring_fault_draws(robot),
        _sensor_error_draws(robot),
    )
    far, harsh = (
        _draws_outside_prior(robot, SEVERE_DISTANCE, SEVERE_FRACTION_TO_BOUND),
        unmodelled_draws(robot, SEVERE_PHYSICS_FACTOR),
    )
    found: dict[str, Draw | None] = {
        "nominal": lambda rng: {},
        "parametric-inside": (lambda rng: {"params": _draw_inside_prior(robot, rng)}) if robot.prior.free().names else None,
        "parametric-outside": (lambda rng: {"params": _draw_some(outside, rng, 2)}) if outside else None,
        "unmodelled": (lambda rng: {"unmodelled": _draw_some(physics, rng, 1)}) if physics else None,
        "wiring": (lambda rng: {"faults": _draw_some(wiring, rng, 1)}) if wiring else None,
        "link": lambda rng: {"faults": _draw_some(_NETWORK_FAULT_DRAWS, rng, 2)},
        "sensors": (lambda rng: {"sensors": _draw_some(sensors, rng, 1)}) if sensors else None,
        "mixed": (lambda rng: _draw_mixed(outside, physics, rng, (1, 1))) if outside and physics else None,
        "severe": (lambda rng: _draw_mixed(far, harsh, rng, (2, 3))) if outside and physics else None,
    }
    return {name: draw for name, draw in found.items() if draw is not None}


def _draw_some(draws: Mapping[str, Draw], rng: Rng, max_count: int, min_count: int = 1) -> dict[str, Any]:
    """`least` to `most` of the entries, each drawn."""
    count = min(int(rng.integers(min_count, max_count + 1)), len(draws))
    names = [list(draws)[i] for i in sorted(rng.choice(len(draws), count, replace=False).tolist())]
    return {name: draws[name](rng) for name in names}


def _draw_mixed(outside: Mapping[str, Draw], physics: Mapping[str, Draw], rng: Rng, count: tuple[int, int]) -> dict[str, Any]:
    """`count`, at least and at most, numbers outside, and one kind of physics."""
    least, most = count
    law = _draw_some(physics, rng.spawn(1)[0], 1)  # not that which "unmodelled" draws at this seed
    replaced = {"stribeck": "friction", "ground_softness": "contact_time"}
    free = {n: d for n, d in outside.items() if not any(entry in law and word in n for entry, word in replaced.items())}
    # Rotor inertia decides how stiff a flexible drive can be, so one reality does not change both.
    free = {n: d for n, d in free.items() if n != "armature"} if {"flex", "backlash"} & set(law) else free
    return {"params": _draw_some(free, rng, most, least), "unmodelled": law} if free else {"unmodelled": law}


# Numbers --------------------------------------------------------------------------------------------------------


def _draw_inside_prior(robot: Robot, rng: Rng) -> dict[str, float]:
    e = robot.prior.sample(rng, 1)[0]
    values = {}
    for name in robot.prior.free().names:
        low, high = robot.prior.interval(name, 1.0)
        values[name] = float(np.clip(_round_to_three_digits(e[robot.space.index(name)]), low, high))
    return values


def _draws_outside_prior(
    robot: Robot, distance: tuple[float, float] = OUTSIDE_DISTANCE, max_fraction: float = MAX_FRACTION_TO_BOUND
) -> dict[str, Draw]:
    return {
        name: lambda rng, draw=draw: _round_to_three_digits(draw(rng))
        for name, draw in draws_out_of_range(robot.prior, distance, max_fraction).items()
    }


def draws_out_of_range(
    belief: Belief, distance: tuple[float, float] = OUTSIDE_DISTANCE, max_fraction: float = MAX_FRACTION_TO_BOUND
) -> dict[str, Draw]:
    """Numbers of the robot's body, motors, surroundings and link that have room outside a belief, each with a draw there."""
    found: dict[str, Draw] = {}
    for name in belief.free().names:
        param = belief.space[name]
        if any(t.startswith("signal:") for t in param.targets):
            continue
        even = np.log if param.scale == "log" else float
        back = np.exp if param.scale == "log" else float
        ends = belief.interval(name, 1.0)
        width = even(ends[1]) - even(ends[0])
        sides = [(even(end), even(bound)) for end, bound in zip(ends, (param.low, param.high), strict=True) if end != bound]
        sides = [(end, bound) for end, bound in sides if abs(bound - end) > 0.5 * width]
        if sides and width > 0:
            sides = [
                (end, bound, tuple(min(part * width, max_fraction * abs(bound - end)) for part in distance))
                for end, bound in sides
            ]
            found[name] = lambda rng, sides=sides, back=back: float(back(_draw_out_of_range(sides, rng)))
    return found


def _draw_out_of_range(sides: list[tuple[float, float, tuple[float, ...]]], rng: Rng) -> float:
    """Beyond one of the ends, each with the bound on its side and how far from the end at least and at most."""
    end, bound, (near, far) = sides[int(rng.integers(len(sides)))]
    return end + np.sign(bound - end) * rng.uniform(near if near < far else MIN_FRACTION_NEAR_BOUND * far, far)


# Physics --------------------------------------------------------------------------------------------------------


def unmodelled_draws(robot: Robot, severity: float = 1.0) -> dict[str, Draw]:
    """Missing physics that shows on this robot, each with a severity that matters, or `harsh` times that."""
    found: dict[str, Draw] = {}
    motors, target, model = robot.motors, robot.contract.target, robot.model
    effort = motors.torque_limit or robot.contract.safety.effort
    asked = target.high if motors.drive == "effort" and target.high else effort
    known = bool(effort) and bool(np.isfinite(effort).all())
    if drives_joints(robot) and known:
        share = (0.03, 0.07) if motors.drive == "position" else (0.08, 0.2)
        least = min(asked)
        found["stribeck"] = lambda rng: _draw_stribeck(severity * least * rng.uniform(*share), rng)
        gear = Gearbox.for_robot(robot, Unmodelled(), robot.space.nominal)
        if min(gear.inertia) > 0:
            found["backlash"] = lambda rng: _round_to_three_digits(severity * rng.uniform(0.015, 0.04))
            stiff = 10.0 * min(motors.kp) if motors.drive == "position" else 15.0 * least
            stiffest = 0.9 * gear.max_stiffness(physics_timestep(robot))
            found["flex"] = lambda rng: _round_to_three_digits(min(stiff * rng.uniform(0.8, 2.5) / severity, stiffest))
    if known and motors.drive != "native" and min(np.array(asked) / np.array(effort)) > 0.5:
        found["battery_sag"] = lambda rng: _round_to_three_digits(min(severity * rng.uniform(0.2, 0.45), MAX_BATTERY_SAG))
        found["heating"] = lambda rng: _round_to_three_digits(severity * rng.uniform(2.0, 5.0))
    if robot.morphology.base:
        mass = float(model.body_subtreemass[model.body(robot.morphology.base).id])
        found["drag"] = lambda rng: _round_to_three_digits(severity * mass * rng.uniform(0.6, 2.0))
        found["cable"] = lambda rng: {
            "force": _round_to_three_digits(severity * MODEL_GRAVITY * mass * rng.uniform(0.03, 0.08)),
            "slack": _round_to_three_digits(rng.uniform(0.0, 0.05 if robot.morphology.flies else 0.3)),
        }
        if robot.morphology.feet:
            found["ground_softness"] = lambda rng: _round_to_three_digits(severity * rng.uniform(0.006, 0.018))
        if robot.morphology.flies:
            found["rotor_drag"] = lambda rng: _round_to_three_digits(severity * mass * rng.uniform(0.6, 2.0))
            found["thrust_asymmetry"] = lambda rng: {
                str(rng.choice(target.labels)): _round_to_three_digits(1.0 - severity * (1.0 - rng.uniform(0.8, 0.92)))
            }
    return found


def _draw_stribeck(static: float, rng: Rng) -> dict[str, float]:
    part, velocity = rng.uniform(0.4, 0.7), rng.uniform(0.1, 0.4)
    return {
        "static": _round_to_three_digits(static),
        "coulomb": _round_to_three_digits(static * part),
        "velocity": _round_to_three_digits(velocity),
    }


# Faults and sensors -----------------------------------------------------------------------------------------------

_NETWORK_FAULT_DRAWS: dict[str, Draw] = {
    "drop": lambda rng: _round_to_three_digits(rng.uniform(0.05, 0.3)),
    "delay": lambda rng: {
        "extra": _round_to_three_digits(rng.uniform(0.006, 0.02)),
        "jitter": _round_to_three_digits(rng.uniform(0.0, 0.01)),
    },
    "duplicate": lambda rng: _round_to_three_digits(rng.uniform(0.05, 0.3)),
    "reorder": lambda rng: _round_to_three_digits(rng.uniform(0.05, 0.3)),
}


def _wiring_fault_draws(robot: Robot) -> dict[str, Draw]:
    contract, found = robot.contract, {}
    labels, target = contract.target.labels, contract.target
    if len(labels) > 1:
        found["swap"] = lambda rng: [[labels[i] for i in sorted(rng.choice(len(labels), 2, replace=False).tolist())]]
    both_ways = [label for i, label in enumerate(labels) if not target.low or target.low[i] < 0 or contract.has_joint_targets]
    if both_ways:
        found["flip"] = lambda rng: [str(rng.choice(both_ways))]
    if contract.has("quat"):
        found["quaternion"] = lambda rng: "xyzw"
        vectors = {s.name: "world" if s.frame == "body" else "body" for s in contract.signals if s.frame and s.size == 3}
        turned = {name: frame for name, frame in vectors.items() if name != "position"}
        if turned:
            found["frames"] = lambda rng: _draw_one_entry(turned, rng)
    units = {s.name: WRONG_UNIT[s.unit] for s in contract.signals if s.unit in WRONG_UNIT}
    if units:
        found["units"] = lambda rng: _draw_one_entry(units, rng)
    return found


def _draw_one_entry(table: Mapping[str, str], rng: Rng) -> dict[str, str]:
    name = list(table)[int(rng.integers(len(table)))]
    return {name: table[name]}


def _sensor_error_draws(robot: Robot) -> dict[str, Draw]:
    contract, found = robot.contract, {}
    for signal in contract.signals:
        size = BIAS_BY_UNIT.get(signal.unit)
        if size is None:
            continue
        found[f"{signal.name}_bias"] = lambda rng, size=size, k=signal.size: _draw_biases(size, k, rng)
        found[f"{signal.name}_drift"] = lambda rng, size=size: _round_to_three_digits(size * rng.uniform(0.15, 0.4))
        if signal.unit in ("rad/s", "m/s", "m/s²"):
            found[f"{signal.name}_scale"] = lambda rng: _round_to_three_digits(
                rng.choice([rng.uniform(0.75, 0.88), rng.uniform(1.12, 1.25)])
            )
    encoders = [label for s in contract.signals if robot.sources[s.name] == "qpos" for label in s.labels]
    if encoders:
        found["encoder_offset"] = lambda rng: {str(rng.choice(encoders)): _draw_either_sign(0.05, 0.12, rng)}
    if contract.has("quat"):
        found["imu_tilt"] = lambda rng: [_draw_either_sign(0.04, 0.1, rng) for _ in range(2)]
    return found


def _draw_biases(size: float, count: int, rng: Rng) -> list[float]:
    """One component in four is wrong, at least one."""
    wrong = rng.choice(count, max(1, count // 4), replace=False)
    values = [0.0] * count
    for i in wrong.tolist():
        values[i] = _draw_either_sign(0.8 * size, 2.0 * size, rng)
    return values


def _draw_either_sign(low: float, high: float, rng: Rng) -> float:
    return _round_to_three_digits(rng.choice([-1, 1]) * rng.uniform(low, high))


def _round_to_three_digits(value: float) -> float:
    """Three digits: nobody measures a robot better."""
    return float(f"{float(value):.3g}")
