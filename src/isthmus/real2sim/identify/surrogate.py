"""A stand-in for the simulator near a fit: the residual as a polynomial of second degree in the numbers.

    r ≈ B φ(x),   φ = (1, x, x_i x_j),   x = R⁻¹ (u - u*),   u in the unit cube

It is learnt from worlds that were simulated anyway. It takes microseconds where the simulator takes seconds, so that a
sampler can cross the whole posterior with it between two calls of the simulator. What is wrong with it costs acceptance,
never correctness: every leap is judged by the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isthmus.real2sim.residual.prior import BoundedPrior

RIDGE_WEIGHT = 0.1
"""Weight of what was known of a coefficient before, in simulated worlds: the derivatives of the fit, and no curvature."""
NEAR_NATS_PER_PARAMETER = 2.0
"""Worlds less probable than the best one by so much log density per parameter count less and less."""
TRAJECTORIES_PER_MOVE = 4
"""Of a leap, each with a new momentum."""
STEP_SIZE_RANGE = (0.2, 0.8)
"""Steps of a flight, drawn anew for each, in units of how far the density lets a coordinate go by itself."""
LEAPFROG_STEP_RANGE = (6, 120)
"""Fewest and most of a flight; in between, as many as cross the density once."""


def quadratic_features(x: np.ndarray) -> np.ndarray:
    """φ, (k, f), of x, (k, d)."""
    i, j = np.triu_indices(x.shape[1])
    return np.concatenate([np.ones((len(x), 1)), x, x[:, i] * x[:, j]], axis=1)


@dataclass(frozen=True)
class Surrogate:
    """A density of y, the coordinates in which what was believed before is standard normal."""

    prior: BoundedPrior
    centre: np.ndarray
    """(d,) u*, and R⁻¹, (d, d)."""
    scale: np.ndarray
    gram: np.ndarray
    """(f, f) product of the residual's coefficients: its half square sum is ½ φᵀ gram φ."""
    start_coefficients: np.ndarray
    """(f, S, 2 nv) of the starts that suit."""

    def _features(self, y: np.ndarray) -> np.ndarray:
        return quadratic_features((self.prior.to_unit(y) - self.centre) @ self.scale.T)

    def cost(self, y: np.ndarray) -> np.ndarray:
        """-log density, (k, d) -> (k,)."""
        phi = self._features(y)
        return 0.5 * ((phi @ self.gram) * phi).sum(1) + 0.5 * (y**2).sum(1)

    def gradient(self, y: np.ndarray) -> np.ndarray:
        """Its derivative, (k, d)."""
        d, u = y.shape[1], self.prior.to_unit(y)
        x = (u - self.centre) @ self.scale.T
        by_phi = quadratic_features(x) @ self.gram
        square = np.zeros((len(y), d, d))
        i, j = np.triu_indices(d)
        square[:, i, j] = by_phi[:, 1 + d :]
        by_x = by_phi[:, 1 : 1 + d] + ((square + square.transpose(0, 2, 1)) @ x[..., None])[..., 0]
        return self.prior.gradient_by_y(y, u, by_x @ self.scale) + y

    def curvature(self, y: np.ndarray) -> np.ndarray:
        """Second derivative of -log density, (d, d), as Gauss and Newton take it, on average over y, (k, d)."""
        (k, d), u = y.shape, self.prior.to_unit(y)
        x = (u - self.centre) @ self.scale.T
        by_y = self.scale @ np.stack([self.prior.gradient_by_y(y, u, np.tile(row, (k, 1))) for row in np.eye(d)], axis=1)
        i, j = np.triu_indices(d)
        squares = x[:, i, None] * by_y[:, j] + x[:, j, None] * by_y[:, i]
        slopes = np.concatenate([by_y, squares], axis=1)
        return np.einsum("kfi,kfj->ij", slopes, self.gram[1:, 1:] @ slopes, optimize=True) / k + np.eye(d)

    def starts(self, y: np.ndarray) -> np.ndarray:
        """Starts that should suit y, (k, S, 2 nv)."""
        return np.tensordot(self._features(y), self.start_coefficients, axes=1)


