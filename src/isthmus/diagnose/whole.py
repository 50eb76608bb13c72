"""Why: recordings -> evidence -> causes with probabilities -> words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from isthmus.data.episode import Episode
from isthmus.deploy.controller import Controller
from isthmus.diagnose.evidence import Evidence, gather
from isthmus.diagnose.judge import Hypothesis, Verdict, judge
from isthmus.diagnose.words import Told, headline, told
from isthmus.errors import BadInput
from isthmus.gap.suspect.finding import Finding
from isthmus.sim.robot import Robot
from isthmus.world import Belief


@dataclass(frozen=True)
class Diagnosis:
    headline: str
    """One sentence."""
    verdict: Verdict | None = None
    evidence: Evidence | None = None
    told: tuple[tuple[Hypothesis, Told], ...] = ()
    """Most probable first."""

    @property
    def cannot_tell(self) -> bool:
        """Whether there was nothing to judge by."""
        return self.verdict is None

    def to_dict(self) -> dict[str, Any]:
        if self.verdict is None or self.evidence is None:
            return {"headline": self.headline, "cause": None, "hypotheses": []}
        return {
            "headline": self.headline,
            "cause": self.verdict.cause,
            "hypotheses": [
                {"cause": h.cause, "p": h.p, "clue": asdict(h.clue) if h.clue else None} | asdict(text) for h, text in self.told
            ],
            "evidence": self.evidence.to_dict(),
        }


def diagnose(
    robot: Robot,
    controller: Controller,
    episodes: Sequence[Episode],
    belief: Belief,
    findings: Sequence[Finding] = (),
    threads: int = 0,
    report: Callable[[float, str], None] = lambda share, what: None,
) -> Diagnosis:
    """The cause of a gap, from recordings alone."""
    try:
        evidence = gather(robot, controller, episodes, belief, findings, threads, report)
    except BadInput as error:
        return Diagnosis(f"Cannot tell why, because {error}")
    verdict = judge(evidence)
    words = tuple((h, told(h, evidence, belief)) for h in verdict.hypotheses)
    return Diagnosis(headline(verdict, evidence, belief), verdict, evidence, words)
