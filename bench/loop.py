"""What closes the gap, over many hidden realities: everything behind docs/results/loop.md.

    python -m bench.loop pendulum/swingup -o runs/loop             trains, runs and measures, an hour on two cores
    python -m bench.loop pendulum/swingup -o runs/loop --table     what is there so far
    python -m bench.loop go1/walk -o runs/loop --rows bench/rows/loop-go1-walk.jsonl

With --rows the finished realities are also kept in one file, by which a count of many hours goes on elsewhere. Published counts
are such files.

Realities are drawn from three families: numbers outside of the prior, missing physics, both. A task that forgives all of these
tells nothing apart there; `--families severe --each 30` draws harder ones. On each of them

    nominal       trained in the nominal world alone
    randomized    trained in worlds of the prior
    longer        the same, and then trained on once more
    adaptive      the same, and finds out in which world it is (rma)
    real2sim      randomized, then what `isthmus loop` does: recorded on the robot, its verdict followed, trained on the twin;
                  of the two policies the one that did better in 64 watched episodes each; it may train up to six times
    oracle        randomized, then trained on once in the world of the true numbers, which nobody has on a real robot

Each step is an `isthmus` command. Finished ones are not repeated, so that the same command goes on where it was. The same
command in a second terminal takes realities that the first is not at.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np

from bench.spread import spread
from isthmus.cli.loop_ import CRASH_EXIT_CODE, run_command
from isthmus.core.errors import BadInput
from isthmus.core.files import atomic_write, canonical_json, write_json
from isthmus.pipeline.budgets import TASK_BUDGETS, task_budget
from isthmus.pipeline.evidence import LoopSettings
from isthmus.pipeline.journal import Call, CallRecord, Journal, exclusive_folder, run_calls
from isthmus.pipeline.stages import attempts_and_repairs
from isthmus.robots import get_robot
from isthmus.sim.reality.hidden import hidden
from isthmus.tasks.catalogue import get_task

FAMILIES, SEVERE = ("parametric-outside", "unmodelled", "mixed"), "severe"
EACH, FIRST = 10, 110
"""Realities of each family, and the seed of the first: others than were looked at while the loop was built."""
EPISODES = 64
"""Watched, of each method on each reality."""
TRAINED = {"nominal": ("--width", "0"), "randomized": (), "longer": (), "adaptive": ("--method", "rma")}
METHODS = (*TRAINED, "real2sim", "oracle")
Rows = list[dict]


def trained(task: str, folder: Path) -> Generator[Call, CallRecord, dict[str, float]]:
    """Policies that all realities share; seconds that each took."""
    first, again = TASK_BUDGETS[task].training_ticks
    spent = {}
    for name, options in TRAINED.items():
        out = folder / name
        ticks = ("--steps", str(first))
        if name == "adaptive":
            ticks = ("--steps", str(round(1.5 * first)))  # a teacher and a student share them
        if name == "longer":
            ticks = ("--steps", str(again), "--from", str(folder / "randomized"), "--kl", "0")
        done = yield Call(f"train-{name}", f"train {name}", ("train", task, "-o", str(out), *options, *ticks), (out,))
        # A training that was interrupted and resumed knows better than the last command how long it took.
        seconds = max(done.seconds, float(done.result.get("seconds") or 0.0))
        spent[name] = seconds + (spent["randomized"] if name == "longer" else 0.0)
    return spent


def closed(
    task: str, folder: Path, seed: int, family: str, spent: dict[str, float], n: int
) -> Generator[Call, CallRecord, dict]:
    """What every method makes of one reality, in n watched episodes each."""
    word, own = f"hidden:{seed}:{family}", folder / f"{family}-{seed}"
    row: dict = {"task": task, "family": family, "seed": seed, "episodes": n}
    row |= {what: {} for what in ("success", "score", "seconds", "robot")}
    for name in TRAINED:
        yield from _watch(row, name, folder / name, word, n)
        row["seconds"][name], row["robot"][name] = spent[name], 0.0
    own.mkdir(exist_ok=True)
    settings = LoopSettings(
        task, "", word, task_budget(task).recording_seconds, rounds=1, run=str((folder / "randomized").absolute())
    )
    story, steps = run_calls(attempts_and_repairs(settings, get_task(task), own), Journal(own), _sound, _told)
    if not story.attempts:
        raise BadInput(f"the loop on {word} did not begin: {story.stop_reason}")
    # What the loop hands over: its last policy, or the one before where that did better.
    yield from _watch(row, "real2sim", story.best_attempt.run, word, n)
    row["seconds"]["real2sim"] = spent["randomized"] + sum(done.seconds for done in steps)
    row["robot"]["real2sim"] = story.robot_seconds
    row |= {"cause": story.attempts[0].cause, "stopped": story.stop_reason}
    out = folder / f"{family}-{seed}-oracle"
    truth = _truth(task, seed, family, folder / f"{family}-{seed}-truth.json")
    again = str(TASK_BUDGETS[task].training_ticks[1])
    options = ("--from", str(folder / "randomized"), "--kl", "0", "--belief", str(truth), "--steps", again)
    done = yield Call("train-oracle", f"oracle of {word}", ("train", task, "-o", str(out), *options), (out,))
    row["seconds"]["oracle"], row["robot"]["oracle"] = spent["randomized"] + done.seconds, 0.0
    yield from _watch(row, "oracle", out, word, n)
    return row


def bench(task: str, folder: Path, families: Sequence[str], each: int, episodes: int, kept: Path | None) -> None:
    """All realities, but for those that are finished or that another process is at."""
    with exclusive_folder(folder):
        spent, _ = run_calls(trained(task, folder), Journal(folder), _sound, _told)
    for seed in range(FIRST, FIRST + each):
        for family in families:
            own = folder / "realities" / f"{family}-{seed}"
            if any((row["family"], row["seed"]) == (family, seed) for row in finished(task, folder, kept)):
                continue
            try:
                with exclusive_folder(own):
                    row, _ = run_calls(closed(task, folder, seed, family, spent, episodes), Journal(own), _sound, _told)
            except (BadInput, Broken) as error:
                print(error, file=sys.stderr, flush=True)
                continue
            write_json(own / "row.json", row)
            if kept:
                lines = "".join(canonical_json(row) + "\n" for row in finished(task, folder, kept))
                atomic_write(kept, lines.encode())
            rates = ", ".join(f"{m} {100 * row['success'][m]:.0f} %" for m in METHODS)
            print(f"hidden:{seed}:{family}: {rates}; {row['cause']}", flush=True)


def finished(task: str, folder: Path, kept: Path | None) -> Rows:
    """Of this folder and of the file, each reality once; a file of another task is refused."""
    texts = [path.read_text() for path in folder.glob("realities/*/row.json")]
    texts += kept.read_text().splitlines() if kept and kept.exists() else []
    rows = {(row["family"], row["seed"]): row for row in map(json.loads, texts)}
    if any(row["task"] != task for row in rows.values()):
        raise BadInput(f"{kept} or {folder} holds realities of another task than {task}.")
    return [rows[key] for key in sorted(rows)]


class Broken(Exception):
    """A command did not end as it should: nothing that can be counted."""


def _sound(args: tuple[str, ...]) -> tuple[int, dict]:
    """A command of which every answer counts."""
    code, result = run_command(args)
    if code == CRASH_EXIT_CODE:
        raise Broken(f"isthmus {' '.join(args)} broke: {result.get('error')}")
    return code, result


def _told(number: int, step: Call, done: CallRecord | None) -> None:
    if done is None:
        print(step.purpose, file=sys.stderr, flush=True)


def _watch(row: dict, name: str, run: Path, word: str, n: int) -> Generator[Call, CallRecord, None]:
    """Success and score in episodes that the loop, which watches a virtual robot with another seed, has not chosen by."""
    args = ("evaluate", str(run), "--reality", word, "--worlds", str(n), "--seed", "2")
    done = yield Call("watch", f"{run.name} on {word}", args)
    if done.failure:
        raise BadInput(f"{run.name} could not be watched on {word}: {done.failure}")
    row["success"][name], row["score"][name] = float(done.result["success"]["rate"]), float(done.result["score"])


def _truth(task: str, seed: int, family: str, path: Path) -> Path:
    """The belief of somebody who knows the numbers."""
    robot = get_robot(get_task(task).robot.name)
    if not path.exists():
        robot.prior.nominal().fix(hidden(robot, seed, family)[1].params).save(path)
    return path


def table(rows: Rows) -> str:
    """Means over realities with 95 % intervals; differences are paired. A score goes on telling where all succeed."""
    heads = ("method", "success", "against randomized", "score", "against longer", "robot's time, s", "wall-clock, s")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    success, score = ({m: np.array([r[what][m] for r in rows]) for m in METHODS} for what in ("success", "score"))
    for m in METHODS:
        gain = "" if m == "randomized" else f"{_points(success[m] - success['randomized'])} points"
        ahead = "" if m == "longer" else _points(score[m] - score["longer"], 1.0, 3)
        spent = [np.mean([r[what][m] for r in rows]) for what in ("robot", "seconds")]
        told = f"{_points(success[m], inside=(0.0, 1.0))} % | {gain} | {_points(score[m], 1.0, 2)} | {ahead}"
        lines.append(f"| {m} | {told} | {spent[0]:.0f} | {spent[1]:.0f} |")
    return "\n".join(lines)


def _points(x: np.ndarray, unit: float = 100.0, digits: int = 0, inside: tuple[float, float] = (-np.inf, np.inf)) -> str:
    """Mean and 95 % interval by Student's t, which ends where the values themselves must; of a single value, that alone."""
    if len(x) == 1:
        return f"{unit * x[0]:.{digits}f}"
    value, low, high = (f"{unit * y:.{digits}f}" for y in np.clip(spread(x), *inside))
    return f"{value} ({low} to {high})"


