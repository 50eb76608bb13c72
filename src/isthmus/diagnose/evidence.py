"""All that recordings say about why a robot did not do what it did in simulation, before anybody judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isthmus.data.episode import Episode
from isthmus.deploy.controller import Controller
from isthmus.diagnose.agree import disagreements
from isthmus.diagnose.base import Base, base, explanations
from isthmus.diagnose.doubts import finer
from isthmus.diagnose.explain import Block, Told
from isthmus.diagnose.link import Packets, packets
from isthmus.diagnose.noise import noises
from isthmus.diagnose.numbers import AMISS
from isthmus.diagnose.outcome import Outcome, Spread, outcome
from isthmus.diagnose.refined import WORTH, refined
from isthmus.diagnose.rest import places, units
from isthmus.diagnose.spring import spring
from isthmus.diagnose.turned import LEAST, turned
from isthmus.diagnose.wiring import Undone, compared
from isthmus.errors import BadInput
from isthmus.gap.closed import charged
from isthmus.gap.noise import NOISE_ONLY
from isthmus.gap.parrot import Parrot, parrot
from isthmus.gap.suspect import cleaned
from isthmus.gap.suspect.finding import Finding
from isthmus.gap.tracks import Track, own_rate, tracks
from isthmus.gap.whole import Gap
from isthmus.progress import part
from isthmus.sim.reality.check import flies
from isthmus.sim.robot import Robot
from isthmus.world import Belief

WALK = 3.0
"""s of walking that are enough."""
SHOWN = 12
"""Explanations that are kept, and at least the best one of every cause."""


FITTING, COMPARING, UNDOING = (0.0, 0.65), (0.65, 0.75), (0.8, 0.95)
"""Shares of the time that parts of the search take, from and to; drives that may bend come between the latter two."""


@dataclass(frozen=True)
class Clue:
    """One explanation."""

    cause: str
    name: str
    evidence: float
    """Log, over that of numbers inside the belief and nothing else."""
    amounts: tuple[float, ...] = ()
    """Of what it adds, in units of how large they may well be."""
    value: float | None = None
    """Of a number, in its unit."""
    kind: str = ""
    """`noise` of a sensor that is noisier than was believed; else nothing."""


@dataclass(frozen=True)
class Evidence:
    clues: tuple[Clue, ...]
    """Best first: numbers beyond the belief, sensors, missing physics, wiring."""
    soft: float
    """Log evidence of numbers anywhere over that of numbers inside the belief."""
    left: float
    """What the best numbers leave, in units of the sensors' noise."""
    rest: float
    """What the best explanation leaves."""
    packets: Packets
    parrot: Parrot
    numbers: dict[str, float]
    """The best ones, inside the belief or not."""
    outcome: Outcome | None = None
    """What the policy did, and does in simulation; None where that cannot be told."""

    def best(self, cause: str) -> float:
        return max((c.evidence for c in self.clues if c.cause == cause), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "clues": [asdict(c) for c in self.clues],
            "soft": self.soft,
            "left": self.left,
            "rest": self.rest,
            "packets": self.packets.shares,
            "parrot": asdict(self.parrot),
            "numbers": self.numbers,
            "outcome": asdict(self.outcome) if self.outcome else None,
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Evidence:
        clues = tuple(Clue(**{**c, "amounts": tuple(c["amounts"])}) for c in data["clues"])
        done, link, said = data.get("outcome"), Packets(data["packets"]), Parrot(**data["parrot"])
        if done:
            done = Outcome(**done | {k: Spread(**done[k]) for k in ("believed_score", "found_score")})
        return Evidence(clues, data["soft"], data["left"], data["rest"], link, said, data["numbers"], done)


def gather(
    robot: Robot,
    controller: Controller,
    episodes: Sequence[Episode],
    belief: Belief,
    findings: Sequence[Finding] = (),
    threads: int = 0,
    report: Callable[[float, str], None] = lambda share, what: None,
    measured: Gap | None = None,
    task: Any = None,
) -> Evidence:
    """`findings` are those of `suspect`, whose samples are left out. `measured` is how far it is, where that is known."""
    whole = cleaned(episodes, findings)
    robot = robot.at_rate(own_rate(whole, robot.contract))
    everything = tracks(whole, robot.contract, 1.0 / robot.contract.rate)
    found = walked(robot, whole, everything)
    at_rest = [Clue("wiring", text, evidence) for text, evidence in units(robot, episodes, belief)]
    link, said = packets(episodes), parrot(controller, episodes)
    report(0.0, "fitting numbers")
    # A drone that is predicted in the steps of its training is late by half of one, and numbers would make up for that.
    fine = finer(robot) if flies(robot) else robot
    try:
        fitting = part(lambda share: report(share, "fitting numbers"), *FITTING)
        at = base(fine, found, belief, threads, not link.plain, fitting)
    except BadInput:
        # A robot that the guard stops at once leaves little, but that may be enough.
        at_rest += [Clue("wiring", text, evidence) for text, evidence in places(robot, episodes)]
        if not at_rest and link.evidence <= 0 and not said.differs:
            raise
        return Evidence(tuple(at_rest), 0.0, 1.0, 1.0, link, said, {})
    clues, rest = at_rest, 1.0
    # A bad network leaves much that looks like anything, and it takes long to try it all.
    if not link.plain:
        more, rest = _searched(robot, fine, found, belief, at, bool(at_rest), threads, report)
        noisy = [n for n in noises(robot, everything, belief) if n.evidence > 0]
        more += [Clue("sensor", n.text, n.evidence, value=n.sigma, kind="noise") for n in noisy]
        clues = sorted([*more, *at_rest], key=lambda c: -c.evidence)
    values = belief.space.subset(at.fitted.names).from_unconstrained(at.fitted.point.z)
    numbers = dict(zip(at.fitted.names, map(float, values), strict=True))
    done = None
    if measured is not None and measured.behaviour is not None:
        report(UNDOING[1], "living through it")
        covered = measured.coverage
        done = outcome(robot, task, controller, whole, found, belief, at, measured.behaviour, covered, threads)
    first = {c.cause: c for c in reversed(clues)}
    kept = tuple(c for i, c in enumerate(clues) if i < SHOWN or first[c.cause] is c)
    return Evidence(kept, at.quadratic.soft, at.fitted.times, rest, link, said, numbers, done)


def _searched(
    robot: Robot,
    fine: Robot,
    found: Sequence[Track],
    belief: Belief,
    at: Base,
    at_rest: bool,
    threads: int,
    report: Callable[[float, str], None],
) -> tuple[list[Clue], float]:
    """All that explains recordings, and what the best of it leaves; `at_rest`: a mistake is known already."""
    followed, told, rest = at.fitted.residual.followed, [], at.fitted.times
    report(COMPARING[0], "comparing explanations")
    if not followed:
        comparing = part(lambda share: report(share, "comparing explanations"), *COMPARING)
        told, rest = refined(at, belief, explanations(at), comparing)
    report(COMPARING[1], "bending drives")
    bent = spring(at, found, belief, threads) if at.fitted.times > NOISE_ONLY else None
    clues, bends = [], False
    if bent is not None and bent.evidence > 0:
        clues, bends = [Clue("physics", "spring", bent.evidence, value=bent.stiffness)], bent.evidence > WORTH
        rest = min(rest, bent.left)
    report(UNDOING[0], "undoing mistakes")
    undone = turned(robot, found)
    # Where a robot on its feet is as believed but for springs or a mistake, it takes long to try more, and nothing is gained.
    enough = followed and bends
    if at.fitted.times > AMISS and rest > NOISE_ONLY and not enough:
        undoing = part(lambda share: report(share, "undoing mistakes"), *UNDOING)
        undone += compared(fine, found, belief, at, threads, undoing)
    if followed and not enough and not any(u.left < AMISS and u.evidence > 0 for u in undone):
        told = explanations(at)
    rest = min([rest, *(u.left for u in undone if u.evidence > 0)])
    if not at_rest and not bends:
        # What comes in another frame or unit agrees with nothing, and few samples of what shakes do not agree either.
        least = max([LEAST, *(u.evidence for u in undone if u.mistake.kind in ("frame", "order", "sign", "unit"))])
        clues += [Clue("sensor", d.text, d.evidence) for d in disagreements(robot, found) if d.evidence > least]
    return [*clues, *_clues(at, belief, told), *map(_mistake, undone)], rest


def walked(robot: Robot, episodes: Sequence[Episode], found: Sequence[Track]) -> list[Track]:
    """Without the parts in which a robot on its feet got up or lay down: a belly on the ground is not what it is about."""
    parts = charged(robot, episodes, found) if robot.feet else []
    return parts if any(len(t) >= WALK * robot.contract.rate for t in parts) else list(found)


def _clues(at: Base, belief: Belief, told: Sequence[tuple[Block | None, Told]]) -> list[Clue]:
    if not told:
        return []
    (_, nothing), *found = told
    names = at.fitted.names
    space, out = belief.space.subset(names), []
    for block, one in found:
        assert block is not None
        value = None
        if block.cause == "outside":
            i = names.index(block.name)
            z = one.z.copy()
            z[i] += one.c[0]
            value = float(space.from_unconstrained(np.clip(z, -20.0, 20.0))[i])
        shares = tuple(float(c) for c in one.c / block.spread)
        out.append(Clue(block.cause, block.name, one.evidence - nothing.evidence, shares, value))
    return out


def _mistake(undone: Undone) -> Clue:
    return Clue("wiring", undone.mistake.text, undone.evidence)
