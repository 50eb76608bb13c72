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
    real2sim      randomized, then what `isthmus loop` does: recorded on the robot, its diagnosis followed, trained on the twin;
                  the policy that it hands over, chosen by what hardware shows; it may train up to six times
    oracle        randomized, then trained on once inside the reality itself, with its parameters and its missing physics,
                  which nobody has of a real robot: an upper bound

The episodes that are counted here are seen by no decision of the loop. Each step is a call of the library. Finished ones are
not repeated, so that the same command resumes where it was. The same command in a second terminal takes realities that the
first is not at.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.spread import spread
from isthmus.core.errors import BadInput, Interrupted
from isthmus.core.files import atomic_write, canonical_json, write_json
from isthmus.core.progress import Progress, silent
from isthmus.core.results import Result
from isthmus.learn.algorithms import algorithm
from isthmus.learn.evaluate.evaluate import Evaluation
from isthmus.learn.train import TrainResult
from isthmus.pipeline.budgets import TASK_BUDGETS, task_budget
from isthmus.pipeline.decisions import best_attempt
from isthmus.pipeline.journal import Call, CallRecord, Journal, SilentObserver, exclusive_folder, run_calls
from isthmus.pipeline.library import IsthmusLibrary
from isthmus.pipeline.settings import LoopSettings
from isthmus.pipeline.stages import attempts_and_repairs
from isthmus.sim.reality import Reality
from isthmus.sim.reality.hidden import hidden
from isthmus.tasks.catalogue import get_task

FAMILIES, SEVERE = ("parametric-outside", "unmodelled", "mixed"), "severe"
EACH, FIRST = 10, 110
"""Realities of each family, and the seed of the first: others than were looked at while the loop was built."""
EPISODES = 64
"""Counted, of each method on each reality."""
EVALUATION_SEED = 2
"""Another than that of the loop's own report."""
ADAPTIVE_STEPS = 1.5
"""Times the steps of the others: a teacher and a student share them."""
TRAINED: dict[str, dict[str, Any]] = {
    "nominal": {"width": 0.0},
    "randomized": {},
    "longer": {},
    "adaptive": {"method": "rma"},
}
METHODS = (*TRAINED, "real2sim", "oracle")
ORACLE = "train-oracle"
Rows = list[dict]


class Broken(BaseException):
    """A call ended with an unexpected exception: nothing that can be counted."""


class BenchLibrary(IsthmusLibrary):
    """The library, of which every answer counts; the oracle trains inside the reality."""

    def __init__(self, reality: Reality | None = None):
        self.reality = reality

    def __call__(self, call: Call, progress: Progress) -> Result:
        oracle = call.name == ORACLE and self.reality is not None
        try:
            with training_inside(self.reality) if oracle and self.reality else nullcontext():
                return super().__call__(call, progress)
        except (BadInput, Interrupted, ConnectionError, TimeoutError):
            raise
        except Exception as error:
            raise Broken(f"{call.name} broke: {type(error).__name__}: {error}") from error


@contextmanager
def training_inside(reality: Reality) -> Iterator[None]:
    """Trainings meanwhile simulate the reality itself, with its parameters and missing physics."""
    env = algorithm.Env
    algorithm.Env = partial(env, reality=reality)  # type: ignore[misc]
    try:
        yield
    finally:
        algorithm.Env = env  # type: ignore[misc]


class Printer(SilentObserver):
    def began(self, number: int, call: Call) -> Progress:
        print(call.purpose, file=sys.stderr, flush=True)
        return silent


def trained(task: str, folder: Path) -> Generator[Call, CallRecord, dict[str, float]]:
    """Policies that all realities share; seconds that each took."""
    first, again = TASK_BUDGETS[task].training_steps
    spent = {}
    for name, special in TRAINED.items():
        out, options = folder / name, special | {"steps": first}
        if name == "adaptive":
            options |= {"steps": round(ADAPTIVE_STEPS * first)}
        if name == "longer":
            options |= {"steps": again, "start": folder / "randomized", "max_kl": 0.0}
        arguments = {"task": task, "out": out, **options}
        done = yield Call(f"train-{name}", f"train {name}", "train", arguments, (out,))
        found = done.result_as(TrainResult)
        # A training that was interrupted and resumed knows better than the last call how long it took.
        seconds = max(done.seconds, found.seconds if found else 0.0)
        spent[name] = seconds + (spent["randomized"] if name == "longer" else 0.0)
    return spent


