"""Motor laws for the published networks of real drives: their input and output as tables of torques.

    python -m bench.drives --data REALDATA

ANYdrive's is a series elastic drive of ANYmal with the gains of legged_gym, Go1's that of walk-these-ways.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from isthmus.real2sim.identify.motor_bench import PIECE_SAMPLES, WARM_UP_SAMPLES, BenchData
from isthmus.real2sim.identify.motor_identification import MotorModel, fit_to_torque
from isthmus.robots import get_robot
from isthmus.sim.robot import MotorParams, Robot

DRIVES = ("go1", "anydrive_sea")


def motor(drive: str) -> Robot:
    """A robot with that motor; only the motor's figures matter here."""
    robot = get_robot("go1")
    if drive == "go1":
        return robot
    twelve = lambda x: (x,) * robot.contract.target.size  # noqa: E731
    return replace(robot, motors=MotorParams("position", twelve(80.0), twelve(2.0), twelve(80.0), twelve(12.0)))


def bench(data: Path, drive: str, robot: Robot) -> BenchData:
    x = np.load(data / "actuator_net_teachers" / f"{drive}_public.npz", allow_pickle=False)
    error, speed, torque = (x[name].astype(float) for name in ("pos_err", "vel", "torque"))
    starts = range(0, error.shape[1] - PIECE_SAMPLES + 1, PIECE_SAMPLES - WARM_UP_SAMPLES)
    cut = lambda a: np.concatenate([[row[i : i + PIECE_SAMPLES] for i in starts] for row in a])  # noqa: E731
    u = cut(error)
    return BenchData(robot.contract.target.labels[:1], float(x["dt"]), u, np.zeros_like(u), cut(speed), cut(torque))


def climbed(data: Path, drive: str) -> tuple[MotorModel, float, float]:
    """The law, the size of the torques, N·m, and the time that it took, s."""
    robot = motor(drive)
    table, began = bench(data, drive, robot), time.process_time()
    return fit_to_torque(robot, table), float(np.std(table.tau)), time.process_time() - began


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.drives", description=__doc__, formatter_class=raw)
    parser.add_argument("--data", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/realdata"), help="folder for the results")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for drive in DRIVES:
        found, size, seconds = climbed(args.data, drive)
        rows = {t.name: {"fitted": t.train_error, "held_out": t.held_out_error, "values": t.values} for t in found.candidates}
        kept = {"chosen": found.chosen_law, "torque": size, "seconds": seconds, "laws": rows}
        print(drive, json.dumps(kept), flush=True)
        (args.out / f"drive_{drive}.json").write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
