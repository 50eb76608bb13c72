"""Do the intervals hold what they promise? Numbers are planted in a simulated robot, recorded, fitted, and counted.

    python -m bench.coverage pendulum --draws 200 -o runs/pendulum.json
    python -m bench.coverage pendulum --draws 200 --posterior sample -o runs/pendulum-sample.json
    python -m bench.coverage held:go1 --draws 200 --jobs 2 -o runs/go1.json
    python -m bench.coverage go1 --walker runs/a --draws 24 -o runs/walking.json

Truths are drawn from the robot's prior, noise of the sensors included. Every draw is one line of FILE.jsonl as soon as it is
done, and is not done again; FILE.json sums them up. A parameter that a recording does not tell counts too: its interval is
then what was believed before. With `--posterior sample` the normal intervals of the same fits are counted beside the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from isthmus.core.errors import BadInput
from isthmus.core.statistics import Rate
from isthmus.data.contract import AffineFeedback
from isthmus.data.episode import Episode
from isthmus.learn import runs
from isthmus.real2sim.identify.excitation_signals import CommandSteps, Driver, Multisine
from isthmus.real2sim.identify.fit import Fit
from isthmus.real2sim.identify.global_restart import RestartPolicy, fit_with_restart, unexplained_noise_ratio
from isthmus.real2sim.identify.identification import PosteriorKind, prepare_segments
from isthmus.real2sim.identify.posterior_samples import sample_posterior
from isthmus.robots import get_robot
from isthmus.robots.crazyflie import HOME_HEIGHT, HOVER_THRUST, MOTORS, ROTOR_POSITION_SIGNS, YAW_MOMENT_SIGNS
from isthmus.sim.robot import Robot
from isthmus.sim.simulate_recording import random_multisine, record_driver, record_targets

LEVEL = 0.9
ENOUGH = 200.0
"""Independent draws of a sampled posterior: the ends of a normal 90 % interval are then off by some 5 % of its width."""


@dataclass(frozen=True)
class Settings:
    robot: str
    seconds: float
    posterior: PosteriorKind = "gauss"
    search: RestartPolicy = "auto"
    walker: str = ""
    """Run of a walking policy, which then moves the robot."""


# Experiments ---------------------------------------------------------------------------------------------------


def _cart() -> AffineFeedback:
    """Keeps the cart on its track: 4 N/m and 3 N·s/m."""
    return AffineFeedback((0.0,), {"cart_pos": ((-4.0,),), "cart_vel": ((-3.0,),)})


def hover() -> AffineFeedback:
    """Keeps a crazyflie upright, facing forward and within a metre of its place; heavy or weak ones hang lower."""
    total, turn = 0.3 * HOVER_THRUST, 0.15 * HOVER_THRUST
    position, velocity, quat, gyro = [], [], [], []
    for m in MOTORS:
        ahead, left, yaw = ROTOR_POSITION_SIGNS[m][0] * turn, ROTOR_POSITION_SIGNS[m][1] * turn, YAW_MOMENT_SIGNS[m] * turn
        position.append((0.09 * ahead, 0.09 * left, -2.5 * total))
        velocity.append((0.135 * ahead, 0.135 * left, -1.5 * total))
        quat.append((0.0, -1.8 * left, 1.8 * ahead, -1.0 * yaw))
        gyro.append((-0.18 * left, 0.18 * ahead, -0.3 * yaw))
    gains = {"position": position, "velocity": velocity, "quat": quat, "gyro": gyro}
    return AffineFeedback((2.5 * total * HOME_HEIGHT,) * 4, {name: tuple(rows) for name, rows in gains.items()})


@dataclass(frozen=True)
class Experiment:
    seconds: float
    """That tell enough, and that 200 fits of can be waited for."""
    targets: Callable[[Robot, float, int], np.ndarray]
    """(T, m) of a robot, seconds and a seed."""
    law: AffineFeedback | None = None


EXPERIMENTS = {
    "pendulum": Experiment(8.0, lambda robot, seconds, seed: Multisine(robot, seconds).chirp()),
    "cartpole": Experiment(
        6.0, lambda robot, seconds, seed: Multisine(robot, seconds).chirp(low=0.5, amplitude_share=0.3), _cart()
    ),
    "crazyflie": Experiment(3.0, lambda robot, seconds, seed: random_multisine(robot, seconds, seed, size=0.015), hover()),
    "go1": Experiment(4.0, lambda robot, seconds, seed: random_multisine(robot, seconds, seed, size=0.04)),
    "held:go1": Experiment(2.0, lambda robot, seconds, seed: random_multisine(robot, seconds, seed, size=0.15)),
}
"""By robot. go1 is held with its legs in the air, stands and sways, or walks."""


def planted(settings: Settings, seed: int) -> tuple[Robot, np.ndarray, Episode]:
    """A robot, the true values of its Space, and its recording."""
    if settings.robot not in EXPERIMENTS:
        raise BadInput(f"there is no experiment for {settings.robot!r}; there is one for {', '.join(EXPERIMENTS)}.")
    robot = get_robot(settings.robot)
    e = robot.prior.sample(np.random.default_rng([seed, 1]), 1)[0]
    experiment = EXPERIMENTS[settings.robot]
    if settings.walker:
        return robot, e, walked(robot, e, settings, seed)
    return robot, e, record_targets(robot, e, experiment.targets(robot, settings.seconds, seed), seed + 1, experiment.law)


def walked(robot: Robot, e: np.ndarray, settings: Settings, seed: int) -> Episode:
    """The robot in the world e under a walking policy, with commands drawn at random."""
    rng = np.random.default_rng([seed, 2])
    drive = walking(Path(settings.walker), settings.seconds, rng)
    return record_driver(robot, e, drive, round(settings.seconds * robot.contract.rate), rng)


def walking(folder: Path, seconds: float, rng: np.random.Generator) -> Driver:
    """The policy of a run, with commands drawn at random."""
    run = runs.load(folder)
    course = CommandSteps(runs.load_actor(run), run.task, seconds)
    return course.drive(course(rng.standard_normal((1, course.coefficient_count))))


# One draw ------------------------------------------------------------------------------------------------------


def one(settings: Settings, seed: int) -> dict[str, Any]:
    """Plant, record, fit: a row of the result."""
    began = time.perf_counter()
    robot, e, episode = planted(settings, seed)
    try:
        parts = prepare_segments(robot, [episode], robot.prior, threads=1)
        given = (parts.robot, parts.train, robot.prior, parts.noise_floor)
        found, looked = fit_with_restart(*given, policy=settings.search, seed=seed, threads=1)
        if settings.posterior == "sample":
            found = sample_posterior(parts.robot, parts.train, found, robot.prior, seed, ENOUGH, threads=1)
    except BadInput as error:
        return {"seed": seed, "error": str(error)}
    truth = e[[robot.space.index(name) for name in found.space.names]]
    row = {
        "seed": seed,
        "left": unexplained_noise_ratio(found, parts.noise_floor),
        "ahead": parts.horizon_seconds,
        "segments": len(parts.train),
    }
    row |= {"looked": asdict(looked) if looked else None}
    row |= {"parameters": judged(replace(found, samples=None), truth)}
    if found.samples is not None:
        draws = found.samples
        row |= {"sampled": judged(found, truth), "ess": draws.ess, "acceptance": draws.acceptance, "rhat": draws.rhat}
    return row | {"seconds": time.perf_counter() - began}


def judged(found: Fit, truth: np.ndarray) -> dict[str, dict[str, float]]:
    """Per parameter the truth, (d,), its interval, and the share of the belief that lies below the truth."""
    z = found.space.unconstrained(truth)
    if found.samples is not None:
        rank = (found.samples.z < z).mean(axis=0)
    else:
        rank = ndtr((z - found.z) / np.sqrt(np.diag(found.covariance)))
    out = {}
    for i, name in enumerate(found.space.names):
        low, high = found.interval(name, LEVEL)
        out[name] = {"truth": float(truth[i]), "low": low, "high": high, "rank": float(rank[i])}
    return out


# All draws -----------------------------------------------------------------------------------------------------


def counted(rows: Iterable[dict[str, Any]], which: str) -> dict[str, Any]:
    """How often the truth was inside, per parameter and in all, with exact 95 % intervals.

    Parameters of one draw are not independent, so the interval of the total is too narrow; `spread` is its standard error
    by the differences between draws.
    """
    hits = [{n: p["low"] <= p["truth"] <= p["high"] for n, p in row[which].items()} for row in rows if which in row]
    if not hits:
        return {}
    each = {name: Rate.from_counts(sum(h[name] for h in hits), len(hits)) for name in hits[0]}
    by_draw = [float(np.mean(list(h.values()))) for h in hits]
    total = Rate.from_counts(sum(sum(h.values()) for h in hits), sum(map(len, hits)))
    spread = float(np.std(by_draw, ddof=1) / np.sqrt(len(hits))) if len(hits) > 1 else float("nan")
    return {"parameters": {n: asdict(r) for n, r in each.items()}, "total": asdict(total), "spread": spread, "draws": len(hits)}


def lines(path: Path, settings: Settings) -> list[dict[str, Any]]:
    """Rows that are done already; those of other settings are an error."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(settings)) + "\n")
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:  # a run was cut in the middle of a line
        path.write_text(whole)
    head, *rows = whole.splitlines()
    if json.loads(head) != asdict(settings):
        raise BadInput(f"{path} was made with other settings: {head}.")
    return [json.loads(row) for row in rows]


