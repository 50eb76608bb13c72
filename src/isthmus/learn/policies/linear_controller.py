"""A classical controller as a torch module: target = clip(constant + Σ gain · signal).

    robot = "pendulum"
    constant = [0.0]                       one number per component of the target
    [gains]                                one row per component of the target, one column per component of the signal
    joint_vel = [[-0.6]]
    "joint_pos:angle" = [[6.0, 0.0]]       a prepared signal: sine and cosine of the angle

A signal may be one of the robot's or the task's command, as it is or prepared (`angle`, `gravity` or `attitude`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import read_toml
from isthmus.core.from_plain import from_plain
from isthmus.data.contract import AffineFeedback, Signal
from isthmus.learn.policies.observation_terms import compute_observation_term, observation_term_labels
from isthmus.tasks.state import signal_limits
from isthmus.tasks.task import ObservationTerm

MAX_BYTES = 2**20
TRANSFORMS = ("angle", "attitude", "gravity")


def read_law(path: Path, robot: str) -> AffineFeedback:
    """A law for the named robot from a TOML file."""
    data = read_toml(path, MAX_BYTES)
    if "robot" not in data:
        raise BadInput(f'{path} does not say which robot the law is for; write robot = "{robot}".')
    if (named := data.pop("robot")) != robot:
        raise BadInput(f"{path} is a law for {named!r}, not for {robot}.")
    return from_plain(AffineFeedback, data, str(path))


def observation_terms(law: AffineFeedback) -> dict[str, ObservationTerm]:
    """What each gain is multiplied with."""
    found = {}
    for key in law.gains:
        signal, _, form = key.partition(":")
        found[key] = ObservationTerm(signal, form or "value")
    return found


def check_law(law: AffineFeedback, available: Mapping[str, Signal], target: Signal, where: str) -> None:
    """Raise BadInput unless every gain is that of a signal on offer and has its size."""
    m = target.size
    if len(law.constant) != m:
        raise BadInput(f"{where} has {len(law.constant)} constants, but {target.name} has {m} components.")
    if not law.gains:
        raise BadInput(f"{where} has no gains; a law needs that of at least one signal.")
    for key, observe in observation_terms(law).items():
        if observe.signal not in available:
            raise unknown_name("signal", observe.signal, available, f"the gains of {where}")
        if observe.transform not in ("value", *TRANSFORMS):
            raise unknown_name("preparation", observe.transform, TRANSFORMS, f"the gains of {where}")
        try:
            width = len(observation_term_labels(observe, available[observe.signal])[0])
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from None
        if len(law.gains[key]) != m or {len(row) for row in law.gains[key]} != {width}:
            raise BadInput(f"{where}: the gain of {key!r} must have {m} rows of {width} numbers.")


class LinearController(nn.Module):
    """A law inside its limits; it remembers nothing between ticks."""

    constant: Tensor
    gain: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, law: AffineFeedback, target: Signal):
        super().__init__()
        self.terms = tuple(observation_terms(law).values())
        self.register_buffer("constant", torch.tensor(law.constant, dtype=torch.float32))
        self.register_buffer("gain", torch.cat([torch.tensor(g, dtype=torch.float32) for g in law.gains.values()], dim=1))
        for name, end in zip(("low", "high"), signal_limits(target), strict=True):
            self.register_buffer(name, end)

    def memory(self, n: int) -> dict[str, Tensor]:
        return {}

    def forward(self, signals: dict[str, Tensor], memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Targets in the robot's units, (n, m), and nothing to remember."""
        x = torch.cat([self._compute_term(o, signals) for o in self.terms], dim=1)
        return torch.clamp(self.constant + x @ self.gain.T, self.low, self.high), {}

    def _compute_term(self, term: ObservationTerm, signals: dict[str, Tensor]) -> Tensor:
        x = compute_observation_term(term, signals, self.constant)
        if (term.signal, term.transform) == ("quat", "value"):
            # q and -q are one attitude, which the law must answer in one way.
            return torch.where(x[:, :1] < 0, -x, x)
        return x
