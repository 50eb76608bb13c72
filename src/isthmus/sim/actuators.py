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

from isthmus.errors import BadInput
from isthmus.sim.robot import Motors

Arrays = dict[str, np.ndarray]

STICTION_SPEED = 0.05
"""rad/s; speed v0 at which Coulomb friction is fully there. Below it friction grows linearly: no chatter at rest."""
SPRING_STEPS = 8
"""Inner steps of the rotor per physics step: a rotor on a stiff spring, or one without a load, is faster than the body."""

FIELDS = (
    "kp", "kd", "strength", "torque_limit", "speed_limit", "coulomb", "viscous", "lag", "spring", "rotor_inertia",
    "stribeck", "stribeck_speed", "load_friction", "backlash",
)  # fmt: skip
ABSENT = dict.fromkeys(FIELDS, 0.0) | {
    "speed_limit": np.inf, "spring": np.inf, "torque_limit": np.inf, "strength": 1.0, "stribeck_speed": 0.1,
}  # fmt: skip
"""What a figure is that a motor does not have."""


def pd(u: np.ndarray, q: np.ndarray, qd: np.ndarray, kp: np.ndarray, kd: np.ndarray) -> np.ndarray:
    return kp * (u - q) - kd * qd


def torque_speed(tau: np.ndarray, qd: np.ndarray, limit: np.ndarray, no_load: np.ndarray) -> np.ndarray:
    """Clip torque to what a DC motor can give at speed qd: full at standstill, none at the no-load speed.

    Braking (torque against the motion) is limited by `limit` alone.
    """
    slope = qd * (limit / no_load)
    return np.clip(tau, np.clip(-limit - slope, -limit, limit), np.clip(limit - slope, -limit, limit))


def friction(qd: np.ndarray, tau: np.ndarray, f: Arrays, rich: bool) -> np.ndarray:
    """Torque lost to friction under the motor torque tau, opposed to qd by the caller's sign; `rich` with all of its terms."""
    level = f["coulomb"]
    if rich:
        level = level + f["stribeck"] * np.exp(-((qd / f["stribeck_speed"]) ** 2)) + f["load_friction"] * np.abs(tau)
    return level * np.clip(qd * (1.0 / STICTION_SPEED), -1.0, 1.0) + f["viscous"] * qd


def lag_step(state: np.ndarray, u: np.ndarray, lag: np.ndarray, dt: float) -> np.ndarray:
    """Exact step of the first-order lag  lag · ẏ = u - y; a lag of zero passes u through."""
    return u + lag_keeps(lag, dt) * (state - u)


def lag_keeps(lag: np.ndarray, dt: float) -> np.ndarray:
    """The part of the difference between y and u that is left after a step."""
    with np.errstate(divide="ignore"):
        return np.exp(-dt / lag)


