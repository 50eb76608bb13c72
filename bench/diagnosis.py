"""Does `isthmus diagnose` name the right cause? Recordings of virtual robots with hidden realities, diagnosed and counted.

    python -m bench.diagnosis cases -o runs/diagnosis --seeds 0 9          record them; policies are trained where missing
    python -m bench.diagnosis evidence -o runs/diagnosis --seeds 0 9       what each recording shows
    python -m bench.diagnosis tune -o runs/diagnosis --seeds 1000 1005     weights of the judge under which the truth is likely
    python -m bench.diagnosis report -o runs/diagnosis --seeds 0 9         judged, counted, as a page of Markdown

Everything that is there already is kept, so each can be stopped and started again. Seeds from 1000 on are for tuning.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from isthmus.core.errors import BadInput
from isthmus.core.files import atomic_write
from isthmus.data.mcap.reader import read_episode
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.guard.guard import Guard
from isthmus.deploy.links.in_process import InProcessLink
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.deploy.preflight import PreparedRobot, preflight
from isthmus.deploy.recorder import recorder_for
from isthmus.deploy.runtime import ControlLoop
from isthmus.deploy.signal_map import SignalMap
from isthmus.real2sim.diagnose.evidence import Evidence, gather_evidence
from isthmus.real2sim.diagnose.verdict import (
    AS_BELIEVED_CAUSES,
    CAUSES,
    MEASURED_CAUSES,
    WEIGHTS,
    Weights,
    cause_probabilities,
    rank_causes,
)
from isthmus.real2sim.prepare.checks.recording_checks import check
from isthmus.real2sim.prepare.prepare import prepare
from isthmus.sim.reality import Reality, VirtualRobot
from isthmus.sim.reality.hidden import hidden
from isthmus.sim.reality.simulation import PACKET_PERIOD
from isthmus.tasks.catalogue import get_task

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


def controller_of(robot: str, folder: Path) -> OnnxController:
    """Of a policy that was trained on the prior; trained now if there is none."""
    path = folder / f"{robot}.controller"
    if not path.exists():
        for words in (["train", TASKS[robot], "-o", str(folder / robot)], ["export", str(folder / robot), "-o", str(path)]):
            subprocess.run([sys.executable, "-m", "isthmus", *words], check=True)
    return OnnxController.load(path)


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
    link, operator = InProcessLink(body), CommandSchedule(controller.manifest.operator, asked)
    checks, flight = preflight(controller, link, operator.values_at(0.0))
    refused = [c.name for c in checks if not c.ok]
    if flight is None:
        fit = SignalMap.by_name(controller.manifest, robot.contract)
        flight = PreparedRobot(
            body.identity, fit, Guard(robot.contract, np.array(controller.manifest.default)[fit.target_order]), PACKET_PERIOD
        )
    case.recording.parent.mkdir(parents=True, exist_ok=True)
    waiting = case.recording.with_suffix(".part")
    loop = ControlLoop(controller, link, flight, operator, recorder_for(waiting, controller, flight))
    outcome = loop.run(SECONDS)
    waiting.replace(case.recording)
    about = {"ended": outcome.status, "why": outcome.reason, "seconds": outcome.seconds, "refused": refused}
    atomic_write(case.about, json.dumps(about | {"truth": truth(case), "reality": case.reality.to_dict()}, indent=1).encode())


def show(case: Case, threads: int) -> None:
    """What the recording says, kept beside it."""
    controller, task = controller_of(case.robot, case.folder), get_task(TASKS[case.robot])
    began = time.perf_counter()
    try:
        episodes = [read_episode(case.recording)]
        findings = check(task.robot, episodes)
        found = gather_evidence(
            prepare(task.robot, episodes, findings=findings), controller, task.robot.prior, threads
        ).to_dict()
    except (BadInput, np.linalg.LinAlgError) as error:
        found = {"error": str(error)}
    case.evidence.parent.mkdir(parents=True, exist_ok=True)
    found |= {"seconds": time.perf_counter() - began}
    atomic_write(case.evidence, json.dumps(found, indent=1).encode())


def truth(case: Case) -> dict[str, list[str]]:
    """Causes that are right to name, each with the words of which it must say one; no words: any will do."""
    reality = case.reality.to_dict()
    params, physics, faults = (list(reality.get(table, {})) for table in ("params", "unmodelled", "faults"))
    found: dict[str, list[str]] = {}
    if case.family == "nominal":
        return {"nothing": []}
    if case.family == "parametric-inside":
        return {"nothing": [], "inside": []}
    if case.family == "sensors":
        return {"sensor": []} | ({"nothing": []} if unseen(case) else {})
    if case.family == "wiring":
        return {"wiring": []} | ({"nothing": []} if unseen(case) else {})
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
        # Friction that is largest at rest is also friction; and while joints slide, it may be more than was believed.
        found |= {"outside": found.get("outside", ["joint_friction"])} if slides(case) else {}
    return found


def right(case: Case, evidence: Evidence) -> tuple[str, ...]:
    """Causes that are right to name with the explanation that the evidence has for each."""
    named = {cause: next((c.name for c in evidence.explanations if c.cause == cause), "") for cause in CAUSES}
    return tuple(c for c, words in truth(case).items() if not words or any(named[c].startswith(w) for w in words))


def slides(case: Case) -> bool:
    """With more friction than was believed."""
    belief, law = get_task(TASKS[case.robot]).robot.prior, case.reality.to_dict().get("unmodelled", {}).get("stribeck")
    return law is not None and law["coulomb"] > belief.interval("joint_friction", 1.0)[1]


def unseen(case: Case) -> bool:
    """No recording can tell: a pendulum that is mirrored is a pendulum, and motion is the same in another place."""
    reality = case.reality.to_dict()
    mirrored = case.robot == "pendulum" and "flip" in reality.get("faults", {})
    return mirrored or "position_bias" in reality.get("sensors", {})


# Judged -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """One case, what is right to say of it, and what was said."""

    case: Case
    right: tuple[str, ...]
    said: str | None
    p: float
    """Of what is most probable, said or not."""
    top: str
    seconds: float
    named: str = ""
    """By the explanation of what is most probable."""

    @property
    def good(self) -> bool:
        return self.said in self.right

    @property
    def wrong(self) -> bool:
        return self.said is not None and not self.good


def judged(case: Case, weights: Weights = WEIGHTS) -> Judged:
    data = json.loads(case.evidence.read_text())
    if "error" in data:
        return Judged(case, tuple(truth(case)), None, 0.0, "", data["seconds"])
    evidence = Evidence.from_dict(data)
    verdict = rank_causes(evidence, weights)
    top = verdict.ranked_causes[0]
    named = top.explanation.name if top.explanation else ""
    return Judged(case, right(case, evidence), verdict.cause, top.probability, top.cause, data["seconds"], named)


def tune(wanted: list[Case]) -> Weights:
    """The weights under which the truth is most likely, not far from those that are; and what they mistake for what."""
    known = []
    for case in wanted:
        if "error" not in (data := json.loads(case.evidence.read_text())):
            evidence = Evidence.from_dict(data)
            known.append((evidence, np.array([cause in right(case, evidence) for cause in CAUSES], float)))
    start = _packed(WEIGHTS)

    def cost(x: np.ndarray) -> float:
        likely = [float(cause_probabilities(evidence, _weights(x)) @ true) for evidence, true in known]
        return NEAR * float(((x - start) ** 2).sum()) - float(np.log(SLIP + (1 - SLIP) * np.array(likely)).sum())

    found = minimize(cost, start, method="Powell", options={"maxiter": 12, "xtol": 1e-2, "ftol": 1e-4})
    print(f"{len(known)} cases: -log p of the truth {cost(start) / len(known):.3f} before, {found.fun / len(known):.3f} after")
    said = np.array([cause_probabilities(evidence, _weights(found.x)) for evidence, _ in known])
    table = mistaken(grouped(said), np.minimum(grouped(np.array([true for _, true in known])), 1.0))
    return replace(_weights(found.x), mistaken=tuple(tuple(map(float, row.round(4))) for row in table))


NEAR, SLIP = 0.3, 0.01
"""How dear it is to leave the weights as they are, and how often a case is beyond understanding."""
AS_SAID, AS_ANY = 1.0, 2.0
"""Robots of each cause that nobody has seen: so many were said rightly, and so many could have been anything."""


def grouped(p: np.ndarray) -> np.ndarray:
    """(n, causes) -> (n, TOLD): causes of a robot as believed are one."""
    believed = p[:, [CAUSES.index(c) for c in AS_BELIEVED_CAUSES]].sum(1)
    return np.stack([believed, *(p[:, CAUSES.index(c)] for c in MEASURED_CAUSES[1:])], axis=1)


def mistaken(said: np.ndarray, true: np.ndarray, rounds: int = 50) -> np.ndarray:
    """(k, k) of how often the robot had cause j where i was said, from probabilities, (n, k), and what was right, 0 or 1.

    Where more than one cause was right, the one that was meant is as probable as the table says (expectation, maximisation).
    """
    k = said.shape[1]
    unseen = AS_SAID * np.eye(k) + AS_ANY / k
    table = unseen / unseen.sum(1, keepdims=True)
    for _ in range(rounds):
        share = said[:, :, None] * table * true[:, None, :]
        share /= np.maximum(share.sum((1, 2), keepdims=True), 1e-300)
        table = share.sum(0) + unseen
        table /= table.sum(1, keepdims=True)
    return table


def _packed(w: Weights) -> np.ndarray:
    odds = np.log(w.share / (1 - w.share))
    return np.array([*np.log([w.slope, w.unit, w.cap, w.link_slope, w.unexplained_slope, w.max_noise_ratio]), odds, *w.bias])


def _weights(x: np.ndarray) -> Weights:
    slope, unit, cap, packets, rest, farthest = map(float, np.exp(np.clip(x[:6], -4, 7)).round(3))
    share = round(float(1 / (1 + np.exp(-x[6]))), 3)
    return Weights(slope, unit, share, cap, tuple(float(b) for b in x[7:].round(3)), packets, rest, max(farthest, 1.01), ())


def report(wanted: list[Case]) -> str:
    rows = [judged(c) for c in wanted if c.evidence.exists()]
    lines = ["| | cases | right | cannot tell | wrong | wrong with more than 90 % |", "|---|---|---|---|---|---|"]
    groups = [("all", rows), ("that a recording can tell", [r for r in rows if not unseen(r.case)])]
    groups += [(name, [r for r in rows if r.case.robot == name]) for name in TASKS]
    groups += [(name, [r for r in rows if r.case.family == name]) for name in FAMILIES]
    for name, group in groups:
        if n := len(group):
            counts = [
                sum(r.good for r in group),
                sum(r.said is None for r in group),
                sum(r.wrong for r in group),
                sum(r.wrong and r.p > SURE for r in group),
            ]
            lines.append(f"| {name} | {n} | " + " | ".join(f"{c} ({100 * c / n:.1f} %)" for c in counts) + " |")
    lines += ["", *confusion(rows), "", *reliability(rows)]
    off = [r for r in rows if r.good and r.said == "outside" and r.case.reality.to_dict().get("params")]
    if off:
        same = sum(r.named in r.case.reality.to_dict()["params"] for r in off)
        lines += ["", f"Of {len(off)} numbers outside that were rightly said to be, {same} were named."]
    seconds = {name: [r.seconds for r in rows if r.case.robot == name] for name in TASKS}
    for name, spent in seconds.items():
        if spent:
            lines += ["", f"{name}: {np.median(spent):.0f} s in the middle, {max(spent):.0f} s at most."]
    lines += ["", "Not right:", ""]
    for r in rows:
        if not r.good:
            tables = {k: v for k, v in r.case.reality.to_dict().items() if k in ("unmodelled", "wiring", "faults", "sensors")}
            what = f"{r.said} ({r.p:.2f})" if r.said else f"cannot tell ({r.top} {r.p:.2f})" if r.top else "cannot tell"
            lines.append(f"- {r.case.name}: {what}; {tables or ''}")
    return "\n".join(lines) + "\n"


SURE = 0.9


def confusion(rows: list[Judged]) -> list[str]:
    names = [*(c for c in CAUSES if any(r.said == c for r in rows)), None]
    lines = ["| family \\ said | " + " | ".join(n or "cannot tell" for n in names) + " |", "|---" * (len(names) + 1) + "|"]
    for family in FAMILIES:
        group = [r for r in rows if r.case.family == family]
        lines.append(f"| {family} | " + " | ".join(str(sum(r.said == n for r in group)) for n in names) + " |")
    return lines


def reliability(rows: list[Judged]) -> list[str]:
    lines = ["| probability of the first cause | cases | mean | right |", "|---|---|---|---|"]
    edges = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.01)
    for low, high in pairwise(edges):
        group = [r for r in rows if low <= r.p < high and r.top]
        if group:
            right = sum(r.top in r.right for r in group)
            mean = np.mean([r.p for r in group])
            lines.append(f"| {low:.2f} to {min(high, 1.0):.2f} | {len(group)} | {mean:.3f} | {right / len(group):.3f} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cases", "evidence", "tune", "report"])
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--robots", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 9), metavar=("FIRST", "LAST"))
    parser.add_argument("--threads", type=int, default=0, help="of one case; 0: all")
    args = parser.parse_args()
    wanted = list(cases(args.out, args.robots, range(args.seeds[0], args.seeds[1] + 1)))
    if args.what == "tune":
        print(tune([c for c in wanted if c.evidence.exists()]))
    elif args.what == "report":
        print(report(wanted))
    else:
        for case in wanted:
            if not (case.about if args.what == "cases" else case.evidence).exists():
                began = time.perf_counter()
                record(case) if args.what == "cases" else show(case, args.threads)
                print(case.name, f"{time.perf_counter() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
