"""How far a policy may move from where it began.

    KL(π_start ‖ π) = mean over states of  Σ_j  log σ_j/σ0_j + (σ0_j² + (μ0_j - μ_j)²) / (2 σ_j²) - 1/2     nats

A penalty in the loss keeps the policy near the bound. Where that is not enough, its weights are pulled back along the
line to where they began, θ = θ0 + a (θ - θ0), so that after every update the divergence on the states of its batch is
inside the bound.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.learn.policies.actor import Actor

MIN_PENALTY_WEIGHT, MAX_PENALTY_WEIGHT = 1e-2, 1e3
"""Range of the penalty's weight."""
MAX_BISECTIONS = 30


def gaussian_kl(mean0: Tensor, log_std0: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """KL of diagonal normals, the first to the second, averaged over rows: (n, m), (m,), (n, m), (m,) -> (), nats."""
    spread = torch.exp(2 * (log_std0 - log_std))
    shift = (mean - mean0).square() * torch.exp(-2 * log_std)
    return (log_std - log_std0 + 0.5 * (spread + shift) - 0.5).sum(1).mean()


class KLBound:
    def __init__(self, actor: Actor, reference: Actor, limit: float):
        """Keep `actor` within `limit` nats of `start`, which has the same shape; 0 only measures."""
        self.actor, self.reference, self.limit = actor, reference, limit
        self.weight = 1.0
        """Of the penalty; it follows the divergence."""
        both = zip(actor.parameters(), reference.parameters(), strict=True)
        self._parameter_pairs = [(p, origin) for p, origin in both if p.requires_grad]

    def penalty(self, x: Tensor, mean: Tensor) -> Tensor:
        """What the loss gets for normalised observations x, (n, inputs), at which the policy's means are `mean`."""
        if not self.limit:
            return torch.zeros(())
        with torch.no_grad():
            mean0 = self.reference.net(x)
        return self.weight * gaussian_kl(mean0, self.reference.log_std, mean, self.actor.log_std)

    @torch.no_grad()
    def enforce(self, x: Tensor) -> float:
        """Bring the policy back inside the bound on x, (n, inputs); the divergence after that, nats."""
        mean0 = self.reference.net(x)
        measure = lambda: float(gaussian_kl(mean0, self.reference.log_std, self.actor.net(x), self.actor.log_std))  # noqa: E731
        found = measure()
        if not self.limit:
            return found
        if not found <= 0.75 * self.limit:
            self.weight = min(self.weight * 2, MAX_PENALTY_WEIGHT)
        elif 0 < found < 0.4 * self.limit:
            self.weight = max(self.weight / 2, MIN_PENALTY_WEIGHT)
        if found <= self.limit:
            return found
        moves = [p - origin for p, origin in self._parameter_pairs]
        inside, outside = 0.0, 1.0
        for _ in range(MAX_BISECTIONS):
            middle = (inside + outside) / 2
            self._set_parameters(moves, middle)
            found = measure()
            if not found <= self.limit:
                outside = middle
            else:
                inside = middle
                if found > 0.9 * self.limit:
                    return found
        self._set_parameters(moves, inside)
        return measure()

    def _set_parameters(self, moves: list[Tensor], a: float) -> None:
        for (p, origin), move in zip(self._parameter_pairs, moves, strict=True):
            p.copy_(origin + a * move)