class Actuators:
    """The motor law of one robot. Parameters and state are (n, m) arrays that belong to the engine."""

    def __init__(self, motors: Motors, size: int, dt: float, varied: frozenset[str]):
        """`varied` names the fields that a Space may change, so that they are simulated even if nominally absent."""
        self.drive, self.dt, self.size = motors.drive, dt, size
        self.nominal = {f: np.array(getattr(motors, f, ()) or (ABSENT[f],) * size, dtype=float) for f in FIELDS}
        for name, row in self.nominal.items():
            if row.shape != (size,):
                raise BadInput(f"motor figure {name!r} has {len(row)} numbers for {size} motors.")
        used = varied | {name for name, row in self.nominal.items() if (row != ABSENT[name]).any()}
        self.lag, self.line, self.spring = "lag" in used, "speed_limit" in used, "spring" in used
        self.rich, self.backlash = bool(used & {"stribeck", "load_friction"}), "backlash" in used
        self.geared = self.backlash or self.spring
        """Whether rotors move on their own."""
        self.at_rotors = self.geared and motors.encoder == "rotor"
        """Whether encoders show these, and not the links."""
        self.borrowed = self.geared and "rotor_inertia" not in used
        """Whether the inertia of rotors is the joints' armature."""
        self.friction = self.rich or bool(used & {"coulomb", "viscous"})
        if self.line and not np.isfinite(self.nominal["torque_limit"]).all():
            raise BadInput("a motor with a speed_limit needs a torque_limit, from which its torque falls.")
        if self.backlash and self.spring:
            raise BadInput("a motor has backlash or a spring, not both.")
        fixed = {name: row for name, row in self.nominal.items() if name not in varied}
        if self.spring and not np.isfinite(fixed.get("spring", 0.0)).all():
            raise BadInput("all motors have a spring, or none.")
        if self.geared and not self.borrowed and not np.all(fixed.get("rotor_inertia", 1.0) > 0):
            raise BadInput("motors with backlash or springs need a positive rotor_inertia each, or joints with armature.")
        if self.geared and self.drive == "native":
            raise BadInput("backlash and springs go with motors of ours, not with the model's own.")

    @property
    def flags(self) -> int:
        """Which parts of the law motors.c has to go through."""
        gear = self.spring * 8 | self.backlash * 64 | self.borrowed * 128
        return self.lag * 1 | self.line * 2 | self.friction * 4 | self.rich * 32 | gear

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
        if self.lag:
            u = state["lagged"][:] = lag_step(state["lagged"], u, f["lag"], self.dt)
        if self.drive == "native":
            return u
        if q is None or qd is None:
            return np.clip(f["strength"] * u, -f["torque_limit"], f["torque_limit"])
        if self.geared:
            if self.spring:
                return self._through_spring(f, state, u, q, qd)
            taken = f["rotor_inertia"] * qdd if self.borrowed and qdd is not None else np.zeros_like(q)
            return self._through_play(f, state, u, q, qd, taken)
        tau = self.motor(f, u, q, qd)
        return tau - (friction(qd, tau, f, self.rich) if self.friction else 0.0)

    def _through_play(
        self, f: Arrays, state: Arrays, u: np.ndarray, q: np.ndarray, qd: np.ndarray, taken: np.ndarray
    ) -> np.ndarray:
        """J θ̈ = motor(θ, θ̇) - friction(θ̇) inside q ± backlash; at either end the link gets what momentum the rotor loses.

        A hit is plastic, and holds until the end of the physics step: only then does the link have its new speed.
        """
        h, play, free = self.dt / SPRING_STEPS, f["backlash"], state["touch"] == 0.0
        # A rotor so light that the motor's damping would stop it within an inner step is taken as one that it does not.
        J = np.maximum(f["rotor_inertia"], h * f["kd"])
        taken = np.where(free, taken, 0.0)
        theta, speed = self.encoders(play, state, q, qd)
        passed, side, hit = np.zeros_like(q), np.zeros_like(q), np.zeros_like(q)
        for i in range(SPRING_STEPS):
            link = q + qd * ((i + 1) * h)
            tau = self.motor(f, u, theta, speed)
            speed = speed + (tau - friction(speed, tau, f, self.rich)) * (h / J)
            theta = theta + h * speed
            side = np.where((theta >= link + play) & (speed >= qd), 1.0, 0.0)
            side = np.where((theta <= link - play) & (speed <= qd), -1.0, side)
            hit = np.where(free & (hit == 0.0), side, hit)
            side = np.where(hit != 0.0, hit, side)
            passed += np.where(side != 0.0, J * (speed - qd), taken * h)
            speed = np.where(side != 0.0, qd, speed)
            theta = np.where(hit != 0.0, link + hit * play, np.clip(theta, link - play, link + play))
        state["rotor"][:], state["rotor_speed"][:], state["touch"][:] = theta, speed, side
        return passed / self.dt

    def encoders(self, play: np.ndarray, state: Arrays, q: np.ndarray, qd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Angle and speed of rotors, (n, m): those of links where the teeth of a gear with play touch."""
        if self.spring:
            return state["rotor"], state["rotor_speed"]
        touch = state["touch"]
        theta = np.where(touch != 0.0, q + touch * play, np.clip(state["rotor"], q - play, q + play))
        return theta, np.where(touch != 0.0, qd, state["rotor_speed"])

    def settled(self, f: Arrays, u: np.ndarray, theta: np.ndarray, speed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Links and the sides where teeth touch if encoders say θ and θ̇, (n, m): as far off as motors push them."""
        if self.spring:
            tau = self.motor(f, u, theta, speed)
            return theta - (tau - friction(speed, tau, f, self.rich)) / f["spring"], np.zeros_like(theta)
        on = u - theta - speed * f["kd"] / f["kp"] if self.drive == "position" else np.sign(u) * f["backlash"]
        return theta - np.clip(on, -f["backlash"], f["backlash"]), np.where(np.abs(on) >= f["backlash"], np.sign(on), 0.0)

    def motor(self, f: Arrays, u: np.ndarray, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        """Torque of the motor itself at angle q and speed q̇ of its rotor, before friction and gear."""
        demand = pd(u, q, qd, f["kp"], f["kd"]) if self.drive == "position" else u
        demand = demand * f["strength"]
        limit = f["torque_limit"]
        return torque_speed(demand, qd, limit, f["speed_limit"]) if self.line else np.clip(demand, -limit, limit)

    def _through_spring(self, f: Arrays, state: Arrays, u: np.ndarray, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
        """J θ̈ = motor(θ, θ̇) - friction(θ̇) - k (θ - q);  the link feels k (θ - q), averaged over the step."""
        h = self.dt / SPRING_STEPS
        theta, speed = state["rotor"], state["rotor_speed"]
        total = np.zeros_like(q)
        for i in range(SPRING_STEPS):
            load = f["spring"] * (theta - (q + qd * (i * h)))
            tau = self.motor(f, u, theta, speed)
            drive = tau - friction(speed, tau, f, self.rich)
            speed = speed + h * (drive - load) / f["rotor_inertia"]
            theta = theta + h * speed
            total += load
        state["rotor"][:], state["rotor_speed"][:] = theta, speed
        return total / SPRING_STEPS
