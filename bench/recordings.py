"""Recordings of real hardware, made by others, in the signals of a robot: some to fit to, others to judge by.

The recordings are not part of the project; docs/results/real-data.md says where each is from. They are put on one regular
grid, because a model is fitted at one rate: signals are read off between two samples, and what was commanded is the mean over
a tick, which is what a held target does to a motor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isthmus.data.episode import Episode
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot

RIGS = Path(__file__).with_name("rigs")
HOLE = 0.05
"""s without a sample after which a recording begins anew."""


@dataclass(frozen=True)
class Case:
    """One set of recordings of one machine."""

    robot: Robot
    """At the rate of the episodes."""
    fitted: list[Episode]
    judged: list[Episode]
    ahead: float
    """s that are predicted."""
    segments: tuple[int, int] = (15, 15)
    """Fitted to, and judged by, at most: spread evenly over the recordings."""
    motors: tuple[str, ...] = ()
    """Motors whose law is looked for; none where nothing drives."""


def episodes(robot: Robot, t: np.ndarray, target: np.ndarray, held: bool = False, **signals: np.ndarray) -> list[Episode]:
    """Stretches of a recording on the robot's own ticks; what was not recorded is missing. `held` targets are steps."""
    t = np.asarray(t, float) - float(t[0])
    target = np.asarray(target, float).reshape(len(t), -1)
    tick, found = 1.0 / robot.contract.rate, []
    for rows in np.split(np.arange(len(t)), np.flatnonzero(np.diff(t) > HOLE) + 1):
        grid = np.arange(float(t[rows[0]]), float(t[rows[-1]]) - tick, tick)
        if len(grid) < 10:
            continue
        seen = {}
        for s in robot.contract.signals:
            columns = np.asarray(signals[s.name], float).reshape(len(t), -1)[rows].T if s.name in signals else []
            seen[s.name] = np.full((len(grid), s.size), np.nan)
            for i, column in enumerate(columns):
                seen[s.name][:, i] = np.interp(grid, t[rows], column)
        take = _steps if held else _means
        u = np.stack([take(t[rows], column, grid, tick) for column in target[rows].T], axis=1)
        found.append(Episode(robot.contract, grid - grid[0], seen, u, u, origin={"source": "import"}))
    return found


def _means(t: np.ndarray, x: np.ndarray, grid: np.ndarray, tick: float) -> np.ndarray:
    """Mean of x from each point of the grid to the next."""
    area = np.concatenate([[0.0], np.cumsum(0.5 * (x[1:] + x[:-1]) * np.diff(t))])
    return (np.interp(grid + tick, t, area) - np.interp(grid, t, area)) / tick


def _steps(t: np.ndarray, x: np.ndarray, grid: np.ndarray, tick: float) -> np.ndarray:
    return x[np.searchsorted(t, grid + 1e-6, side="right") - 1]


def table(path: Path) -> dict[str, np.ndarray]:
    """Columns of a file; the first is time, and samples in which it stands still are left out."""
    found = np.genfromtxt(path, delimiter=",", names=True)
    names = list(found.dtype.names or ())
    keep = np.concatenate([[True], np.diff(found[names[0]]) > 0])
    return {name: found[name][keep] for name in names}


def stacked(x: dict[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    return np.stack([x[name] for name in names], axis=1)


def simple_pendulum(data: Path) -> Case:
    robot, folder = get_robot("pendulum").at_rate(100.0), data / "dfki_simple_pendulum"

    def one(name: str) -> list[Episode]:
        x = table(folder / f"{name}.csv")
        return episodes(robot, x["t_s"], x["tau_meas_Nm"], joint_pos=x["q_rad"], joint_vel=x["qd_rad_s"])

    return Case(robot, one("ddp_pd") + one("energy_shaping"), one("dircol_pd"), 0.5, (16, 24), ("hinge",))


def double_pendulum(data: Path) -> Case:
    robot, folder = get_robot(str(RIGS / "double_pendulum.toml")).at_rate(100.0), data / "dfki_double_pendulum"

    def many(pattern: str) -> list[Episode]:
        found = []
        for path in sorted(folder.glob(pattern)):
            x = table(path)
            q, qd, tau = (stacked(x, [f"{n}{i}_{unit}" for i in (1, 2)]) for n, unit in
                          (("q", "rad"), ("qd", "rad_s"), ("tau_meas", "Nm")))  # fmt: skip
            found += episodes(robot, x["t_s"], tau, joint_pos=q, joint_vel=qd)
        return found

    judged = many("*_ilqr_*.csv") + many("*_pd_tracking_*.csv")
    return Case(robot, many("*_torque_excitation_*.csv"), judged, 0.25, (30, 15), ("shoulder", "elbow"))


def servo(data: Path) -> Case:
    """Its target is the voltage at the motor, as a share of 7.4 V: the duty cycle times the supply, which sags under load."""
    robot, folder = get_robot(str(RIGS / "servo.toml")).at_rate(100.0), data / "bam_servo_pendulum"

    def many(gains: Sequence[int]) -> list[Episode]:
        found = []
        for path in sorted(folder.glob("xl330_*.csv")):
            if "lift_and_drop" in path.name or not any(f"_kp{kp}_" in path.name for kp in gains):
                continue
            x = table(path)
            volts = x["pwm_raw"] / 885.0 * x["vin_V"] / 7.4
            found += episodes(robot, x["t_s"], volts, joint_pos=x["q_rad"], joint_vel=x["qd_rad_s"])
        return found

    return Case(robot, many((100, 200)), many((800,)), 0.4, (36, 15), ("servo",))


def legs(data: Path) -> Case:
    robot, folder = get_robot(f"held:{RIGS / 'legs.toml'}").at_rate(100.0), data / "go2_motor_response"
    x = table(folder / "go2_air_public.csv")
    names = robot.contract.target.labels
    short = [name.removesuffix("_joint") for name in names]
    q, qd, wanted = (stacked(x, [f"{what}_{name}" for name in short]) for what in ("q", "qd", "qcmd"))
    part = lambda rows: episodes(robot, x["t_s"][rows], wanted[rows], True, joint_pos=q[rows], joint_vel=qd[rows])  # noqa: E731
    # A new command arrives at every fourth sample from the second on: the grid takes it at its own time.
    return Case(robot, part(slice(1, 5601)), part(slice(5701, None)), 0.2, (12, 12), names)


def free_swing(data: Path) -> Case:
    robot, folder = get_robot(str(RIGS / "free_pendulum.toml")).at_rate(50.0), data / "multiarm_pendulum_freeswing"
    x = np.load(folder / "single_id.npz", allow_pickle=False)
    runs = []
    for part in np.unique(x["segment"]):
        rows = x["segment"] == part
        q, qd = x["theta"][rows] - np.pi, x["omega"][rows]
        runs.append(episodes(robot, x["t"][rows], np.zeros(int(rows.sum())), joint_pos=q, joint_vel=qd))
    return Case(robot, [e for run in runs[:-1] for e in run], runs[-1], 1.0)


CASES: dict[str, Callable[[Path], Case]] = {
    "simple_pendulum": simple_pendulum,
    "free_swing": free_swing,
    "servo": servo,
    "double_pendulum": double_pendulum,
    "legs": legs,
}
