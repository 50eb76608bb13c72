"""Robust and adaptive policies against each other: everything behind docs/results/adaptation.md.

    python -m bench.adaptation go1/hard -o runs/adaptation              trains and compares, some three hours on two cores
    python -m bench.adaptation go1/hard -o runs/adaptation --dry        only prints the commands

Every step but the drawing of realities is an `isthmus` command, printed as it runs. Finished runs are not trained again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from isthmus.sim.reality.hidden import unmodelled_draws
from isthmus.sim.reality.reality_file import Reality
from isthmus.tasks.catalogue import get_task

METHODS = {
    "nominal": ("--width", "0"),
    "robust": (),
    "blind": ("--blind-critic",),
    "teacher": ("--method", "teacher"),
    "student": ("--method", "student", "--teacher", "TEACHER"),
    "rma": ("--method", "rma", "--teacher", "TEACHER"),
}
STEPS = {"go1": 3_000_000, "crazyflie": 2_000_000}
"""Control ticks of training."""
SHARE = {"go1": {"student": 0.4, "rma": 0.4, "nominal": 5 / 3}, "crazyflie": {"student": 0.2, "rma": 0.2}}
"""Of them that a student or rma gets on top of its teacher's; nominal training, which does not start from a gait, gets as many
ticks as gait and method of the others together."""
STARTS = {"go1": ("go1/walk", 2_000_000)}
"""Task and ticks of the run from which robust and teacher of one seed go on: when a gait is found differs more between seeds
than methods differ."""
REALITIES = 20
"""Robots from the task's prior, each with one kind of physics that training lacks."""
REPLACED = {
    "stribeck": ("joint_friction",),
    "ground_softness": ("contact_time",),
    "flex": ("armature",),
    "backlash": ("armature",),
}
"""Numbers that a law of missing physics takes the place of, or that decide how stiff a drive can be."""
SEED = 4
CHANGES = {
    "go1": (("strength_FL=0.5",), ("payload=5",), ("ground_friction=0.25",)),
    "crazyflie": (("payload=0.012",), ("strength_m1=0.8",)),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.adaptation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", help="go1/hard or crazyflie/hard")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for runs, realities and reports")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), help="by default all but a blind critic on go1")
    parser.add_argument("--only", choices=["train", "compare"], help="one half of the work")
    parser.add_argument("--dry", action="store_true", help="print the commands and do nothing")
    args = parser.parse_args()
    args.methods = args.methods or [m for m in METHODS if m != "blind" or args.task.startswith("crazyflie")]
    do = print_command if args.dry else run_command
    folder = args.out / args.task.replace("/", "-")
    if args.only != "compare":
        for seed in args.seeds:
            for method in args.methods:
                train(args.task, method, seed, folder, do)
    if args.only != "train":
        compare(args.task, args.methods, args.seeds, folder, do)
    return 0


def train(task: str, method: str, seed: int, folder: Path, do) -> None:
    out = folder / f"{method}-{seed}"
    if (out / "done.json").exists():
        return
    robot = task.partition("/")[0]
    steps = round(STEPS[robot] * (SHARE[robot].get(method, 1.0)))
    tail = ["--steps", str(steps), "-o", str(out), "--json"]
    if (out / "run.json").exists():
        do(["train", "--resume", *tail], out / "done.json")
        return
    options = [str(folder / f"teacher-{seed}") if o == "TEACHER" else o for o in METHODS[method]]
    if robot in STARTS and method in ("robust", "teacher"):
        options += ["--from", str(first(robot, seed, folder, do)), "--kl", "0"]
    do(["train", task, *options, "--seed", str(seed), *tail], out / "done.json")


def first(robot: str, seed: int, folder: Path, do) -> Path:
    """The run that robust and teacher of a seed go on from, trained if it is not there."""
    task, steps = STARTS[robot]
    out = folder / f"{task.replace('/', '-')}-{seed}"
    if not (out / "done.json").exists():
        resumed = (out / "run.json").exists()
        head = ["train", "--resume"] if resumed else ["train", task, "--seed", str(seed)]
        do([*head, "--steps", str(steps), "-o", str(out), "--json"], out / "done.json")
    return out


def compare(task: str, methods: list[str], seeds: list[int], folder: Path, do) -> None:
    robot = task.partition("/")[0]
    realities = folder / "realities"
    if do is not print_command:
        draw(task, realities)
    found = [str(folder / f"{m}-{seed}") for m in methods for seed in seeds]
    options = ["--by-name", "--grounds", "inside", "nominal", "--reality", str(realities), "--worlds", "200"]
    do(["compare", *found, *options, "-o", str(folder / "report")])
    for change in CHANGES[robot]:
        out = folder / f"report-{change[0].partition('=')[0]}"
        do(["compare", *found, "--by-name", "--grounds", "--change", *change, "--worlds", "100", "-o", str(out)])


def draw(task: str, folder: Path) -> None:
    """Write realities: the numbers of a world from the task's prior, and one kind of missing physics."""
    robot = get_task(task).robot
    laws = unmodelled_draws(robot)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.toml"):
        old.unlink()
    for seed in range(REALITIES):
        rng = np.random.default_rng([SEED, seed])
        e = robot.prior.sample(rng, 1)[0]
        law = list(laws)[seed % len(laws)]
        values = {
            name: float(e[robot.space.index(name)]) for name in robot.prior.free().names if name not in REPLACED.get(law, ())
        }
        tables = {"params": values, "unmodelled": {law: laws[law](rng)}}
        reality = Reality.from_dict({"robot": robot.name, "seed": seed} | tables)
        reality.check(robot)
        reality.save(folder / f"{law}-{seed:02d}.toml")


def print_command(arguments: list[str], into: Path | None = None) -> None:
    print(" ".join(["isthmus", *arguments, *([">", str(into)] if into else [])]), flush=True)


def run_command(arguments: list[str], into: Path | None = None, fine: tuple[int, ...] = (0,)) -> None:
    """Run an `isthmus` command, whose output goes to a file; ends the bench with any other code than a `fine` one."""
    print_command(arguments, into)
    done = subprocess.run([sys.executable, "-m", "isthmus", *arguments], stdout=subprocess.PIPE if into else None)
    if done.returncode not in fine:
        sys.exit(done.returncode)
    if into:
        into.parent.mkdir(parents=True, exist_ok=True)
        into.write_bytes(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
