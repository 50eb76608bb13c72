"""The same real recordings for `mujoco.sysid` and for us: the same numbers, segments, noise, loss, bounds and first guess.

    python -m bench.realsysid --data REALDATA

It needs `mujoco[sysid]`. Motors are MuJoCo's own and every number is a field of the model, so the models are simpler here than
in bench/realdata.py: no delay and no lag. Starts of the segments are as measured for both, or found by both, or found by us
alone; the errors are always those on the recordings that were held out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench import planted
from bench.identification import Run, ours, theirs
from bench.other import installed
from bench.planted import Problem
from bench.realdata import ROUNDS, THREADS, judge, ready
from bench.recordings import RIGS, Case, double_pendulum, simple_pendulum
from isthmus.real2sim.identify.fit import fit
from isthmus.robots import get_robot
from isthmus.robots.parameters import ParameterRange, factor, offset, vary
from isthmus.sim.robot import Robot

FOUND = 8
"""Segments with which mujoco.sysid is asked for the starts as well: its work grows with the square of their number."""


def one_link() -> Robot:
    """Mass of the weight and its height, damping, dry friction and rotor of the simple pendulum: 5 numbers."""
    robot = get_robot("pendulum")
    spec = robot.spec()
    spec.option.disableflags = 0
    spec.joint("hinge").damping, spec.joint("hinge").frictionloss = [0.1, 0.0, 0.0], 0.1
    space = (
        factor("weight_mass", "body:weight/mass", (0.5, 2.0), (0.5, 2.0)),
        offset("com_z", "m", "body:weight/com[2]", 0.1, 0.1),
        *_joint("hinge", 0.1, 0.1),
        vary("rotor", "kg·m²", "joint:.*/armature", 0.0022, (1e-4, 0.05), (1e-4, 0.05)),
    )
    return planted._native_drive(robot, spec, space)


def two_links() -> Robot:
    """Masses and their places, damping and dry friction of both joints, and the rotors: 9 numbers."""
    robot = get_robot(str(RIGS / "double_pendulum.toml"))
    space = (
        *(factor(f"{part}_mass", f"body:{part}/mass", (0.2, 5.0), (0.2, 5.0)) for part in ("upper", "lower")),
        *(offset(f"{part}_com", "m", f"body:{part}/com[2]", 0.15, 0.15) for part in ("upper", "lower")),
        *_joint("shoulder", 0.02, 0.1),
        *_joint("elbow", 0.02, 0.1),
        vary("rotor", "kg·m²", "joint:.*/armature", 0.003, (1e-4, 0.05), (1e-4, 0.05)),
    )
    return planted._native_drive(robot, robot.spec(), space)


def _joint(name: str, damping: float, friction: float) -> Iterator[ParameterRange]:
    yield vary(f"{name}_damping", "N·m·s/rad", f"joint:{name}/damping", damping, (0.0, 0.5), (0.0, 0.5))
    yield vary(f"{name}_friction", "N·m", f"joint:{name}/frictionloss", friction, (0.0, 1.0), (0.0, 1.0))


def native(case: Case, robot: Robot) -> Case:
    robot = robot.at_rate(case.robot.contract.rate)
    fitted, judged = ([replace(e, contract=robot.contract) for e in part] for part in (case.fitted, case.judged))
    return Case(robot, fitted, judged, case.ahead, case.segments)


CASES = {"simple_pendulum": (simple_pendulum, one_link), "double_pendulum": (double_pendulum, two_links)}


def compare(case: Case, found_too: bool) -> dict:
    robot, at = case.robot, ready(case)
    # mujoco.sysid takes no recording with holes.
    at = replace(at, train=at.train.take(np.asarray(np.isfinite(at.train.measured).all((1, 2)))))
    whole = fit(robot, at.train, robot.prior, at.floor, rounds=ROUNDS, threads=THREADS)
    rows = {}

    def note(name: str, run: Run) -> None:
        values = dict(zip(robot.space.names, map(float, run.e), strict=True))
        seconds, replays = run.work.total[1], run.work.replays
        rows[name] = {"seconds": seconds, "replays": replays, "values": values, **judge(robot, at.test, whole.noise, run.e)}
        print(f"  {name}: {rows[name]}", flush=True)

    def problem(segments) -> Problem:
        nominal = robot.space.nominal
        return Problem(robot.name, robot, nominal, nominal, segments, segments, whole.noise)

    print(f"  nominal: {judge(robot, at.test, whole.noise, robot.space.nominal)}", flush=True)
    all_, few = problem(at.train), problem(at.train.take(np.arange(0, len(at.train), max(1, len(at.train) // FOUND))))
    note("isthmus, starts as measured", ours(all_, True, THREADS))
    note("mujoco.sysid, starts as measured", theirs(all_, True, THREADS, keep=False))
    note("isthmus, starts found", ours(all_, False, THREADS))
    if found_too:
        note(f"isthmus, starts found, {len(few.guessed)} segments", ours(few, False, THREADS))
        note(f"mujoco.sysid, starts found, {len(few.guessed)} segments", theirs(few, False, THREADS, keep=False))
    return {"segments": [len(at.train), len(at.test)], "ahead": case.ahead, "rows": rows,
            "nominal": judge(robot, at.test, whole.noise, robot.space.nominal)}  # fmt: skip


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.realsysid", description=__doc__, formatter_class=raw)
    parser.add_argument("--data", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/realdata"), help="folder for the results")
    args = parser.parse_args()
    if not installed():
        print("mujoco.sysid lacks its dependencies; install them with: pip install 'mujoco[sysid]'.", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    for name, (recordings, robot) in CASES.items():
        print(name, flush=True)
        found = compare(native(recordings(args.data), robot()), name == "simple_pendulum")
        (args.out / f"sysid_{name}.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
