"""What the network did to packets, as the guard noted it tick by tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.data.episode import Episode
from isthmus.deploy.guard.rules import RULE_BITS

USUAL_FAULT_SHARE = 0.05
"""Share of ticks with a fault that every network has at times; and ticks by which the age of signals changes from one to the
next. Where robot and policy do not beat together ages change, too, but slowly."""
FAULT_LOG_ODDS_SLOPE = 4.0
"""Log odds for each factor of e beyond what is usual."""
FAULT_HARM = {"dropped": 1.0, "order": 0.5, "duplicate": 0.5, "uneven": 1.0}
"""A packet that comes twice or behind a newer one is not used: it does less harm than one that never comes."""
CLEARLY_BAD_EVIDENCE = 4.0
"""Evidence of a network so bad that everything else is uncertain until it is repaired."""


@dataclass(frozen=True)
class LinkQuality:
    shares: dict[str, float]
    """Of the ticks in which packets were missing, came behind newer ones, or twice; `uneven`: change of age, in ticks."""

    @property
    def evidence(self) -> float:
        """Log odds that this is what is wrong; below zero where it is not worth a word."""
        return max(
            FAULT_HARM[kind] * FAULT_LOG_ODDS_SLOPE * float(np.log(max(share / USUAL_FAULT_SHARE, 0.02)))
            for kind, share in self.shares.items()
        )

    @property
    def is_clearly_bad(self) -> bool:
        return self.evidence > CLEARLY_BAD_EVIDENCE

    @property
    def text(self) -> str:
        words = {
            "dropped": "packets are missing in {} of ticks",
            "order": "packets come behind newer ones in {} of ticks",
            "duplicate": "packets come twice in {} of ticks",
        }
        said = [
            text.format(f"{100 * self.shares[kind]:.0f} %")
            for kind, text in words.items()
            if self.shares[kind] > USUAL_FAULT_SHARE
        ]
        if self.shares["uneven"] > USUAL_FAULT_SHARE:
            said.append(f"the age of signals changes by {100 * self.shares['uneven']:.0f} % of a tick from one to the next")
        return ", ".join(said)


def link_quality(episodes: Sequence[Episode]) -> LinkQuality:
    """Of all recordings together; recordings that do not say had no faults."""
    rules = [np.nan_to_num(e.status["rules"]).astype(int) for e in episodes if "rules" in e.status]
    ticks = np.concatenate(rules) if rules else np.zeros(1, int)
    shares = {kind: float((ticks & RULE_BITS[kind] > 0).mean()) for kind in ("dropped", "order", "duplicate")}
    changes = [np.abs(np.diff(e.status["age"])) * e.rate for e in episodes if "age" in e.status]
    change = np.concatenate([np.zeros(0), *changes])
    change = change[np.isfinite(change)]
    return LinkQuality(shares | {"uneven": float(change.mean()) if len(change) else 0.0})
