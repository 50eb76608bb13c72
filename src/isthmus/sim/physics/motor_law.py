"""From a motor's target to the torque on the joint, once per physics step, for all worlds at once.

    demand   kp (u - q) - kd q̇                  position drive          (or u itself: effort drive)
    motor    strength · demand, inside ±limit and inside the torque-speed line  ±limit (1 ∓ q̇ / no_load)
    friction (coulomb + stribeck · exp(-(q̇ / stribeck_speed)²) + load_friction · |motor|) · clip(q̇ / v0, ±1) + viscous · q̇
    output   motor - friction

All arrays are (n, m): n worlds, m motors, float64. With a spring between gearbox and link the motor moves its own
rotor, and the link feels the spring. With backlash the rotor is free in the play of its gear, and goes on with the link where
the teeth touch. Encoders may be on either side.
"""

from __future__ import annotations

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.sim.robot import MotorParams

Arrays = dict[str, np.ndarray]

STICTION_SPEED = 0.05
"""rad/s; speed v0 at which Coulomb friction is fully there. Below it friction grows linearly: no chatter at rest."""
ROTOR_SUBSTEPS = 8
"""Inner steps of the rotor per physics step: a rotor on a stiff spring, or one without a load, is faster than the body."""

MOTOR_LAW_FIELDS = (
    "kp", "kd", "strength", "torque_limit", "speed_limit", "coulomb", "viscous", "lag", "spring", "rotor_inertia",
    "stribeck", "stribeck_speed", "load_friction", "backlash",
)  # fmt: skip
MOTOR_FIELD_DEFAULTS = dict.fromkeys(MOTOR_LAW_FIELDS, 0.0) | {
    "speed_limit": np.inf, "spring": np.inf, "torque_limit": np.inf, "strength": 1.0, "stribeck_speed": 0.1,
}  # fmt: skip
"""What a figure is that a motor does not have."""


def pd_torque(u: np.ndarray, q: np.ndarray, qd: np.ndarray, kp: np.ndarray, kd: np.ndarray) -> np.ndarray:
    return kp * (u - q) - kd * qd


def clip_to_torque_speed(tau: np.ndarray, qd: np.ndarray, limit: np.ndarray, no_load: np.ndarray) -> np.ndarray:
    """Clip torque to what a DC motor can give at speed qd: full at standstill, none at the no-load speed.

    Braking (torque against the motion) is limited by `limit` alone.
    """
    slope = qd * (limit / no_load)
    return np.clip(tau, np.clip(-limit - slope, -limit, limit), np.clip(limit - slope, -limit, limit))


def friction_torque(qd: np.ndarray, tau: np.ndarray, f: Arrays, extended: bool) -> np.ndarray:
    """Torque lost to friction under the motor torque tau, opposed to qd by the caller's sign; `rich` with all of its terms."""
    level = f["coulomb"]
    if extended:
        level = level + f["stribeck"] * np.exp(-((qd / f["stribeck_speed"]) ** 2)) + f["load_friction"] * np.abs(tau)
    return level * np.clip(qd * (1.0 / STICTION_SPEED), -1.0, 1.0) + f["viscous"] * qd


def lag_step(state: np.ndarray, u: np.ndarray, lag: np.ndarray, dt: float) -> np.ndarray:
    """Exact step of the first-order lag  lag · ẏ = u - y; a lag of zero passes u through."""
    return u + lag_decay(lag, dt) * (state - u)


def lag_decay(lag: np.ndarray, dt: float) -> np.ndarray:
    """The part of the difference between y and u that is left after a step."""
    with np.errstate(divide="ignore"):
        return np.exp(-dt / lag)


