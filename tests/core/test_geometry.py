"""Rotations: group laws, agreement of the forms with each other, NumPy with torch, and with MuJoCo."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

from isthmus.core import geometry
from isthmus.core.constants import MODEL_GRAVITY, STANDARD_GRAVITY
from isthmus.core.units import conversion_factor

RNG = np.random.default_rng(0)
Q = RNG.standard_normal((200, 4))
Q /= np.linalg.norm(Q, axis=1, keepdims=True)
V = RNG.standard_normal((200, 3))


def test_matrix_and_back_is_the_same_rotation():
    back = geometry.from_matrix(geometry.to_matrix(Q))
    assert np.allclose(np.abs((back * Q).sum(1)), 1.0, atol=1e-12)


def test_rotating_is_the_matrix_times_the_vector_and_its_inverse_undoes_it():
    turned = geometry.rotate(Q, V)
    assert turned == pytest.approx(np.einsum("nij,nj->ni", geometry.to_matrix(Q), V), abs=1e-12)
    assert geometry.rotate_inverse(Q, turned) == pytest.approx(V, abs=1e-12)


def test_special_directions_are_rotated_unit_vectors():
    up = np.tile([0.0, 0.0, 1.0], (len(Q), 1))
    assert geometry.gravity_direction(Q) == pytest.approx(geometry.rotate_inverse(Q, -up), abs=1e-12)
    assert geometry.z_axis(Q) == pytest.approx(geometry.rotate(Q, up), abs=1e-12)
    assert geometry.gravity_direction(Q[0]) == pytest.approx(geometry.gravity_direction(Q)[0], abs=0)


def test_multiplication_is_composition_and_the_conjugate_its_inverse():
    pq = geometry.multiply(Q[:100], Q[100:])
    both = geometry.to_matrix(Q[:100]) @ geometry.to_matrix(Q[100:])
    assert geometry.to_matrix(pq) == pytest.approx(both, abs=1e-12)
    identity = geometry.multiply(Q, Q * geometry.CONJUGATE)
    assert identity == pytest.approx(np.tile([1.0, 0.0, 0.0, 0.0], (len(Q), 1)), abs=1e-12)


def test_a_rotation_vector_turns_as_mujoco_integrates():
    for q, v in zip(Q[:50], V[:50], strict=True):
        there = q.copy()
        mujoco.mju_quatIntegrate(there, v, 1.0)
        assert geometry.rotate_by_vector(q[None], v[None])[0] == pytest.approx(there, abs=1e-12)


def test_small_steps_are_found_again():
    steps = 1e-3 * V
    path = [Q[0]]
    for v in steps:
        path.append(geometry.rotate_by_vector(path[-1][None], v[None])[0])
    flipped = np.array(path) * np.where(np.arange(len(path)) % 3 == 0, -1.0, 1.0)[:, None]  # either sign is the same attitude
    assert geometry.relative_rotation(flipped) == pytest.approx(steps, rel=1e-5, abs=1e-12)


def test_torch_gives_what_numpy_gives():
    q, v = torch.from_numpy(Q), torch.from_numpy(V)
    for name in ("rotate_inverse", "gravity_direction"):
        arguments = (q, v) if name == "rotate_inverse" else (q,)
        ours = getattr(geometry, name)(*(a.numpy() for a in arguments))
        assert getattr(geometry, name)(*arguments).numpy() == pytest.approx(ours, abs=1e-15)


def test_gravity_is_one_number_each():
    assert mujoco.MjModel.from_xml_string("<mujoco/>").opt.gravity[2] == -MODEL_GRAVITY
    assert conversion_factor("g", "m/s²", "here") == STANDARD_GRAVITY
