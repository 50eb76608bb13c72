"""Robots with learned forces whose networks are random."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from isthmus.robots import get_robot
from isthmus.sim.physics.force_features import body_force_features
from isthmus.sim.physics.learned_force import Ensemble, LearnedForce
from isthmus.sim.physics.unit_physics import UnitPhysics


def ensemble(features: int, outputs: int, seed: int = 0, members: int = 3, unit: float = 0.1) -> Ensemble:
    rng = np.random.default_rng(seed)
    sizes = (features, 16, 12, outputs)
    pairs = list(itertools.pairwise(sizes))
    return Ensemble(
        weights=tuple(rng.standard_normal((members, a, b)) / np.sqrt(a) for a, b in pairs),
        biases=tuple(0.1 * rng.standard_normal((members, b)) for _, b in pairs),
        mean=0.1 * rng.standard_normal(features),
        scale=rng.uniform(0.5, 2.0, features),
        root=np.tril(0.2 * rng.standard_normal((features, features)) / features + np.eye(features)),
        reach=2.0,
        doubt=0.8,
        unit=np.full(outputs, unit),
    )


def whole(name: str, seed: int = 0, unit: float = 0.1):
    """A robot with a force on all of its joints."""
    robot = get_robot(name)
    joints = tuple(robot.model.joint(j).name for j in range(robot.model.njnt))
    reader = body_force_features(robot, robot.model, joints)
    net = ensemble(len(reader.labels), len(reader.dofs), seed, unit=unit)
    return dataclasses.replace(robot, unit=UnitPhysics(learned_forces=(LearnedForce("body", joints, net),)))


def driven(name: str, seed: int = 1, unit: float = 0.1):
    robot = get_robot(name)
    labels = robot.contract.target.labels[::2]
    force = LearnedForce("motor", labels, ensemble(6, 1, seed, unit=unit), 2, 0.006)
    return dataclasses.replace(robot, unit=UnitPhysics(learned_forces=(force,)))
