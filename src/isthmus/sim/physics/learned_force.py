"""Forces that were learned from recordings, inside the physics step.

    f(x) = w(x) · mean over members of net((x - mean) / scale) · unit

A motor's force reads its own recent errors and speeds and adds to its torque; a body's force reads the state and the
torques and adds to the generalised forces. w fades to 0 outside the region that the training data filled, and where the
members of the ensemble, which saw different parts of the data, disagree: where nothing is known nothing is added.
motors.c does the same arithmetic; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from isthmus.core.errors import BadInput

TRUST_FADE_RATIO = 1.5
"""Times the edge of the region at which a force has faded away."""
MAX_FEATURES, MAX_HIDDEN, MAX_LAYERS, MAX_MEMBERS = 256, 64, 4, 16
ForceKind = Literal["motor", "body"]


@dataclass(frozen=True, eq=False)
class Ensemble:
    """K small networks over the same features, softsign between layers."""

    weights: tuple[np.ndarray, ...]
    """(K, inputs, outputs) of each layer."""
    biases: tuple[np.ndarray, ...]
    """(K, outputs)."""
    mean: np.ndarray
    """(features,)"""
    scale: np.ndarray
    root: np.ndarray
    """(features, features), lower triangular: its product with the scaled features has unit covariance in training."""
    reach: float
    """Edge of the region: root mean square of that product."""
    doubt: float
    """Spread of the members, in parts of `unit`, at which a force is halved."""
    unit: np.ndarray
    """(outputs,) largest force that training saw, and the largest that is ever given."""

    def __post_init__(self) -> None:
        self._check()

    @property
    def members(self) -> int:
        return len(self.weights[0])

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        return (len(self.mean), *(w.shape[2] for w in self.weights))

    def _check(self) -> None:
        sizes, k = self.layer_sizes, self.members
        fits = all(w.shape == (k, a, b) for w, a, b in zip(self.weights, sizes[:-1], sizes[1:], strict=True))
        fits &= all(b.shape == (k, n) for b, n in zip(self.biases, sizes[1:], strict=True))
        fits &= self.scale.shape == self.mean.shape and self.root.shape == (sizes[0], sizes[0]) and len(self.unit) == sizes[-1]
        if not fits:
            raise BadInput("the parts of a learned force do not fit together.")
        if sizes[0] > MAX_FEATURES or max(sizes[1:-1], default=0) > MAX_HIDDEN or len(self.weights) > MAX_LAYERS:
            raise BadInput(f"a learned force has at most {MAX_FEATURES} features and {MAX_LAYERS} layers of {MAX_HIDDEN}.")
        if not 1 <= k <= MAX_MEMBERS:
            raise BadInput(f"a learned force has 1 to {MAX_MEMBERS} members, not {k}.")
        numbers = (*self.weights, *self.biases, self.mean, self.scale, self.root, self.unit, np.array([self.reach, self.doubt]))
        if not all(np.isfinite(a).all() for a in numbers) or (self.scale <= 0).any() or self.reach <= 0 or self.doubt <= 0:
            raise BadInput("a learned force has numbers that are not finite, or scales that are not positive.")

    def region_distance(self, x: np.ndarray) -> np.ndarray:
        """How far features, (..., features), are from the middle of the region, in units of its edge."""
        z = (x - self.mean) * (1.0 / self.scale)
        return np.sqrt(((z @ self.root.T) ** 2).mean(-1)) / self.reach

    def member_outputs(self, x: np.ndarray) -> np.ndarray:
        """What each member says, in parts of the unit, (K, n, outputs) of features (n, features)."""
        h = np.broadcast_to((x - self.mean) * (1.0 / self.scale), (self.members, *x.shape))
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = h @ w + b[:, None]
            if i < len(self.weights) - 1:
                h = h / (1.0 + np.abs(h))
        return h

    def trust_weight(self, x: np.ndarray, outputs: np.ndarray) -> np.ndarray:
        """w of features (n, features), where the members said `each`, (n,)."""
        inside = np.clip((TRUST_FADE_RATIO - self.region_distance(x)) / (TRUST_FADE_RATIO - 1.0), 0.0, 1.0)
        return inside / (1.0 + outputs.var(0).mean(-1) / self.doubt**2)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Forces of features (n, features), (n, outputs)."""
        each = self.member_outputs(x)
        return self.trust_weight(x, each)[:, None] * np.clip(each.mean(0), -1.0, 1.0) * self.unit


@dataclass(frozen=True)
class LearnedForce:
    """A learned force of one robot."""

    kind: ForceKind
    names: tuple[str, ...]
    """Motors that share it, by label; or joints that it acts on."""
    net: Ensemble
    lags: int = 0
    """Past values of error and speed that a motor's force reads …"""
    stride: float = 0.005
    """… and the time from one to the next, s."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything but the names, for a file."""
        net = self.net
        layers = {f"{part}{i}": a for part in ("weights", "biases") for i, a in enumerate(getattr(net, part))}
        single = {name: np.asarray(getattr(net, name), float) for name in ("mean", "scale", "root", "reach", "doubt", "unit")}
        return layers | single

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "names": list(self.names), "lags": self.lags, "stride": self.stride}

    @staticmethod
    def from_arrays(fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray], where: str) -> LearnedForce:
        """From what `to_dict` and `arrays` gave, as a stranger may have written it."""
        kind, names, lags, stride = (fields.get(k) for k in ("kind", "names", "lags", "stride"))
        layers = sum(name.startswith("weights") for name in arrays)
        if (
            kind not in ("motor", "body")
            or not isinstance(names, list)
            or not names
            or not all(isinstance(n, str) for n in names)
        ):
            raise BadInput(f"{where} holds a learned force that does not say on what it acts.")
        if not isinstance(lags, int) or not isinstance(stride, int | float) or not 1 <= layers <= MAX_LAYERS:
            raise BadInput(f"{where} holds a learned force that cannot be read.")
        if not 0 <= lags <= 16 or not 0.0005 <= stride <= 0.1:
            raise BadInput(f"{where}: a learned force looks back 0 to 16 times, each 0.0005 to 0.1 s.")
        try:
            part = lambda name: np.asarray(arrays[name], float)  # noqa: E731
            net = Ensemble(
                weights=tuple(part(f"weights{i}") for i in range(layers)),
                biases=tuple(part(f"biases{i}") for i in range(layers)),
                **{name: part(name) for name in ("mean", "scale", "root", "unit")},
                reach=part("reach").item(),
                doubt=part("doubt").item(),
            )
        except (KeyError, ValueError, IndexError, TypeError):
            raise BadInput(f"{where} holds a learned force that cannot be read.") from None
        return LearnedForce(kind, tuple(names), net, lags, float(stride))
