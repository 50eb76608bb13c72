"""What the network did to packets, as the guard noted it tick by tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.data.episode import Episode
from isthmus.deploy.rules import BIT

USUAL = 0.05
"""Share of ticks with a fault that every network has at times; and ticks by which the age of signals changes from one to the
next. Where robot and policy do not beat together ages change, too, but slowly."""
WEIGHT = 4.0
"""Log odds for each factor of e beyond what is usual."""
HARM = {"dropped": 1.0, "order": 0.5, "duplicate": 0.5, "uneven": 1.0}
"""A packet that comes twice or behind a newer one is not used: it does less harm than one that never comes."""
PLAIN = 4.0
"""Evidence of a network so bad that everything else is uncertain until it is repaired."""


@dataclass(frozen=True)
class Packets:
    shares: dict[str, float]
    """Of the ticks in which packets were missing, came behind newer ones, or twice; `uneven`: change of age, in ticks."""

    @property
    def evidence(self) -> float:
        """Log odds that this is what is wrong; below zero where it is not worth a word."""
        return max(HARM[kind] * WEIGHT * float(np.log(max(share / USUAL, 0.02))) for kind, share in self.shares.items())

    @property
    def plain(self) -> bool:
        return self.evidence > PLAIN

    @property
    def text(self) -> str:
        words = {
            "dropped": "packets are missing in {} of ticks",
            "order": "packets come behind newer ones in {} of ticks",
            "duplicate": "packets come twice in {} of ticks",
        }
        said = [text.format(f"{100 * self.shares[kind]:.0f} %") for kind, text in words.items() if self.shares[kind] > USUAL]
        if self.shares["uneven"] > USUAL:
            said.append(f"the age of signals changes by {100 * self.shares['uneven']:.0f} % of a tick from one to the next")
        return ", ".join(said)


def packets(episodes: Sequence[Episode]) -> Packets:
    """Of all recordings together; recordings that do not say had no faults."""
    rules = [np.nan_to_num(e.status["rules"]).astype(int) for e in episodes if "rules" in e.status]
    ticks = np.concatenate(rules) if rules else np.zeros(1, int)
    shares = {kind: float((ticks & BIT[kind] > 0).mean()) for kind in ("dropped", "order", "duplicate")}
    changes = [np.abs(np.diff(e.status["age"])) * e.rate for e in episodes if "age" in e.status]
    change = np.concatenate([np.zeros(0), *changes])
    change = change[np.isfinite(change)]
    return Packets(shares | {"uneven": float(change.mean()) if len(change) else 0.0})
