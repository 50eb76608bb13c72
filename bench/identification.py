"""Our identification beside `mujoco.sysid`: the same planted problems, to the same optimum, with the same threads.

    python -m bench.identification                            about ten minutes
    python -m bench.identification --problem pendulum --rounds 1
    python -m bench.identification -o runs/identification.md

It needs `mujoco[sysid]`. Both tools get the same model, segments, noise, loss, bounds and first guess; `bench/planted.py` makes
them and `bench/other.py` says how `mujoco.sysid` is told. Starts are either known to both, or found by both. Each is timed
several times, in turn, until it first tries a point whose cost is within TOLERANCE of the lowest that either tool found, and
until it stops by its own rule. Elapsed time is what one waits for; processor time is steadier on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from unittest import mock

import numpy as np

from bench import planted
from bench.__main__ import commit
from bench.other import Other, installed
from bench.planted import Problem, Work
from isthmus.real2sim.identify.fit import fit
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.residual.estimators import FreeStarts
from isthmus.real2sim.residual.gauss_newton import gauss_newton
from isthmus.real2sim.residual.normal_equations import NormalEquations
from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.sim.engines.batch.engine import BatchEngine

PROBLEMS = {"pendulum": planted.pendulum, "legs": planted.legs}
TOLERANCE = 0.01
"""Log-likelihood per number to be found: our own rule for stopping. A hundredth moves a number by a tenth of its error."""
COLUMNS = 20
"""Of a large derivative of theirs that are measured: the time of the whole is in proportion."""
SAME = 1e-9
"""σ by which the residuals of the two tools may differ at one point."""
FLAT = 1e-6
"""Precision of the prior, in unconstrained coordinates: none."""
OURS, THEIRS, KEPT = "isthmus", "mujoco.sysid", "mujoco.sysid, models kept"


class KnownStarts(FreeStarts):
    """Segments start from the states that they have: x = 0."""

    def start_scale(self, components: Components, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(0), np.zeros(0)


class Counted(ParameterResidual):
    """The residual without a segment's first tick, which mujoco.sysid does not compare; its work is counted."""

    def __init__(self, problem: Problem, known: bool, threads: int, work: Work):
        self.work = work
        segments = problem.known if known else problem.guessed
        estimator = KnownStarts(problem.robot) if known else FreeStarts(problem.robot)
        super().__init__(problem.robot, segments, problem.noise, problem.robot.space.names, threads, estimator)
        self.seen[:, 0] = False

    def predict(self, e: np.ndarray, xi: np.ndarray, noise_draw: np.ndarray | None = None) -> np.ndarray:
        self.work.replays += len(e)
        return super().predict(e, xi, noise_draw)


@dataclass(frozen=True)
class Run:
    e: np.ndarray
    """(d,) what was found."""
    work: Work


def ours(problem: Problem, known: bool, threads: int) -> Run:
    """Gauss-Newton alone: no prior, and the noise given."""
    work = Work()
    with mock.patch.object(BatchEngine, "step", work.timed(BatchEngine.step)):
        residual = Counted(problem, known, threads, work)
        z = residual.space.unconstrained(problem.start)
        flat = GaussianPrior(residual.space, z, FLAT * np.eye(len(z)))
        at, _ = gauss_newton(residual, flat, z, problem.start, report=lambda step, cost: work.note(cost))
    work.stop()
    return Run(residual.space.from_unconstrained(at.z), work)


def whole(problem: Problem, threads: int) -> Run:
    """All that `isthmus identify` does with segments: a prior, the noise found as well, and the information."""
    work = Work()
    with mock.patch.object(BatchEngine, "step", work.timed(BatchEngine.step)):
        found = fit(
            problem.robot, problem.guessed, problem.robot.prior, 2 * problem.noise, start=problem.start, threads=threads
        )
    work.stop()
    return Run(found.e, work)


def theirs(problem: Problem, known: bool, threads: int, keep: bool) -> Run:
    other = Other(problem, known, threads, keep)
    return Run(other.fit(), other.work)


class Judge:
    """Costs and distances, by one measure for all."""

    def __init__(self, problem: Problem, known: bool, threads: int):
        self.problem = problem
        self.residual = Counted(problem, known, threads, Work())
        self.empty = Counted(problem, known, threads, Work())
        self.empty.space, self.empty.parameter_columns = self.residual.space.subset(()), np.zeros(0, int)
        z = self._z(problem.truth)
        xi = np.zeros((len(problem.known), len(self.residual.start_scale)))
        small = np.full(len(z), 1e-3), np.full(xi.shape, 1e-3)
        found = NormalEquations(self.residual.linearize(z, problem.truth, xi, *small), self.residual.start_weight)
        self.information = found.matrix

    def _z(self, e: np.ndarray) -> np.ndarray:
        return self.residual.space.unconstrained(e)

    def cost(self, e: np.ndarray) -> float:
        """With the best starts that go with e, if they are not known."""
        none = GaussianPrior(self.empty.space, np.zeros(0), np.zeros((0, 0)))
        return gauss_newton(self.empty, none, np.zeros(0), e)[0].cost

    def apart(self, a: np.ndarray, b: np.ndarray) -> float:
        """Distance in standard errors, root mean square over the directions."""
        off = self._z(a) - self._z(b)
        return float(np.sqrt(off @ self.information @ off / len(off)))


def check_same(problem: Problem, known: bool, threads: int) -> None:
    """Both tools see the same residuals, in the true world and in the first one; otherwise there is nothing to compare."""
    residual, other = Counted(problem, known, threads, Work()), Other(problem, known, threads)
    xi = np.zeros((1, len(problem.known), len(residual.start_scale)))
    for e in (problem.truth, problem.start):
        apart = np.abs(residual(e[None], xi)[0][:, 1:] - other.at(e)).max()
        if apart > SAME:
            raise RuntimeError(f"the residuals of {problem.name} differ by {apart:.2g} σ between the two tools.")


