"""A changed body is a body that could be built, and MuJoCo agrees on its numbers."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from isthmus.core.geometry import from_matrix, to_matrix
from isthmus.sim.simulation import Simulation
from isthmus.world.inertia import PAYLOAD_RADIUS, pseudo_inertia, vary_rigid_body

FIELDS = ("body_mass", "body_ipos", "body_iquat", "body_inertia")


def rotations(n: int) -> np.ndarray:
    q = np.random.default_rng(1).standard_normal((n, 4))
    return q / np.linalg.norm(q, axis=1, keepdims=True)


def bodies(n: int):
    """Random possible bodies: mass, com, quat, principal inertia."""
    rng = np.random.default_rng(2)
    second = rng.uniform(0.001, 0.1, (n, 3))
    return rng.uniform(0.5, 5, n), rng.uniform(-0.1, 0.1, (n, 3)), rotations(n), second.sum(1)[:, None] - second


def full(quat: np.ndarray, principal: np.ndarray) -> np.ndarray:
    axes = to_matrix(quat)
    return axes @ (principal[..., :, None] * np.swapaxes(axes, -1, -2))


def smallest(values) -> np.ndarray:
    return np.linalg.eigvalsh(pseudo_inertia(*values)).min(-1)


def test_rotations_match_mujoco_there_and_back():
    q = np.concatenate([rotations(200), np.eye(4), [[0, 0.6, 0.8, 0]]])
    for row, mat in zip(q, to_matrix(q), strict=True):
        want = np.zeros(9)
        mujoco.mju_quat2Mat(want, row)
        assert np.allclose(mat.ravel(), want, atol=1e-14)
    back = from_matrix(to_matrix(q))
    assert np.allclose(np.abs((back * q).sum(1)), 1, atol=1e-12)


def test_pseudo_inertia_is_positive_exactly_for_possible_bodies():
    mass, com, quat, inertia = bodies(50)
    assert (smallest((mass, com, quat, inertia)) > 0).all()
    impossible = inertia.copy()
    impossible[:, 0] = inertia[:, 1] + inertia[:, 2] + 0.01
    assert (smallest((mass, com, quat, impossible)) < 0).all()


def test_vary_keeps_any_body_possible():
    n = 200
    rng = np.random.default_rng(3)
    density, payload = rng.uniform(0.3, 3, n), rng.uniform(0, 9, n)
    shift, place = rng.uniform(-0.2, 0.2, (n, 3)), rng.uniform(-0.3, 0.3, (n, 3))
    out = vary_rigid_body(*bodies(n), density, shift, payload, place)
    assert (smallest(out) > 0).all()


def test_every_world_of_the_prior_has_possible_bodies(robot):
    engine = Simulation(robot, 128)
    engine.apply(robot.prior.sample(np.random.default_rng(0), 128), engine.all_ids)
    values = [engine.engine.field(f)[:, 1:] for f in FIELDS]
    assert (smallest(values) > 0).all()


def test_no_change_is_no_change():
    mass, com, quat, inertia = bodies(50)
    m, c, q, i = vary_rigid_body(mass, com, quat, inertia, np.ones(50), np.zeros((50, 3)), np.zeros(50), np.zeros(3))
    assert np.allclose(m, mass)
    assert np.allclose(c, com)
    assert np.allclose(full(q, i), full(quat, inertia))


def test_a_payload_at_the_centre_adds_its_mass_and_moves_nothing():
    mass, com, quat, inertia = bodies(50)
    m, c, q, i = vary_rigid_body(mass, com, quat, inertia, np.ones(50), np.zeros((50, 3)), np.full(50, 1.5), com)
    assert np.allclose(m, mass + 1.5)
    assert np.allclose(c, com)
    sphere = 0.4 * 1.5 * PAYLOAD_RADIUS**2 * np.eye(3)
    assert np.allclose(full(q, i), full(quat, inertia) + sphere)


def test_a_shift_moves_the_centre_and_keeps_the_inertia_about_it():
    mass, com, quat, inertia = bodies(50)
    m, c, q, i = vary_rigid_body(mass, com, quat, inertia, np.ones(50), np.full((50, 3), 0.02), np.zeros(50), np.zeros(3))
    assert (m == mass).all()
    assert np.allclose(c, com + 0.02)
    assert np.allclose(full(q, i), full(quat, inertia))


def test_density_scales_mass_and_inertia_alike():
    mass, com, quat, inertia = bodies(50)
    m, c, q, i = vary_rigid_body(mass, com, quat, inertia, np.full(50, 1.3), np.zeros((50, 3)), np.zeros(50), np.zeros(3))
    assert np.allclose(m, 1.3 * mass)
    assert np.allclose(c, com)
    assert np.allclose(full(q, i), 1.3 * full(quat, inertia))


@pytest.mark.parametrize("payload", [0.3, 4.0])
def test_a_body_with_a_payload_is_what_mujoco_makes_of_two_geoms(payload):
    at, radius = np.array([0.02, -0.05, 0.1]), 0.03
    box = '<geom type="box" size="0.2 0.06 0.05" mass="5" pos="0.02 0.01 0" euler="10 20 30"/>'
    sphere = f'<geom type="sphere" size="{radius}" mass="{payload}" pos="{" ".join(map(str, at))}"/>'
    plain, loaded = (
        mujoco.MjModel.from_xml_string(f"<mujoco><worldbody><body><freejoint/>{geoms}</body></worldbody></mujoco>")
        for geoms in (box, box + sphere)
    )
    got = vary_rigid_body(
        *(getattr(plain, f)[1:] for f in FIELDS), np.ones(1), np.zeros((1, 3)), np.array([payload]), at, radius
    )
    assert got[0] == pytest.approx(loaded.body_mass[1:], rel=1e-12)
    assert got[1] == pytest.approx(loaded.body_ipos[1:], rel=1e-10)
    assert full(got[2], got[3]) == pytest.approx(full(loaded.body_iquat[1:], loaded.body_inertia[1:]), rel=1e-9, abs=1e-12)


def test_a_changed_world_is_the_model_compiled_with_those_bodies(robot):
    """Kinematics, mass matrix and bias forces too: nothing that the compiler derived is left behind."""
    engine = Simulation(robot, 3)
    inertial = [all(t.startswith("body:") for t in p.targets) for p in robot.space.params]
    assert any(inertial)
    engine.apply(np.where(inertial, robot.prior.sample(np.random.default_rng(4), 3), robot.space.nominal), engine.all_ids)
    rng = np.random.default_rng(5)
    for world in range(3):
        ours = engine.engine.get_model(world)
        spec = robot.spec()
        for i in range(1, ours.nbody):
            body = spec.body(ours.body(i).name)
            body.explicitinertial, body.fullinertia = True, [np.nan] * 6
            body.mass, body.ipos, body.iquat, body.inertia = (getattr(ours, f)[i] for f in FIELDS)
        fresh = spec.compile()
        a, b = mujoco.MjData(ours), mujoco.MjData(fresh)
        qpos, qvel = np.array(robot.home), 0.5 * rng.standard_normal(ours.nv)
        mujoco.mj_integratePos(ours, qpos, 0.3 * rng.standard_normal(ours.nv), 1.0)
        for model, data in ((ours, a), (fresh, b)):
            data.qpos[:], data.qvel[:] = qpos, qvel
            mujoco.mj_forward(model, data)
        for name in ("xipos", "xpos", "geom_xpos", "site_xpos", "subtree_com", "qfrc_bias", "qfrc_passive", "qacc_smooth"):
            assert np.allclose(getattr(a, name), getattr(b, name), rtol=1e-7, atol=1e-9), name
        dense = np.zeros((2, ours.nv, ours.nv))
        for mass, model, data in zip(dense, (ours, fresh), (a, b), strict=True):
            mujoco.mj_fullM(model, data, mass)
        assert np.allclose(*dense, rtol=1e-8, atol=1e-12)
        for name in ("body_subtreemass", "body_invweight0", "dof_invweight0", "dof_M0", "actuator_acc0"):
            assert np.allclose(getattr(ours, name), getattr(fresh, name), rtol=1e-7), name