class MotorLaw:
    """The motor law of one robot. Parameters and state are (n, m) arrays that belong to the engine."""

    def __init__(self, motors: MotorParams, size: int, dt: float, varied: frozenset[str]):
        """`varied` names the fields that a Space may change, so that they are simulated even if nominally absent."""
        self.drive, self.dt, self.size = motors.drive, dt, size
        self.nominal = {
            f: np.array(getattr(motors, f, ()) or (MOTOR_FIELD_DEFAULTS[f],) * size, dtype=float) for f in MOTOR_LAW_FIELDS
        }
        for name, row in self.nominal.items():
            if row.shape != (size,):
                raise BadInput(f"motor figure {name!r} has {len(row)} numbers for {size} motors.")
        used = varied | {name for name, row in self.nominal.items() if (row != MOTOR_FIELD_DEFAULTS[name]).any()}
        self.has_lag, self.has_torque_speed_limit, self.has_spring = "lag" in used, "speed_limit" in used, "spring" in used
        self.has_extended_friction, self.has_backlash = bool(used & {"stribeck", "load_friction"}), "backlash" in used
        self.has_separate_rotor = self.has_backlash or self.has_spring
        """Whether rotors move on their own."""
        self.encoders_on_rotor = self.has_separate_rotor and motors.encoder == "rotor"
        """Whether encoders show these, and not the links."""
        self.rotor_inertia_from_armature = self.has_separate_rotor and "rotor_inertia" not in used
        """Whether the inertia of rotors is the joints' armature."""
        self.has_friction = self.has_extended_friction or bool(used & {"coulomb", "viscous"})
        if self.has_torque_speed_limit and not np.isfinite(self.nominal["torque_limit"]).all():
            raise BadInput("a motor with a speed_limit needs a torque_limit, from which its torque falls.")
        if self.has_backlash and self.has_spring:
            raise BadInput("a motor has backlash or a spring, not both.")
        fixed = {name: row for name, row in self.nominal.items() if name not in varied}
        if self.has_spring and not np.isfinite(fixed.get("spring", 0.0)).all():
            raise BadInput("all motors have a spring, or none.")
        if self.has_separate_rotor and not self.rotor_inertia_from_armature and not np.all(fixed.get("rotor_inertia", 1.0) > 0):
            raise BadInput("motors with backlash or springs need a positive rotor_inertia each, or joints with armature.")
        if self.has_separate_rotor and self.drive == "native":
            raise BadInput("backlash and springs go with motors of ours, not with the model's own.")

    @property
    def flags(self) -> int:
        """Which parts of the law motors.c has to go through."""
        gear = self.has_spring * 8 | self.has_backlash * 64 | self.rotor_inertia_from_armature * 128
        return (
            self.has_lag * 1 | self.has_torque_speed_limit * 2 | self.has_friction * 4 | self.has_extended_friction * 32 | gear
        )

    def torque(
        self,
        f: Arrays,
        state: Arrays,
        u: np.ndarray,
        q: np.ndarray | None,
        qd: np.ndarray | None,
        qdd: np.ndarray | None = None,
    ) -> np.ndarray:
        """One physics step: targets u and joint state to joint torques, all (n, m); moves the motor state on.

        q̈ is the joints' acceleration in the step before: while a rotor is free in its play, the link gets back what the rotor's
        inertia, which is in the model's armature, took of it.
        """
        if self.has_lag:
            u = state["lagged"][:] = lag_step(state["lagged"], u, f["lag"], self.dt)
        if self.drive == "native":
            return u
        if q is None or qd is None:
            return np.clip(f["strength"] * u, -f["torque_limit"], f["torque_limit"])
        if self.has_separate_rotor:
            if self.has_spring:
                return self._spring_torque(f, state, u, q, qd)
            taken = f["rotor_inertia"] * qdd if self.rotor_inertia_from_armature and qdd is not None else np.zeros_like(q)
            return self._backlash_torque(f, state, u, q, qd, taken)
        tau = self.motor_torque(f, u, q, qd)
        return tau - (friction_torque(qd, tau, f, self.has_extended_friction) if self.has_friction else 0.0)

    def _backlash_torque(
        self, f: Arrays, state: Arrays, u: np.ndarray, q: np.ndarray, qd: np.ndarray, armature_torque: np.ndarray
    ) -> np.ndarray:
        """J θ̈ = motor(θ, θ̇) - friction(θ̇) inside q ± backlash; at either end the link gets what momentum the rotor loses.

        A hit is plastic, and holds until the end of the physics step: only then does the link have its new speed.
        """
        h, play, free = self.dt / ROTOR_SUBSTEPS, f["backlash"], state["touch"] == 0.0
        # A rotor so light that the motor's damping would stop it within an inner step is taken as one that it does not.
        J = np.maximum(f["rotor_inertia"], h * f["kd"])
        armature_torque = np.where(free, armature_torque, 0.0)
        theta, speed = self.rotor_state(play, state, q, qd)
        passed, side, hit = np.zeros_like(q), np.zeros_like(q), np.zeros_like(q)
        for i in range(ROTOR_SUBSTEPS):
            link = q + qd * ((i + 1) * h)
            tau = self.motor_torque(f, u, theta, speed)
            speed = speed + (tau - friction_torque(speed, tau, f, self.has_extended_friction)) * (h / J)
            theta = theta + h * speed
            side = np.where((theta >= link + play) & (speed >= qd), 1.0, 0.0)
            side = np.where((theta <= link - play) & (speed <= qd), -1.0, side)
            hit = np.where(free & (hit == 0.0), side, hit)
            side = np.where(hit != 0.0, hit, side)
            passed += np.where(side != 0.0, J * (speed - qd), armature_torque * h)
            speed = np.where(side != 0.0, qd, speed)
            theta = np.where(hit != 0.0, link + hit * play, np.clip(theta, link - play, link + play))
        state["rotor"][:], state["rotor_speed"][:], state["touch"][:] = theta, speed, side
        return passed / self.dt

    def rotor_state(self, backlash: np.ndarray, state: Arrays, q: np.ndarray, qd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Angle and speed of rotors, (n, m): those of links where the teeth of a gear with play touch."""
        if self.has_spring:
            return state["rotor"], state["rotor_speed"]
        touch = state["touch"]
        theta = np.where(touch != 0.0, q + touch * backlash, np.clip(state["rotor"], q - backlash, q + backlash))
        return theta, np.where(touch != 0.0, qd, state["rotor_speed"])

    def link_state_from_encoders(
        self, f: Arrays, u: np.ndarray, theta: np.ndarray, speed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Links and the sides where teeth touch if encoders say θ and θ̇, (n, m): as far off as motors push them."""
        if self.has_spring:
            tau = self.motor_torque(f, u, theta, speed)
            return theta - (tau - friction_torque(speed, tau, f, self.has_extended_friction)) / f["spring"], np.zeros_like(
                theta
            )
        on = u - theta - speed * f["kd"] / f["kp"] if self.drive == "position" else np.sign(u) * f["backlash"]
        return theta - np.clip(on, -f["backlash"], f["backlash"]), np.where(np.abs(on) >= f["backlash"], np.sign(on), 0.0)

    def motor_torque(self, f: Arrays, u: np.ndarray, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        """Torque of the motor itself at angle q and speed q̇ of its rotor, before friction and gear."""
        demand = pd_torque(u, q, qd, f["kp"], f["kd"]) if self.drive == "position" else u
        demand = demand * f["strength"]
        limit = f["torque_limit"]
        return (
            clip_to_torque_speed(demand, qd, limit, f["speed_limit"])
            if self.has_torque_speed_limit
            else np.clip(demand, -limit, limit)
        )

    def _spring_torque(self, f: Arrays, state: Arrays, u: np.ndarray, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        """J θ̈ = motor(θ, θ̇) - friction(θ̇) - k (θ - q);  the link feels k (θ - q), averaged over the step."""
        h = self.dt / ROTOR_SUBSTEPS
        theta, speed = state["rotor"], state["rotor_speed"]
        total = np.zeros_like(q)
        for i in range(ROTOR_SUBSTEPS):
            load = f["spring"] * (theta - (q + qd * (i * h)))
            tau = self.motor_torque(f, u, theta, speed)
            drive = tau - friction_torque(speed, tau, f, self.has_extended_friction)
            speed = speed + h * (drive - load) / f["rotor_inertia"]
            theta = theta + h * speed
            total += load
        state["rotor"][:], state["rotor_speed"][:] = theta, speed
        return total / ROTOR_SUBSTEPS
