"""How much less data a chosen experiment needs than a chirp or a random one: everything behind docs/results/excitation.md.

    python -m bench.excitation pendulum --draws 8 -o runs/excitation-pendulum.json
    python -m bench.excitation held:go1 --seconds 4 --tries 150 --draws 3 -o runs/excitation-go1.json

One experiment is chosen for the robot's prior. Then robots are drawn from the prior; each does the chosen experiment, and a
chirp and a random one of the same length and of two and four times that, is recorded with noise, and fitted. What counts is how
wide the beliefs are that come out, as a ratio to the one after the chosen experiment:

    directions  those of which all recordings of a robot together leave at most half of the prior's width; their mean width
    told        parameters of which at least one recording leaves at most half of the prior's width
    all         parameters, those too that only the prior determines and that no experiment can narrow

Means are geometric. Fits are written to FILE.npz after every robot, and are not done again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from bench.spread import spread
from isthmus.core.errors import BadInput
from isthmus.real2sim.identify.excitation import Experiment, ExperimentEvaluator, excite
from isthmus.real2sim.identify.excitation_signals import Multisine
from isthmus.real2sim.identify.fit import Fit, fit
from isthmus.real2sim.identify.identification import prepare_segments
from isthmus.real2sim.residual.prior import GaussianPrior
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot
from isthmus.sim.simulate_recording import random_multisine, record_targets

AHEAD = 0.4
TIMES = (1, 2, 4)
"""Lengths of the others, against that of the chosen one."""
OTHERS = ("chirp", "random")
KINDS = ("chosen", *(f"{kind}, {times}×" for kind in OTHERS for times in TIMES))
HALF = 0.5
"""Share of the prior's width that is left of what counts as told."""


# One robot -----------------------------------------------------------------------------------------------------


