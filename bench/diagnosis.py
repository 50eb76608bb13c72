"""Does `isthmus gap` name the right cause? Recordings of virtual robots with hidden realities, diagnosed and counted.

    python -m bench.diagnosis cases -o runs/diagnosis --seeds 0 9          record them; policies are trained where missing
    python -m bench.diagnosis evidence -o runs/diagnosis --seeds 0 9       what each recording shows

Everything that is there already is kept, so each can be stopped and started again. Seeds from 1000 on are for tuning.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isthmus.cli.run_ import recorder_of
from isthmus.data.reader import read
from isthmus.deploy.controller import Controller
from isthmus.deploy.fit import Fit
from isthmus.deploy.guard import Guard
from isthmus.deploy.links.inprocess import InProcess
from isthmus.deploy.operator import Operator
from isthmus.deploy.preflight import Flight, preflight
from isthmus.deploy.runtime import Loop
from isthmus.diagnose.evidence import gather
from isthmus.errors import BadInput
from isthmus.files import atomic_write
from isthmus.gap.suspect import suspect
from isthmus.sim.reality import Reality, VirtualRobot
from isthmus.sim.reality.engine import PERIOD
from isthmus.sim.reality.families import hidden
from isthmus.tasks import get_task

TASKS = {"pendulum": "pendulum/swingup", "crazyflie": "crazyflie/hover", "go1": "go1/walk"}
FAMILIES = ("nominal", "parametric-inside", "parametric-outside", "unmodelled", "wiring", "link", "sensors", "mixed")
SECONDS = 10.0
DELAYS = ("action_delay", "sensor_delay")


@dataclass(frozen=True)
class Case:
    robot: str
    family: str
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.robot}-{self.family}-{self.seed}"

    @property
    def recording(self) -> Path:
        return self.folder / "cases" / f"{self.name}.mcap"

    @property
    def about(self) -> Path:
        return self.folder / "cases" / f"{self.name}.json"

    @property
    def evidence(self) -> Path:
        return self.folder / "evidence" / f"{self.name}.json"

    @property
    def reality(self) -> Reality:
        return hidden(get_task(TASKS[self.robot]).robot, self.seed, self.family)[1]


def cases(folder: Path, robots: list[str], seeds: range) -> Iterator[Case]:
    for seed in seeds:
        for robot in robots:
            for family in FAMILIES:
                yield Case(robot, family, seed, folder)


# Recordings -------------------------------------------------------------------------------------------------------


def controller_of(robot: str, folder: Path) -> Controller:
    """Of a policy that was trained on the prior; trained now if there is none."""
    path = folder / f"{robot}.controller"
    if not path.exists():
        for words in (["train", TASKS[robot], "-o", str(folder / robot)], ["export", str(folder / robot), "-o", str(path)]):
            subprocess.run([sys.executable, "-m", "isthmus.cli.main", *words], check=True)
    return Controller.load(path)


def commands(robot: str, rng: np.random.Generator) -> tuple[str, ...]:
    """What an operator would try in the first ten seconds."""
    if robot == "go1":
        first, second = rng.uniform(0.3, 0.8), rng.uniform(-0.3, 0.6)
        turn = rng.uniform(-0.6, 0.6)
        return (f"forward={first:.2f}", f"4:forward={second:.2f}", f"4:yaw={turn:.2f}", "7:yaw=0")
    if robot == "crazyflie":
        places = rng.uniform([-0.5, -0.5, 1.0], [0.5, 0.5, 1.6], (3, 3))
        return tuple(f"{4 * i}:{axis}={v:.2f}" for i, row in enumerate(places) for axis, v in zip("xyz", row, strict=True))
    return ()


def record(case: Case) -> None:
    """Run the policy on the robot, whatever preflight says of it, and keep what was recorded."""
    controller = controller_of(case.robot, case.folder)
    robot = get_task(TASKS[case.robot]).robot
    body = VirtualRobot(robot, case.reality, unit=f"virtual-{case.seed}")
    asked = commands(case.robot, np.random.default_rng(case.seed))
    link, operator = InProcess(body), Operator(controller.manifest.operator, asked)
    checks, flight = preflight(controller, link, operator.at(0.0))
    refused = [c.name for c in checks if not c.ok]
    if flight is None:
        fit = Fit.by_name(controller.manifest, robot.contract)
        flight = Flight(body.identity, fit, Guard(robot.contract, np.array(controller.manifest.default)[fit.target]), PERIOD)
    case.recording.parent.mkdir(parents=True, exist_ok=True)
    waiting = case.recording.with_suffix(".part")
    loop = Loop(controller, link, flight, operator, recorder_of(waiting, controller, flight))
    outcome = loop.run(SECONDS)
    waiting.replace(case.recording)
    about = {"ended": outcome.ended, "why": outcome.why, "seconds": outcome.seconds, "refused": refused}
    atomic_write(case.about, json.dumps(about | {"truth": truth(case), "reality": case.reality.to_dict()}, indent=1).encode())


def show(case: Case) -> None:
    """What the recording says, kept beside it."""
    controller, task = controller_of(case.robot, case.folder), get_task(TASKS[case.robot])
    began = time.perf_counter()
    try:
        episodes = [read(case.recording)]
        found = gather(task.robot, controller, episodes, task.robot.prior, suspect(task.robot, episodes)).to_dict()
    except BadInput as error:
        found = {"error": str(error)}
    case.evidence.parent.mkdir(parents=True, exist_ok=True)
    found |= {"seconds": time.perf_counter() - began}
    atomic_write(case.evidence, json.dumps(found, indent=1).encode())


def truth(case: Case) -> dict[str, list[str]]:
    """Causes that are right to name, each with the words of which it must say one; no words: any will do."""
    reality = case.reality.to_dict()
    params, physics, faults = (list(reality.get(table, {})) for table in ("params", "unmodelled", "faults"))
    found: dict[str, list[str]] = {}
    if case.family in ("nominal", "parametric-inside"):
        return {"nothing": []}
    if case.family == "sensors":
        return {"sensor": []}
    if case.family == "wiring":
        return {"wiring": []}
    if case.family == "link":
        # A link that is late is, to a recording, a robot with longer delays.
        found = {"link": []} | ({"outside": list(DELAYS)} if "delay" in faults else {})
        return found | ({"nothing": []} if set(faults) <= {"duplicate", "reorder"} else {})
    if params:
        found["outside"] = []
        found |= {"link": []} if set(params) & set(DELAYS) else {}
    if physics:
        found["physics"] = []
        found |= {"outside": found.get("outside", ["strength"])} if "thrust_asymmetry" in physics else {}
        found |= {"outside": found.get("outside", ["contact_time"])} if "ground_softness" in physics else {}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cases", "evidence"])
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--robots", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 9), metavar=("FIRST", "LAST"))
    args = parser.parse_args()
    wanted = list(cases(args.out, args.robots, range(args.seeds[0], args.seeds[1] + 1)))
    for case in wanted:
        work, result = (record, case.about) if args.what == "cases" else (show, case.evidence)
        if not result.exists():
            began = time.perf_counter()
            work(case)
            print(case.name, f"{time.perf_counter() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
