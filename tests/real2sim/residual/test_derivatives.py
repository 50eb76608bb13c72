"""Derivatives by perturbed copies against exact ones: closed forms, and the chain of MuJoCo's own transition derivatives."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import mujoco
import numpy as np
import pytest

from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.segments import Segments, past_target_ticks
from isthmus.real2sim.residual.normal_equations import Linearization, NormalEquations
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.robots import get_robot
from isthmus.robots.pendulum import GRAVITY_TORQUE, INERTIA, LENGTH
from isthmus.sim.engines.batch.engine import BatchEngines
from isthmus.sim.engines.mujoco.tangent import dof_of
from isthmus.sim.indexing import signal_sources
from isthmus.sim.physics.motor_law import STICTION_SPEED
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation

SEGMENTS, TICKS, SIGMA = 2, 15, 0.1
SMALL = 1e-5
"""Step of the perturbed copies, in unconstrained coordinates and in units of the starts' spread."""


def world(robot: Robot) -> np.ndarray:
    """A world off the nominal one whose signals are neither late nor biased, so that a signal is a state."""
    e = robot.prior.sample(np.random.default_rng(3), 1)[0]
    plain = [p.name == "sensor_delay" or p.targets[0].startswith("signal:") for p in robot.space.params]
    return np.where(plain, 0.0, e)


def moving(robot: Robot, e: np.ndarray, names=(), seed: int = 0) -> ParameterResidual:
    """The residual of segments that the world e predicts exactly, from states at random."""
    rng, target = np.random.default_rng(seed), robot.contract.target
    size = 0.1 * (np.array(target.high) - np.array(target.low))
    targets = np.array(robot.default) + size * rng.standard_normal((SEGMENTS, TICKS, target.size))
    qpos = np.tile(np.array(robot.home), (SEGMENTS, 1))
    qvel = 0.5 * rng.standard_normal((SEGMENTS, robot.model.nv))
    for q in qpos:
        mujoco.mj_integratePos(robot.model, q, 0.4 * rng.standard_normal(robot.model.nv), 1.0)
    sent = np.tile(np.array(robot.default), (SEGMENTS, past_target_ticks(robot), 1))
    width = sum(s.size for s in robot.contract.signals)
    nothing = np.zeros((SEGMENTS, TICKS + 1, width))
    segments = Segments(sent, targets, nothing, qpos, qvel, np.zeros(SEGMENTS, int), np.zeros(SEGMENTS))
    noise = np.full(len(Components(robot.contract)), SIGMA)
    first = ParameterResidual(robot, segments, noise, names, threads=1)
    exact = first.predict(e[None], np.zeros((1, SEGMENTS, len(first.start_scale))))[0]
    return ParameterResidual(robot, replace(segments, measured=exact), noise, names, threads=1)


def by_copies(residual: ParameterResidual, e: np.ndarray, step: float = SMALL) -> Linearization:
    """As the fit takes them."""
    z = residual.space.unconstrained(e[residual.parameter_columns])
    xi = np.zeros((SEGMENTS, len(residual.start_scale)))
    return residual.linearize(z, e, xi, np.full(len(z), step), np.full(xi.shape, step))


