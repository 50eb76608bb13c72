"""Identification on recordings of real hardware: everything behind docs/results/real-data.md.

    python -m bench.realdata --data REALDATA                all sets, an hour on two cores
    python -m bench.realdata --data REALDATA servo legs     some of them

The recordings are not part of the project. Each set is fitted to some recordings and judged by others: multi-step error of
(a) the nominal model, (b) with identified numbers, (c) with the best motor law, (d) with a learned force.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from isthmus.data.episode import Episode
from isthmus.gap.segments import Segments
from isthmus.identify.actuator import climb
from isthmus.identify.fit import fit, posterior
from isthmus.identify.missing import learn
from isthmus.identify.rollout import with_force
from isthmus.identify.study import errors, prepare, split
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot

RIGS = Path(__file__).with_name("rigs")
MOST = 160
"""Segments fitted to, and judged by, at most: spread evenly over the recordings."""


@dataclass(frozen=True)
class Case:
    """One set of recordings of one machine."""

    robot: Robot
    fitted: list[Episode]
    judged: list[Episode]
    ahead: float
    """s"""
    motors: tuple[str, ...] = ()
    """Motors whose law is looked for; none where nothing drives."""


def episode(robot: Robot, t: np.ndarray, target: np.ndarray, **signals: np.ndarray) -> Episode:
    """A recording in the robot's own signals; what was not recorded is missing."""
    n, signals_ = len(t), robot.contract.signals
    missing = {s.name: np.full((n, s.size), np.nan) for s in signals_}
    seen = {s.name: np.asarray(signals.get(s.name, missing[s.name]), float).reshape(n, -1) for s in signals_}
    target = np.asarray(target, float).reshape(n, -1)
    return Episode(robot.contract, np.asarray(t, float) - float(t[0]), seen, target, target, origin={"source": "import"})


def table(path: Path) -> dict[str, np.ndarray]:
    found = np.genfromtxt(path, delimiter=",", names=True)
    keep = np.concatenate([[True], np.diff(found[found.dtype.names[0]]) > 0])
    return {name: found[name][keep] for name in found.dtype.names}


def simple_pendulum(data: Path) -> Case:
    robot, folder = get_robot("pendulum"), data / "dfki_simple_pendulum"

    def one(name: str) -> Episode:
        x = table(next(folder.glob(f"*{name}*.csv")))
        return episode(robot, x["t_s"], x["tau_meas_Nm"], joint_pos=x["q_rad"], joint_vel=x["qd_rad_s"])

    return Case(robot, [one("ddp_pd"), one("energy_shaping")], [one("dircol_pd")], 0.3, ("hinge",))


def double_pendulum(data: Path) -> Case:
    robot, folder = get_robot(str(RIGS / "double_pendulum.toml")), data / "dfki_double_pendulum"

    def one(path: Path) -> Episode:
        x = table(path)
        pair = lambda name, unit: np.stack([x[f"{name}{i}_{unit}"] for i in (1, 2)], axis=1)  # noqa: E731
        return episode(robot, x["t_s"], pair("tau_meas", "Nm"), joint_pos=pair("q", "rad"), joint_vel=pair("qd", "rad_s"))

    files = sorted(folder.glob("*.csv"))
    excitations = [p for p in files if "ilqr" not in p.name and "perturbed" not in p.name and "tracking" not in p.name]
    others = [p for p in files if p not in excitations and "perturbed" not in p.name]
    return Case(robot, [one(p) for p in excitations], [one(p) for p in others], 0.2, ("shoulder", "elbow"))


def servo(data: Path) -> Case:
    robot, folder = get_robot(str(RIGS / "servo.toml")), data / "bam_servo_pendulum"

    def one(path: Path) -> Episode:
        x = table(path)
        duty = np.where(x["torque_enable"] > 0, x["pwm_raw"] / 885.0, 0.0)
        return episode(robot, x["t_s"], duty, joint_pos=x["q_rad"], joint_vel=x["qd_rad_s"])

    files = [p for p in sorted(folder.glob("xl330_*.csv")) if "lift_and_drop" not in p.name]
    seen = [p for p in files if "kp800" not in p.name]
    return Case(robot, [one(p) for p in seen], [one(p) for p in files if p not in seen], 0.2, ("servo",))


def legs(data: Path) -> Case:
    config = RIGS / "legs.toml"
    robot, folder = get_robot(f"held:{config}"), data / "go2_motor_response"
    x = table(next(folder.glob("*.csv")))
    names = robot.contract.target.labels
    short = [name.removesuffix("_joint") for name in names]
    columns = lambda what: np.stack([x[f"{what}_{name}"] for name in short], axis=1)  # noqa: E731
    whole = episode(robot, x["t_s"], columns("qcmd"), joint_pos=columns("q"), joint_vel=columns("qd"))
    return Case(robot, [_part(whole, 0.0, 28.0)], [_part(whole, 28.5, 40.0)], 0.2, names)