class SurrogateData:
    """What was simulated so far: worlds, their residuals and the starts that suited."""

    def __init__(
        self,
        prior: BoundedPrior,
        u: np.ndarray,
        root: np.ndarray,
        r: np.ndarray,
        dr: np.ndarray,
        xi: np.ndarray,
        dxi: np.ndarray,
    ):
        """Begins with a fit at u, (d,), with spread R, (d, d): r, (n,), ξ, (S, 2 nv), and their derivatives by u, (…, d)."""
        self.prior, self.centre, self.scale = prior, u, np.linalg.inv(root)
        d = len(u)
        f = quadratic_features(np.zeros((1, d))).shape[1]
        by_x = np.zeros((f, len(r)))
        by_x[: d + 1] = np.concatenate([r[None], (dr @ root).T])
        starts = np.zeros((f, *xi.shape))
        starts[: d + 1] = np.concatenate([xi[None], np.moveaxis(dxi @ root, -1, 0)])
        share = np.sqrt(RIDGE_WEIGHT)
        self._phi, self._r, self._xi = [share * np.eye(f)], [(share * by_x).astype(np.float32)], [share * starts]
        self._costs = []

    def add(self, y: np.ndarray, r: np.ndarray, xi: np.ndarray) -> None:
        """Worlds y, (k, d), with residuals, (k, n), and starts, (k, S, 2 nv)."""
        self._phi.append(quadratic_features((self.prior.to_unit(y) - self.centre) @ self.scale.T))
        self._r.append(r.astype(np.float32))
        self._xi.append(xi)
        self._costs.append(0.5 * (r**2).sum(1) + 0.5 * (y**2).sum(1))

    def fit_surrogate(self) -> Surrogate:
        phi, r, xi = (np.concatenate(part) for part in (self._phi, self._r, self._xi))
        weights = np.concatenate([np.ones(len(self._phi[0])), self._weights()])
        solve = np.linalg.solve(phi.T @ (weights[:, None] * phi), weights * phi.T)
        # A residual has far more numbers than there are worlds: only products between worlds are formed.
        gram = solve @ (r @ r.T).astype(float) @ solve.T
        return Surrogate(self.prior, self.centre, self.scale, 0.5 * (gram + gram.T), np.tensordot(solve, xi, axes=1))

    def _weights(self) -> np.ndarray:
        """Of the worlds: those that are far worse than the best one are where nobody goes, and no parabola reaches there."""
        if not self._costs:
            return np.zeros(0)
        costs = np.concatenate(self._costs)
        near = NEAR_NATS_PER_PARAMETER * len(self.centre)
        return (near / np.maximum(costs - costs.min(), near)) ** 2


@dataclass(frozen=True)
class SurrogateHMC:
    """Moves far across the stand-in's own density: flights of a particle in it (Hamiltonian Monte Carlo)."""

    model: Surrogate
    inverse_mass_root: np.ndarray
    """(d, d) of the inverse of the particle's mass: directions that are steep anywhere are taken in small steps."""
    leapfrog_steps: int
    temperature: float = 1.0
    """The density is that of the stand-in to the power 1 / heat."""

    @staticmethod
    def adapted_to(model: Surrogate, y: np.ndarray, temperature: float = 1.0) -> SurrogateHMC:
        """For a density that y, (k, d), are roughly drawn from."""
        inverse = np.linalg.inv(np.linalg.cholesky(model.curvature(y)))
        wide = np.linalg.eigvalsh(np.atleast_2d(np.cov(np.linalg.inv(inverse.T) @ y.T)))[-1]
        strides = 0.5 * np.pi * np.sqrt(wide / temperature) / np.mean(STEP_SIZE_RANGE)
        return SurrogateHMC(model, inverse.T, int(np.clip(np.ceil(strides), *LEAPFROG_STEP_RANGE)), temperature)

    def __call__(self, y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Where a leap ends, and by how much the stand-in's -log density changed: the way there and back differ by that."""
        begun = now = self.model.cost(y)
        for _ in range(TRAJECTORIES_PER_MOVE):
            y, now = self._trajectory(y, now, rng)
        return y, now - begun

    def _trajectory(self, y: np.ndarray, cost: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        k = len(y)
        step = np.sqrt(self.temperature) * rng.uniform(*STEP_SIZE_RANGE, (k, 1))
        push = lambda at: -self.model.gradient(at) @ self.inverse_mass_root / self.temperature  # noqa: E731
        first = speed = rng.standard_normal(y.shape)
        at = y
        speed = speed + 0.5 * step * push(at)
        for i in range(self.leapfrog_steps):
            at = at + step * speed @ self.inverse_mass_root.T
            speed = speed + (1.0 if i < self.leapfrog_steps - 1 else 0.5) * step * push(at)
        height = self.model.cost(at)
        gain = (cost - height) / self.temperature + 0.5 * ((first**2).sum(1) - (speed**2).sum(1))
        yes = np.log(rng.uniform(size=k)) < np.where(np.isfinite(gain), gain, -np.inf)
        return np.where(yes[:, None], at, y), np.where(yes, height, cost)
