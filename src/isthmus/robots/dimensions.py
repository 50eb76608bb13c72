"""Sizes of a robot at its home pose, from which skills derive their settings. SI units."""

from __future__ import annotations

import mujoco
import numpy as np

from isthmus.core.constants import MODEL_GRAVITY
from isthmus.sim.morphology import Leg
from isthmus.sim.robot import Robot


def at_home(robot: Robot) -> mujoco.MjData:
    """The robot's model at home, with kinematics and dynamics computed."""
    data = mujoco.MjData(robot.model)
    data.qpos[:] = robot.home
    mujoco.mj_forward(robot.model, data)
    return data


def total_mass(robot: Robot) -> float:
    """kg of the tree of the robot's own root."""
    return float(robot.model.body_subtreemass[robot.model.body(robot.morphology.root.body).id])


def weight(robot: Robot) -> float:
    """N."""
    return MODEL_GRAVITY * total_mass(robot)


def standing_height(robot: Robot) -> float:
    """Height of the free root at home, m."""
    return float(robot.home[int(robot.model.joint(robot.morphology.root.joint).qposadr[0]) + 2])


def leg_length(robot: Robot, leg: Leg) -> float:
    """Length of a leg stretched out, m: the sum of the distances between its joints and on to the foot."""
    data, model = at_home(robot), robot.model
    points = [data.xanchor[model.joint(joint).id] for joint in leg.joints] + [data.geom_xpos[model.geom(leg.foot.geoms[0]).id]]
    return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())


def foot_positions(robot: Robot) -> np.ndarray:
    """World positions of the feet at home, m, (feet, 3)."""
    data = at_home(robot)
    return np.array([data.geom_xpos[robot.model.geom(foot.geoms[0]).id] for foot in robot.morphology.feet])


def joint_inertia(robot: Robot) -> np.ndarray:
    """Diagonal of the joint-space inertia at home, (nv,), kg·m² or kg."""
    data, model = at_home(robot), robot.model
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, full)
    return np.diag(full).copy()
