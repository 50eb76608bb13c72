"""Reference outputs: what a change of the code's structure must leave as it is.

    python -m bench.reference record DIR               about 12 minutes on one core; goes on where it was stopped
    python -m bench.reference compare DIR              the same on the present code, a line each; exit code 1 on a difference
    python -m bench.reference compare DIR --quick      cases that take under 2 minutes together
    python -m bench.reference compare DIR --only diagnose-pendulum-mixed train-rma
    python -m bench.reference compare DIR --remade     from runs, controllers, recordings and twins that this code made itself

A case, one line of reference.txt, is a command of Isthmus with `--json`, in a process of its own with one thread. DIR/NAME.json
keeps its result, its exit code and digests of the files that it wrote. Inputs of a case (runs, controllers, recordings, twins)
stay in DIR/work, and `compare` reads these: a difference shows where it arises, not in all that follows. What it makes itself
is in DIR/again-CHECKOUT, so that several checkouts may be compared at a time.

Numbers must agree bit for bit, or within the case's relative tolerance. Keys may be added; sentences and hashes of files may
change, and are counted (`--words` prints them). Another processor differs in the last bits: compare on the machine of `record`.
"""

# ruff: noqa: F401
from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

WORDS: dict[str, str] = {}
"""Words of the commands below for which the code has others: verbs, options, values."""
RENAMED_KEYS: dict[str, str] = {
    # identify
    r"^result\.followed$": "result.uses_observer",
    r"^result\.search\.left\b": "result.search.unexplained_noise",
    r"^result\.promised\b": "result.expected",
}
"""Patterns of paths in recorded results, and what the code says now: {r"\\bp$": "probability"}. Applied in this order."""
RENAMED_VALUES: dict[str, str] = {}
"""The same for whole values that are names, such as a cause."""
DROPPED_KEYS: tuple[str, ...] = ()
"""Patterns of recorded paths that the code leaves out on purpose."""
VARYING_KEYS = (r"\bseconds$", r"^metrics\..*\btime/", r"^result\.time$", r"\bnoted$")
"""Patterns of paths that differ from one run to the next: elapsed time, speed, dates."""
TOLERANCES: dict[str, float] = {}
"""Relative difference that is allowed, by case; elsewhere bit for bit."""

SMALL = "--steps 8000 --worlds 64 --seed 0"


@dataclass(frozen=True)
class Case:
    name: str
    command: str
    quick: bool


def cases() -> list[Case]:
    lines = Path(__file__).with_suffix(".txt").read_text().replace("SMALL", SMALL).splitlines()
    rows = [(line[0] == "*", *line[2:].split(maxsplit=1)) for line in lines if line[:1] in ("*", " ")]
    return [Case(name, command, quick) for quick, name, command in rows]


# What needs Python rather than a command -------------------------------------------------------------------------------------


def library() -> SimpleNamespace:
    """All that is imported from Isthmus: adapt this when modules move."""
    from isthmus.data.mcap.writer import write_episode
    from isthmus.deploy.controller import Controller
    from isthmus.deploy.links.link import Command
    from isthmus.robots import get_robot
    from isthmus.sim.reality.hidden import families, hidden
    from isthmus.sim.reality.virtual_robot import VirtualRobot
    from isthmus.sim.simulate_recording import random_multisine, record_targets
    from isthmus.sim.simulation import Simulation
    from isthmus.tasks.catalogue import TASKS, get_task
    from isthmus.tasks.env import Env

    return SimpleNamespace(**locals())


def digest(x: Any) -> dict[str, Any]:
    """Numbers that show how far an array is from another, and a hash that shows whether it is."""
    x = np.ascontiguousarray(x)
    real = np.nan_to_num(x.astype(float)) if x.dtype.kind in "fiub" else np.zeros(1)
    found = {"shape": str(x.shape), "mean": float(real.mean()), "rms": float(np.sqrt((real**2).mean()))}
    return found | {"last": real.ravel()[-4:].tolist(), "sha256": hashlib.sha256(x.tobytes()).hexdigest()}


