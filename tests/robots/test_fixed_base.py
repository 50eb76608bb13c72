"""A robot on a stand: its limbs move as they would under a body that nothing can move."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.robots import get_robot
from isthmus.sim.simulation import Simulation
from isthmus.world import Space


def test_its_legs_move_as_those_of_a_body_too_heavy_to_move():
    held, free = get_robot("held:go1"), get_robot("go1")

    def heavy(spec: mujoco.MjSpec) -> None:
        trunk = spec.body("trunk")
        trunk.mass, trunk.inertia, trunk.gravcomp = 1e6, [1e6, 1e6, 1e6], 1.0
        trunk.explicitinertial = True

    here, there = (Simulation(dataclasses.replace(r, space=Space(())), 1, edit=e) for r, e in ((held, None), (free, heavy)))
    start = np.array(free.home)
    start[2] += 1.0
    there.reset(there.all_ids, start[None])
    rng = np.random.default_rng(0)
    for _ in range(40):
        u = np.array(free.default) + rng.uniform(-0.3, 0.3, 12)
        for engine in (here, there):
            engine.step(u[None])
    assert np.allclose(here.qpos[0], there.qpos[0, 7:], atol=1e-3)


def test_what_only_a_free_body_has_is_gone():
    held, free = get_robot("held:go1"), get_robot("go1")
    assert [s.name for s in held.contract.signals] == ["joint_pos", "joint_vel"]
    assert held.model.nv == free.model.nv - 6
    gone = set(free.space.names) - set(held.space.names)
    assert {"payload", "trunk_mass", "ground_friction", "gyro_noise"} <= gone
    assert {"calf_mass", "joint_friction", "strength_FL", "encoder_offset_FL_calf"} <= set(held.space.names)
    assert held.prior.space == held.space


def test_what_is_fixed_already_cannot_be_held():
    with pytest.raises(BadInput, match="free joints"):
        get_robot("held:pendulum")
    with pytest.raises(BadInput, match="go1"):
        get_robot("held:go11")
