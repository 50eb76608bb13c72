"""Physics that a model lacks, planted in a reality and learned from its recordings: everything behind docs/results/missing.md.

    python -m bench.missing -o runs/missing                    all cases, three hours on two cores
    python -m bench.missing -o runs/missing stribeck drag      some of them
    python -m bench.missing -o runs/missing --only find        without the policies

A reality file says what is different: numbers, and physics that no number describes. Recordings of it are fitted with `isthmus
identify`; what remains is learned with `isthmus residual` or `isthmus actuator`, and judged by recordings that nothing was
fitted to. Then policies are trained on the prior, on the twin with numbers alone, and on the twin with what was learned, and
compared on the reality; where a twin is too hard to learn anew, they go on from those of the prior. Every step is an `isthmus`
command, printed as it runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.adaptation import run_command
from bench.coverage import hover, walking
from bench.spread import spread
from isthmus.data.episode import Episode
from isthmus.data.mcap.reader import read_episode
from isthmus.data.mcap.writer import write_episode
from isthmus.real2sim.identify.excitation_signals import Driver, Multisine
from isthmus.real2sim.identify.identification import prepare_segments
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.estimators import estimator_for, needs_observer, settle_ticks
from isthmus.real2sim.residual.prediction_errors import prediction_errors
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.robots import get_robot
from isthmus.robots.twin import Twin
from isthmus.sim.reality import Reality
from isthmus.sim.reality.simulation import real_simulation
from isthmus.sim.robot import Robot
from isthmus.sim.simulate_recording import random_multisine, record_engine, with_feedback

FITTED, JUDGED, SECONDS = 4, 2, 10.0
"""Recordings of each reality to fit to and to judge by, and their length."""


@dataclass(frozen=True)
class Case:
    robot: str
    params: dict[str, float]
    unmodelled: dict
    find: tuple[str, ...]
    """Commands that learn what is missing, each on its own."""
    drive: Callable[[Robot, int], Driver]
    """What moves the robot in each recording, by number."""
    horizon: float
    task: str = ""
    steps: int = 0
    """Ticks of training a policy on each belief; none where the robot has no task."""
    laws: tuple[str, ...] = ()
    """Motor laws to try where all of them would take hours; none for all."""
    joints: tuple[str, ...] = ()
    """Joints that a learned force acts on; none for all."""
    fitted: tuple[int, ...] = tuple(range(FITTED))
    """Recordings that numbers are fitted to."""
    learned: tuple[int, ...] = tuple(range(FITTED))
    """Recordings that what is missing is learned from."""
    pieces: int = 0
    """Judged by about so many, spread over the recordings; 0 for all."""
    only: tuple[str, ...] = ()
    """Parameters to fit, where all would take too long; then no better valley is looked for, either. None for all."""
    onward: bool = False
    """Whether policies of the twins go on from that of the prior, as long again and without a bound, instead of anew."""


def swept(least: float) -> Callable[[Robot, int], Driver]:
    """Chirps, each to another frequency and size, the smallest of which takes the part `least` of the room that there is."""

    def drive(robot: Robot, i: int) -> Driver:
        course = Multisine(robot, SECONDS)
        part = least + (0.9 - least) * i / (FITTED + JUDGED - 1)
        return course.drive(course.chirp(high=1.5 + 0.5 * i, amplitude_share=part)[None])

    return drive


def waved(size: float) -> Callable[[Robot, int], Driver]:
    return lambda robot, i: Multisine(robot, SECONDS).drive(random_multisine(robot, SECONDS, i, size)[None])


def flown(robot: Robot, i: int) -> Driver:
    return with_feedback(robot, random_multisine(robot, SECONDS, i, 0.03), hover())


def walked(folder: Path) -> Callable[[Robot, int], Driver]:
    return lambda robot, i: walking(folder, SECONDS, np.random.default_rng(i))


def cases(walker: Path | None) -> dict[str, Case]:
    stribeck = {"static": 0.4, "coulomb": 0.05, "velocity": 0.8}
    sticks = {"static": 0.9, "coulomb": 0.4, "velocity": 1.0}
    found = {
        "stribeck": Case(
            "pendulum",
            {"payload": 0.1},
            {"stribeck": stribeck},
            ("actuator", "residual"),
            swept(0.4),
            0.3,
            "pendulum/swingup",
            400_000,
        ),
        # A pendulum that sticks so much that a policy which was not trained with it often fails.
        "stiction": Case(
            "pendulum",
            {"payload": 0.1},
            {"stribeck": sticks},
            ("actuator",),
            swept(0.8),
            0.3,
            "pendulum/swingup",
            400_000,
            onward=True,
        ),
        # The first one's friction, and a motor that has lost a quarter of its strength.
        "worn": Case(
            "pendulum",
            {"payload": 0.1, "strength": 0.75},
            {"stribeck": stribeck},
            ("actuator",),
            swept(0.8),
            0.3,
            "pendulum/swingup",
            400_000,
        ),
        "backlash": Case(
            "held:go1", {}, {"backlash": 0.06}, ("actuator",), waved(0.15), 0.2, laws=("backlash",), learned=(0, 3), pieces=48
        ),
        # A worn gear of a hobby motor, 14 degrees from one side of its play to the other.
        "play": Case(
            "pendulum",
            {"payload": 0.1},
            {"backlash": 0.25},
            ("actuator",),
            swept(0.4),
            0.3,
            "pendulum/swingup",
            400_000,
            onward=True,
        ),
        "drag": Case(
            "crazyflie",
            {"payload": 0.004},
            {"rotor_drag": 0.06},
            ("residual",),
            flown,
            0.5,
            "crazyflie/hover",
            1_000_000,
            onward=True,
        ),
        # The same with a camera at the front and tired rotors, which a policy of the prior cannot hold.
        "tired": Case(
            "crazyflie",
            {"payload": 0.011, "com_x": 0.003, "strength": 0.78},
            {"rotor_drag": 0.06},
            ("residual",),
            flown,
            0.2,
            "crazyflie/hover",
            600_000,
            fitted=(0, 1),
            onward=True,
        ),
    }
    if walker is not None:
        soft = {"ground_softness": 0.01}
        # A walking robot takes long to fit and longer to learn from, so that there is less of both.
        found["soft ground"] = Case(
            "go1",
            {"payload": 2.0},
            soft,
            ("residual",),
            walked(walker),
            0.2,
            "go1/walk",
            2_000_000,
            joints=("root",),
            fitted=(0, 1),
            only=("payload", "com_x", "com_z", "ground_friction", "contact_time", "kp", "kd", "joint_friction", "action_delay"),
            onward=True,
        )
    return found


# Recordings ----------------------------------------------------------------------------------------------------


def recordings(case: Case, reality: Reality, folder: Path) -> list[Path]:
    """Of the reality, with its sensors' noise; those that are there are not made again."""
    robot = get_robot(case.robot)
    out = []
    for i in range(FITTED + JUDGED):
        out.append(folder / f"{i}.mcap")
        if out[-1].exists():
            continue
        engine = real_simulation(robot, reality, 1, tick=1.0 / robot.contract.rate)
        folder.mkdir(parents=True, exist_ok=True)
        ticks = round(SECONDS * robot.contract.rate)
        write_episode(out[-1], record_engine(engine, case.drive(robot, i), ticks, np.random.default_rng(i + 1)))
    return out


