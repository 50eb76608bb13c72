"""From a raw signal to a part of the observation."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.data.contract import Signal
from isthmus.errors import BadInput, unknown
from isthmus.learn.mirror import Part
from isthmus.tasks.task import Observe


def prepared_labels(observe: Observe, signal: Signal) -> Part:
    """Labels and name of what a signal becomes in the observation."""
    labels = {
        "value": list(signal.labels),
        "offset": list(signal.labels),
        "gravity": ["x", "y", "z"],
        "angle": [f"{f}_{label}" for f in ("sin", "cos") for label in signal.labels],
        "attitude": [a + b for a in "xyz" for b in "xyz"],
    }
    if observe.as_ not in labels:
        raise unknown("preparation", observe.as_, labels, f"the observation of {signal.name!r}")
    if observe.as_ in ("gravity", "attitude") and signal.size != 4:
        raise BadInput(f"signal {signal.name!r} has {signal.size} components; only a quaternion can be seen as {observe.as_}.")
    return labels[observe.as_], signal.name if observe.as_ in ("value", "offset") else observe.as_


def prepare(observe: Observe, signals: dict[str, Tensor], default: Tensor) -> Tensor:
    """One part of the frame."""
    x = signals[observe.signal]
    if observe.minus:
        x = x - signals[observe.minus]
    if observe.as_ == "offset":
        x = x - default
    elif observe.as_ in ("gravity", "attitude"):
        x = quadratic(x, GRAVITY if observe.as_ == "gravity" else ATTITUDE)
    elif observe.as_ == "angle":
        x = torch.cat([torch.sin(x), torch.cos(x)], dim=1)
    return x * observe.scale if observe.scale != 1.0 else x


FIRST, SECOND = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 3]), torch.tensor([0, 1, 2, 3, 1, 2, 3, 2, 3, 3])
"""The ten products of two components of a quaternion: ww, wx, wy, wz, xx, xy, xz, yy, yz, zz."""


def _forms(*rows: dict[str, float]) -> Tensor:
    """Coefficients of quadratic forms, one column each."""
    names = ["wxyz"[a] + "wxyz"[b] for a, b in zip(FIRST.tolist(), SECOND.tolist(), strict=True)]
    return torch.tensor([[row.get(name, 0.0) for row in rows] for name in names])


ATTITUDE = _forms(
    {"ww": 1, "xx": 1, "yy": -1, "zz": -1}, {"xy": 2, "wz": -2}, {"xz": 2, "wy": 2},
    {"xy": 2, "wz": 2}, {"ww": 1, "xx": -1, "yy": 1, "zz": -1}, {"yz": 2, "wx": -2},
    {"xz": 2, "wy": -2}, {"yz": 2, "wx": 2}, {"ww": 1, "xx": -1, "yy": -1, "zz": 1},
)  # fmt: skip
"""The rotation matrix of a quaternion of length one, row by row."""
GRAVITY = -ATTITUDE[:, 6:]
"""The down direction in the body's frame: minus the last row."""
LENGTH = _forms({"ww": 1, "xx": 1, "yy": 1, "zz": 1})


def quadratic(q: Tensor, forms: Tensor) -> Tensor:
    """Quadratic forms of quaternions of any length, (n, 4) -> (n, k): few operations, so a quick graph."""
    products = q.index_select(1, FIRST) * q.index_select(1, SECOND)
    return products @ forms / (products @ LENGTH).clamp_min(1e-12)
