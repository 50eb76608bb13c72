"""All that is measured of the gap between recordings and a simulator.

recordings -> suspect -> tracks -> noise -> far        the simulator against each short piece of a recording
                                         -> worst      the seconds that it predicts worst, as motion
                                         -> closed     the controller in the loop, in worlds of the belief
                                            -> behaviour, coverage, answers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isthmus.data.episode import Episode
from isthmus.deploy.controller import Controller
from isthmus.errors import BadInput
from isthmus.gap.answers import Answer, answers
from isthmus.gap.behaviour import Behaviour, behaviour
from isthmus.gap.closed import charged, relive, stretches
from isthmus.gap.coverage import Coverage, Space, coverage
from isthmus.gap.far import Far, far, still
from isthmus.gap.noise import floor
from isthmus.gap.parrot import strangeness
from isthmus.gap.region import Region, regions
from isthmus.gap.residual import Components
from isthmus.gap.suspect import cleaned, suspect
from isthmus.gap.suspect.finding import Finding
from isthmus.gap.tracks import own_rate, tracks
from isthmus.gap.worst import Worst, worst
from isthmus.sim.robot import Robot
from isthmus.world import Belief

WORLDS = 64
"""In which the controller runs."""
SAME_RATE = 0.02
"""Of the controller's: at another rate nobody can tell what it would have sent."""
STRANGER = 0.05
"""Of a target's range: where half of what was sent is farther from what a controller would have sent, it was another one."""