def free_swing(data: Path) -> Case:
    robot, folder = get_robot(str(RIGS / "free_pendulum.toml")), data / "multiarm_pendulum_freeswing"
    x = np.load(folder / "single_id.npz", allow_pickle=False)
    runs = []
    for part in np.unique(x["segment"]):
        rows = np.flatnonzero(x["segment"] == part)[::5]
        q = x["theta"][rows] - np.pi
        runs.append(episode(robot, x["t"][rows], np.zeros(len(rows)), joint_pos=q, joint_vel=x["omega"][rows]))
    return Case(robot, runs[:-1], runs[-1:], 1.0)


CASES: dict[str, Callable[[Path], Case]] = {
    "simple_pendulum": simple_pendulum,
    "double_pendulum": double_pendulum,
    "servo": servo,
    "legs": legs,
    "free_swing": free_swing,
}


def _part(whole: Episode, start: float, end: float) -> Episode:
    rows = (whole.time >= start) & (whole.time < end)
    signals = {name: values[rows] for name, values in whole.signals.items()}
    return Episode(
        whole.contract, whole.time[rows] - start, signals, whole.target[rows], whole.wanted[rows], origin=whole.origin
    )


def thin(segments: Segments) -> Segments:
    which = np.unique(np.linspace(0, len(segments) - 1, MOST).astype(int))
    return segments.take(which)


def measure(case: Case, say: Callable[[str], None]) -> dict:
    """Errors of the four models on recordings that none of them was fitted to."""
    robot = case.robot
    fitted, judged = (prepare(robot, episodes, robot.prior, case.ahead) for episodes in (case.fitted, case.judged))
    at, train = fitted.robot, thin(_whole(fitted))
    test, noise = thin(_whole(judged)), fitted.floor
    rows: dict[str, dict] = {}

    def judge(name: str, model: Robot, e: np.ndarray, began: float) -> None:
        model = replace(model, contract=at.contract, substeps=at.substeps, timestep=at.timestep)
        found = errors(model, test, noise, noise, [e])[0]
        signals = {c.signal: [] for c in found.components}
        for c, rms in zip(found.components, found.rms, strict=True):
            signals[c.signal].append(rms)
        rms = {s: float(np.sqrt(np.nanmean(np.square(v)))) for s, v in signals.items()}
        rows[name] = {"relative": found.overall, "rms": rms, "seconds": time.perf_counter() - began}
        say(f"  {name}: {found.overall:.3g} of the noise, {rms}, {rows[name]['seconds']:.0f} s")

    began = time.perf_counter()
    judge("nominal", at, robot.space.nominal, began)
    began = time.perf_counter()
    found = fit(at, train, robot.prior, noise)
    judge("identified", at, found.e, began)
    belief, e = posterior(at, found, robot.prior), found.e
    values = {n: float(found.e[robot.space.index(n)]) for n in found.space.names}
    law = at
    if case.motors:
        began = time.perf_counter()
        inner, outer = split(train)
        assert outer is not None
        actuator, after = climb(at, inner, outer, belief, noise, case.motors)
        motors = replace(at.unit, motors=actuator.motors, learned=() if actuator.learned is None else (actuator.learned,))
        law, e = replace(at, unit=motors), after.median()
        judge("motor law", law, e, began)
        rows["motor law"]["law"] = actuator.chosen
    began = time.perf_counter()
    joints = tuple(at.model.joint(j).name for j in range(at.model.njnt))
    force = learn(law, train, e, noise, "body", joints)
    judge("learned force", with_force(law, force), e, began)
    return {"segments": [len(train), len(test)], "ahead": case.ahead, "values": values, "models": rows}


def _whole(parts) -> Segments:
    """Segments of both parts: whole recordings are held out here."""
    if parts.held_out is None:
        return parts.train
    both = [parts.train, parts.held_out]
    return Segments(*(np.concatenate([getattr(x, f) for x in both]) for f in Segments.__dataclass_fields__))


def main(argv: Sequence[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.realdata", description=__doc__, formatter_class=raw)
    parser.add_argument("sets", nargs="*", choices=[[], *CASES], help="which sets; by default all")
    parser.add_argument("--data", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("-o", "--out", type=Path, help="file for the results, JSON")
    args = parser.parse_args(argv)
    results = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    for name in args.sets or CASES:
        print(name, flush=True)
        results[name] = measure(CASES[name](args.data), lambda line: print(line, flush=True))
        if args.out:
            args.out.write_text(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
