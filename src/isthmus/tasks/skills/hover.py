"""Fly to a commanded place and stay there, facing forward, whatever attitude the episode starts from.

Actions are total thrust, roll, pitch and yaw. Under the policy lies what every flight controller does: level out, damp turning
and motion, keep the heading, and drift towards the commanded place. Its gains are derived from how fast a unit of action turns
the body, so that the attitude loop has 8.4 rad/s and a damping ratio of 0.84 on every vehicle; velocity asks for a tilt that
brakes at 1.5 m/s² per m/s, distance for one that pulls at 1 m/s² per m. That alone is slow and gives way to wind, payload and
weak motors: getting there and staying there is what the policy learns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from isthmus.data.contract import Signal
from isthmus.robots.dimensions import joint_inertia, standing_height, weight
from isthmus.sim.indexing import Indexing
from isthmus.sim.physics.disturbances import Disturbance
from isthmus.sim.robot import Robot
from isthmus.tasks import terms
from isthmus.tasks.skill import Skill, missing_signals
from isthmus.tasks.state import State
from isthmus.tasks.task import Command, CriticTerm, LinearFeedback, ObservationTerm, PolicySpec, RewardTerm, Task

XYZ = ("x", "y", "z")
THRUST_PER_ACTION = 0.3
"""Change of each rotor's thrust per unit of the action `thrust`, in units of hover."""
MOMENT_PER_ACTION = 0.15
"""Change of each rotor's thrust per unit of roll, pitch or yaw, in units of hover."""
ATTITUDE_STIFFNESS = 70.2
"""rad/s² of angular acceleration per rad of tilt: (8.4 rad/s)²."""
ATTITUDE_DAMPING = 14.04
"""1/s: angular acceleration per turning rate."""
YAW_STIFFNESS = 4.05
"""rad/s² per rad of heading error; yaw is the weak axis of a multirotor."""
YAW_DAMPING = 2.43
"""1/s."""
TILT_PER_SPEED = 0.15
"""Tilt per horizontal speed, rad per m/s."""
TILT_PER_DISTANCE = 0.1
"""Tilt per horizontal distance, rad per m."""
CLIMB_GAINS = (0.5, 0.8)
"""Thrust action per m/s and per m of height error."""
STEADY_WIND_FORCE = 0.077
"""Mean wind force in units of weight: 3 m/s of wind on a Crazyflie."""


@dataclass(frozen=True)
class Settings:
    hover_thrust: float
    """N of each rotor."""
    height: float
    """m: centre of the room in which commands and starts lie."""
    attitude_gain: float
    """Roll and pitch action per sine of tilt."""
    rate_gain: float
    """Roll and pitch action per rad/s."""
    heading_gain: float
    """Yaw action per sine of the heading error."""
    yaw_rate_gain: float
    """Yaw action per rad/s."""
    speed_gain: float
    """Roll and pitch action per m/s."""
    distance_gain: float
    """Roll and pitch action per m."""
    steady_force: float
    """N of mean wind."""
    gust_force: float
    """N of gusts."""
    room_half_size: float = 0.5
    """m: commands and starts lie this far about the centre along each axis, so that they are up to 1 m apart."""
    max_start_tilt: float = np.pi / 3
    """rad."""
    max_start_speed: float = 1.0
    """m/s."""
    max_start_turn_rate: float = 2.0
    """rad/s."""
    push_speed: float = 0.5
    """m/s."""
    episode: float = 6.0
    """s."""

    @staticmethod
    def for_robot(robot: Robot) -> Settings:
        thrust = float(np.mean(robot.default))
        roll, yaw = _acceleration_per_action(robot, thrust)
        attitude = ATTITUDE_STIFFNESS / roll
        wind = STEADY_WIND_FORCE * weight(robot)
        return Settings(
            hover_thrust=thrust,
            height=max(standing_height(robot), 1.0),
            attitude_gain=attitude,
            rate_gain=ATTITUDE_DAMPING / roll,
            heading_gain=YAW_STIFFNESS / yaw,
            yaw_rate_gain=YAW_DAMPING / yaw,
            speed_gain=TILT_PER_SPEED * attitude,
            distance_gain=TILT_PER_DISTANCE * attitude,
            steady_force=wind,
            gust_force=wind / 3,
        )


