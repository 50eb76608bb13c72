"""From recordings to a fitted robot, and how well it predicts what it was not fitted to.

suspect -> tracks -> noise -> horizon -> segments -> fit on four fifths (-> search, and again) (-> draws) -> errors on both
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from isthmus.data.episode import Episode
from isthmus.errors import BadInput
from isthmus.gap.horizon import horizon
from isthmus.gap.noise import floor
from isthmus.gap.observer import follows
from isthmus.gap.residual import Component, Components, Residual, skipped
from isthmus.gap.segments import Segments, cut
from isthmus.gap.suspect import cleaned, refuse, suspect
from isthmus.gap.suspect.finding import Finding
from isthmus.gap.tracks import own_rate, tracks
from isthmus.identify.descend import descend
from isthmus.identify.fit import Fit
from isthmus.identify.prior import prior
from isthmus.identify.sample import sample
from isthmus.identify.search import Looked, When, best_fit
from isthmus.sim.robot import Robot
from isthmus.world import Belief

HELD_OUT = 5
"""One block in so many is held out."""
BLOCKS = 10
"""Consecutive blocks that the segments are dealt into: neighbours in time stay together."""

Posterior = Literal["gauss", "sample"]


@dataclass(frozen=True)
class Errors:
    """Multi-step prediction error per component, root mean square, in the signal's unit."""

    components: tuple[Component, ...]
    rms: np.ndarray
    """(components,)"""
    relative: np.ndarray
    """(components,) in units of the floor of the noise."""

    @property
    def overall(self) -> float:
        """Root mean square of the relative errors."""
        seen = self.relative[np.isfinite(self.relative)]
        return float(np.sqrt(np.mean(seen**2))) if len(seen) else float("nan")


@dataclass(frozen=True)
class Study:
    fit: Fit
    floor: np.ndarray
    """(components,) noise of the signals by themselves."""
    ahead: float
    """s that were predicted."""
    train: Segments
    held_out: Segments | None
    before: tuple[Errors, Errors | None]
    """At the belief's median, on the segments fitted to and on those held out."""
    after: tuple[Errors, Errors | None]
    """At the optimum."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with the recordings."""
    looked: Looked | None = None
    """What a global search brought, if there was one."""
    followed: bool = False
    """Whether the robot was followed tick by tick, instead of predicted so far ahead."""