def run(settings: Settings, draws: int, out: Path, jobs: int) -> dict[str, Any]:
    rows_file = out.with_suffix(".jsonl")
    rows = [row for row in lines(rows_file, settings) if row["seed"] < draws]
    todo = sorted(set(range(draws)) - {row["seed"] for row in rows})
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool, rows_file.open("a") as file:
        for done in as_completed([pool.submit(one, settings, seed) for seed in todo]):
            rows.append(done.result())
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
            print(f"{len(rows)} of {draws} draws, {say(counted(rows, 'parameters'))}", file=sys.stderr, flush=True)
    found = {
        **asdict(settings),
        "level": LEVEL,
        "gauss": counted(rows, "parameters"),
        "sample": counted(rows, "sampled"),
        "failed": [row["seed"] for row in rows if "error" in row],
        "searched": sum(bool(row.get("looked")) for row in rows),
    }
    out.write_text(json.dumps(found, indent=2) + "\n")
    return found


def say(found: dict[str, Any]) -> str:
    if not found:
        return "none fitted"
    t = found["total"]
    return (
        f"{100 * t['rate']:.1f} % inside ({100 * t['low']:.1f} to {100 * t['high']:.1f}, ± {100 * found['spread']:.1f} by draw)"
    )


def table(found: dict[str, Any]) -> list[str]:
    kinds = [kind for kind in ("gauss", "sample") if found[kind]]
    rows = ["| parameter | " + " | ".join(kinds) + " |", "|---" * (1 + len(kinds)) + "|"]
    rate = lambda r: f"{100 * r['rate']:.0f} % ({100 * r['low']:.0f} to {100 * r['high']:.0f})"  # noqa: E731
    for name in found["gauss"].get("parameters", {}):
        rows.append(f"| {name} | " + " | ".join(rate(found[k]["parameters"][name]) for k in kinds) + " |")
    return [*rows, "| all | " + " | ".join(rate(found[k]["total"]) for k in kinds) + " |"]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.coverage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("robot", choices=sorted(EXPERIMENTS))
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--posterior", choices=["gauss", "sample"], default="gauss")
    parser.add_argument("--search", choices=["auto", "always", "never"], default="auto")
    parser.add_argument("--seconds", type=float, help="length of a recording; by default that of the robot's experiment")
    parser.add_argument("--walker", default="", help="run of a walking policy, for go1 on its feet")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("-o", "--out", type=Path, required=True, help="FILE.json")
    args = parser.parse_args()
    try:
        settings = Settings(
            args.robot, args.seconds or EXPERIMENTS[args.robot].seconds, args.posterior, args.search, args.walker
        )
        print("\n".join(table(run(settings, args.draws, args.out, args.jobs))))
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the draws that are done are kept.", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
