"""A pendulum that differs from its model, recorded under a controller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gapping import following

from isthmus.data.contract import Law
from isthmus.data.recording import write
from isthmus.identify.plant import lived, waves
from isthmus.identify.twin import Twin
from isthmus.robots import get_robot
from isthmus.sim.reality import Reality
from isthmus.sim.reality.engine import RealEngine

SECONDS = 8.0


def swung(folder: Path) -> Path:
    """p.controller, swing.mcap and desk.twin in a folder: a weak motor with play in its gear."""
    robot = get_robot("pendulum")
    tick, slices = 1.0 / robot.contract.rate, robot.contract.slices()
    law = Law((0.0,), {"joint_pos": ((0.0,),), "joint_vel": ((0.0,),)})
    controller = following(robot, waves(robot, SECONDS, 3, 0.4), law, folder / "p.controller")
    reality = Reality.from_dict({"robot": "pendulum", "params": {"strength": 0.6}, "unmodelled": {"backlash": 0.1}})
    controller.reset()

    def drive(t: int, y: np.ndarray) -> np.ndarray:
        return controller.tick({name: y[0, slices[name]] for name in controller.manifest.inputs})[None].astype(float)

    episode = lived(RealEngine(robot, reality, 1, tick=tick), drive, round(SECONDS / tick), np.random.default_rng(1))
    write(folder / "swing.mcap", episode)
    Twin("pendulum", robot.model_hash, robot.prior).save(folder / "desk.twin")
    return folder