def compare(name: str, known: bool, rounds: int, threads: int) -> list[str]:
    """Rows of the table for one problem."""
    problem = PROBLEMS[name]()
    check_same(problem, known, threads)
    judge = Judge(problem, known, threads)
    tools: dict[str, Callable[[], Run]] = {
        OURS: lambda: ours(problem, known, threads),
        THEIRS: lambda: theirs(problem, known, threads, keep=False),
        KEPT: lambda: theirs(problem, known, threads, keep=True),
    }
    if not known and name == "legs":
        return _one_derivative(problem, judge, threads)
    runs: dict[str, list[Run]] = {tool: [] for tool in tools}
    for _ in range(rounds):
        for tool, run in tools.items():
            runs[tool].append(run())
            say(f"{name}, {'known' if known else 'free'}, {tool}: {runs[tool][-1].work.total[0]:.1f} s")
    lowest = {tool: min(cost for *_, cost in many[0].work.trace) for tool, many in runs.items()}
    enough = min(lowest.values()) + TOLERANCE * len(problem.truth)
    rows = []
    for tool, many in runs.items():
        row = _row(problem, known, tool, many, enough, judge, runs[OURS])
        rows.append(f"{row} {lowest[tool] - min(lowest.values()):.3f} | {judge.apart(many[0].e, runs[OURS][0].e):.3f} |")
    if not known:
        rows.append(_whole(problem, judge, threads))
    return rows


def _row(problem: Problem, known: bool, tool: str, many: list[Run], enough: float, judge: Judge, base: list[Run]) -> str:
    work = many[0].work
    ratios = []
    for clock in (0, 1):
        pairs = [(m.work.reached(enough)[clock], b.work.reached(enough)[clock]) for m, b in zip(many, base, strict=True)]
        ratios.append(spread([m / b for m, b in pairs]))
    stopped = spread([m.work.total[1] / b.work.total[1] for m, b in zip(many, base, strict=True)])
    return (
        f"| {_name(problem, known)} | {tool} | {ratios[0]} | {ratios[1]} | {stopped} | {work.replays} | "
        f"{_speed(problem, work)} | {_shares(work)} | {judge.apart(many[0].e, problem.truth):.2f} |"
    )


def _whole(problem: Problem, judge: Judge, threads: int) -> str:
    one, base = whole(problem, threads), ours(problem, False, threads)
    ratio = f"{one.work.total[1] / base.work.total[1]:.2g}"
    return (
        f"| {_name(problem, False)} | isthmus, whole fit | | | {ratio} | | | {_shares(one.work)} | "
        f"{judge.apart(one.e, problem.truth):.2f} | | {judge.apart(one.e, base.e):.3f} |"
    )


def _one_derivative(problem: Problem, judge: Judge, threads: int) -> list[str]:
    """With hundreds of starts to find, some columns of one derivative of theirs tell enough."""
    mine, other = ours(problem, False, threads), Other(problem, False, threads)
    share = other.derivative(COLUMNS) / COLUMNS
    apart, name = judge.apart(mine.e, problem.truth), _name(problem, False)
    ratio = [share * b / a for a, b in zip(mine.work.total, other.work.total, strict=True)]
    return [
        f"| {name} | {OURS} | 1 | 1 | 1 | {mine.work.replays} | {_speed(problem, mine.work)} | {_shares(mine.work)} | "
        f"{apart:.2f} | 0 | 0 |",
        f"| {name} | {THEIRS}, one derivative | {ratio[0]:.2g} | {ratio[1]:.2g} | | {share * other.work.replays:.0f} | "
        f"{_speed(problem, other.work)} | {_shares(other.work)} | | | |",
    ]


def _name(problem: Problem, known: bool) -> str:
    starts = 2 * problem.robot.model.nv * len(problem.known)
    return f"{problem.name}, {len(problem.truth)} numbers" + ("" if known else f" and {starts} of starts")


def _speed(problem: Problem, work: Work) -> str:
    return f"{1e6 * work.total[1] / (work.replays * problem.steps):.1f}"


def _shares(work: Work) -> str:
    return f"{work.stepping / work.total[0]:.0%}, {work.compiling / work.total[0]:.0%}"


def spread(values: list[float]) -> str:
    """Median and, of several, the extremes."""
    middle = f"{median(values):.2g}"
    return middle if min(values) == max(values) else f"{middle} ({min(values):.2g} to {max(values):.2g})"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


HEAD = (
    "| problem | tool | time to the optimum, ratio | of the processor, ratio | until it stops, of the processor | replays | "
    "µs per physics step | stepping, compiling | from the truth, σ | cost above the lowest | from isthmus, σ |"
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.identification", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", action="append", choices=list(PROBLEMS), help="only these problems")
    parser.add_argument("--starts", choices=["known", "found"], help="only with starts that are known, or found")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-o", "--out", type=Path, help="file for the table")
    args = parser.parse_args()
    if not installed():
        say("mujoco.sysid lacks its dependencies; install them with: pip install 'mujoco[sysid]'.")
        return 2
    rows = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    for name in args.problem or PROBLEMS:
        for known in (True, False):
            if args.starts in (None, "known" if known else "found"):
                rows += compare(name, known, args.rounds, args.threads)
    load = os.getloadavg()[0]
    said = f"{args.threads} threads, {os.cpu_count()} cores, {platform.machine()}, load {load:.1f}, {args.rounds} rounds"
    text = "\n".join([f"Measured at commit {commit()} with {said}.", "", *rows]) + "\n"
    print(text)
    if args.out:
        args.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
