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

from isthmus.gap.loss import loss, weights
from isthmus.gap.residual import Residual
from isthmus.gap.segments import Segments
from isthmus.identify.descend import descend
from isthmus.identify.members import Members
from isthmus.identify.prior import prior
from isthmus.identify.pushed import by_force
from isthmus.identify.rollout import features, motors_of, silent, with_force
from isthmus.sim.features import BodyReader, body_reader
from isthmus.sim.learned import Kind, Learned
from isthmus.sim.robot import Robot
from isthmus.sim.sources import target_joints
from isthmus.world import Belief

ROUNDS = 5
"""Of linearising and learning, at most."""
SETTLED = 0.97
"""A round that leaves a larger part of the cost than this is the last."""
PUSH = (0.5, 1.0)
"""m/s² and rad/s²: what forces are varied by, as the acceleration that they would give."""


@dataclass(frozen=True)
class Round:
    """How well the present law predicts: mean cost per comparison, of what was learned from."""

    cost: float
    left_out: float
    """Of the parts that the members left out, as the linear prediction has it."""


def learn(
    robot: Robot,
    segments: Segments,
    e: np.ndarray,
    noise: np.ndarray,
    kind: Kind,
    names: tuple[str, ...],
    seed: int = 0,
    rounds: int = ROUNDS,
    threads: int = 0,
    report: Callable[[float, Round], None] = lambda done, found: None,
) -> Learned:
    """The force on joints or motors `names` that makes rollouts in the world e match the segments."""
    law = silent(robot, kind, names)
    tools = _Tools(robot, kind, names)
    best: tuple[float, Learned] | None = None
    nets: Members | None = None
    xi = None
    for i in range(rounds + 1):
        residual = Residual(with_force(robot, law) if i else robot, segments, noise, (), threads)
        nothing = prior(Belief(robot.space), residual.space)
        at, found = descend(residual, nothing, np.zeros(0), e, xi, steps=8)
        xi = at.xi
        cost = float(loss(found.r).sum() / max(residual.seen.sum(), 1))
        settled = best is not None and cost > SETTLED * best[0]
        if best is None or cost < best[0]:
            best = (cost, law)
        if i == rounds or settled:
            break
        bare = Residual(robot, segments, noise, (), threads)
        x, qpos = features(bare, law, e, xi)
        push = by_force(residual, e, xi, tools.dofs, tools.push)
        problem = _Problem(found.r, found.dx, push, residual.hold, tools, qpos)
        if nets is None:
            nets = Members(x, problem.scale(), tools.outputs, seed)
        left = nets.improve(x, problem)
        law = nets.law(law, x)
        report((i + 1) / (rounds + 1), Round(cost, left))
    assert best is not None
    return best[1]


class _Tools:
    """Where the force acts and how it is pushed."""

    def __init__(self, robot: Robot, kind: Kind, names: tuple[str, ...]):
        model = robot.model
        self.reader: BodyReader | None = body_reader(robot, model, names) if kind == "body" else None
        if self.reader is not None:
            self.dofs = self.reader.dofs
        else:
            joints = target_joints(robot, model)
            assert joints is not None
            self.dofs = [joints[1][i] for i in motors_of(robot, silent(robot, kind, names))]
        self.outputs = len(self.dofs) if self.reader is not None else 1
        data = mujoco.MjData(model)
        data.qpos[:] = robot.home
        mujoco.mj_forward(model, data)
        inertia = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, inertia)
        wanted = np.array([PUSH[0] if _linear(model, d) else PUSH[1] for d in self.dofs])
        self.push = wanted * np.diag(inertia)[self.dofs]


def _linear(model: mujoco.MjModel, dof: int) -> bool:
    """Whether it moves in metres: a slide, or the first three of a free body."""
    joint = model.dof_jntid[dof]
    free = model.jnt_type[joint] == int(mujoco.mjtJoint.mjJNT_FREE) and dof - model.jnt_dofadr[joint] < 3
    return bool(free or model.jnt_type[joint] == int(mujoco.mjtJoint.mjJNT_SLIDE))


class _Problem:
    """r(φ), whitened and without what the starts can undo: (S, n) and (S, n, ticks · dofs)."""

    def __init__(self, r: np.ndarray, dx: np.ndarray, push: np.ndarray, hold: np.ndarray, tools: _Tools, qpos: np.ndarray):
        S, ticks = len(r), push.shape[-2]
        if tools.reader is not None:
            push = _in_body(push, tools.reader, qpos[:, :, 0])
        root = np.sqrt(weights(r)).reshape(S, -1, 1)
        flat, A = root[..., 0] * r.reshape(S, -1), root * push.reshape(S, root.shape[1], -1)
        X = root * dx.reshape(S, root.shape[1], -1)
        inside = np.linalg.solve(X.transpose(0, 2, 1) @ X + np.diag(hold), X.transpose(0, 2, 1))
        self.r = torch.from_numpy(flat - (X @ (inside @ flat[..., None]))[..., 0]).float()
        self.A = torch.from_numpy(A - X @ (inside @ A)).float()
        self.shape = (ticks, len(tools.dofs))

    def scale(self) -> np.ndarray:
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


def _in_body(push: np.ndarray, reader: BodyReader, qpos: np.ndarray) -> np.ndarray:
    """Derivatives by forces of the world, (S, ·, ·, ticks, dofs), as those by forces in the frame of free bodies."""
    out, first = push.copy(), 0
    for _, at in reader.forces:
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
        out[..., three] = np.einsum("sabti,stij->sabtj", push[..., three], R, optimize=True)
        first += 6
    return out
