"""More recordings of real hardware: an arm, a quadrotor and a cube that is tossed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np

from bench.recordings import RIGS, Case, episodes
from isthmus.data.episode import Episode
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot

FULL_THRUST = 0.015 * 9.81
"""N of one rotor at full command: the firmware takes the command as thrust, of 60 g in all, and corrects for the battery."""
FLIES = (0.3, 20_000)
"""m above the ground and command of every motor from which on a Crazyflie is in free flight."""
ARM_FITTED = ("friction_gravity", "multisine", "prbs_excitation", "step_response")
ARM_JUDGED = ("circular_motion", "fast_transitions", "reach_and_return", "triangle_wave", "velocity_ramp")


def arm(data: Path) -> Case:
    """All six joints; the jaw is recorded as a share of its range."""
    robot, folder = untouched(get_robot(str(RIGS / "arm.toml"))), data / "so101_sage"
    low, high = robot.model.joint("gripper").range

    def many(names: tuple[str, ...]) -> list[Episode]:
        found = []
        for name in names:
            x = np.load(folder / f"{name}.npz", allow_pickle=False)
            q, qd, wanted = (x[key].astype(float) for key in ("q", "qd", "q_cmd"))
            for jaw in (q, wanted):
                jaw[:, 5] = low + (high - low) * jaw[:, 5]
            qd[:, 5] *= high - low
            found += episodes(robot, x["t"], wanted, True, joint_pos=q, joint_vel=qd)
        return found

    return Case(robot, many(ARM_FITTED), many(ARM_JUDGED), 0.5, (12, 20), robot.contract.target.labels)


def untouched(robot: Robot) -> Robot:
    """Without contacts: nothing is touched in these recordings, and meshes are slow."""
    spec = robot.spec()
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    spec.compile()
    return replace(robot, xml=spec.to_xml())


def quadrotor(data: Path) -> Case:
    robot, folder = get_robot("crazyflie").at_rate(100.0), data / "crazypad_quadrotor"
    flights = lambda *which: [e for i in which for e in flight(robot, folder / f"normal_flight__E8_{i}.npz")]  # noqa: E731
    return Case(robot, flights("00", "01", "02"), flights("05"), 0.4, (16, 16))


def flight(robot: Robot, path: Path) -> list[Episode]:
    """Free flight alone. Attitude is left out: pitch was not recorded."""
    x = np.load(path, allow_pickle=False)
    rows = (x["pos"][:, 2] > FLIES[0]) & (x["motor"].min(1) > FLIES[1])
    thrust = x["motor"][rows] / 65535.0 * FULL_THRUST
    return episodes(robot, x["t"][rows], thrust, position=x["pos"][rows], velocity=x["vel"][rows])


def cube(data: Path) -> Case:
    robot = get_robot(str(RIGS / "cube.toml"))
    x = np.load(data / "contactnets_cube" / "tosses_public.npz", allow_pickle=False)

    def toss(i: int) -> list[Episode]:
        s = x["state"][x["start"][i] : x["start"][i] + x["length"][i]].astype(float)
        t = np.arange(len(s)) * float(x["dt"])
        parts = {"position": s[:, :3], "quat": s[:, 3:7], "velocity": s[:, 7:10], "gyro": s[:, 10:]}
        return episodes(robot, t, np.zeros(len(s)), **parts)

    fitted, judged = ([e for i in which for e in toss(i)] for which in (range(30), range(30, 60)))
    return Case(robot, fitted, judged, 0.3, (16, 20))