def judged(case: Case, robot: Robot, episodes: list[Episode]) -> float:
    """Error of the prediction in units of noise, at the belief's median.

    A robot on its feet is followed first, and then left alone for as long as the horizon.
    """
    parts = prepare_segments(robot, episodes, robot.prior, case.horizon, trust=True)
    whole = [x.take(_spread(len(x), case.pieces // 2)) for x in (parts.train, parts.held_out) if x is not None]
    e, error = parts.robot.prior.median(), _alone if needs_observer(robot) else _from_best_starts
    found = [error(parts.robot, x, parts.noise_floor, e) for x in whole]
    return float(np.sqrt(np.average(np.square(found), weights=[len(x) for x in whole])))


def _spread(n: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, most or n).astype(int))


def _from_best_starts(robot: Robot, segments: Segments, noise: np.ndarray, e: np.ndarray) -> float:
    return prediction_errors(robot, segments, noise, noise, [e])[0].overall


def _alone(robot: Robot, segments: Segments, noise: np.ndarray, e: np.ndarray) -> float:
    """Root mean square over ticks and components once nothing measured pulls the robot any more."""
    residual = ParameterResidual(robot, segments, noise, (), estimator=estimator_for(robot, settle_ticks(robot)))
    r = residual(e[None], np.zeros((1, len(segments), 0)))[0]
    return float(np.sqrt((r**2).sum() / residual.seen.sum()))


def errors_of(case: Case, twin: Path | None, files: list[Path]) -> float:
    robot = get_robot(case.robot)
    if twin is not None:
        robot = Twin.load(twin).apply_to(robot, str(twin))
    return judged(case, robot, [read_episode(path) for path in files])


# One case ------------------------------------------------------------------------------------------------------


def find(name: str, case: Case, folder: Path) -> None:
    """Held-out errors without anything, with numbers, and with what was learned; and of a reality where nothing is missing.

    They go to found.json as they come, and are not measured again.
    """
    reality = Reality.from_dict({"robot": get_robot(case.robot).name, "params": case.params, "unmodelled": case.unmodelled})
    plain = replace(reality, unmodelled=type(reality.unmodelled)())
    reality.save(folder / "reality.toml")
    notes = folder / "found.json"
    out: dict[str, float] = json.loads(notes.read_text()) if notes.exists() else {}

    def note(key: str, twin: Path | None, files: list[Path]) -> None:
        if key not in out:
            out[key] = errors_of(case, twin, files)
            notes.write_text(json.dumps(out, indent=2) + "\n")

    for what, world in (("whole", plain), ("missing", reality)):
        files = recordings(case, world, folder / what)
        fitted, held = [files[i] for i in case.fitted], files[FITTED:]
        numbers = folder / f"{what}.twin"
        if not numbers.exists():
            options = ["--horizon", str(case.horizon), "--trust", "--json"]
            options += ["--only", *case.only, "--search", "never"] if case.only else []
            run_command(["identify", case.robot, *map(str, fitted), "-o", str(numbers), *options], folder / f"{what}.json")
        note(f"{what}: nominal", None, held)
        note(f"{what}: numbers", numbers, held)
        for how in case.find if what == "missing" else ():
            learned = folder / f"{how}.twin"
            if not (folder / f"{how}.json").exists():
                options = ["--horizon", str(case.horizon), "-o", str(learned), "--json"]
                options += ["--laws", *case.laws] if case.laws and how == "actuator" else []
                options += ["--joints", *case.joints] if case.joints and how == "residual" else []
                # A force that does not help is not kept, and the command ends with 1.
                run_command(
                    [how, str(numbers), *(str(files[i]) for i in case.learned), *options], folder / f"{how}.json", (0, 1)
                )
            note(f"missing: {how}", learned if learned.exists() else numbers, held)
    before, least = out["missing: numbers"], out["whole: numbers"]
    for how in case.find:
        out[f"removed by {how}"] = (before - out[f"missing: {how}"]) / (before - least)
    notes.write_text(json.dumps(out, indent=2) + "\n")
    print(f"{name}: " + ", ".join(f"{k} {v:.3g}" for k, v in out.items()), flush=True)


def compare(case: Case, folder: Path, seeds: list[int]) -> None:
    """Policies of the prior, and of the twins without and with what was learned; onward also some that stay on the prior."""
    beliefs = {
        "prior": [],
        **({"longer": []} if case.downstream else {}),
        "numbers": ["--belief", str(folder / "missing.twin")],
        "learned": ["--belief", str(folder / f"{case.find[0]}.twin")],
    }
    found = []
    for kind, options in beliefs.items():
        for seed in seeds:
            out = folder / f"{kind}-{seed}"
            found.append(str(out))
            if not (out / "done.json").exists():
                begin = ["--from", str(folder / f"prior-{seed}"), "--kl", "0"] if case.downstream and kind != "prior" else []
                tail = ["--steps", str(case.steps), "--seed", str(seed), "-o", str(out), "--json"]
                run_command(["train", case.task, *begin, *options, *tail], out / "done.json")
    options = ["--reality", str(folder / "reality.toml"), "--grounds", "--by-name", "--worlds", "200"]
    run_command(["compare", *found, *options, "-o", str(folder / "report")])
    gains = gained(json.loads((folder / "report" / "compare.json").read_text()), tuple(beliefs))
    (folder / "gained.json").write_text(json.dumps(gains, indent=2) + "\n")
    for name, (mean, low, high) in gains.items():
        print(f"{name}: {mean:+.3f} ({low:+.3f} to {high:+.3f})", flush=True)


def gained(report: dict, kinds: tuple[str, ...]) -> dict[str, tuple[float, float, float]]:
    """What each later kind of policy gains over each earlier one on the reality, paired by seed: mean and 95 % interval.

    Policies that go on from one of the prior differ less from that one than policies of two seeds do.
    """
    (ground,) = report["sets"].values()
    values: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for run in ground["runs"]:
        values[run["name"].rsplit("-", 1)[0]].append((run["success"]["rate"], run["means"]["score"]["mean"]))
    found = {}
    for kind, other in ((b, a) for i, b in enumerate(kinds) for a in kinds[:i]):
        for what, gain in zip(("success", "score"), (np.array(values[kind]) - np.array(values[other])).T, strict=True):
            found[f"{kind} over {other}, {what}"] = spread(gain)
    return found


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.missing", description=__doc__, formatter_class=raw)
    parser.add_argument("cases", nargs="*", help="some of them; by default all")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for recordings, twins, runs and reports")
    parser.add_argument("--walker", type=Path, help="run of go1/walk, for the case of soft ground")
    parser.add_argument("--only", choices=["find", "compare"], help="one half of the work")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    known = cases(args.walker)
    for name in args.cases or known:
        folder = args.out / name.replace(" ", "-")
        if args.only != "compare":
            find(name, known[name], folder)
        if args.only != "find" and known[name].task:
            compare(known[name], folder, args.seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