def study(
    robot: Robot,
    episodes: Sequence[Episode],
    belief: Belief,
    names: Iterable[str] | None = None,
    ahead: float = 0.0,
    threads: int = 0,
    report: Callable[[int, float], None] = lambda step, cost: None,
    findings: Sequence[Finding] | None = None,
    trust: bool = False,
    search: When = "auto",
    posterior: Posterior = "gauss",
    seed: int = 0,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> Study:
    """Fit the robot to recordings, predicting `ahead` seconds; 0 chooses the horizon. `findings` and `trust` as in `prepare`.

    `search` says when to look for a better valley than the one that the belief's middle is in, `posterior` whether the belief
    afterwards is normal or made of draws; both have a `seed`. `report` hears of the fit, `progress` of all else:
    searching, how sure, sampling, judging.
    """
    if posterior == "sample" and follows(robot):
        raise BadInput(f"a belief about {robot.name}, a robot on its feet, cannot be sampled: the ticks repeat each other.")
    parts = prepare(robot, episodes, belief, ahead, threads, findings, trust)
    robot, noise, train, held_out = parts.robot, parts.floor, parts.train, parts.held_out
    fitted, looked = best_fit(robot, train, belief, noise, names, search, seed, threads, report, progress)
    if posterior == "sample":
        fitted = sample(robot, train, fitted, belief, seed, threads=threads, report=lambda share: progress("sampling", share))
    worlds = (belief.median(), fitted.e)
    progress("judging", 0.0)
    fitted_to = errors(robot, train, noise, fitted.noise, worlds, threads)
    progress("judging", 0.8)  # about as many pieces are fitted to as this, of all
    held = errors(robot, held_out, noise, fitted.noise, worlds, threads) if held_out else (None, None)
    before, after = zip(fitted_to, held, strict=True)
    return Study(fitted, noise, parts.ahead, train, held_out, before, after, parts.findings, looked, follows(robot))


@dataclass(frozen=True)
class Parts:
    """Recordings as a fit takes them."""

    robot: Robot
    """At the rate of the recordings."""
    floor: np.ndarray
    """(components,) noise of the signals by themselves."""
    ahead: float
    """s to predict."""
    train: Segments
    held_out: Segments | None
    findings: tuple[Finding, ...]
    """What is wrong with the recordings."""


def prepare(
    robot: Robot,
    episodes: Sequence[Episode],
    belief: Belief,
    ahead: float = 0.0,
    threads: int = 0,
    findings: Sequence[Finding] | None = None,
    trust: bool = False,
) -> Parts:
    """Cut recordings into segments to fit to and segments to judge by; an `ahead` of 0 chooses the horizon.

    `findings` are those of `suspect` on these recordings, if the caller has looked already. What can be handled is; the rest
    is refused, unless there is `trust` in the recordings as they are.
    """
    findings = suspect(robot, episodes) if findings is None else findings
    if not trust:
        refuse(findings)
    episodes = cleaned(episodes, findings)
    robot = robot.at_rate(own_rate(episodes, robot.contract))
    found = tracks(episodes, robot.contract, 1.0 / robot.contract.rate)
    noise = floor(found, Components(robot.contract))
    if not np.isfinite(noise).any():
        raise BadInput("the recordings hold no signal of the robot that could be compared.")
    skip, rate = skipped(robot), robot.contract.rate
    ticks = skip + max(1, round(ahead * rate)) if ahead else horizon(found, robot, noise, belief.median(), threads)
    train, held_out = split(cut(found, robot, ticks, ticks - skip))
    return Parts(robot, noise, (ticks - skip) / rate, train, held_out, tuple(findings))


def split(segments: Segments) -> tuple[Segments, Segments | None]:
    """Segments to fit to, and those held out: every fifth block of neighbours; none of fewer than BLOCKS segments."""
    n = len(segments)
    if n < BLOCKS:
        return segments, None
    block = np.arange(n) * BLOCKS // n
    # One segment between the parts may overlap both; it goes with neither.
    out = block % HELD_OUT == HELD_OUT // 2
    edge = out & np.concatenate([[False], ~out[:-1]])
    return segments.take(~out), segments.take(out & ~edge if (out & ~edge).any() else out)


def errors(
    robot: Robot, segments: Segments, noise: np.ndarray, sigma: np.ndarray, worlds: Sequence[np.ndarray], threads: int = 0
) -> list[Errors]:
    """Of predictions in each of the worlds e, every segment from the start that suits it best."""
    components = tuple(Components(robot.contract).all)
    found = []
    for squares, count in misses(robot, segments, sigma, worlds, threads):
        with np.errstate(invalid="ignore", divide="ignore"):
            rms = np.sqrt(squares.sum(0) / count.sum(0))
        found.append(Errors(components, rms, rms / noise))
    return found


def misses(
    robot: Robot, segments: Segments, sigma: np.ndarray, worlds: Sequence[np.ndarray], threads: int = 0, steps: int = 40
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same by segment: sum of squared errors in the signal's unit and number of comparisons, both (S, components).

    Starts are looked for in at most so many steps.
    """
    residual = Residual(robot, segments, sigma, (), threads)
    nothing, count = prior(Belief(robot.space), residual.space), residual.seen.sum(1)
    found = []
    for e in worlds:
        xi = np.zeros((len(segments), 0))
        if not residual.followed:
            xi = descend(residual, nothing, np.zeros(0), e, steps=steps)[0].xi
        r = residual(e[None], xi[None])[0] * sigma
        found.append(((r**2).sum(1), count))
    return found
