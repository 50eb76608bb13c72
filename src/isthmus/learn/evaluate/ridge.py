"""How well numbers can be read from features: ridge regression, straight or curved, judged on worlds that it never saw.

    prediction = K(x, X) (K(X, X) + λ)⁻¹ y        K(a, b) = a·b / d,  or  exp(-|a - b|² / (2 w²))

λ and w are chosen on the training worlds alone, each world predicted from all others. With G = (K + λ)⁻¹ that needs no
refit: the error of world b, left out whole, is G_bb⁻¹ (G y)_b.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from isthmus.core.statistics import Estimate

RIDGE_STRENGTHS = 10.0 ** np.arange(-4.0, 4.0)
"""λ."""
KERNEL_WIDTHS = (0.5, 2.0)
"""w², in units of the median squared distance."""
BOOTSTRAP_SAMPLES = 1000


@dataclass(frozen=True)
class RidgeFit:
    """Predictions for the held-out rows, (m, p), and how well the training worlds were predicted when left out, (p,)."""

    predicted: np.ndarray
    left_out_r2: np.ndarray


def fit_ridge(x: np.ndarray, y: np.ndarray, worlds: np.ndarray, new: np.ndarray) -> dict[str, RidgeFit]:
    """Straight and curved regression of y, (n, p), on x, (n, d), for new rows, (m, d); `worlds` says whose rows x are."""
    mean, std = x.mean(axis=0), x.std(axis=0)
    used = std > 1e-9 * max(1.0, float(std.max(initial=0.0)))
    a, b = ((v[:, used] - mean[used]) / std[used] for v in (x, new))
    middle = y.mean(axis=0)
    k, k_new = a @ a.T / max(1, a.shape[1]), b @ a.T / max(1, a.shape[1])
    own, own_new = np.diag(k), (b * b).sum(axis=1) / max(1, a.shape[1])
    apart = np.maximum(own[:, None] + own - 2 * k, 0.0)
    apart_new = np.maximum(own_new[:, None] + own - 2 * k_new, 0.0)
    scale = float(np.median(apart)) or 1.0
    curved = [(np.exp(-apart / (2 * w * scale)), np.exp(-apart_new / (2 * w * scale))) for w in KERNEL_WIDTHS]
    return {
        name: _select_best([_fit_strengths(k, k_new, y - middle, worlds) for k, k_new in kernels], middle)
        for name, kernels in (("linear", [(k, k_new)]), ("nonlinear", curved))
    }


def _select_best(found: list[RidgeFit], middle: np.ndarray) -> RidgeFit:
    """For each number the fit that predicts left-out training worlds best."""
    choice = np.argmax([f.left_out_r2 for f in found], axis=0)
    columns = np.arange(len(middle))
    predicted = np.stack([f.predicted for f in found])[choice, :, columns].T
    return RidgeFit(predicted + middle, np.stack([f.left_out_r2 for f in found])[choice, columns])


def _fit_strengths(k: np.ndarray, k_new: np.ndarray, y: np.ndarray, worlds: np.ndarray) -> RidgeFit:
    """The best strength for each number."""
    # NumPy's own solver is ten times slower when another process is on the machine: its threads wait by spinning.
    values, vectors = (part.numpy() for part in torch.linalg.eigh(torch.from_numpy(k)))
    values, turned = np.maximum(values, 0.0), vectors.T @ y
    fits = []
    for strength in RIDGE_STRENGTHS:
        alpha = vectors @ (turned / (values + strength)[:, None])
        error = _left_out_errors(vectors, values + strength, alpha, worlds)
        r2 = 1 - (error**2).sum(axis=0) / np.maximum((y**2).sum(axis=0), 1e-300)
        fits.append(RidgeFit(k_new @ alpha, r2))
    return _select_best(fits, np.zeros(y.shape[1]))


def _left_out_errors(vectors: np.ndarray, values: np.ndarray, alpha: np.ndarray, worlds: np.ndarray) -> np.ndarray:
    """Errors of every world when it is left out whole, (n, p)."""
    error = np.empty_like(alpha)
    _, group, size = np.unique(worlds, return_inverse=True, return_counts=True)
    order = np.argsort(group, kind="stable")
    starts = np.concatenate([[0], np.cumsum(size)[:-1]])
    for s in np.unique(size):
        rows = order[starts[size == s][:, None] + np.arange(s)]
        v = vectors[rows]
        # Many tiny products: threads would cost more than they gain.
        block = np.einsum("gsn,gtn->gst", v / values, v)
        error[rows] = np.linalg.solve(block, alpha[rows])
    return error


def r_squared(y: np.ndarray, predicted: np.ndarray, worlds: np.ndarray, seed: int = 0) -> list[Estimate]:
    """1 - Σ (y - predicted)² / Σ (y - mean)² of each number, (m, p); the interval resamples worlds."""
    _, group = np.unique(worlds, return_inverse=True)
    n = int(group.max()) + 1
    per_world = lambda v: np.stack([np.bincount(group, c, n) for c in v.T], axis=1)  # noqa: E731
    count, total, square = np.bincount(group, minlength=n), per_world(y), per_world(y * y)
    missed = per_world((y - predicted) ** 2)
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), BOOTSTRAP_SAMPLES)
    weights = np.concatenate([np.ones((1, n)), drawn])
    spread = weights @ square - (weights @ total) ** 2 / (weights @ count)[:, None]
    r2 = 1 - (weights @ missed) / np.maximum(spread, 1e-300)
    low, high = np.quantile(r2[1:], (0.025, 0.975), axis=0)
    return [Estimate(float(r), float(a), float(b)) for r, a, b in zip(r2[0], low, high, strict=True)]