@dataclass(frozen=True)
class Gap:
    names: tuple[str, ...]
    """Of the recordings."""
    far: Far | None
    behaviour: Behaviour | None
    coverage: Coverage | None
    regions: tuple[Region, ...]
    findings: tuple[Finding, ...]
    """What is wrong with the recordings."""
    cannot_tell: tuple[str, ...]
    """What could not be measured, and why, a sentence each."""
    worlds: int
    seed: int
    worst: Worst | None = None
    answers: tuple[Answer, ...] = ()
    """Of the policy to its commands, in the simulator."""
    still: bool = False
    """Nothing moves, so nothing can be told."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "score": asdict(self.far.score) | {"unit": "noise", "level": 0.95} if self.far else None,
            "prediction": _prediction(self.far) if self.far else None,
            "replay": _replay(self.far) if self.far and self.far.replay else None,
            "worst": _worst(self.worst, self.names) if self.worst else None,
            "behaviour": _behaviour(self.behaviour) if self.behaviour else None,
            "coverage": _coverage(self.coverage, self.names) if self.coverage else None,
            "commands": [a.to_dict() for a in self.answers],
            "learned": [asdict(r) for r in self.regions],
            "findings": [f.to_dict() for f in self.findings],
            "cannot_tell": list(self.cannot_tell),
            "worlds": self.worlds,
            "seed": self.seed,
        }


def _prediction(f: Far) -> dict[str, Any]:
    components = [{"signal": c.signal, "label": c.label, "unit": c.unit} for c in f.components]
    return {
        "horizons": list(f.horizons),
        "signals": {name: [asdict(m) for m in row] for name, row in f.signals.items()},
        "components": [c | {"noise": f.noise[i], "error": f.error[:, i]} for i, c in enumerate(components)],
        "segments": len(f.segments),
        "belief": {"scores": np.sort(f.worlds), "best": float(f.worlds.min())},
    }


def _replay(f: Far) -> dict[str, Any]:
    assert f.replay is not None
    r = f.replay
    return {"lost_after": asdict(r.lost_after), "lost": vars(r.lost), "possible": r.possible, "length": float(r.time[-1])}


def _worst(w: Worst, names: Sequence[str]) -> dict[str, Any]:
    where = {"file": names[w.recording], "recording": w.recording, "start": w.start, "length": float(w.time[-1])}
    return where | {"error": w.error, "unit": "noise"}


def _behaviour(b: Behaviour) -> dict[str, Any]:
    return {"p": b.p, "failed": vars(b.failed), "measures": [m.to_dict() for m in b.measures]}


def _coverage(c: Coverage, names: Sequence[str]) -> dict[str, Any]:
    return {
        "alarms": c.alarms,
        "uncovered": vars(c.uncovered),
        "p_uncovered": c.p_uncovered,
        "energy_distance": c.energy,
        "p_alike": c.p_alike,
        "windows": [asdict(u) | {"file": names[u.recording]} for u in c.listed],
    }


def measure(
    robot: Robot,
    task: Any,
    controller: Controller,
    episodes: Sequence[Episode],
    belief: Belief,
    names: Sequence[str] = (),
    worlds: int = WORLDS,
    seed: int = 0,
    threads: int = 0,
    report: Callable[[float, str], None] = lambda share, what: None,
    space: Space = "pca",
) -> Gap:
    """The gap of recordings to worlds of the belief; `task`, if there is one, says what the controller is for."""
    names = tuple(names) or tuple(f"recording {i + 1}" for i in range(len(episodes)))
    for name, episode in zip(names, episodes, strict=True):
        check(robot, controller, episode, name)
    findings = suspect(robot, episodes, names)
    episodes = cleaned(episodes, findings)
    robot = robot.at_rate(own_rate(episodes, robot.contract))
    found = tracks(episodes, robot.contract, 1.0 / robot.contract.rate)
    components = Components(robot.contract)
    noise = floor(found, components)
    if not np.isfinite(noise).any():
        why = "the recordings are too short, or hold no signal of the robot that could be compared."
        return Gap(names, None, None, None, (), findings, (f"Cannot tell how far, because {why}",), worlds, seed)
    if still(charged(robot, episodes, found), components, noise):
        why = "nothing moves in the recordings, and nothing was asked to: every simulator that stands still agrees with them."
        nothing = (f"Cannot tell how far or why, because {why}",)
        return Gap(names, None, None, None, (), findings, nothing, worlds, seed, still=True)
    report(0.0, "predicting")
    unsaid: list[str] = []
    try:
        distance = far(robot, found, noise, belief, seed, threads, lambda share: report(0.45 * share, "predicting"))
    except BadInput as error:
        # A robot that falls at once leaves little, but why it did may show in that.
        distance = None
        unsaid.append(f"Cannot tell how far, because {error}")
    report(0.45, "looking for the worst seconds")
    seconds = worst(robot, found, noise, belief.median(), threads)
    if distance is not None and distance.replay is None:
        unsaid.append("Cannot tell for how long a replay holds, because no stretch without a hole is long enough.")
    parts, lived = stretches(robot, controller, episodes, found), []
    e = belief.sample(np.random.default_rng(seed + 1), worlds)
    for i, part in enumerate(parts):
        begin, size = 0.5 + 0.4 * i / len(parts), 0.4 / len(parts)
        go = lambda share, begin=begin, size=size: report(begin + size * share, "living through it")  # noqa: E731
        lived.append((part, relive(robot, controller, part, e, seed + 2 + i, threads, go)))
    report(0.9, "comparing")
    done = behaviour(robot, task, lived) if lived else None
    covered = coverage(robot, lived, seed=seed, space=space) if lived else None
    if not lived:
        unsaid.append("Cannot tell what the policy does, because it was in charge for less than a second.")
    learned = tuple(regions(robot, found))
    heard = tuple(answers(robot, controller, parts, belief.median(), threads)) if parts else ()
    return Gap(names, distance, done, covered, learned, findings, tuple(unsaid), worlds, seed, seconds, heard)


def check(robot: Robot, controller: Controller, episode: Episode, name: str) -> None:
    """Refuse a recording that is not of this robot under this controller."""
    if episode.contract.robot != robot.contract.robot:
        raise BadInput(f"{name} is a recording of {episode.contract.robot}, but the controller is for {robot.contract.robot}.")
    if len(episode) < 2:
        raise BadInput(f"{name} is empty: it has {len(episode)} ticks.")
    if not np.isfinite(episode.target).all(axis=1).any():
        raise BadInput(f"{name} has no targets: what was sent to the robot must be recorded, or nothing can be replayed.")
    made = episode.origin.get("controller_hash")
    if made and controller.hash and made != controller.hash:
        raise BadInput(
            f"{name} was recorded with another controller ({str(made)[:12]}) than this one ({controller.hash[:12]})."
        )
    if (
        made
        or np.isfinite(episode.wanted).any()
        or abs(episode.contract.rate / controller.manifest.robot.rate - 1.0) > SAME_RATE
    ):
        return
    if (off := strangeness(controller, episode)) > STRANGER:
        raise BadInput(
            f"{name} does not say what drove the robot, and this controller would have sent other targets: half of them are "
            f"more than {100 * off:.0f} % of their range off; `isthmus identify` takes recordings of any driver."
        )
