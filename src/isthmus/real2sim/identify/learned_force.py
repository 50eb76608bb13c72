"""Learn the force that a model lacks: from errors that no numbers explain to a law that can be simulated.

    r(φ) ≈ r + dr/dφ (φ - φ₀)     multi-step error under forces φ at every tick, around those of the present law
    φ = net(x)                    x at every physics step of the rollout under the present law
    minimise Σ w |r(φ)|²          over the weights of the net, the starts eliminated; simulate with it, and again

No force is ever measured: what counts is that simulated motion matches the recorded one over the whole horizon. Each member
of the ensemble leaves out another part of the recording and stops when it no longer gets better there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np
import torch

from isthmus.real2sim.identify.force_ensemble import EnsembleTrainer
from isthmus.real2sim.identify.force_features import motor_indices, rollout_features, with_learned_force, zero_force
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.force_derivatives import force_jacobian
from isthmus.real2sim.residual.gauss_newton import gauss_newton
from isthmus.real2sim.residual.normal_equations import pseudo_huber_loss, robust_weights
from isthmus.real2sim.residual.prior import gaussian_prior
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.sim.indexing import driven_joint_columns
from isthmus.sim.physics.force_features import BodyForceFeatures, body_force_features
from isthmus.sim.physics.learned_force import ForceKind, LearnedForce
from isthmus.sim.robot import Robot
from isthmus.world import Belief

MAX_ROUNDS = 5
"""Of linearising and learning, at most."""
STOP_COST_RATIO = 0.97
"""A round that leaves a larger part of the cost than this is the last."""
PROBE_ACCELERATIONS = (0.5, 1.0)
"""m/s² and rad/s²: what forces are varied by, as the acceleration that they would give."""


@dataclass(frozen=True)
class LearningRound:
    """How well the present law predicts: mean cost per comparison, of what was learned from."""

    cost: float
    held_out_cost: float
    """Of the parts that the members left out, as the linear prediction has it."""


def learn_force(
    robot: Robot,
    segments: Segments,
    e: np.ndarray,
    noise: np.ndarray,
    kind: ForceKind,
    names: tuple[str, ...],
    seed: int = 0,
    rounds: int = MAX_ROUNDS,
    threads: int = 0,
    report: Callable[[float, LearningRound], None] = lambda done, found: None,
) -> LearnedForce:
    """The force on joints or motors `names` that makes rollouts in the world e match the segments."""
    law = zero_force(robot, kind, names)
    tools = _ForceProbe(robot, kind, names)
    best: tuple[float, LearnedForce] | None = None
    nets: EnsembleTrainer | None = None
    xi = None
    for i in range(rounds + 1):
        residual = ParameterResidual(with_learned_force(robot, law) if i else robot, segments, noise, (), threads)
        nothing = gaussian_prior(Belief(robot.space), residual.space)
        at, found = gauss_newton(residual, nothing, np.zeros(0), e, xi, steps=8)
        xi = at.xi
        cost = float(pseudo_huber_loss(found.r).sum() / max(residual.seen.sum(), 1))
        settled = best is not None and cost > STOP_COST_RATIO * best[0]
        if best is None or cost < best[0]:
            best = (cost, law)
        if i == rounds or settled:
            break
        bare = ParameterResidual(robot, segments, noise, (), threads)
        x, qpos = rollout_features(bare, law, e, xi)
        push = force_jacobian(residual, e, xi, tools.dofs, tools.probe_force)
        problem = _LinearizedProblem(found.r, found.dr_dxi, push, residual.start_weight, tools, qpos)
        if nets is None:
            nets = EnsembleTrainer(x, problem.force_scale(), tools.outputs, seed)
        left = nets.train(x, problem)
        law = nets.to_learned_force(law, x)
        report((i + 1) / (rounds + 1), LearningRound(cost, left))
    assert best is not None
    return best[1]


class _ForceProbe:
    """Where the force acts and how it is pushed."""

    def __init__(self, robot: Robot, kind: ForceKind, names: tuple[str, ...]):
        model = robot.model
        self.reader: BodyForceFeatures | None = body_force_features(robot, model, names) if kind == "body" else None
        if self.reader is not None:
            self.dofs = self.reader.dofs
        else:
            joints = driven_joint_columns(robot, model)
            assert joints is not None
            self.dofs = [joints[1][i] for i in motor_indices(robot, zero_force(robot, kind, names))]
        self.outputs = len(self.dofs) if self.reader is not None else 1
        data = mujoco.MjData(model)
        data.qpos[:] = robot.home
        mujoco.mj_forward(model, data)
        inertia = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, inertia)
        wanted = np.array(
            [PROBE_ACCELERATIONS[0] if _is_translational(model, d) else PROBE_ACCELERATIONS[1] for d in self.dofs]
        )
        self.probe_force = wanted * np.diag(inertia)[self.dofs]


def _is_translational(model: mujoco.MjModel, dof: int) -> bool:
    """Whether it moves in metres: a slide, or the first three of a free body."""
    joint = model.dof_jntid[dof]
    free = model.jnt_type[joint] == int(mujoco.mjtJoint.mjJNT_FREE) and dof - model.jnt_dofadr[joint] < 3
    return bool(free or model.jnt_type[joint] == int(mujoco.mjtJoint.mjJNT_SLIDE))


class _LinearizedProblem:
    """r(φ), whitened and without what the starts can undo: (S, n) and (S, n, ticks · dofs)."""

    def __init__(
        self,
        r: np.ndarray,
        dr_dxi: np.ndarray,
        jacobian: np.ndarray,
        start_weight: np.ndarray,
        probe: _ForceProbe,
        qpos: np.ndarray,
    ):
        S, ticks = len(r), jacobian.shape[-2]
        if probe.reader is not None:
            jacobian = _to_body_frame(jacobian, probe.reader, qpos[:, :, 0])
        root = np.sqrt(robust_weights(r)).reshape(S, -1, 1)
        flat, A = root[..., 0] * r.reshape(S, -1), root * jacobian.reshape(S, root.shape[1], -1)
        X = root * dr_dxi.reshape(S, root.shape[1], -1)
        inside = np.linalg.solve(X.transpose(0, 2, 1) @ X + np.diag(start_weight), X.transpose(0, 2, 1))
        self.r = torch.from_numpy(flat - (X @ (inside @ flat[..., None]))[..., 0]).float()
        self.A = torch.from_numpy(A - X @ (inside @ A)).float()
        self.shape = (ticks, len(probe.dofs))

    def force_scale(self) -> np.ndarray:
        """Forces, (dofs,), that held over a segment would do as much as is left to explain."""
        ticks, dofs = self.shape
        held = self.A.reshape(*self.A.shape[:2], ticks, dofs).sum(2)
        size = self.r.pow(2).sum() / held.pow(2).sum((0, 1)).clamp_min(1e-12)
        return size.sqrt().double().numpy()

    def cost(self, change: torch.Tensor) -> torch.Tensor:
        """Per member and segment, (K, S), under a change of force (K, S, ticks, dofs)."""
        K, S = change.shape[:2]
        moved = torch.einsum("snf,ksf->ksn", self.A, change.reshape(K, S, -1))
        return 0.5 * (self.r + moved).pow(2).sum(-1)


def _to_body_frame(jacobian: np.ndarray, reader: BodyForceFeatures, qpos: np.ndarray) -> np.ndarray:
    """Derivatives by forces of the world, (S, ·, ·, ticks, dofs), as those by forces in the frame of free bodies."""
    out, first = jacobian.copy(), 0
    for _, at in reader.output_joints:
        if at < 0:
            first += 1
            continue
        w, x, y, z = np.moveaxis(qpos[..., at + 3 : at + 7], -1, 0)
        R = np.stack(
            [
                np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
                np.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
                np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
            ],
            -2,
        )
        three = slice(first, first + 3)
        out[..., three] = np.einsum("sabti,stij->sabtj", jacobian[..., three], R, optimize=True)
        first += 6
    return out
