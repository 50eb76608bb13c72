"""How much less data a chosen experiment needs than a chirp or a random one: everything behind docs/results/excitation.md.

    python -m bench.excitation pendulum -o runs/excitation-pendulum.json
    python -m bench.excitation held:go1 --seconds 4 -o runs/excitation-go1.json

One experiment is chosen for the robot's prior. Then robots are drawn from the prior; each does the chosen experiment, and a
chirp and a random one of the same length and of two and four times that, is recorded with noise, and fitted. What counts is the
width of the 90 % intervals that come out, on average over parameters as a ratio.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from isthmus.errors import BadInput
from isthmus.identify.courses import Waves
from isthmus.identify.excite import Judge, excite
from isthmus.identify.fit import fit
from isthmus.identify.plant import record, waves
from isthmus.identify.study import prepare
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot

LEVEL, AHEAD = 0.9, 0.4
TIMES = (1, 2, 4)
"""Lengths of the others, against that of the chosen one."""


def kinds(robot: Robot, seconds: float, chosen: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Targets (T, m) of all experiments, by name."""
    out = {"chosen": chosen}
    for times in TIMES:
        out[f"chirp, {times}×"] = Waves(robot, times * seconds).chirp()
        out[f"random, {times}×"] = waves(robot, times * seconds, seed)
    return out


def widths(robot: Robot, e: np.ndarray, targets: np.ndarray, names: tuple[str, ...], seed: int) -> np.ndarray | None:
    """Of the intervals in unconstrained coordinates that a fit gives, (d,)."""
    try:
        parts = prepare(robot, [record(robot, e, targets, seed)], robot.prior, AHEAD)
        found = fit(parts.robot, parts.train, robot.prior, parts.floor)
    except BadInput as error:
        print(f"  {error}", file=sys.stderr)
        return None
    ends = [found.interval(n, LEVEL) for n in names]
    which = found.space.subset(names)
    low, high = (which.unconstrained(np.array([pair[i] for pair in ends])) for i in (0, 1))
    return high - low


def run(name: str, seconds: float, tries: int, draws: int) -> dict:
    robot = get_robot(name)
    judge = Judge(robot, robot.prior, Waves(robot, seconds), AHEAD)
    chosen = excite(judge, tries, report=lambda done, worth: print(f"  {100 * done:.0f} %, {worth:.1f} nats", file=sys.stderr))
    found: dict[str, list[np.ndarray]] = {}
    for seed in range(draws):
        e = robot.prior.sample(np.random.default_rng([seed, 2]), 1)[0]
        for kind, targets in kinds(robot, seconds, chosen.targets, seed).items():
            width = widths(robot, e, targets, judge.space.names, seed + 1)
            if width is not None:
                found.setdefault(kind, []).append(np.log(width))
                print(f"  {seed} {kind}: {np.exp(np.log(width).mean()):.4g}", file=sys.stderr)
    base = np.mean(found["chosen"], axis=0)
    out = {}
    for kind, rows in found.items():
        each = np.mean(rows, axis=0) - base
        by_draw = np.mean(rows, axis=1)
        out[kind] = {
            "ratio": float(np.exp(each.mean())),
            "spread": float(np.exp(by_draw.std(ddof=1) / np.sqrt(len(rows)))) if len(rows) > 1 else None,
            "draws": len(rows),
            "parameters": {n: float(np.exp(x)) for n, x in zip(judge.space.names, each, strict=True)},
        }
    return {"robot": name, "seconds": seconds, "tries": tries, "beyond": chosen.beyond, "worth": chosen.worth, "widths": out}


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.excitation", description=__doc__, formatter_class=raw)
    parser.add_argument("robot", help="as in `isthmus list`")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the chosen experiment")
    parser.add_argument("--tries", type=int, default=400, help="experiments to choose from")
    parser.add_argument("--draws", type=int, default=10, help="robots drawn from the prior")
    parser.add_argument("-o", "--out", type=Path, required=True, help="FILE.json")
    args = parser.parse_args()
    found = run(args.robot, args.seconds, args.tries, args.draws)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=2) + "\n")
    print(f"{args.robot}, {args.seconds:g} s: widths of intervals against those of the chosen experiment")
    for kind, row in found["widths"].items():
        print(f"| {kind} | {row['ratio']:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
