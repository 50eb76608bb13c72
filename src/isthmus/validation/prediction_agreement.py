"""How well simulation predicts reality, over policies: predicted against observed success of each stage.

Pearson      correlation of predicted and observed success
MMRV         mean over policies of the largest observed difference to one that the prediction ranks the wrong way round
             (mean maximum rank violation; Li et al., 2024): 0 is a perfect order
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.results import Result
from isthmus.validation.certificate import Certificate

MIN_PAIRS = 3
"""Pairs that a correlation needs."""


@dataclass(frozen=True)
class Pair:
    controller: str
    stage: str
    predicted: float
    observed: float
    trials: int
    """On the robot."""


@dataclass(frozen=True)
class Agreement:
    stage: str
    """Empty for all of them together."""
    pairs: int
    pearson: float
    low: float
    """Ends of the 95 % interval of the correlation (Fisher's z)."""
    high: float
    mmrv: float
    bias: float
    """Mean of predicted - observed."""


@dataclass(frozen=True)
class AgreementResult(Result, kind="agreement"):
    pairs: tuple[Pair, ...]
    agreement: tuple[Agreement, ...]
    """Over all stages together first, then by stage if there are several."""


def compare_certificates(certificates: Sequence[Certificate]) -> AgreementResult:
    """Predicted against observed success over certificates; BadInput if no stage has both."""
    pairs = predicted_observed_pairs(certificates)
    if not pairs:
        raise BadInput("none of these certificates has both a predicted and an observed success rate of one stage.")
    stages = list(dict.fromkeys(p.stage for p in pairs))
    found = [agreement(pairs), *(agreement(pairs, stage) for stage in stages if len(stages) > 1)]
    return AgreementResult(tuple(pairs), tuple(found))


def predicted_observed_pairs(certificates: Sequence[Certificate]) -> list[Pair]:
    """Stages with both rates: in one certificate, or in two of the same controller and protocol."""
    predicted: dict[tuple[str, str, str], float] = {}
    observed: dict[tuple[str, str, str], tuple[str, float, int]] = {}
    for c in certificates:
        for stage in c.stages:
            key = (c.inputs["controller"], c.inputs["protocol"], stage.name)
            if stage.environment == "real":
                observed[key] = (c.controller, stage.success.rate, stage.success.n)
                if stage.predicted is not None:
                    predicted[key] = stage.predicted.rate
            else:
                predicted.setdefault(key, stage.success.rate)
    return [Pair(name, key[2], predicted[key], rate, n) for key, (name, rate, n) in observed.items() if key in predicted]


def agreement(pairs: Sequence[Pair], stage: str = "") -> Agreement:
    own = [p for p in pairs if not stage or p.stage == stage]
    s, r = np.array([p.predicted for p in own]), np.array([p.observed for p in own])
    pearson = float(np.corrcoef(s, r)[0, 1]) if len(own) >= MIN_PAIRS and s.std() > 0 and r.std() > 0 else float("nan")
    low, high = float("nan"), float("nan")
    if len(own) > MIN_PAIRS and abs(pearson) < 1:
        z, half = np.arctanh(pearson), 1.96 / np.sqrt(len(own) - 3)
        low, high = float(np.tanh(z - half)), float(np.tanh(z + half))
    return Agreement(stage, len(own), pearson, low, high, mmrv(s, r), float((s - r).mean()) if own else float("nan"))


def mmrv(predicted: np.ndarray, observed: np.ndarray) -> float:
    """Mean maximum rank violation of predictions, (k,)."""
    if len(predicted) < 2:
        return float("nan")
    wrong = (predicted[:, None] < predicted) != (observed[:, None] < observed)
    return float((np.abs(observed[:, None] - observed) * wrong).max(axis=1).mean())