def closed(
    task: str, folder: Path, seed: int, family: str, spent: dict[str, float], n: int
) -> Generator[Call, CallRecord, dict]:
    """What every method makes of one reality, in n episodes each."""
    word, own = f"hidden:{seed}:{family}", folder / f"{family}-{seed}"
    row: dict = {"task": task, "family": family, "seed": seed, "episodes": n}
    row |= {what: {} for what in ("success", "score", "seconds", "robot")}
    for name in TRAINED:
        yield from _count(row, name, folder / name, word, n)
        row["seconds"][name], row["robot"][name] = spent[name], 0.0
    own.mkdir(exist_ok=True)
    start, seconds = str((folder / "randomized").absolute()), task_budget(task).recording_seconds
    settings = LoopSettings(task, f"sim:{word}", seconds, rounds=1, run=start)
    stages = attempts_and_repairs(settings, get_task(task), own)
    history, records = run_calls(stages, Journal(own), BenchLibrary(), Printer())
    if not history.attempts:
        raise BadInput(f"the loop on {word} did not begin: {history.stop_reason}")
    yield from _count(row, "real2sim", best_attempt(history.attempts).run, word, n)
    row["seconds"]["real2sim"] = spent["randomized"] + sum(record.seconds for record in records)
    row["robot"]["real2sim"] = history.robot_seconds
    row |= {"cause": history.attempts[0].cause, "stopped": history.stop_reason}
    row |= {"evidence": [vars(a.evidence) for a in history.attempts], "best": best_attempt(history.attempts).name}
    out = folder / f"{family}-{seed}-oracle"
    arguments = {"task": task, "out": out, "start": folder / "randomized", "max_kl": 0.0}
    arguments |= {"steps": TASK_BUDGETS[task].training_steps[1]}
    done = yield Call(ORACLE, f"oracle of {word}", "train", arguments, (out,))
    row["seconds"]["oracle"], row["robot"]["oracle"] = spent["randomized"] + done.seconds, 0.0
    yield from _count(row, "oracle", out, word, n)
    return row


def bench(task: str, folder: Path, families: Sequence[str], each: int, episodes: int, kept: Path | None) -> None:
    """All realities, but for those that are finished or that another process is at."""
    with exclusive_folder(folder):
        spent, _ = run_calls(trained(task, folder), Journal(folder), BenchLibrary(), Printer())
    for seed in range(FIRST, FIRST + each):
        for family in families:
            own = folder / "realities" / f"{family}-{seed}"
            if any((row["family"], row["seed"]) == (family, seed) for row in finished(task, folder, kept)):
                continue
            library = BenchLibrary(hidden(get_task(task).robot, seed, family)[1])
            try:
                with exclusive_folder(own):
                    stages = closed(task, folder, seed, family, spent, episodes)
                    row, _ = run_calls(stages, Journal(own), library, Printer())
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


def _count(row: dict, name: str, run: Path, word: str, n: int) -> Generator[Call, CallRecord, None]:
    """Success and score over episodes of the reality."""
    arguments = {"policy": run, "reality": word, "worlds": n, "seed": EVALUATION_SEED}
    done = yield Call("count", f"{run.name} on {word}", "evaluate", arguments)
    found = done.result_as(Evaluation)
    if found is None:
        raise BadInput(f"{run.name} could not be evaluated on {word}: {done.failure}")
    row["success"][name], row["score"][name] = found.success.rate, found.score


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
    parser.add_argument("--episodes", type=int, default=EPISODES, help="counted, of each method on each reality")
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
