"""Identification on recordings of real hardware: everything behind docs/results/real-data.md.

    python -m bench.realdata --data REALDATA                     all sets, about an hour
    python -m bench.realdata --data REALDATA servo legs          some of them
    python -m bench.realdata --data REALDATA legs --laws coulomb stribeck     with a shorter ladder of motor laws

Each set is fitted to some recordings and judged by others: error over many steps of (a) the nominal model, (b) with identified
numbers, (c) with the best motor law, (d) with a learned force. What was found goes to OUT/SET.json as soon as it is there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench import bodies
from bench.recordings import CASES as DRIVEN
from bench.recordings import Case
from isthmus.data.episode import Episode
from isthmus.real2sim.identify.fit import fit, posterior_belief
from isthmus.real2sim.identify.force_features import with_learned_force
from isthmus.real2sim.identify.learned_force import learn_force
from isthmus.real2sim.identify.motor_identification import fit_to_motion
from isthmus.real2sim.identify.motor_laws import MOTOR_LAW_TERMS, MotorLawTerm
from isthmus.real2sim.prepare.checks.recording_checks import check, clean_episodes
from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.noise import noise_floor
from isthmus.real2sim.prepare.segments import Segments, cut
from isthmus.real2sim.prepare.tracks import to_tracks
from isthmus.real2sim.residual.estimators import settle_ticks
from isthmus.real2sim.residual.prediction_errors import prediction_errors
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.sim.robot import Robot

CASES = {**DRIVEN, "arm": bodies.arm, "quadrotor": bodies.quadrotor, "cube": bodies.cube}
THREADS = 1
"""The machine may be busy; times are of the processor."""
ROUNDS = 2
"""Of fitting and then taking the noise from what is left."""
LEARNING = 3
"""Rounds of linearising and learning a force."""


@dataclass(frozen=True)
class Ready:
    """A case as fits take it."""

    train: Segments
    test: Segments
    floor: np.ndarray
    """(components,) noise of the signals by themselves, from the recordings fitted to."""
    findings: list[str]
    """What the recordings are suspected of."""


def ready(case: Case) -> Ready:
    findings: list[str] = []

    def part(which: list[Episode], most: int) -> tuple[Segments, np.ndarray]:
        found = check(case.robot, which)
        findings.extend(str(f) for f in found)
        stretches = to_tracks(clean_episodes(which, [f for f in found if not f.refused]), case.robot.contract, 1.0 / rate)
        segments = cut(stretches, case.robot, skip + ahead, ahead)
        rows = np.unique(np.linspace(0, len(segments) - 1, most).astype(int))
        return segments.take(rows), noise_floor(stretches, Components(case.robot.contract))

    rate, skip = case.robot.contract.rate, settle_ticks(case.robot)
    ahead = round(case.ahead * rate)
    train, noise = part(case.fitted, case.segments[0])
    return Ready(train, part(case.judged, case.segments[1])[0], noise, findings)


def judge(robot: Robot, segments: Segments, noise: np.ndarray, e: np.ndarray) -> dict[str, dict[str, float]]:
    """Root mean square errors by signal: from the start that suits each segment best, and from the start as measured."""
    found = prediction_errors(robot, segments, noise, noise, [e], THREADS)[0]
    residual = ParameterResidual(robot, segments, noise, (), THREADS)
    r = residual(e[None], np.zeros((1, len(segments), len(residual.start_scale))))[0] * noise
    with np.errstate(invalid="ignore"):
        blind = np.sqrt((r**2).sum((0, 1)) / residual.seen.sum((0, 1)))
    both = {}
    for name, rms in (("best start", found.rms), ("measured start", blind)):
        by: dict[str, list[float]] = {}
        for c, value in zip(found.components, rms, strict=True):
            by.setdefault(c.signal, []).append(value)
        both[name] = {s: float(np.sqrt(np.mean(np.square(v)))) for s, v in by.items() if np.isfinite(v).all()}
    return both


def measure(case: Case, say: Callable[[str], None], ladder: Sequence[MotorLawTerm] = MOTOR_LAW_TERMS) -> Iterator[dict]:
    """Errors of the four models on recordings that none of them was fitted to; whatever is known after each."""
    robot, at = case.robot, ready(case)
    rows: dict[str, dict] = {}

    def note(name: str, model: Robot, e: np.ndarray, seconds: float, **more) -> None:
        rows[name] = {**judge(model, at.test, noise, e), "seconds": seconds, **more}
        say(f"  {name}: {rows[name]}")

    say(f"  {len(at.train)} segments to fit to, {len(at.test)} to judge by, of {case.ahead} s")
    for finding in at.findings:
        say(f"  suspected: {finding}")
    began = time.process_time()
    found = fit(robot, at.train, robot.prior, at.floor, rounds=ROUNDS, threads=THREADS)
    took = time.process_time() - began
    say(f"  fitted in {found.steps} steps and {took:.0f} s")
    noise, belief, e = found.noise, posterior_belief(robot, found, robot.prior), found.e
    kept = {
        "segments": [len(at.train), len(at.test)],
        "ahead": case.ahead,
        "units": {c.signal: c.unit for c in Components(robot.contract).entries},
        "values": {n: [float(e[robot.space.index(n)]), *map(float, found.interval(n))] for n in found.space.names},
        "at_bounds": list(found.at_bounds()),
        "undetermined": [d.text for d in found.undetermined_directions()],
        "findings": at.findings,
        "models": rows,
    }
    note("nominal", robot, robot.space.nominal, 0.0)
    note("identified", robot, e, took)
    yield kept
    law = robot
    if case.motors:
        began = time.process_time()
        held = np.arange(len(at.train)) % 3 == 1
        inner, outer = at.train.take(~held), at.train.take(held)
        climbed = fit_to_motion(
            robot, inner, outer, belief, at.floor, case.motors, THREADS, prior_belief=robot.prior, law_terms=ladder
        )
        actuator, after = climbed.motor_model, climbed.belief
        learned = () if actuator.learned is None else (actuator.learned,)
        law, e = replace(robot, unit=replace(robot.unit, motors=actuator.motor_figures, learned_forces=learned)), after.median()
        tried = {t.name: t.held_out_error for t in actuator.candidates}
        note("motor law", law, e, time.process_time() - began, law=actuator.chosen_law, tried=tried)
        yield kept
    began = time.process_time()
    joints = tuple(robot.model.joint(j).name for j in range(robot.model.njnt))
    force = learn_force(law, at.train, e, noise, "body", joints, rounds=LEARNING, threads=THREADS)
    note("learned force", with_learned_force(law, force), e, time.process_time() - began)
    yield kept


def main(argv: Sequence[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.realdata", description=__doc__, formatter_class=raw)
    parser.add_argument("sets", nargs="*", help=f"which sets, of {', '.join(CASES)}; by default all")
    parser.add_argument("--data", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/realdata"), help="folder for the results")
    rungs = {rung.name: rung for rung in MOTOR_LAW_TERMS}
    parser.add_argument("--laws", nargs="+", choices=rungs, default=list(rungs), help="motor laws to try; by default all")
    args = parser.parse_args(argv)
    if wrong := [name for name in args.sets if name not in CASES]:
        parser.error(f"there is no set {wrong[0]!r}; there are {', '.join(CASES)}.")
    args.out.mkdir(parents=True, exist_ok=True)
    say = lambda line: print(line, flush=True)  # noqa: E731
    runs = {name: measure(CASES[name](args.data), say, [rungs[law] for law in args.laws]) for name in args.sets or CASES}
    # One model of every set, then the next: what tells most is there first.
    while runs:
        for name, run in list(runs.items()):
            say(name)
            if (found := next(run, None)) is None:
                del runs[name]
            else:
                (args.out / f"{name}.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
