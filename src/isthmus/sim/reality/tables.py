"""The tables of a reality file, as dataclasses. What is left out is as nominal.

Numbers that make no sense anywhere are refused here; what makes no sense for one robot is refused in `check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from isthmus.core.errors import BadInput

DEFAULT_SAG_SECONDS = 20.0
"""s: over which a battery loses what `battery_sag` says, unless it says how long itself."""

Values = float | tuple[float, ...] | Mapping[str, float]
"""One number for all components of a signal, one per component, or a table by label."""


def check_bounds(where: str, value: float | None, low: float, high: float, open_low: bool = False) -> None:
    """Refuse a number outside [low, high], or (low, high] where `open_low`."""
    if value is not None and not (low < value <= high if open_low else low <= value <= high):
        bounds = f"above {low:g} and at most {high:g}" if open_low else f"between {low:g} and {high:g}"
        raise BadInput(f"{where} must be {bounds}, not {value:g}.")


@dataclass(frozen=True)
class Stribeck:
    """Joint friction that is largest at rest: coulomb + (static - coulomb) exp(-(q̇ / velocity)²)."""

    static: float
    """N·m: torque at which a joint at rest breaks away."""
    coulomb: float
    """N·m: friction of a joint that moves fast."""
    velocity: float
    """rad/s: speed at which most of the difference is gone."""

    def __post_init__(self) -> None:
        check_bounds("coulomb", self.coulomb, 0.0, 100.0)
        check_bounds("static", self.static, 0.0, 100.0, open_low=True)
        check_bounds("velocity", self.velocity, 1e-3, 100.0)
        if self.static < self.coulomb:
            raise BadInput(f"static friction ({self.static:g}) is at least the coulomb friction ({self.coulomb:g}).")


@dataclass(frozen=True)
class BatterySag:
    loss: float
    """Part of the torque ceiling and of the no-load speed that is gone at the end."""
    seconds: float = DEFAULT_SAG_SECONDS

    def __post_init__(self) -> None:
        check_bounds("loss", self.loss, 0.0, 0.9)
        check_bounds("seconds", self.seconds, 0.1, 1e5)


@dataclass(frozen=True)
class Cable:
    """A cable to where the base started, which pulls it back."""

    force: float
    """N."""
    slack: float = 0.0
    """m that the base can go before the cable pulls."""

    def __post_init__(self) -> None:
        check_bounds("force", self.force, 0.0, 1e3)
        check_bounds("slack", self.slack, 0.0, 100.0)


@dataclass(frozen=True)
class Unmodelled:
    """Physics that the training simulator does not have."""

    backlash: float | None = None
    """rad (or m): play between gearbox and link, from end to end."""
    flex: float | None = None
    """N·m/rad (or N/m): stiffness between gearbox and link."""
    stribeck: Stribeck | None = None
    battery_sag: float | BatterySag | None = None
    heating: float | None = None
    """Loss of torque per minute at full load."""
    ground_softness: float | None = None
    """m by which the feet sink in when the robot stands."""
    drag: float | None = None
    """N·s/m on the base."""
    cable: Cable | None = None
    rotor_drag: float | None = None
    """N·s/m in the plane of the rotors, of all rotors together in hover."""
    ground_effect: float | None = None
    """m: effective radius of a rotor."""
    thrust_asymmetry: Mapping[str, float] = field(default_factory=dict)
    """Part of its thrust that a rotor with a damaged propeller still gives, by motor."""

    def __post_init__(self) -> None:
        check_bounds("backlash", self.backlash, 0.0, 0.5, open_low=True)
        check_bounds("flex", self.flex, 1.0, 1e6)
        check_bounds("heating", self.heating, 0.0, 10.0)
        check_bounds("ground_softness", self.ground_softness, 1e-3, 0.1)
        check_bounds("drag", self.drag, 0.0, 1e3)
        check_bounds("rotor_drag", self.rotor_drag, 0.0, 10.0)
        check_bounds("ground_effect", self.ground_effect, 0.0, 1.0)
        check_bounds("battery_sag", self.battery_sag if isinstance(self.battery_sag, int | float) else None, 0.0, 0.9)
        for motor, part in self.thrust_asymmetry.items():
            check_bounds(f"thrust_asymmetry of {motor}", part, 0.0, 2.0)

    @property
    def sag(self) -> BatterySag | None:
        return BatterySag(self.battery_sag) if isinstance(self.battery_sag, int | float) else self.battery_sag


@dataclass(frozen=True)
class NetworkDelay:
    """Time that packets and commands take beyond what `action_delay` and `sensor_delay` say."""

    extra: float
    """s, each way."""
    jitter: float = 0.0
    """s: up to so much more, drawn uniformly. Nothing overtakes."""

    def __post_init__(self) -> None:
        check_bounds("extra", self.extra, 0.0, 10.0)
        check_bounds("jitter", self.jitter, 0.0, 10.0)


@dataclass(frozen=True)
class ClockJump:
    at: float
    """s on the robot's clock."""
    by: float
    """s; negative is back in time."""

    def __post_init__(self) -> None:
        check_bounds("at", self.at, 0.0, 1e6)
        check_bounds("by", self.by, -1e6, 1e6)


