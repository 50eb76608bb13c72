"""What a loop was asked for, and everything that it did, in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from isthmus.learn.recipes import budget
from isthmus.loop.steps import Done
from isthmus.loop.tuned import tuned

OWN = "hidden.toml"
"""Name, in the loop's folder, of a reality that comes with a task."""
GOOD = 0.9
"""Part of the episodes that must succeed for a robot to be called able."""
SHARE = (0.5, 0.25)
"""Of a budget, for the first training and for all others; the rest is for everything else."""
TRAININGS, WITHIN = 6, 2
"""How often a policy is trained for a twin, at most, and within a budget."""


@dataclass(frozen=True)
class Settings:
    """What a loop was asked for; it goes on only under the same."""

    task: str
    link: str
    """Link to the robot, as `isthmus run` takes it."""
    watched: str = ""
    """Reality of a virtual robot, as `isthmus eval` takes it, for watching it; nothing here reads what it says."""
    seconds: float = 10.0
    rounds: int = 1
    budget: float = 0.0
    """Minutes for all of it; 0 takes what it needs."""
    seed: int = 0
    run: str = ""
    """A policy to begin with, instead of training one."""

    def reality(self, folder: Path) -> str:
        """Of a virtual robot, as commands take it."""
        return str(folder / OWN) if self.watched == OWN else self.watched

    def robot(self, folder: Path) -> str:
        """The link to the robot."""
        return f"sim:{self.reality(folder)}" if self.watched else self.link

    @property
    def trainings(self) -> int:
        """How often a policy is trained after a repair, at most."""
        return WITHIN if self.budget else TRAININGS

    def training(self, which: Literal["first", "on", "anew"]) -> tuple[str, ...]:
        """Options that say how long a policy is trained: the first of all, one that goes on, one that begins anew."""
        if self.budget:
            share = SHARE[0] if which == "first" else SHARE[1] / (self.rounds * WITHIN)
            return "--minutes", f"{self.budget * share:.4g}"
        if ticks := tuned(self.task).ticks[which == "on"]:
            return "--steps", str(ticks)
        return "--minutes", f"{budget(self.task) * (0.5 if which == 'on' else 1.0):.4g}"


def recorded(runs: Iterable[Done]) -> float:
    """s of the robot's time in some runs."""
    return sum(float(done.result.get("seconds") or 0.0) for done in runs)


@dataclass(frozen=True)
class Attempt:
    """A policy on the robot."""

    name: str
    run: Path
    controller: Path
    records: tuple[Done, ...] = ()
    watched: Done | None = None
    gap: Done | None = None
    certificate: Done | None = None

    @property
    def recordings(self) -> tuple[Path, ...]:
        return tuple(p for done in self.records for p in done.step.made if p.exists())

    @property
    def why(self) -> dict[str, Any]:
        return (self.gap.result.get("why") or {}) if self.gap and not self.gap.failed else {}

    @property
    def cause(self) -> str | None:
        return self.why.get("cause")

    @property
    def success(self) -> dict[str, Any] | None:
        """Of a virtual robot: rate with its interval."""
        return self.watched.result.get("success") if self.watched and not self.watched.failed else None

    @property
    def seconds(self) -> float:
        """Of the robot's time that was recorded."""
        return recorded(self.records)


@dataclass(frozen=True)
class Repair:
    """What was done about a gap."""

    cause: str | None
    what: str
    """none, by hand, longer, wider, adapt, numbers or experiment."""
    twin: Path | None = None
    identified: Done | None = None
    probe: Done | None = None
    learned: tuple[Done, ...] = ()
    """Motor laws and forces that were tried on top of the numbers."""


@dataclass
class Story:
    """Everything that a loop did, in order."""

    attempts: list[Attempt] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    stopped: str = ""
    """Why it could not go on; empty if it came to its end."""
    swept: tuple[Done, ...] = ()
    """The first and the last policy in many worlds."""

    @property
    def seconds(self) -> float:
        """Of the robot's time that was recorded."""
        return sum(a.seconds for a in self.attempts) + recorded(r.probe for r in self.repairs if r.probe is not None)

    @property
    def twin(self) -> Path | None:
        """The last that was made."""
        return next((r.twin for r in reversed(self.repairs) if r.twin), None)

    @property
    def best(self) -> Attempt:
        """The policy that did best on the robot, as far as that is known; of equals the last."""
        return max(reversed(self.attempts), key=lambda a: a.success["rate"] if a.success else 0.0)


def good(a: Attempt) -> bool:
    """Whether it passed its validation and the robot did its task: of a virtual one as watched, of another as recorded."""
    if a.certificate is None or a.certificate.code != 0:
        return False
    return does(a)


def gained(story: Story) -> bool:
    """Whether the last policy is better than all before; of a robot that nobody watches, nobody can tell."""
    rates = [a.success["rate"] for a in story.attempts if a.success]
    return len(rates) < 2 or rates[-1] > max(rates[:-1])


def does(a: Attempt) -> bool:
    """Whether the robot does its task."""
    if a.watched is not None:
        return a.success is not None and float(a.success["rate"]) >= GOOD
    measures = ((a.gap.result.get("behaviour") or {}).get("measures") or []) if a.gap is not None and not a.gap.failed else []
    recorded = next((m["recorded"] for m in measures if m["name"] == "success"), None)
    return bool(a.records) and all(d.code == 0 for d in a.records) and (recorded is None or recorded >= GOOD)