def experiments(robot: Robot, seconds: float, chosen: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Targets (T, m) of all experiments, by name."""
    out = {"chosen": chosen}
    for times in TIMES:
        out[f"chirp, {times}×"] = Multisine(robot, times * seconds).chirp()
        out[f"random, {times}×"] = random_multisine(robot, times * seconds, seed)
    return out


def fitted(robot: Robot, e: np.ndarray, targets: np.ndarray, seed: int) -> Fit:
    parts = prepare_segments(robot, [record_targets(robot, e, targets, seed)], robot.prior, AHEAD, threads=1)
    return fit(parts.robot, parts.train, robot.prior, parts.noise_floor, threads=1)


def drawn(robot: Robot, seconds: float, chosen: np.ndarray, seed: int) -> np.ndarray | None:
    """What each recording of one robot says of its numbers, (kinds, d, d); none if one of them cannot be fitted."""
    e = robot.prior.sample(np.random.default_rng([seed, 2]), 1)[0]
    try:
        found = {k: fitted(robot, e, u, seed + 1) for k, u in experiments(robot, seconds, chosen, seed).items()}
    except BadInput as error:
        print(f"  {seed}: {error}", file=sys.stderr)
        return None
    return np.stack([found[kind].information for kind in KINDS])


# Widths --------------------------------------------------------------------------------------------------------


def widths(prior: GaussianPrior, told: np.ndarray) -> dict[str, np.ndarray]:
    """Logs of mean widths after each recording, (kinds,), of information (kinds, d, d) from recordings of one robot."""
    covariances = np.linalg.inv(told + prior.precision)
    each = 0.5 * np.log(np.diagonal(covariances, axis1=1, axis2=2))
    known = (each < np.log(HALF * prior.std)).any(0)
    root = np.linalg.cholesky(np.linalg.inv(prior.precision))
    values, vectors = np.linalg.eigh(root.T @ told.sum(0) @ root)
    V = vectors[:, values > HALF**-2 - 1.0]
    inside = np.linalg.inv(np.eye(len(root)) + root.T @ told @ root)
    volume = np.linalg.slogdet(V.T @ inside @ V)[1]
    return {"directions": 0.5 * volume / V.shape[1], "told": each[:, known].mean(1), "all": each.mean(1)}


def ratio(rows: np.ndarray) -> dict[str, float]:
    """Mean and 95 % interval of ratios whose logs are rows (draws,)."""
    return dict(zip(("ratio", "low", "high"), np.exp(spread(rows)).tolist(), strict=True))


def needed(rows: np.ndarray) -> float:
    """How many times the data an experiment needs to be as narrow as the chosen one: where the logs (times,) go through 0.

    Beyond the lengths that were measured, along the line through the last two.
    """
    x = np.log2(TIMES)
    i = int(np.clip(np.argmax(rows < 0) - 1 if (rows < 0).any() else len(x) - 2, 0, len(x) - 2))
    slope = (rows[i + 1] - rows[i]) / (x[i + 1] - x[i])
    return float(2 ** (x[i] - rows[i] / slope)) if slope < 0 else np.inf


def summary(prior: GaussianPrior, draws: list[np.ndarray]) -> dict:
    found = [widths(prior, told) for told in draws]
    out: dict = {}
    for measure in found[0]:
        logs = np.stack([f[measure] - f[measure][0] for f in found])
        out[measure] = {kind: ratio(logs[:, i]) for i, kind in enumerate(KINDS) if i}
        for kind in OTHERS:
            which = [KINDS.index(f"{kind}, {times}×") for times in TIMES]
            out[measure][f"{kind}, data needed"] = needed(logs[:, which].mean(0))
    sizes = np.stack([0.5 * np.log(np.diagonal(np.linalg.inv(told + prior.precision), axis1=1, axis2=2)) for told in draws])
    each = np.exp((sizes - sizes[:, :1]).mean(0))
    left = np.exp(sizes.mean(0)[0]) / prior.std
    out["parameters"] = {
        name: {"left of the prior": float(left[j])} | {k: float(each[i, j]) for i, k in enumerate(KINDS) if i}
        for j, name in enumerate(prior.space.names)
    }
    return out


# All -----------------------------------------------------------------------------------------------------------


def choose(judge: ExperimentEvaluator, tries: int) -> Experiment:
    return excite(judge, tries, report=lambda done, worth: print(f"  {100 * done:.0f} %, {worth:.1f} nats", file=sys.stderr))


def run(name: str, seconds: float, tries: int, draws: int, out: Path) -> dict:
    robot = get_robot(name)
    judge = ExperimentEvaluator(robot, robot.prior, Multisine(robot, seconds), AHEAD, threads=1)
    kept = out.with_suffix(".npz")
    if kept.exists():
        before = np.load(kept)
        targets, done = before["targets"], dict(zip(before["seeds"].tolist(), before["told"], strict=True))
    else:
        targets, done = choose(judge, tries).targets, {}
    beyond = {
        kind: float(
            ExperimentEvaluator(
                robot, robot.prior, Multisine(robot, len(u) / robot.contract.rate), AHEAD, threads=1
            ).limit_excess(u[None])[0]
        )
        for kind, u in experiments(robot, seconds, targets, 0).items()
    }
    for seed in (s for s in range(draws) if s not in done):
        told = drawn(robot, seconds, targets, seed)
        if told is not None:
            done[seed] = told
            np.savez(kept, targets=targets, seeds=list(done), told=list(done.values()))
            logs = widths(judge.prior, told)["directions"]
            print(f"  {seed}: {dict(zip(KINDS, np.exp(logs - logs[0]).round(2).tolist(), strict=True))}", file=sys.stderr)
    head = {"robot": name, "seconds": seconds, "tries": tries, "draws": len(done), "beyond": beyond}
    return head | {"widths": summary(judge.prior, list(done.values()))}


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.excitation", description=__doc__, formatter_class=raw)
    parser.add_argument("robot", help="as in `isthmus list`")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the chosen experiment")
    parser.add_argument("--tries", type=int, default=400, help="experiments to choose from")
    parser.add_argument("--draws", type=int, default=10, help="robots drawn from the prior")
    parser.add_argument("-o", "--out", type=Path, required=True, help="FILE.json")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    found = run(args.robot, args.seconds, args.tries, args.draws, args.out)
    args.out.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    print(f"{args.robot}, {found['draws']} draws: widths against those after {args.seconds:g} s of the chosen experiment")
    print("| experiment | directions | told | all |\n|---|---|---|---|")
    columns = [found["widths"][measure] for measure in ("directions", "told", "all")]
    for kind in columns[0]:
        cells = [c[kind] for c in columns]
        texts = [f"{c:.1f}" if isinstance(c, float) else f"{c['ratio']:.2f} ({c['low']:.2f} to {c['high']:.2f})" for c in cells]
        print(f"| {kind} | " + " | ".join(texts) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
