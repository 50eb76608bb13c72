"""Success of a virtual robot over many episodes, which no hardware offers: for the report, after the last decision.

Nothing that decides imports this module.
"""

from __future__ import annotations

from collections.abc import Generator

from isthmus.learn.evaluate.evaluate import Evaluation
from isthmus.pipeline.evidence import LoopHistory
from isthmus.pipeline.journal import Call, CallRecord
from isthmus.pipeline.outcome import VirtualScore
from isthmus.pipeline.settings import REPORT, LoopSettings

VIRTUAL_LINK = "sim:"
"""Begins the link of a virtual robot in this process; its reality follows."""


def virtual_scores(settings: LoopSettings, history: LoopHistory) -> Generator[Call, CallRecord, tuple[VirtualScore, ...]]:
    """The score of each attempt's policy; empty for a robot that is not virtual."""
    found: list[VirtualScore] = []
    reality = settings.link.removeprefix(VIRTUAL_LINK) if settings.link.startswith(VIRTUAL_LINK) else ""
    for attempt in history.attempts if reality else ():
        arguments = {
            "policy": attempt.run,
            "reality": reality,
            "worlds": REPORT.virtual_episodes,
            "seed": settings.seed + 1,
        }
        purpose = f"for the report: {REPORT.virtual_episodes} episodes of the virtual robot"
        record = yield Call("virtual-score", purpose, "evaluate", arguments)
        if (result := record.result_as(Evaluation)) is not None:
            found.append(VirtualScore(attempt.controller.name, result.success, result.score))
    return tuple(found)