def told(rows: Rows) -> str:
    parts = []
    usual = [r for r in rows if r["family"] != SEVERE]
    for name, part in (
        ("all but severe ones", usual),
        *((f, [r for r in rows if r["family"] == f]) for f in (*FAMILIES, SEVERE)),
    ):
        if part:
            episodes = " and ".join(str(n) for n in sorted({row.get("episodes", EPISODES) for row in part}))
            parts.append(f"{name}, {len(part)} realities, {episodes} episodes each\n\n{table(part)}\n")
    failed = [r for r in rows if r["success"]["randomized"] < 0.9]
    if failed:
        parts.append(f"those on which randomized succeeds in less than 90 %, {len(failed)}\n\n{table(failed)}\n")
    return "\n".join(parts)


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.loop", description=__doc__, formatter_class=raw)
    parser.add_argument("task", choices=list(TASK_BUDGETS))
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for everything")
    drawn = (*FAMILIES, SEVERE)
    parser.add_argument("--families", nargs="+", choices=drawn, default=FAMILIES, help="by default the first three")
    parser.add_argument("--each", type=int, default=EACH, help="realities of each family")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="watched, of each method on each reality")
    parser.add_argument("--rows", type=Path, help="keep finished realities here too, one a line, and repeat none of them")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    args = parser.parse_args()
    folder = args.out / args.task.replace("/", "-")
    counted = {
        row.get("episodes", EPISODES) for row in finished(args.task, folder, args.rows) if row["family"] in args.families
    }
    if not args.table and counted - {args.episodes}:
        parser.error(f"realities of these families were counted with --episodes {' and '.join(map(str, sorted(counted)))}.")
    if not args.table:
        bench(args.task, folder, args.families, args.each, args.episodes, args.rows)
    print(told(finished(args.task, folder, args.rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