def targets(robot: Any, rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random ones about the robot's default, inside the limits, (*shape, m)."""
    target = robot.contract.target
    low, high = np.array(target.low or [-1.0]), np.array(target.high or [1.0])
    return np.clip(robot.default + 0.1 * (high - low) * rng.normal(size=(*shape, target.size)), low, high)


def engines(lib: SimpleNamespace, *names: str) -> dict[str, Any]:
    """State and sensors of eight worlds of the prior after 300 ticks, by robot."""
    found = {}
    for name in names:
        robot, rng = lib.get_robot(name), np.random.default_rng(0)
        engine = lib.Simulation(robot, 8, threads=1)
        engine.apply(robot.prior.sample(rng, 8), np.arange(8))
        engine.reset(np.arange(8))
        for target in targets(robot, rng, 300, 8):
            engine.step(target)
            engine.reset(np.flatnonzero(engine.diverged))
        state = {"e": engine.e, "qpos": engine.qpos, "qvel": engine.qvel, "signals": engine.signals(rng)}
        found[Path(name).stem] = {key: digest(value) for key, value in state.items()}
    return found


def lived(lib: SimpleNamespace, task: Any, ticks: int, **options: Any) -> dict[str, Any]:
    """State, rewards and all that can be seen of eight worlds of a task."""
    import torch

    env, rewards = lib.Env(task, 8, seed=0, threads=1, **options), []
    for target in targets(task.robot, np.random.default_rng(1), ticks, 8):
        rewards.append(env.step(torch.from_numpy(target).float()).reward)
    state = {"qpos": env.sim.qpos, "qvel": env.sim.qvel, "rewards": torch.stack(rewards), "critic": env.critic()}
    return {key: digest(value) for key, value in (state | env.signals() | env.privileged()).items()}


def tasks(lib: SimpleNamespace) -> dict[str, Any]:
    return {name: lived(lib, lib.get_task(name), 300) for name in lib.TASKS}


def realities(lib: SimpleNamespace, name: str) -> dict[str, Any]:
    """One hidden reality of each family: as worlds of a task, and as a virtual robot that sends packets."""
    task, found = next(lib.get_task(t) for t in sorted(lib.TASKS, reverse=True) if t.startswith(name)), {}
    for family in lib.families(task.robot):
        reality, packets = lib.hidden(task.robot, 3, family)[1], []
        virtual = lib.VirtualRobot(task.robot, reality, unit="one")
        for i, target in enumerate(targets(task.robot, np.random.default_rng(2), 400)):
            virtual.command(lib.Command(i, virtual.clock, "track", target))
            packets += [np.concatenate([[p.sequence, p.time], p.values]) for p in virtual.advance()]
        found[family] = {"reality": reality.to_dict(), "packets": digest(packets)}
        found[family] |= {"worlds": lived(lib, task, 100, reality=reality, training=False)}
    return found


def planted(lib: SimpleNamespace, name: str, path: str) -> dict[str, Any]:
    """A recording of a robot with numbers drawn from its prior."""
    robot = lib.get_robot(name)
    e = robot.prior.sample(np.random.default_rng(4), 1)[0]
    lib.write_episode(Path(path), lib.record_targets(robot, e, lib.random_multisine(robot, 2.0, 0, 0.15), seed=5))
    return {"e": e.tolist()}


def answers(lib: SimpleNamespace, path: str) -> dict[str, Any]:
    """Targets of a controller for 100 ticks of random signals."""
    controller, rng = lib.Controller.load(path), np.random.default_rng(3)
    return digest([controller.tick({s.name: rng.normal(size=s.size) for s in controller.manifest.signals}) for _ in range(100)])


def tables(_lib: SimpleNamespace, table: str, mapping: str) -> dict[str, Any]:
    """A motor with friction on a bench, its torque measured, and a mapping to read that as a recording."""
    t = np.arange(1500) / 50.0
    wanted, q = np.sin(1.3 * t) + 0.5 * np.sin(4.1 * t), np.sin(0.9 * t) + 0.3 * np.sin(2.7 * t)
    qd = np.gradient(q, t)
    torque = 0.9 * wanted - 0.12 * np.tanh(qd / 0.05) - 0.05 * qd + 0.01 * np.random.default_rng(0).normal(size=len(t))
    names = "time,target.hinge,joint_pos.hinge,joint_vel.hinge,torque.hinge"
    np.savetxt(table, np.stack([t, wanted, q, qd, torque], 1), delimiter=",", header=names, comments="", fmt="%.9f")
    units = {"signals.joint_pos": "rad", "signals.joint_vel": "rad/s", "target": "N·m"}
    parts = [f'[{key}]\ncolumns = "{key.split(".")[-1]}.{{label}}"\nunit = "{unit}"\n' for key, unit in units.items()]
    Path(mapping).write_text('[time]\ncolumn = "time"\nunit = "s"\n' + "".join(parts))
    return {}


OWN = {f.__name__: f for f in (engines, tasks, realities, planted, answers, tables)}

# Running ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a case finds its inputs, in the first folder that has them, and where it leaves what it makes."""

    sources: tuple[Path, ...]
    out: Path

    def word(self, text: str) -> str:
        """A word of a command, with names of files resolved."""
        kind, _, name = text.partition(":")
        if kind == "rig":
            return str(ROOT / "bench" / "rigs" / f"{name}.toml")
        if kind not in ("in", "out", "copy"):
            return WORDS.get(text, text)
        found = next((folder / name for folder in self.sources if (folder / name).exists()), self.sources[-1] / name)
        if kind == "in":
            return str(found)
        path = self.out / (f"{name}-copy" if kind == "copy" else name)
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if kind == "copy":
            shutil.copytree(found, path)
        return str(path)

    def call(self, words: list[str]) -> dict[str, Any]:
        """Exit code and result of one command."""
        own = words[0] == "own"
        command = [sys.executable, "-m", *(["bench.reference", *words] if own else ["isthmus", *words, "--json"])]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT if own else self.out)
        if done.returncode not in (0, 1, 2) or not done.stdout:
            return {"exit": done.returncode, "crash": done.stderr[-3000:]}
        text = re.sub(r"virtual-[0-9a-f]{8}", "virtual", done.stdout)
        for folder in (*self.sources, self.out, ROOT):
            text = text.replace(f"{folder}/", "")
        return {"exit": done.returncode, "result": json.loads(text)}

    def run(self, case: Case) -> dict[str, Any]:
        asked = shlex.split(case.command)
        words = [self.word(text) for text in asked]
        found = self.call(words)
        made = [Path(word) for text, word in zip(asked, words, strict=True) if text.startswith(("out:", "copy:"))]
        for path in (path for path in made if path.exists()):
            if (path / "metrics.jsonl").exists():
                found["metrics"] = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
            elif path.suffix == ".controller":
                found["targets"] = self.call(["own", "answers", str(path)]).get("result")
            elif path.suffix == ".mcap":
                found["signals"] = self.columns(path, path.with_suffix(".parquet"))
        return found

    def columns(self, recording: Path, table: Path) -> dict[str, Any]:
        """Digest of each column of a recording."""
        from pyarrow import parquet

        table.unlink(missing_ok=True)
        if self.call(["data", "export", str(recording), "-o", str(table)])["exit"]:
            return {}
        found = parquet.read_table(table)
        return {name: digest(found[name].to_numpy()) for name in found.column_names}