def _rotor_signs(robot: Robot) -> list[tuple[float, float, float]]:
    """Signs of x (forward), y (left) and of the yaw moment of each rotor, in the order of the target."""
    rotors = {rotor.motor: rotor for rotor in robot.morphology.rotors}
    places = {name: robot.model.site(rotor.site).pos for name, rotor in rotors.items()}
    labels = robot.contract.target.labels
    return [(float(np.sign(places[m][0])), float(np.sign(places[m][1])), float(rotors[m].spin)) for m in labels]


def _acceleration_per_action(robot: Robot, thrust: float) -> tuple[float, float]:
    """rad/s² of roll or pitch, and of yaw, per unit of action."""
    model, inertia = robot.model, joint_inertia(robot)[Indexing.of(robot).root.qvel][3:]
    sites, spins = model.actuator_trnid[:, 0], model.actuator_gear[:, 5]
    push = MOMENT_PER_ACTION * thrust
    roll = push * float(np.abs(model.site_pos[sites, :2]).sum(0).mean()) / float(inertia[:2].mean())
    return roll, push * float(np.abs(spins).sum()) / float(inertia[2])


def requires(robot: Robot) -> str | None:
    body = robot.morphology
    if body.lacks("floats", "rotors"):
        return body.lacks("floats", "rotors")
    signs = _rotor_signs(robot)
    if len(signs) < 4 or any(0.0 in row for row in signs) or {row[2] for row in signs} != {-1.0, 1.0}:
        return "it needs four or more rotors beside its axes that turn both ways"
    return missing_signals(robot, ("position", "velocity", "quat", "gyro"))


def distance(s: State) -> Tensor:
    """From the commanded place, m."""
    return (s.root.position - s.command).norm(dim=1)


def position_score(s: State, width: float = 0.4) -> Tensor:
    """exp(-(distance / width)²); width in m."""
    return torch.exp(-(distance(s) / width).square())


def position_reward(s: State, width: float = 0.4) -> Tensor:
    """1 / (1 + (distance / width)²): like `position_score`, but felt from far away too; width in m."""
    return 1.0 / (1.0 + (distance(s) / width).square())


def heading_error(s: State) -> Tensor:
    """1 - cosine of the angle between the body's and the world's x axis, seen from above."""
    w, x, y, z = s.quat.unbind(1)
    ahead, aside = 1 - 2 * (y * y + z * z), 2 * (x * y + w * z)
    return 1 - ahead / torch.sqrt(ahead * ahead + aside * aside).clamp_min(1e-6)


def squared_speed(s: State) -> Tensor:
    """Squared velocity, (m/s)²."""
    return s.root.world_vel.square().sum(1)


def squared_turn_rate(s: State) -> Tensor:
    """Squared turning rate, (rad/s)²."""
    return s.ang_vel.square().sum(1)


def thrust_rate(s: State, hover_thrust: float) -> Tensor:
    """Sum of squared changes of the thrusts since the last tick, in units of the hover thrust."""
    return terms.action_rate(s) / hover_thrust**2


def rotor_power(s: State, hover_thrust: float) -> Tensor:
    """Power of the rotors as an ideal propeller's, thrust to the power 3/2, in units of hovering."""
    return (s.torque.clamp_min(0.0) / hover_thrust).pow(1.5).mean(1)


def out_of_bounds(s: State, min_height: float = 0.05, max_distance: float = 3.0) -> Tensor:
    """Closer than `min_height` m to the ground, or further than `max_distance` m from the commanded place."""
    return (s.root.position[:, 2] < min_height) | (distance(s) > max_distance)


