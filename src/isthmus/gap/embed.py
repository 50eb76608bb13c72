"""A learned space of windows: a small network that says each of them in a few numbers, and from these again as it was.

    z = encode(x)         (k,) on the principal axes of what the network makes of simulated windows
    rest = |x - decode(z)|    what the few numbers do not hold

Principal axes are straight; a gait is a curve. On windows that the network was taught, the rest is smaller than on any others,
so what it was taught takes no part in setting a threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from isthmus.gap.windows import scaled

SIZE, HIDDEN = 6, 64
"""Numbers that a window becomes, at most, and width of the network."""
ROUNDS, BATCH, RATE = 150, 256, 2e-3


@dataclass(frozen=True)
class Learned:
    """As `Axes`, with a network in place of straight axes."""

    mean: np.ndarray
    scale: np.ndarray
    net: torch.nn.ModuleList
    """Encoder and decoder."""
    centre: np.ndarray
    turn: np.ndarray
    """(k, k) from the network's numbers, about their centre, to principal axes."""
    explained: np.ndarray
    """(k,) share of the variance of these numbers."""

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """(N, k + 1); the last is the length of the rest."""
        x = torch.from_numpy((features - self.mean) / self.scale).float()
        with torch.no_grad():
            code = self.net[0](x)
            rest = torch.linalg.norm(x - self.net[1](code), dim=1)
        on = (code.double().numpy() - self.centre) @ self.turn.T
        return np.concatenate([on, rest.double().numpy()[:, None]], axis=1)


def taught(features: np.ndarray, seed: int = 0) -> Learned:
    """By simulated windows, (N, features); the same seed gives the same space."""
    mean, scale = scaled(features)
    x = torch.from_numpy((features - mean) / scale).float()
    net = _trained(x, min(SIZE, x.shape[1]), seed)
    with torch.no_grad():
        code = net[0](x).double().numpy()
    centre = code.mean(0)
    _, s, turn = np.linalg.svd(code - centre, full_matrices=False)
    return Learned(mean, scale, net, centre, turn, s**2 / max(float((s**2).sum()), 1e-300))


def _trained(x: torch.Tensor, size: int, seed: int) -> torch.nn.ModuleList:
    """Smallest mean square of the rest."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        width = x.shape[1]
        net = torch.nn.ModuleList(_layers(a, b) for a, b in ((width, size), (size, width)))
        descent = torch.optim.Adam(net.parameters(), RATE)
        for k in range(ROUNDS):
            for group in descent.param_groups:
                group["lr"] = RATE * (1.0 - k / ROUNDS)
            for rows in torch.randperm(len(x)).split(BATCH):
                loss = ((net[1](net[0](x[rows])) - x[rows]) ** 2).mean()
                descent.zero_grad()
                loss.backward()
                descent.step()
    return net.eval().requires_grad_(False)


def _layers(a: int, b: int) -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(a, HIDDEN), torch.nn.ELU(), torch.nn.Linear(HIDDEN, b))