# Comparing -------------------------------------------------------------------------------------------------------------------


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers, words and empty lists of a result, by their path."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, dict | list) or not value:
        yield path, value if value not in ([], {}) else "empty"
    for key, part in parts:
        yield from flat(part, f"{path}.{key}" if path else str(key))


@dataclass
class Verdict:
    tolerance: float
    different: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """Sentences and hashes of files that are not the same: no difference."""
    worst: float = 0.0
    """Largest relative difference of two numbers."""

    def look(self, path: str, old: Any, new: Any) -> None:
        numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (old, new))
        text = f"{path}: {old!r}, now {new!r}"
        if repr(old) == repr(new) or (numbers and old == new):
            return
        if numbers:
            apart = abs(old - new) / max(abs(old), abs(new), 1e-3)
            self.worst = max(self.worst, apart)
            self.different += [text] if not apart <= self.tolerance else []
        elif path.endswith("sha256"):
            self.different += [text] if self.tolerance == 0 else []
        elif all(isinstance(x, str) and (" " in x or re.fullmatch("[0-9a-f]{12,64}", x)) for x in (old, new)):
            self.words.append(text)
        else:
            self.different.append(text)

    def line(self) -> str:
        state = f"DIFFERENT in {len(self.different)} places" if self.different else "within tolerance" if self.worst else "same"
        state += f", numbers by up to {self.worst:.1e}" if self.worst else ""
        return state + (f"; {len(self.words)} sentences or hashes changed" if self.words else "")


