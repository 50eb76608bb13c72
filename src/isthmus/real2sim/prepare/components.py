"""What is compared: the error vector of a contract, one number per tick for each component of each signal.

An attitude is compared as the vector part of the rotation between the two quaternions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isthmus.data.contract import Contract


@dataclass(frozen=True)
class Component:
    """One number per tick that is compared."""

    signal: str
    label: str
    unit: str


class Components:
    """What is compared: each component of each signal; of an attitude, the three numbers of the rotation between the two."""

    def __init__(self, contract: Contract):
        self.contract = contract
        self.entries: list[Component] = []
        self._scalars: list[tuple[int, int]] = []
        self._attitudes: list[tuple[int, int]] = []
        for signal, where in zip(contract.signals, contract.slices().values(), strict=True):
            if signal.name == "quat" and signal.labels == ("w", "x", "y", "z"):
                self._attitudes.append((len(self.entries), where.start))
                self.entries += [Component(signal.name, axis, signal.unit) for axis in "xyz"]
                continue
            for i, (label, unit) in enumerate(zip(signal.labels, signal.units, strict=True)):
                self._scalars.append((len(self.entries), where.start + i))
                self.entries.append(Component(signal.name, label, unit))

    def __len__(self) -> int:
        return len(self.entries)

    def difference(self, y: np.ndarray, measured: np.ndarray) -> np.ndarray:
        """(..., width) and (..., width) -> (..., components); an attitude's in units of a quaternion's component."""
        out = np.empty((*y.shape[:-1], len(self)))
        if self._scalars:
            mine, columns = map(list, zip(*self._scalars, strict=True))
            out[..., mine] = y[..., columns] - measured[..., columns]
        for mine, at in self._attitudes:
            out[..., mine : mine + 3] = _rotation_error(measured[..., at : at + 4], y[..., at : at + 4])
        return out

    def add_noise(self, y: np.ndarray, sigma: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Signals, (..., width), with noise of σ, (components,), as a robot would send them."""
        out = y.copy()
        draws = rng.standard_normal((*y.shape[:-1], len(self))) * np.nan_to_num(sigma)
        for mine, column in self._scalars:
            out[..., column] += draws[..., mine]
        for mine, at in self._attitudes:
            out[..., at + 1 : at + 4] += draws[..., mine : mine + 3]
            out[..., at : at + 4] /= np.linalg.norm(out[..., at : at + 4], axis=-1, keepdims=True)
        return out

    def columns(self) -> list[tuple[list[int], list[int]]]:
        """Numbers of components, and the columns of the signals that they are made of."""
        attitudes = [([*range(mine, mine + 3)], [*range(at, at + 4)]) for mine, at in self._attitudes]
        return [([mine], [column]) for mine, column in self._scalars] + attitudes

    def unwrapped(self, measured: np.ndarray) -> np.ndarray:
        """Signals over time, (T, width), as components that can be smoothed and subtracted, (T, components)."""
        out = np.empty((len(measured), len(self)))
        for mine, column in self._scalars:
            out[:, mine] = measured[:, column]
        for mine, at in self._attitudes:
            quat = measured[:, at : at + 4]
            # The two signs of a quaternion are one attitude: keep to the side of the tick before.
            flips = np.cumprod(np.where((quat[1:] * quat[:-1]).sum(1) < 0, -1.0, 1.0))
            out[:, mine : mine + 3] = quat[:, 1:] * np.concatenate([[1.0], flips])[:, None]
        return out


def _rotation_error(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Vector part of a⁻¹ b, the sign of the shorter way."""
    aw, av, bw, bv = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    scalar = aw * bw + (av * bv).sum(-1, keepdims=True)
    vector = aw * bv - bw * av - np.cross(av, bv)
    return vector * np.where(scalar < 0, -1.0, 1.0)
