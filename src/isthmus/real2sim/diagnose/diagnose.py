"""Why: recordings -> evidence -> causes with probabilities -> words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.episode import Episode
from isthmus.deploy.controller import Controller
from isthmus.real2sim.diagnose.evidence import Evidence, gather_evidence
from isthmus.real2sim.diagnose.verdict import AS_BELIEVED_CAUSES, RankedCause, Verdict, rank_causes
from isthmus.real2sim.diagnose.wording import Advice, advice_for, headline
from isthmus.real2sim.measure.measure import Gap
from isthmus.real2sim.prepare.prepare import prepare
from isthmus.sim.robot import Robot
from isthmus.world import Belief


@dataclass(frozen=True)
class Diagnosis:
    headline: str
    """One sentence."""
    verdict: Verdict | None = None
    evidence: Evidence | None = None
    advice: tuple[tuple[RankedCause, Advice], ...] = ()
    """Most probable first."""

    @property
    def names_fault(self) -> bool:
        """Whether something is named that is not as it was believed to be: little data can show that, but not the opposite."""
        return self.verdict is not None and self.verdict.cause not in (None, *AS_BELIEVED_CAUSES)

    def to_dict(self) -> dict[str, Any]:
        if self.verdict is None or self.evidence is None:
            return {"headline": self.headline, "cause": None, "hypotheses": []}
        return {
            "headline": self.headline,
            "cause": self.verdict.cause,
            "hypotheses": [
                {"cause": h.cause, "p": h.probability, "clue": asdict(h.explanation) if h.explanation else None} | asdict(text)
                for h, text in self.advice
            ],
            "evidence": self.evidence.to_dict(),
        }


def diagnose(
    robot: Robot,
    controller: Controller,
    episodes: Sequence[Episode],
    belief: Belief,
    gap: Gap | None = None,
    task: Any = None,
    threads: int = 0,
    report: Callable[[float, str], None] = lambda share, what: None,
) -> Diagnosis:
    """The cause of a gap, from recordings alone.

    Where it was measured, and there is a `task` that says what the controller is for, also whether the policy is to blame.
    """
    try:
        prepared = prepare(robot, episodes, findings=gap.findings if gap else ())
        evidence = gather_evidence(prepared, controller, belief, threads, report, gap, task)
    except BadInput as error:
        return Diagnosis(f"Cannot tell why, because {error}")
    except np.linalg.LinAlgError:
        return Diagnosis("Cannot tell why, because the recordings hold too little to fit numbers to.")
    verdict = rank_causes(evidence)
    words = tuple((h, advice_for(h, evidence, belief)) for h in verdict.ranked_causes)
    return Diagnosis(headline(verdict, evidence, belief), verdict, evidence, words)
