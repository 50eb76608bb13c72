"""Tasks with measured numbers, where they differ from what a skill derives from the robot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from isthmus.robots.cartpole import MAX_FORCE, TRACK_HALF_LENGTH, cartpole
from isthmus.robots.crazyflie import DRAG_COEFFICIENT, HOME_HEIGHT, HOVER_THRUST, MOTORS, crazyflie
from isthmus.robots.go1 import HOME_HEIGHT as GO1_HOME_HEIGHT
from isthmus.robots.go1 import LEG_JOINTS, LEGS, go1
from isthmus.robots.pendulum import GRAVITY_TORQUE, INERTIA, TORQUE_LIMIT, pendulum
from isthmus.sim.physics.disturbances import Disturbance
from isthmus.sim.robot import Robot
from isthmus.sim.scenes.terrain import Terrain
from isthmus.tasks.skill import Skill
from isthmus.tasks.skills import balance, hover, swing_up, velocity
from isthmus.tasks.task import Level, ParameterShift, Task

CRAZYFLIE_MAX_MEAN_WIND = 3.0
"""m/s: strongest mean wind."""

GO1_WALK = velocity.Settings(
    forward=1.0,
    sideways=0.5,
    yaw=1.0,
    base_height=GO1_HOME_HEIGHT - 0.02,
    min_height=0.16,
    swing_height=0.08,
    impact_force=100.0,
    force_scale=50.0,
    gust_force=3.0,
    energy_weight=-0.0005,
    effort_weight=-0.0001,
    phase=tuple(0.0 if leg in ("FR", "RL") else 0.5 for leg in LEGS for _ in LEG_JOINTS),
    lift=tuple({"hip": 0.0, "thigh": 0.25, "calf": -0.5}[part] for _ in LEGS for part in LEG_JOINTS),
)
"""Diagonal legs together, half a cycle apart; a foot rises by about 7 cm."""

CRAZYFLIE_HOVER = hover.Settings(
    hover_thrust=HOVER_THRUST,
    height=HOME_HEIGHT,
    attitude_gain=0.9,
    rate_gain=0.18,
    heading_gain=0.5,
    yaw_rate_gain=0.3,
    speed_gain=0.135,
    distance_gain=0.09,
    steady_force=DRAG_COEFFICIENT * CRAZYFLIE_MAX_MEAN_WIND,
    gust_force=DRAG_COEFFICIENT * CRAZYFLIE_MAX_MEAN_WIND / 3,
)
"""A unit of roll or pitch action accelerates the body by 78 rad/s²."""

PENDULUM_SWING_UP = swing_up.Settings(max_torque=TORQUE_LIMIT, inertia=INERTIA, gravity_torque=GRAVITY_TORQUE)
CARTPOLE_BALANCE = balance.Settings("slider", "hinge", max_force=MAX_FORCE, track_half_length=TRACK_HALF_LENGTH)


def _hard_hover(task: Task) -> Task:
    """Where a law without memory must give way: loads that change, unequal rotors, a tilted balance and strong wind."""
    wide = {"payload": (0.0, 0.012), "com_x": (-0.003, 0.003), "com_y": (-0.003, 0.003)}
    wide |= {f"strength_{m}": (0.85, 1.1) for m in MOTORS}
    return replace(
        task.with_ranges(wide),
        doc="hold a commanded position with a load that changes, unequal rotors and strong wind",
        parameter_shift=ParameterShift(("payload",), interval=(2.0, 4.0)),
        disturbance=replace(task.disturbance, steady_force=2 * DRAG_COEFFICIENT * CRAZYFLIE_MAX_MEAN_WIND),
    )


def _hard_walk(task: Task) -> Task:
    """Where one gait does not fit all: loads and ground that change, legs of unequal strength, and a balance that is off.

    What a teacher makes of each number was measured by hiding it: the strength of the legs, gains and balance change what it
    does, delays and friction hardly do.
    """
    wide = {
        "payload": (0.0, 6.0),
        "ground_friction": (0.25, 1.25),
        "kp": (0.7, 1.3),
        **{f"strength_{leg}": (0.4, 1.1) for leg in LEGS},
        **{f"com_{axis}": (-0.05, 0.05) for axis in "xy"},
    }
    return replace(
        task.with_ranges(wide),
        disturbance=Disturbance(push_speed=0.2, push_every=(3.0, 6.0), gust_force=3.0),
        doc="walk with a load and on ground that change on the way, with weak legs and a balance that is off",
        parameter_shift=ParameterShift(("payload", "ground_friction"), interval=(3.0, 6.0)),
    )


def _rough_walk(task: Task) -> Task:
    return replace(
        task,
        doc="follow a commanded velocity over bumps, slopes, steps, gaps and stairs",
        terrain=Terrain(),
        levels=(
            Level("step", command=0.6, width=0.5, disturbance=0.2, roughness=0.0, score=0.3),
            Level("bumpy", command=1.0, width=1.0, disturbance=0.5, roughness=0.34, score=0.45),
            Level("rough", command=1.0, width=1.0, disturbance=1.0, roughness=0.67, score=0.45),
            Level("field", command=1.0, width=1.0, disturbance=1.0, roughness=1.0),
        ),
    )


@dataclass(frozen=True)
class Preset:
    robot: Callable[[], Robot]
    skill: Skill
    settings: Any
    variant: Callable[[Task], Task] = lambda task: task
    """What a harder version of the task changes."""


PRESETS = {
    "cartpole/balance": Preset(cartpole, balance.SKILL, CARTPOLE_BALANCE),
    "crazyflie/hard": Preset(crazyflie, hover.SKILL, CRAZYFLIE_HOVER, _hard_hover),
    "crazyflie/hover": Preset(crazyflie, hover.SKILL, CRAZYFLIE_HOVER),
    "go1/hard": Preset(go1, velocity.SKILL, GO1_WALK, _hard_walk),
    "go1/terrain": Preset(go1, velocity.SKILL, GO1_WALK, _rough_walk),
    "go1/walk": Preset(go1, velocity.SKILL, GO1_WALK),
    "pendulum/swingup": Preset(pendulum, swing_up.SKILL, PENDULUM_SWING_UP),
}