def compared(old: dict[str, Any], new: dict[str, Any], tolerance: float) -> Verdict:
    said = new["crash"].strip().splitlines()[-1] if "crash" in new else new["result"].get("error")
    verdict, now = Verdict(tolerance, [said] if said and old["exit"] != new["exit"] else []), dict(flat(new))
    for recorded, value in flat(old):
        if any(re.search(pattern, recorded) for pattern in (*VARYING_KEYS, *DROPPED_KEYS)):
            continue
        path = recorded
        for pattern, name in RENAMED_KEYS.items():
            path = re.sub(pattern, name, path)
        if path in now:
            verdict.look(path, RENAMED_VALUES.get(value, value) if isinstance(value, str) else value, now[path])
        else:
            verdict.different.append(f"{path}: {value!r} is gone")
    return verdict


def main() -> None:
    if sys.argv[1:2] == ["own"]:
        print(json.dumps(OWN[sys.argv[2]](library(), *sys.argv[3:])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("folder", type=lambda text: Path(text).resolve(), metavar="DIR")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[case.name for case in cases()])
    parser.add_argument("--quick", action="store_true", help="cases that take under 2 minutes together")
    parser.add_argument("--remade", action="store_true", help="inputs that this checkout made itself, where it has")
    parser.add_argument("--tolerance", type=float, help="relative, in place of each case's own")
    parser.add_argument("--words", action="store_true", help="print sentences and hashes that changed")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    chosen = [case for case in cases() if case.name in args.only and (case.quick or not args.quick)]
    chosen = [case for case in chosen if "menagerie:" not in case.command or os.environ.get("MENAGERIE_ROOT")]
    work, again = args.folder / "work", args.folder / f"again-{ROOT.name}"
    place = Place((work,), work) if args.what == "record" else Place((again, work) if args.remade else (work,), again)
    place.out.mkdir(parents=True, exist_ok=True)

    def check(case: Case) -> bool:
        """Record a case, or print how it compares; whether it is the same."""
        file, start = args.folder / f"{case.name}.json", time.perf_counter()
        if args.what == "record":
            found = json.loads(file.read_text()) if file.exists() else place.run(case)
            if "crash" not in found:
                file.write_text(json.dumps(found, indent=1))
            took = time.perf_counter() - start
            print(f"{case.name:37} exit {found['exit']}, {took:.1f} s", found.get("crash", ""), flush=True)
            return "crash" not in found
        if not file.exists():
            print(f"{case.name:37} not recorded")
            return False
        tolerance = TOLERANCES.get(case.name, 0.0) if args.tolerance is None else args.tolerance
        verdict = compared(json.loads(file.read_text()), place.run(case), tolerance)
        shown = verdict.different[:5] + (verdict.words if args.words else [])
        print("\n    ".join([f"{case.name:37} {verdict.line()}", *(text[:400] for text in shown)]), flush=True)
        return not verdict.different

    with ThreadPoolExecutor(1 if args.what == "record" or args.remade else args.jobs) as pool:
        same = list(pool.map(check, chosen))
    print(f"{sum(same)} of {len(same)} {'recorded' if args.what == 'record' else 'are the same'}")
    sys.exit(not all(same))


if __name__ == "__main__":
    main()
