"""The members of an ensemble while they learn.

Each leaves out other stretches of the data and stops where it is best on those, so that where they disagree in the end is
where the data did not say.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from isthmus.sim.physics.learned_force import Ensemble, LearnedForce

MEMBER_COUNT = 4
HIDDEN_SIZES = (32, 32)
TRAINING_STEPS = 400
"""Of Adam, each time they learn."""
LEARNING_RATE = 5e-3
VALIDATION_INTERVAL = 20
"""Steps between looks at the part left out."""
HELD_OUT_STRETCHES = 5
"""That each member leaves out, if there are as many segments."""
REGION_COVERAGE = 0.995
"""Share of the training features inside the region."""
MAX_FORCE_RATIO = 1.5
"""Largest force that is ever given, times the largest in training."""


SINGLE_THREAD_ROWS = 30_000
"""Rows of features below which a second thread costs more than it does."""


@contextmanager
def single_thread(enabled: bool) -> Iterator[None]:
    before = torch.get_num_threads()
    if enabled:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class TrainingProblem(Protocol):
    def cost(self, change: torch.Tensor) -> torch.Tensor:
        """Per member and segment, (K, S), under a change of force (K, S, ticks, outputs)."""
        ...


class EnsembleTrainer:
    def __init__(self, x: np.ndarray, scale: np.ndarray, outputs: int, seed: int):
        """For features x, (S, ticks, substeps, groups, features), and forces of the size `scale`, (outputs,) or (groups,)."""
        flat = x.reshape(-1, x.shape[-1])
        self.mean, self.std = flat.mean(0), np.maximum(flat.std(0), 1e-3 * (1.0 + np.abs(flat).max(0)))
        self.force_scale = scale if outputs > 1 else np.array([np.median(scale)])
        generator = torch.Generator().manual_seed(seed)
        sizes = (x.shape[-1], *HIDDEN_SIZES, outputs)
        self.parameters: list[torch.Tensor] = []
        for i, (a, b) in enumerate(itertools.pairwise(sizes)):
            w = torch.randn((MEMBER_COUNT, a, b), generator=generator) / a**0.5
            self.parameters += [w * (0.01 if i == len(HIDDEN_SIZES) else 1.0), torch.zeros((MEMBER_COUNT, b))]
        for part in self.parameters:
            part.requires_grad_()
        block = torch.arange(len(x)) * (HELD_OUT_STRETCHES * MEMBER_COUNT) // len(x) % MEMBER_COUNT
        self.held_out = torch.stack([block == k for k in range(MEMBER_COUNT)])
        """(K, S) which segments a member leaves out: several stretches of neighbours."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Forces, (K, S, ticks, dofs), of scaled features (S, ticks, substeps, groups, features)."""
        h = x.reshape(1, -1, x.shape[-1]).expand(MEMBER_COUNT, -1, -1)
        for i in range(0, len(self.parameters), 2):
            h = torch.baddbmm(self.parameters[i + 1][:, None], h, self.parameters[i])
            if i < len(self.parameters) - 2:
                h = torch.nn.functional.softsign(h)
        S, ticks, substeps, groups = x.shape[:4]
        out = h.reshape(MEMBER_COUNT, S, ticks, substeps, groups * h.shape[-1]).mean(3)
        return out * torch.from_numpy(self.force_scale).float()

    def train(self, x: np.ndarray, problem: TrainingProblem) -> float:
        """Fit the members to the problem; returns the cost of what they left out, as a share of that before."""
        scaled = torch.from_numpy((x - self.mean) / self.std).float()
        with single_thread(scaled.shape[:4].numel() < SINGLE_THREAD_ROWS):
            return self._train(scaled, problem)

    def _train(self, scaled: torch.Tensor, problem: TrainingProblem) -> float:
        with torch.no_grad():
            before = self(scaled).mean(0, keepdim=True)
        optimizer = torch.optim.Adam(self.parameters, lr=LEARNING_RATE, weight_decay=1e-5)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, TRAINING_STEPS)
        kept, out = (~self.held_out).float(), self.held_out.float()
        lowest = torch.full((MEMBER_COUNT,), float("inf"))
        best = [part.detach().clone() for part in self.parameters]
        first = None
        for step in range(TRAINING_STEPS + 1):
            cost = problem.cost(self(scaled) - before)
            if step % VALIDATION_INTERVAL == 0:
                left = (cost.detach() * out).sum(1)
                first = left if first is None else first
                better = left < lowest
                lowest = torch.where(better, left, lowest)
                for saved, part in zip(best, self.parameters, strict=True):
                    saved[better] = part.detach()[better]
            optimizer.zero_grad()
            ((cost * kept).sum(1) / kept.sum(1)).sum().backward()
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            for saved, part in zip(best, self.parameters, strict=True):
                part.copy_(saved)
        assert first is not None
        return float(lowest.sum() / first.sum().clamp_min(1e-12))

    def to_learned_force(self, template: LearnedForce, x: np.ndarray) -> LearnedForce:
        """The members as a force that can be simulated, with the region that x, (..., features), fills."""
        flat = x.reshape(-1, x.shape[-1])
        z = (flat - self.mean) / self.std
        centre = z.mean(0)
        covariance = np.atleast_2d(np.cov(z.T)) + 0.01 * np.eye(z.shape[1])
        root = np.linalg.inv(np.linalg.cholesky(covariance))
        parts = [part.detach().double().numpy() for part in self.parameters]
        weights_, biases = list(parts[0::2]), list(parts[1::2])
        # The network reads features about their mean, the region is about its own centre.
        net = Ensemble(
            weights=tuple(weights_),
            biases=(biases[0] + np.einsum("f,kfh->kh", centre, weights_[0]), *biases[1:]),
            mean=self.mean + centre * self.std,
            scale=self.std,
            root=root,
            reach=1.0,
            doubt=1e9,
            unit=np.ones(len(self.force_scale)),
        )
        each = net.member_outputs(flat) * self.force_scale
        reach = float(np.quantile(net.region_distance(flat), REGION_COVERAGE))
        largest = np.maximum(MAX_FORCE_RATIO * np.abs(each.mean(0)).max(0), 1e-12)
        spread = np.sqrt((each / largest).var(0).mean(-1))
        last = len(weights_) - 1
        ratio = self.force_scale / largest
        return replace(
            template,
            net=replace(
                net,
                weights=(*net.weights[:last], net.weights[last] * ratio),
                biases=(*net.biases[:last], net.biases[last] * ratio),
                reach=max(reach, 1e-6),
                doubt=max(3.0 * float(np.quantile(spread, 0.95)), 0.05),
                unit=largest,
            ),
        )
