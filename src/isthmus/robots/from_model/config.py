"""The small TOML file that says what a model file cannot: gains, pose, rate, and what is unknown about the robot.

    model = "robot.xml"            # beside this file; or "menagerie:unitree_go2"
    rate = 50                      # control ticks per second
    drive = "position"             # position, effort or native
    encoder = "rotor"              # or "link": which side of a gear with play angles are measured on
    kp = 30                        # or a table by joint; a name may be a regular expression
    kd = { ".*_hip_joint" = 0.5, ".*" = 0.8 }
    feet = ["FL", "FR", "RL", "RR"]
    [pose]
    FL_thigh_joint = 0.9
    [safety]
    tilt = 0.8                     # rad
    [params.payload]
    prior = [0.0, 3.0]

Every key but `model` may be left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import read_toml

MAX_CONFIG_BYTES = 1024 * 1024
MAX_VALUE = 1e6
"""Of any number here, in SI units: nothing that we simulate is larger."""
DRIVES, ENCODERS = ("position", "effort", "native"), ("rotor", "link")
PerJoint = float | Mapping[str, float]


@dataclass(frozen=True)
class SafetyConfig:
    """Figures for the guard and for the robot's own damping mode; what is left out is the model's, or an estimate."""

    tilt: float | None = None
    """rad; 0: any attitude is fine."""
    rest: PerJoint | None = None
    """Target in which the robot can be switched off; what a table leaves out stays at the default target."""
    damping: PerJoint | None = None
    """N·m·s/rad or N·s/m."""
    effort: PerJoint | None = None
    """Largest torque or force that the guard lets a target ask for."""
    speed: PerJoint | None = None
    """rad/s or m/s: of joints that are measured."""


@dataclass(frozen=True)
class Config:
    model: str
    """Path of an MJCF or URDF file, from the folder of the config; or `menagerie:NAME`."""
    name: str = ""
    rate: float = 50.0
    """Control ticks per second; the nearest whole number of physics steps is taken."""
    drive: str = ""
    """Empty: position if gains are given, effort for plain motors, native for any other actuator."""
    encoder: str = "rotor"
    """Which side of a gear with play angles are measured on."""
    kp: PerJoint | None = None
    kd: PerJoint | None = None
    torque_limit: PerJoint | None = None
    pose: Mapping[str, float] = field(default_factory=dict)
    """Joint angles at home, rad or m; other joints keep those of the keyframe."""
    height: float | None = None
    """Height of a free base at home, m."""
    floating: bool = False
    """Give the model's first body a free joint; a URDF cannot say that its base floats."""
    base: str = ""
    """Body that carries the payload and gets the pushes; empty: the free body, or the last link of an arm."""
    feet: tuple[str, ...] = ()
    """Geoms that touch the ground, one for each leg; empty: what stands on the ground at home, if it has names."""
    end_effector: str = ""
    """Site at the end of a fixed arm; empty: the outermost site of the longest chain of driven joints."""
    sense: tuple[str, ...] = ()
    """Signals of the contract: joint_pos, joint_vel, gyro, quat, position, velocity, or names of the model's sensors."""
    payload_at: tuple[float, ...] = (0.0, 0.0, 0.0)
    exclude: tuple[str, ...] = ()
    """Default parameters to leave out of the Space; a name may be a regular expression."""
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Parameters to add, or fields of the default ones to replace; `prior` is their range in training."""
    safety: SafetyConfig = SafetyConfig()
    where: str = "the config"


def read_config(path: Path) -> Config:
    data = read_toml(path, MAX_CONFIG_BYTES)
    known = [f.name for f in fields(Config) if f.name != "where"]
    for key in data:
        if key not in known:
            raise unknown_name("key", key, known, str(path))
    if "model" not in data:
        raise BadInput(f'{path} does not name a model: add model = "FILE".')
    values = {key: _PARSERS[key](value, f"{key!r} in {path}") for key, value in data.items()}
    return Config(**values, where=str(path))


def per_joint(value: PerJoint, joints: Iterable[str], what: str, where: str) -> dict[str, float]:
    """Numbers by joint, of a number for all or of a table: a whole name wins over a pattern, an earlier one over a later."""
    joints = tuple(joints)
    if not isinstance(value, Mapping):
        return dict.fromkeys(joints, float(value))
    out: dict[str, float] = {}
    for pattern, number in sorted(value.items(), key=lambda item: item[0] not in joints):
        matched = [j for j in joints if j == pattern] or [j for j in joints if _matches(pattern, j, where)]
        if not matched:
            raise unknown_name("joint", pattern, joints, f"{what!r} of {where}")
        out = dict.fromkeys(matched, float(number)) | out
    return out


def _matches(pattern: str, name: str, where: str) -> bool:
    try:
        return re.fullmatch(pattern, name) is not None
    except re.error as error:
        raise BadInput(f"{pattern!r} in {where} is no name and no regular expression: {error}.") from None


def excluded_names(names: Iterable[str], patterns: Iterable[str], where: str) -> set[str]:
    """The names that a list of patterns takes out; a pattern that matches none is an error."""
    names, out = tuple(names), set()
    for pattern in patterns:
        matched = {n for n in names if _matches(pattern, n, where)}
        if not matched:
            raise unknown_name("parameter", pattern, names, f"'exclude' of {where}")
        out |= matched
    return out


# One check per key: what it must be, or a sentence ---------------------------------------------------------------


def _parse_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise BadInput(f"{where} must be text, not {value!r}.")
    return value


def _parse_name(value: Any, where: str) -> str:
    if not re.fullmatch(r"[\w.:-]+", _parse_text(value, where)):
        raise BadInput(f"{where} may have letters, digits and any of _ . : -, not {value!r}.")
    return value


def _parse_number(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= MAX_VALUE:
        raise BadInput(f"{where} must be a number up to {MAX_VALUE:g}, not {value!r}.")
    return float(value)


def _parse_positive(value: Any, where: str) -> float:
    if _parse_number(value, where) <= 0:
        raise BadInput(f"{where} must be above zero, not {value!r}.")
    return float(value)


def _parse_flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{where} must be true or false, not {value!r}.")
    return value


def _choice_parser(what: str, names: tuple[str, ...]) -> Callable[[Any, str], str]:
    def check(value: Any, where: str) -> str:
        if value not in names:
            raise unknown_name(what, str(value), names, where)
        return value

    return check


def _parse_table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{where} must be a table, not {value!r}.")
    return value


def _parse_numbers_by_name(value: Any, where: str) -> dict[str, float]:
    return {key: _parse_number(number, f"{key!r} of {where}") for key, number in _parse_table(value, where).items()}


def _parse_gain(value: Any, where: str) -> PerJoint:
    gains = _parse_numbers_by_name(value, where) if isinstance(value, dict) else {"": _parse_number(value, where)}
    if min(gains.values(), default=0.0) < 0:
        raise BadInput(f"{where} must not be negative.")
    return gains if isinstance(value, dict) else gains[""]


def _parse_texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise BadInput(f"{where} must be a list of texts, not {value!r}.")
    return tuple(_parse_text(v, where) for v in value)


def _parse_xyz(value: Any, where: str) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != 3:
        raise BadInput(f"{where} must be three numbers, not {value!r}.")
    return tuple(_parse_number(v, where) for v in value)


def _parse_params(value: Any, where: str) -> dict[str, dict[str, Any]]:
    return {name: _parse_table(row, f"parameter {name!r} of {where}") for name, row in _parse_table(value, where).items()}


def _parse_signed_per_joint(value: Any, where: str) -> PerJoint:
    return _parse_numbers_by_name(value, where) if isinstance(value, dict) else _parse_number(value, where)


def _parse_positive_per_joint(value: Any, where: str) -> PerJoint:
    if isinstance(value, dict):
        return {key: _parse_positive(number, f"{key!r} of {where}") for key, number in value.items()}
    return _parse_positive(value, where)


def _parse_angle(value: Any, where: str) -> float:
    if not 0 <= _parse_number(value, where) <= math.pi:
        raise BadInput(f"{where} must be an angle from 0 to π rad, not {value!r}.")
    return float(value)


_SAFETY_PARSERS: dict[str, Callable[[Any, str], Any]] = {
    "tilt": _parse_angle,
    "rest": _parse_signed_per_joint,
    "damping": _parse_gain,
    "effort": _parse_positive_per_joint,
    "speed": _parse_positive_per_joint,
}


def _parse_safety(value: Any, where: str) -> SafetyConfig:
    for key in _parse_table(value, where):
        if key not in _SAFETY_PARSERS:
            raise unknown_name("key", key, _SAFETY_PARSERS, where)
    return SafetyConfig(**{key: _SAFETY_PARSERS[key](entry, f"{key!r} of {where}") for key, entry in value.items()})


_PARSERS: dict[str, Callable[[Any, str], Any]] = {
    "model": _parse_text,
    "name": _parse_name,
    "rate": _parse_positive,
    "drive": _choice_parser("drive", DRIVES),
    "encoder": _choice_parser("encoder", ENCODERS),
    "kp": _parse_gain,
    "kd": _parse_gain,
    "torque_limit": _parse_gain,
    "pose": _parse_numbers_by_name,
    "height": _parse_number,
    "floating": _parse_flag,
    "base": _parse_text,
    "end_effector": _parse_text,
    "feet": _parse_texts,
    "sense": _parse_texts,
    "payload_at": _parse_xyz,
    "exclude": _parse_texts,
    "params": _parse_params,
    "safety": _parse_safety,
}
