"""Does a watch find what has changed, how soon, and how often does it cry wolf?

    python -m bench.drift pendulum --twins 4 -o runs/drift-pendulum.json

Of each twin: numbers drawn from the prior, a fit to two recordings, and then a series without change, which counts false
alarms, and series with one planted change each, which count how many recordings it takes and whether the right number is
named. Besides, scores are drawn from what the test assumes, as many as it takes to see a rate. Every row is a line of
FILE.jsonl as soon as it is done, and is not done again; FILE.json sums them up.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bench.coverage import EXPERIMENTS
from isthmus.core.statistics import Rate
from isthmus.real2sim.drift.drift import attribute, parameter_change_evidence
from isthmus.real2sim.drift.score_statistics import (
    DriftInputs,
    ScoreStatistics,
    drift_inputs,
    recording_information,
    score_recordings,
)
from isthmus.real2sim.identify.fit import fit, noise_by_signal, posterior_belief
from isthmus.real2sim.identify.identification import prepare_segments
from isthmus.real2sim.prepare.prepare import prepare
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot
from isthmus.sim.simulate_recording import random_multisine, record_targets

SECONDS, FITTED, BEFORE, AFTER, DRAWN = 2.0, 3, 8, 8, 500
"""Of a recording; recordings fitted to, before and after a change; drawn scores per twin."""
STATED = (1.0, 10.0, 50.0)
"""False alarms per 1,000 recordings."""
CHANGES: dict[str, tuple[tuple[str, str, float], ...]] = {
    "pendulum": (
        ("joint_friction", "jump", 0.15), ("joint_friction", "drift", 0.02), ("strength", "drift", -0.03),
        ("payload", "jump", 0.05), ("payload", "jump", 0.15),
    ),
    "cartpole": (
        ("cart_friction", "jump", 0.5), ("cart_friction", "drift", 0.1), ("strength", "drift", -0.03),
        ("payload", "jump", 0.01), ("payload", "jump", 0.05),
    ),
    "held:go1": (("joint_friction", "jump", 0.1), ("strength_FR", "jump", -0.1), ("joint_damping", "jump", 0.1)),
}  # fmt: skip
"""By robot: what changes, how, and by how much, or how much per recording."""


def _recorded(robot: Robot, e: np.ndarray, seeds: range):
    size, law = (0.3, None) if robot.name == "pendulum" else (0.15, EXPERIMENTS[robot.name].law)
    return [record_targets(robot, e, random_multisine(robot, SECONDS, seed, size), seed, law) for seed in seeds]


def _joined(a: ScoreStatistics, b: ScoreStatistics) -> ScoreStatistics:
    return ScoreStatistics(*(np.concatenate([getattr(a, f), getattr(b, f)]) for f in ScoreStatistics.__dataclass_fields__))


def rows(name: str, seed: int) -> Iterator[dict[str, Any]]:
    robot, rng = get_robot(name), np.random.default_rng([seed, 7])
    e = robot.prior.sample(rng, 1)[0]
    parts = prepare_segments(robot, _recorded(robot, e, range(1000, 1000 + FITTED)), robot.prior, threads=1)
    found = fit(parts.robot, parts.train, robot.prior, parts.noise_floor, rounds=2, threads=1)
    belief, left = posterior_belief(robot, found, robot.prior), noise_by_signal(robot, found.noise)
    base = _recorded(robot, e, range(BEFORE + AFTER))
    unit = drift_inputs(prepare(robot, base), belief, robot.prior, threads=1, unexplained_noise=left)
    began = time.perf_counter()
    said, scores = recording_information(unit), score_recordings(unit)
    spent = (time.perf_counter() - began) / len(base)
    for stated in STATED:
        yield {"kind": "none", "stated": stated, **_quiet(unit, scores, said, stated), "seconds": spent}
    for stated in STATED:
        yield {"kind": "drawn", "stated": stated, **_drawn(unit, scores, said, stated, rng)}
    before = ScoreStatistics(*(getattr(scores, f)[:BEFORE] for f in ScoreStatistics.__dataclass_fields__))
    for what, shape, by in CHANGES[name]:
        yield {"kind": "change", "what": what, "shape": shape, "by": by} | _changed(
            robot, e, belief, unit, before, said, what, shape, by
        )


def _quiet(unit: DriftInputs, scores: ScoreStatistics, said: np.ndarray, stated: float) -> dict[str, Any]:
    found = _earliest(unit, scores, said, stated)
    return {"alarms": int(found is not None), "recordings": len(scores.s) if found is None else found + 1}


def _earliest(unit: DriftInputs, scores: ScoreStatistics, said: np.ndarray, stated: float) -> int | None:
    tests, threshold = parameter_change_evidence(unit, scores, said, stated)
    return min((at for t in tests.values() if (at := t.first_alarm(threshold)) is not None), default=None)


def _drawn(
    unit: DriftInputs, scores: ScoreStatistics, said: np.ndarray, stated: float, rng: np.random.Generator
) -> dict[str, Any]:
    """Series of scores as the test assumes them: an error of the twin, shared, and noise."""
    alarms = recordings = 0
    covariance = np.linalg.inv(unit.twin_prior.precision)
    while recordings < DRAWN:
        off = rng.multivariate_normal(np.zeros(len(covariance)), covariance)
        which = rng.integers(0, len(scores.s), 25)
        F = scores.F[which]
        values, vectors = np.linalg.eigh(F)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None]
        s = F @ off + (root @ rng.standard_normal((*root.shape[:2], 1)))[..., 0]
        freedom = scores.degrees_of_freedom[which]
        left = rng.normal(0.0, np.sqrt(2.0 / freedom))
        at = _earliest(unit, ScoreStatistics(scores.z[which], s, F, scores.cost[which], left, freedom), said, stated)
        alarms += at is not None
        recordings += len(which) if at is None else at + 1
    return {"alarms": alarms, "recordings": recordings}


def _changed(robot, e, belief, unit, before, said, what: str, shape: str, by: float) -> dict[str, Any]:
    i = robot.space.index(what)
    later = []
    for k in range(AFTER):
        moved = e.copy()
        moved[i] = np.clip(e[i] + by * (1 if shape == "jump" else k + 1), robot.space.low[i], robot.space.high[i])
        later += _recorded(robot, moved, range(500 + k, 501 + k))
    new = replace(
        drift_inputs(prepare(robot, later), belief, robot.prior, horizon_seconds=unit.ahead, threads=1), noise=unit.noise
    )
    whole = replace(unit, segments=unit.segments[:BEFORE] + new.segments)
    scores = _joined(before, score_recordings(new))
    tests, threshold = parameter_change_evidence(whole, scores, said, 1.0)
    n = min((at + 1 for t in tests.values() if (at := t.first_alarm(threshold)) is not None), default=None)
    out: dict[str, Any] = {"was": float(e[i]), "delay": None, "right": False}
    if n is None or n <= BEFORE:
        return out | {"early": n is not None}
    some = ScoreStatistics(*(getattr(scores, f)[:n] for f in ScoreStatistics.__dataclass_fields__))
    so_far = replace(whole, segments=whole.segments[:n])
    then = parameter_change_evidence(so_far, some, said, 1.0)[0]
    named = attribute(so_far, some, then)
    since = max(then.values(), key=lambda t: t.log_evidence[-1]).change_start[0] - BEFORE
    return out | {
        "delay": n - BEFORE,
        "named": named,
        "right": what in named,
        "since": since,
        "end": attribute(whole, scores, tests),
    }


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for kind in ("none", "drawn"):
        for stated in STATED:
            mine = [r for r in found if r["kind"] == kind and r["stated"] == stated]
            alarms, n = sum(r["alarms"] for r in mine), sum(r["recordings"] for r in mine)
            rate = Rate.from_counts(alarms, n) if n else None
            out[f"{kind}, {stated:g} stated"] = {
                "recordings": n,
                "alarms": alarms,
                "per_1000": [1000 * x for x in (rate.rate, rate.low, rate.high)] if rate else None,
            }
    kinds = dict.fromkeys((r["what"], r["shape"], r["by"]) for r in found if r["kind"] == "change")
    for what, shape, by in kinds:
        mine = [r for r in found if r["kind"] == "change" and (r["what"], r["shape"], r["by"]) == (what, shape, by)]
        delays = [r["delay"] for r in mine if r["delay"]]
        out[f"{what} {shape} {by:+g}"] = {
            "series": len(mine),
            "found": len(delays),
            "delay": float(np.median(delays)) if delays else None,
            "named": sum(r["right"] for r in mine),
            "named_at_the_end": sum(what in r.get("end", ()) for r in mine),
        }
    return out


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("robot", choices=CHANGES)
    parser.add_argument("--twins", type=int, default=4)
    parser.add_argument("-o", dest="out", type=Path, required=True)
    args = parser.parse_args(argv)
    lines = args.out.with_suffix(".jsonl")
    lines.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    complete = {r["twin"] for r in done if r["kind"] == "end"}
    done = [r for r in done if r["twin"] in complete]
    for seed in (s for s in range(args.twins) if s not in complete):
        with lines.open("a") as file:
            for row in chain(rows(args.robot, seed), [{"kind": "end"}]):
                done.append({"twin": seed} | row)
                file.write(json.dumps(done[-1]) + "\n")
                file.flush()
        print(f"twin {seed} done", file=sys.stderr, flush=True)
    result = summary(done)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    for name, row in result.items():
        print(f"{name:36} {row}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