def walked(
    residual: ParameterResidual, e: np.ndarray, s: int
) -> tuple[mujoco.MjModel, list[tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """The model of the world e, and (qpos, qvel, ctrl) at every physics step of segment s."""
    segments, engine = residual.segments, Simulation(residual.robot, 1, threads=1, engine=BatchEngines(native_motor_law=False))
    engine.apply(e[None], engine.all_ids)
    engine.reset(engine.all_ids, segments.qpos[s : s + 1], segments.qvel[s : s + 1], segments.past_targets[s : s + 1])
    rows, physics = [], engine.engine.step

    def noted(steps: int) -> np.ndarray:
        rows.append((engine.qpos[0].copy(), engine.qvel[0].copy(), engine.ctrl[0].copy()))
        return physics(steps)

    engine.engine.step = noted
    for target in segments.target[s]:
        engine.replay(target[None])
    return engine.engine.get_model(0), rows


def friction_slope(robot: Robot, e: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """d ctrl / d (q, q̇), (nu, 2 nv): of the motor law, friction alone depends on the state here."""
    m, space = robot.model, robot.space
    out = np.zeros((m.nu, 2 * m.nv))
    figures = {t: e[i] for i, p in enumerate(space.params) for t in p.targets}
    for i, joint in enumerate(robot.contract.target.labels):
        at = mujoco.mj_name2id(m, mujoco.mjtObj.mjOBJ_JOINT, joint)
        if at >= 0:
            dof = int(m.jnt_dofadr[at])
            sticks = abs(qvel[dof]) < STICTION_SPEED
            out[i, m.nv + dof] = -figures[f"motor:{joint}/viscous"]
            out[i, m.nv + dof] -= figures[f"motor:{joint}/coulomb"] / STICTION_SPEED if sticks else 0.0
    return out


def as_signals(robot: Robot, states: np.ndarray) -> np.ndarray:
    """Rows of the tangent of a state, (..., 2 nv, k), as components of the signals, (..., components, k)."""
    m, rows = robot.model, []
    for array, columns in signal_sources(robot, m):
        for c in columns:
            dof = dof_of(m, c) if array == "qpos" else m.nv + c
            turns = array == "qpos" and m.jnt_type[m.dof_jntid[dof]] == mujoco.mjtJoint.mjJNT_FREE and c >= 3
            if dof >= 0:
                # An attitude is compared by the vector part of a quaternion: half an angle.
                rows.append((0.5 if turns else 1.0) * states[..., dof, :])
    return np.stack(rows, axis=-2)


def by_transitions(residual: ParameterResidual, e: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """dr/dξ as the product of MuJoCo's transition matrices along the way, with the slope of the motor law put in."""
    robot, nv, out = residual.robot, residual.robot.model.nv, []
    for s in range(SEGMENTS):
        model, rows = walked(residual, e, s)
        data = mujoco.MjData(model)
        A, B, grown = np.zeros((2 * nv, 2 * nv)), np.zeros((2 * nv, model.nu)), np.eye(2 * nv)
        kept = [grown]
        for i, (qpos, qvel, ctrl) in enumerate(rows, start=1):
            data.qpos[:], data.qvel[:], data.ctrl[:] = qpos, qvel, ctrl
            mujoco.mjd_transitionFD(model, data, eps, True, A, B, None, None)
            grown = (A + B @ friction_slope(robot, e, qvel)) @ grown
            if i % robot.substeps == 0:
                kept.append(grown)
        out.append(as_signals(robot, np.array(kept)))
    return np.array(out) * residual.start_scale / SIGMA


def by_hand(residual: ParameterResidual, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the pendulum: dr/dz by payload and joint_damping, and dr/dξ, from its equation written out.

    v' = v + h (τ - G sin q) / I,  q' = q + h v',  with I and G linear in the payload and τ = motor - friction(v)
    """
    robot, space = residual.robot, residual.robot.space
    value = dict(zip(space.names, e, strict=True))
    h, load = float(robot.model.opt.timestep), value["payload"]
    dI, dG = LENGTH**2 + 0.4 * robot.morphology.payload.radius**2, 9.81 * LENGTH
    inertia, gravity = INERTIA + load * dI, GRAVITY_TORQUE + load * dG
    u = residual.space.unit(e[residual.parameter_columns])
    chain = (residual.space.high - residual.space.low) * u * (1.0 - u)
    by_z, by_x = [], []
    for s in range(SEGMENTS):
        # Columns: the two numbers, then the start's angle and speed. Rows: angle and speed.
        grown = np.concatenate([np.zeros((2, 2)), np.eye(2)], axis=1)
        kept = [grown]
        for i, ((q,), (v,), (tau,)) in enumerate(walked(residual, e, s)[1], start=1):
            force = tau - gravity * np.sin(q)
            drag = value["joint_damping"] + (value["joint_friction"] / STICTION_SPEED if abs(v) < STICTION_SPEED else 0.0)
            speed = np.array([-h * gravity * np.cos(q) / inertia, 1.0 - h * drag / inertia]) @ grown
            speed[0] -= h * (dG * np.sin(q) / inertia + force * dI / inertia**2)
            speed[1] -= h * v / inertia
            grown = np.stack([grown[0] + h * speed, speed])
            if i % robot.substeps == 0:
                kept.append(grown)
        both = np.array(kept) / SIGMA
        by_z.append(both[:, :, :2] * chain)
        by_x.append(both[:, :, 2:] * residual.start_scale)
    return np.array(by_z), np.array(by_x)


def off(found: np.ndarray, exact: np.ndarray, residual: ParameterResidual) -> float:
    """Largest error, against the largest derivative, among the ticks that are compared."""
    seen = slice(residual.settle_ticks, None)
    return float(np.abs(found - exact)[:, seen].max() / np.abs(exact[:, seen]).max())


@pytest.fixture(scope="module")
def pendulum():
    """Nominal but for a payload and friction, so that its equation is short."""
    robot = get_robot("pendulum")
    e = robot.space.vector({"payload": 0.11, "joint_damping": 0.07, "joint_friction": 0.06, "sensor_delay": 0.0})
    return moving(robot, e, ["payload", "joint_damping"]), e


def test_a_pendulum_has_the_derivatives_of_its_equation(pendulum):
    residual, e = pendulum
    found, (by_z, by_x) = by_copies(residual, e), by_hand(residual, e)
    assert off(found.dr_dz, by_z, residual) < 1e-6
    assert off(found.dr_dxi, by_x, residual) < 1e-6


def test_mujocos_transitions_are_those_of_the_equation_too(pendulum):
    residual, e = pendulum
    assert off(by_transitions(residual, e), by_hand(residual, e)[1], residual) < 1e-7


@pytest.mark.parametrize("name", ["cartpole", "crazyflie"])
def test_copies_and_the_chain_of_transitions_agree(name):
    robot = get_robot(name)
    e = world(robot)
    residual = moving(robot, e)
    assert off(by_copies(residual, e).dr_dxi, by_transitions(residual, e), residual) < 1e-5


def test_without_the_motor_law_the_chain_is_wrong(pendulum, monkeypatch):
    """MuJoCo's matrices stop at the actuator: what the motor law adds has to be put in by hand."""
    residual, e = pendulum
    monkeypatch.setitem(by_transitions.__globals__, "friction_slope", lambda robot, e, qvel: np.zeros((1, 2)))
    assert off(by_transitions(residual, e), by_hand(residual, e)[1], residual) > 1e-2


def test_the_error_of_a_step_falls_with_its_square(pendulum):
    """Without dry friction, which has an edge."""
    robot, e = pendulum[0].robot, pendulum[1].copy()
    e[robot.space.index("joint_friction")] = 0.0
    residual = moving(robot, e, ["payload", "joint_damping"])
    exact = by_hand(residual, e)[0]
    errors = [off(by_copies(residual, e, step).dr_dz, exact, residual) for step in (0.3, 0.03, 0.003)]
    assert errors[0] < 0.02
    assert [a / b for a, b in pairwise(errors)] == pytest.approx([100, 100], rel=0.1)


def test_over_a_long_step_an_edge_is_seen_past(pendulum):
    """Starts as uncertain as the band of dry friction is wide: the slope at one point promises more wrongly than a long one."""
    robot, e = pendulum[0].robot, pendulum[1].copy()
    e[robot.space.index("joint_friction")] = 0.2
    first = moving(robot, e)
    segments = replace(first.segments, qvel=np.full_like(first.segments.qvel, 1.1 * STICTION_SPEED))
    residual = ParameterResidual(robot, segments, first.noise, (), threads=1)
    unsure = STICTION_SPEED / residual.start_scale[1]
    moves = unsure * np.random.default_rng(0).standard_normal((100, 1, 1)) * np.array([0.0, 1.0])
    moved = residual(np.tile(e, (100, 1)), np.tile(moves, (1, SEGMENTS, 1)))
    change = (moved - moved.mean(0))[:, :, residual.settle_ticks :]
    wrong = {}
    for step in (SMALL, unsure):
        slope = by_copies(residual, e, step).dr_dxi[:, residual.settle_ticks :, :, 1]
        promised = np.multiply.outer(moves[:, 0, 1] - moves[:, 0, 1].mean(), slope)
        wrong[step] = float(((promised - change) ** 2).sum() / (change**2).sum())
    assert wrong[unsure] < 0.5 * wrong[SMALL]


def test_a_mended_derivative_agrees_with_the_step_that_mended_it():
    robot = get_robot("pendulum")
    e = world(robot)
    residual = moving(robot, e, ("weight_mass", "joint_damping"))
    found = NormalEquations(by_copies(residual, e), residual.start_weight)
    rng = np.random.default_rng(1)
    z = residual.space.unconstrained(e[residual.parameter_columns])
    dz, dx = 0.3 * rng.standard_normal(len(z)), 0.5 * rng.standard_normal((SEGMENTS, len(residual.start_scale)))
    r = residual(residual.parameter_values((z + dz)[None], e), dx[None])[0].reshape(found.r.shape)
    assert np.abs(found.r + found.predicted_change(dz, dx) - r).max() > 1e-3
    mended = found.secant_update(r, dz, dx)
    np.testing.assert_allclose(found.r + mended.predicted_change(dz, dx), r, atol=1e-9)
    np.testing.assert_array_equal(mended.r, r)


def test_a_derivative_to_one_side_is_that_to_both_in_a_short_step():
    robot = get_robot("pendulum")
    e = world(robot)
    residual = moving(robot, e, ("weight_mass", "joint_damping"))
    z, xi = residual.space.unconstrained(e[residual.parameter_columns]), np.zeros((SEGMENTS, len(residual.start_scale)))
    steps = np.full(len(z), SMALL), np.full(xi.shape, SMALL)
    both, one = residual.linearize(z, e, xi, *steps), residual.linearize(z, e, xi, *steps, central=False)
    for a, b in ((both.dr_dz, one.dr_dz), (both.dr_dxi, one.dr_dxi)):
        np.testing.assert_allclose(b, a, atol=1e-3 * np.abs(a).max())


def test_a_piece_at_an_edge_does_not_drown_what_the_others_say():
    """Where one piece's derivatives are a thousand times too long beside its start, all is as without that piece."""
    robot = get_robot("pendulum")
    e = world(robot)
    residual = moving(robot, e, ("weight_mass", "joint_damping"))
    smooth = by_copies(residual, e)
    sizes = np.ones((SEGMENTS, 1, 1, 1))
    sizes[0] = 1e3
    edge = replace(smooth, dr_dz=smooth.dr_dz * sizes, dr_dxi=smooth.dr_dxi * sizes)
    others = slice(1, SEGMENTS)
    found, rest = NormalEquations(smooth, residual.start_weight), NormalEquations(smooth.take(others), residual.start_weight)
    np.testing.assert_allclose(
        found.information_product(smooth, edge), rest.information_product(smooth.take(others), smooth.take(others))
    )
    assert np.linalg.norm(found.information_product(smooth, smooth)) > np.linalg.norm(
        rest.information_product(smooth.take(others), smooth.take(others))
    )