def _initial_state(
    rng: np.random.Generator, k: int, robot: Robot, width: float, *, settings: Settings
) -> tuple[np.ndarray, np.ndarray]:
    """Anywhere in the room, tilted about any axis, moving and turning."""
    half_size, speed, turn = settings.room_half_size, settings.max_start_speed, settings.max_start_turn_rate
    axis = rng.standard_normal((k, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    half = rng.uniform(0, settings.max_start_tilt, (k, 1)) / 2
    place = rng.uniform(-half_size, half_size, (k, 3)) + np.array([0.0, 0.0, settings.height])
    root = Indexing.of(robot).root
    qpos, qvel = np.tile(np.array(robot.home), (k, 1)), np.zeros((k, robot.model.nv))
    qpos[:, root.qpos] = np.concatenate([place, np.cos(half), np.sin(half) * axis], axis=1)
    qvel[:, root.qvel] = np.concatenate([rng.uniform(-speed, speed, (k, 3)), rng.uniform(-turn, turn, (k, 3))], axis=1)
    return qpos, qvel


def _feedback(c: Settings) -> tuple[LinearFeedback, ...]:
    """Rows: thrust, roll, pitch, yaw."""
    zero, zero9 = (0.0,) * 3, (0.0,) * 9
    a, r, v, d = c.attitude_gain, c.rate_gain, c.speed_gain, c.distance_gain
    climb_rate, climb = CLIMB_GAINS
    return (
        LinearFeedback(ObservationTerm("quat", "gravity"), (zero, (0.0, a, 0.0), (-a, 0.0, 0.0), zero)),
        LinearFeedback(ObservationTerm("gyro"), (zero, (-r, 0.0, 0.0), (0.0, -r, 0.0), (0.0, 0.0, -c.yaw_rate_gain))),
        LinearFeedback(
            ObservationTerm("quat", "attitude"), (zero9, zero9, zero9, (0.0, 0.0, 0.0, -c.heading_gain, *((0.0,) * 5)))
        ),
        LinearFeedback(ObservationTerm("velocity"), ((0.0, 0.0, -climb_rate), (0.0, v, 0.0), (-v, 0.0, 0.0), zero)),
        LinearFeedback(
            ObservationTerm("position", subtract="command"), ((0.0, 0.0, -climb), (0.0, d, 0.0), (-d, 0.0, 0.0), zero)
        ),
    )


def task(name: str, robot: Robot, settings: Settings) -> Task:
    c, hover, motors = settings, settings.hover_thrust, robot.contract.target.labels
    mixer = tuple(
        (THRUST_PER_ACTION, MOMENT_PER_ACTION * y, -MOMENT_PER_ACTION * x, MOMENT_PER_ACTION * spin)
        for x, y, spin in _rotor_signs(robot)
    )
    half = c.room_half_size
    command = Signal("command", "m", XYZ, "world", (-half, -half, c.height - half), (half, half, c.height + half))
    return Task(
        name=name,
        doc="reach and hold a commanded position from up to 60 degrees of tilt, under wind and pushes",
        robot=robot,
        episode=c.episode,
        command=Command(command, resample_interval=(3.0, 6.0), zero_fraction=0.0),
        rewards=(
            RewardTerm("close", 3.0, position_reward),
            RewardTerm("speed", -0.1, squared_speed),
            RewardTerm("alive", 0.5, terms.alive),
            RewardTerm("tilt", -0.1, terms.tilt),
            RewardTerm("heading", -0.5, heading_error),
            RewardTerm("spin", -0.003, squared_turn_rate),
            RewardTerm("change", -0.005, partial(thrust_rate, hover_thrust=hover)),
        ),
        terminations=(RewardTerm("lost", -1.0, out_of_bounds),),
        score=position_score,
        success_threshold=0.5,
        metrics={
            "distance": distance,
            "tilt_degrees": lambda s: torch.rad2deg(torch.acos((-s.projected_gravity[:, 2]).clamp(-1, 1))),
            "heading_error": heading_error,
            "effort": partial(rotor_power, hover_thrust=hover),
        },
        policy=PolicySpec(
            observations=(
                ObservationTerm("position", subtract="command"),
                ObservationTerm("velocity", scale=0.5),
                ObservationTerm("quat", "attitude"),
                ObservationTerm("gyro", scale=0.2),
            ),
            action_scale=hover,
            mixer=mixer,
            action_names=("thrust", "roll", "pitch", "yaw"),
            feedback=_feedback(c),
        ),
        start=partial(_initial_state, settings=c),
        disturbance=Disturbance(
            push_speed=c.push_speed,
            push_every=(2.0, 5.0),
            steady_force=c.steady_force,
            gust_force=c.gust_force,
            gust_time=0.5,
        ),
        critic=(
            CriticTerm("error", XYZ, lambda s: s.root.position - s.command),
            CriticTerm("velocity", XYZ, lambda s: s.root.world_vel * 0.5),
            CriticTerm("lin_vel", XYZ, lambda s: s.lin_vel * 0.5),
            CriticTerm("quat", ("w", "x", "y", "z"), lambda s: s.quat),
            CriticTerm("gravity", XYZ, lambda s: s.projected_gravity),
            CriticTerm("gyro", XYZ, lambda s: s.ang_vel * 0.2),
            CriticTerm("thrust", motors, lambda s: s.torque / hover - 1.0),
            CriticTerm("target", motors, lambda s: s.target / hover - 1.0),
        ),
        privileged=("force",),
    )


SKILL = Skill("hover", "fly to a commanded place and stay there", requires, Settings.for_robot, task)