@dataclass(frozen=True)
class Faults:
    """What went wrong when the robot was put into service: its wiring, its configuration, its network."""

    swap: tuple[tuple[str, str], ...] = ()
    """Motors that answer to each other's name, in every joint signal and in the target."""
    flip: tuple[str, ...] = ()
    """Motors that count the other way, in every joint signal and in the target."""
    quaternion: Literal["wxyz", "xyzw"] = "wxyz"
    """Order in which the robot sends its orientation."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Unit in which the robot really sends a signal, or reads its target."""
    frames: Mapping[str, Literal["body", "world"]] = field(default_factory=dict)
    """Frame in which the robot really sends a vector."""
    drop: float = 0.0
    """Probability that a packet or a command is lost."""
    duplicate: float = 0.0
    """Probability that it comes twice."""
    reorder: float = 0.0
    """Probability that the next one overtakes it."""
    delay: float | NetworkDelay | None = None
    clock_jump: ClockJump | None = None
    mode: Literal["", "busy"] = ""
    """`busy`: the built-in controller is still on."""
    model: Literal["", "other"] = ""
    """`other`: the robot reports another model than its own."""

    def __post_init__(self) -> None:
        for name in ("drop", "duplicate", "reorder"):
            check_bounds(name, getattr(self, name), 0.0, 1.0)
        check_bounds("delay", self.delay if isinstance(self.delay, int | float) else None, 0.0, 10.0)
        for pair in self.swap:
            if pair[0] == pair[1]:
                raise BadInput(f"swap names {pair[0]!r} twice in one pair.")
        swapped = [label for pair in self.swap for label in pair]
        for what, labels in (("swap", swapped), ("flip", list(self.flip))):
            if len(set(labels)) != len(labels):
                raise BadInput(f"{what} names a motor twice.")

    @property
    def network_delay(self) -> NetworkDelay:
        return NetworkDelay(self.delay) if isinstance(self.delay, int | float) else self.delay or NetworkDelay(0.0)


@dataclass(frozen=True)
class Sensors:
    """Errors of the sensors on top of those that `params` can name. Values are in the signal's unit."""

    bias: Mapping[str, Values] = field(default_factory=dict)
    """Constant error, by signal."""
    drift: Mapping[str, Values] = field(default_factory=dict)
    """Random walk: standard deviation after one second, growing with √s."""
    noise: Mapping[str, Values] = field(default_factory=dict)
    """Standard deviation of white noise, added to that of the parameters."""
    scale: Mapping[str, Values] = field(default_factory=dict)
    """Factor on the signal."""
    encoder_offset: Mapping[str, float] = field(default_factory=dict)
    """rad (or m) by joint."""
    imu_tilt: tuple[float, float] = (0.0, 0.0)
    """rad about x and y by which the inertial sensor is mounted wrong; acts on quat, gyro and accel."""

    def __post_init__(self) -> None:
        for name in ("drift", "noise"):
            for signal, values in getattr(self, name).items():
                for value in flat_values(values):
                    check_bounds(f"{signal}_{name}", value, 0.0, 1e6)
        for angle in self.imu_tilt:
            check_bounds("imu_tilt", angle, -1.6, 1.6)

    def to_dict(self) -> dict[str, Any]:
        """As in the file: the signal is part of the entry's name."""
        by_signal = {f"{s}_{kind}": to_plain(v) for kind in SENSOR_KINDS for s, v in getattr(self, kind).items()}
        return by_signal | non_default_entries(self, skip=SENSOR_KINDS)


SENSOR_KINDS = ("bias", "drift", "noise", "scale")


def flat_values(values: Values) -> tuple[float, ...]:
    return tuple(values.values()) if isinstance(values, Mapping) else values if isinstance(values, tuple) else (values,)


def to_plain(value: Any) -> Any:
    """The value as JSON and TOML have it."""
    if isinstance(value, Mapping):
        return {k: to_plain(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return [to_plain(v) for v in value]
    return non_default_entries(value) if hasattr(value, "__dataclass_fields__") else value


def non_default_entries(table: Any, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """The entries of a dataclass that differ from their defaults."""
    fresh = {f.name: f.default_factory() if callable(f.default_factory) else f.default for f in fields(table)}
    found = {name: getattr(table, name) for name in fresh if name not in skip}
    return {name: to_plain(value) for name, value in found.items() if value != fresh[name]}
