"""From a raw signal to a part of the observation."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.core.errors import BadInput, unknown_name
from isthmus.data.contract import Signal
from isthmus.learn.policies.symmetry import VectorLabels
from isthmus.tasks.task import ObservationTerm


def observation_term_labels(term: ObservationTerm, signal: Signal) -> VectorLabels:
    """Labels and name of what a signal becomes in the observation."""
    labels = {
        "value": list(signal.labels),
        "offset": list(signal.labels),
        "gravity": ["x", "y", "z"],
        "angle": [f"{f}_{label}" for f in ("sin", "cos") for label in signal.labels],
        "attitude": [a + b for a in "xyz" for b in "xyz"],
    }
    if term.transform not in labels:
        raise unknown_name("preparation", term.transform, labels, f"the observation of {signal.name!r}")
    if term.transform in ("gravity", "attitude") and signal.size != 4:
        raise BadInput(
            f"signal {signal.name!r} has {signal.size} components; only a quaternion can be seen as {term.transform}."
        )
    return labels[term.transform], signal.name if term.transform in ("value", "offset") else term.transform


def compute_observation_term(term: ObservationTerm, signals: dict[str, Tensor], default: Tensor) -> Tensor:
    """One part of the frame."""
    x = signals[term.signal]
    if term.subtract:
        x = x - signals[term.subtract]
    if term.transform == "offset":
        x = x - default
    elif term.transform in ("gravity", "attitude"):
        x = quaternion_forms(x, PROJECTED_GRAVITY_FORMS if term.transform == "gravity" else ROTATION_MATRIX_FORMS)
    elif term.transform == "angle":
        x = torch.cat([torch.sin(x), torch.cos(x)], dim=1)
    return x * term.scale if term.scale != 1.0 else x


FIRST_FACTOR, SECOND_FACTOR = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 3]), torch.tensor([0, 1, 2, 3, 1, 2, 3, 2, 3, 3])
"""The ten products of two components of a quaternion: ww, wx, wy, wz, xx, xy, xz, yy, yz, zz."""


def _form_coefficients(*rows: dict[str, float]) -> Tensor:
    """Coefficients of quadratic forms, one column each."""
    names = ["wxyz"[a] + "wxyz"[b] for a, b in zip(FIRST_FACTOR.tolist(), SECOND_FACTOR.tolist(), strict=True)]
    return torch.tensor([[row.get(name, 0.0) for row in rows] for name in names])


ROTATION_MATRIX_FORMS = _form_coefficients(
    {"ww": 1, "xx": 1, "yy": -1, "zz": -1}, {"xy": 2, "wz": -2}, {"xz": 2, "wy": 2},
    {"xy": 2, "wz": 2}, {"ww": 1, "xx": -1, "yy": 1, "zz": -1}, {"yz": 2, "wx": -2},
    {"xz": 2, "wy": -2}, {"yz": 2, "wx": 2}, {"ww": 1, "xx": -1, "yy": -1, "zz": 1},
)  # fmt: skip
"""The rotation matrix of a quaternion of length one, row by row."""
PROJECTED_GRAVITY_FORMS = -ROTATION_MATRIX_FORMS[:, 6:]
"""The down direction in the body's frame: minus the last row."""
SQUARED_NORM_FORM = _form_coefficients({"ww": 1, "xx": 1, "yy": 1, "zz": 1})


def quaternion_forms(q: Tensor, forms: Tensor) -> Tensor:
    """Quadratic forms of quaternions of any length, (n, 4) -> (n, k): few operations, so a quick graph."""
    products = q.index_select(1, FIRST_FACTOR) * q.index_select(1, SECOND_FACTOR)
    return products @ forms / (products @ SQUARED_NORM_FORM).clamp_min(1e-12)
