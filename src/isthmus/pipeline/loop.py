"""`loop`: train, run on the robot, diagnose the gap, repair, retrain, validate; resumable after every call."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput
from isthmus.core.files import read_json, write_json
from isthmus.core.from_plain import from_plain
from isthmus.learn import runs
from isthmus.pipeline.budgets import task_budget
from isthmus.pipeline.decisions import best_attempt
from isthmus.pipeline.evidence import LoopHistory
from isthmus.pipeline.journal import (
    Call,
    CallRecord,
    Journal,
    Library,
    Observer,
    exclusive_folder,
    replay,
    run_calls,
    silent_observer,
)
from isthmus.pipeline.library import isthmus_library
from isthmus.pipeline.outcome import (
    LoopResult,
    RepairSummary,
    VirtualScore,
    describe_repair,
    is_able,
    loop_sentences,
    summarize_attempt,
    summarize_call,
)
from isthmus.pipeline.settings import LoopSettings
from isthmus.pipeline.stages import loop_stages
from isthmus.pipeline.virtual_score import virtual_scores
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.task import Task

SETTINGS_FILE = "loop.json"
MAX_ROUNDS = 20
RECORDING_SECONDS = (2.0, 600.0)
"""Shortest and longest recording, s."""


def loop(
    task: str | Task,
    *,
    link: str,
    out: Path,
    run: Path | None = None,
    rounds: int = 1,
    budget: float = 0.0,
    seconds: float = 0.0,
    seed: int = 0,
    observer: Observer = silent_observer,
    library: Library = isthmus_library,
) -> LoopResult:
    """Close the sim-to-real gap of one robot, and return what came of it.

    `link` is the robot's, as `run` takes it. `run` is a policy to start with, trained on the prior; by default one is trained.
    `rounds` limits the repairs. `budget` is in minutes and `seconds` the length of a recording in s; 0 takes the task's own.
    Everything goes into the folder `out`; the same call resumes an interrupted loop there.
    """
    settings = loop_settings(task, link=link, run=run, rounds=rounds, budget=budget, seconds=seconds, seed=seed)
    known = get_task(settings.task)
    with exclusive_folder(out):
        _check_same_settings(out, settings)
        stages = _all_calls(settings, known, out)
        (history, scores), records = run_calls(stages, Journal(out), library, observer)
    return _loop_result(settings, out, history, scores, records)


def loop_settings(
    task: str | Task, *, link: str, run: Path | None, rounds: int, budget: float, seconds: float, seed: int
) -> LoopSettings:
    """Checked settings of a loop."""
    name = task if isinstance(task, str) else task.name
    known = get_task(name)
    if not 1 <= rounds <= MAX_ROUNDS:
        raise BadInput(f"rounds must be between 1 and {MAX_ROUNDS}.")
    if not 0 <= budget < float("inf") or seed < 0:
        raise BadInput("budget and seed must not be negative.")
    seconds = seconds or task_budget(name).recording_seconds
    if not RECORDING_SECONDS[0] <= seconds <= RECORDING_SECONDS[1]:
        raise BadInput("seconds must be between {:g} and {:g}.".format(*RECORDING_SECONDS))
    return LoopSettings(name, link, seconds, rounds, budget, seed, _checked_run(run, known) if run is not None else "")


def _checked_run(run: Path, task: Task) -> str:
    found = runs.load(run)
    if found.config.task != task.name:
        raise BadInput(f"{run} is a policy for {found.config.task}, not for {task.name}.")
    if found.belief.hash != task.robot.prior.hash or found.task.robot.unit.hash != task.robot.unit.hash:
        raise BadInput(f"{run} was trained in other worlds than the prior of {found.task.robot.name}; a loop starts there.")
    return str(run.absolute())


def _all_calls(
    settings: LoopSettings, task: Task, folder: Path
) -> Generator[Call, CallRecord, tuple[LoopHistory, tuple[VirtualScore, ...]]]:
    history = yield from loop_stages(settings, task, folder)
    scores = yield from virtual_scores(settings, history)  # nothing is decided any more
    return history, scores


def read_history(folder: Path, library: Library = isthmus_library) -> tuple[LoopSettings, LoopHistory, list[CallRecord]]:
    """Settings, history and calls of a finished loop, from its folder."""
    settings = from_plain(LoopSettings, Journal(folder).expanded(_read_settings(folder)), str(folder / SETTINGS_FILE))
    stages = _all_calls(settings, get_task(settings.task), folder)
    (history, _), records = replay(stages, Journal(folder), library)
    return settings, history, records


def _read_settings(folder: Path) -> dict[str, Any]:
    found = read_json(folder / SETTINGS_FILE).get("settings")
    if not isinstance(found, dict):
        raise BadInput(f"{folder / SETTINGS_FILE} is not the record of a loop; choose another folder with -o.")
    return found


def _check_same_settings(folder: Path, settings: LoopSettings) -> None:
    """Write the settings of a new loop; raise BadInput where the folder holds a loop with others."""
    path, now = folder / SETTINGS_FILE, Journal(folder).portable(asdict(settings))
    if not path.exists():
        write_json(path, {"kind": "loop", "settings": now})
        return
    before = _read_settings(folder)
    for name, value in now.items():
        if before.get(name) != value:
            raise BadInput(
                f"{folder} holds a loop with {name} {before.get(name)!r}, not {value!r}: resume that one, or choose another "
                "folder with -o."
            )


def _loop_result(
    settings: LoopSettings,
    folder: Path,
    history: LoopHistory,
    scores: tuple[VirtualScore, ...],
    records: list[CallRecord],
) -> LoopResult:
    attempts = tuple(summarize_attempt(a) for a in history.attempts)
    return LoopResult(
        able=is_able(history),
        sentences=loop_sentences(history, scores),
        task=settings.task,
        link=settings.link,
        seed=settings.seed,
        cause=history.attempts[0].cause if history.attempts else None,
        stop_reason=history.stop_reason,
        attempts=attempts,
        repairs=tuple(
            RepairSummary(r.cause, r.action, str(r.twin) if r.twin else None, describe_repair(r)) for r in history.repairs
        ),
        best=summarize_attempt(best_attempt(history.attempts)) if history.attempts else None,
        robot_seconds=history.robot_seconds,
        calls=tuple(summarize_call(record) for record in records),
        folder=str(folder),
        virtual_scores=scores,
    )
