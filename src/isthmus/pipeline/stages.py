"""What the loop does, step by step: each step is an ordinary command, and what it found decides about the next ones.

    train on the prior -> export -> run and record -> gap
    -> repair -> train on the twin -> export -> validate -> run again -> gap

A repair is what the verdict of `isthmus diagnose` recommends: nothing, more training, numbers, numbers after an experiment,
numbers and the physics that is missing, a policy that adapts. Mistakes that training cannot mend end the loop: they are for a
person. Nothing here knows what the robot is: it is a link, and of a virtual one a word that is handed on to commands that run
or watch it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from isthmus.pipeline.decisions import make_repair
from isthmus.pipeline.evidence import (
    MIN_SUCCESS_RATE,
    Attempt,
    LoopHistory,
    LoopSettings,
    Repair,
    has_improved,
    is_solved,
    recorded_seconds,
)
from isthmus.pipeline.journal import Call, CallRecord
from isthmus.tasks.task import Task
from isthmus.validation import protocol
from isthmus.validation.stage import default_protocol

MAX_TAKES = 3
"""Recordings of a robot that is stopped early, at most."""
MIN_RECORDED_FRACTION = 0.5
"""Part of the seconds asked for after which no other recording is made."""
PROTOCOL_STAGES = 2
"""Stages of the protocol that a policy is put through; the others ask for more than this robot as it is."""
COMMAND_HOLD_SECONDS = 4.0
"""s for which a recording holds a command."""
WATCHED_EPISODES = 64
"""Episodes in which a virtual robot is watched."""
MIN_SUCCESS_TO_DEPLOY = 0.1
"""Success in the twin's own worlds below which a policy is not tried on the robot …"""
RESTART_FROM_SCRATCH_BELOW = 0.5
"""… below which another begins anew, in place of one that was trained on the prior first …"""
ABANDON_SCRATCH_BELOW = 0.01
"""… and below which the latter is given up: much begins as a little."""
WIDER_PRIOR_SCALE = 1.6
"""Times the prior's ranges, where no number could be found."""
SWEEP_WORLDS, SWEEP_PRIOR_SCALE = 256, 2.0
"""Worlds in which the first and the last policy are compared, and how wide they are, in widths of the prior."""


TYPICAL_STEP_DURATIONS = (
    *(("train", 60), ("export", 4), ("record", 2), ("watch", 4), ("gap", 30), ("identify", 30), ("residual", 30)),
    *(("train", 30), ("export", 4), ("validate", 4), ("record", 2), ("watch", 4), ("gap", 15), ("worlds", 4), ("worlds", 4)),
)
"""Steps of a loop that needs everything, and about how long each takes, in any unit."""


def remaining_seconds(
    finished: Sequence[tuple[str, float]], name: str = "", elapsed: float = 0.0, own_remaining: float | None = None
) -> float | None:
    """s that a loop may still take, from the names and seconds of its steps so far; None before anything is known.

    `name` is the step at work, `elapsed` its seconds so far, and `own` what it says it still needs, where it does.
    """
    rest, spent, usual = list(TYPICAL_STEP_DURATIONS), 0.0, 0.0
    for before, seconds in finished:
        at = next((i for i, (n, _) in enumerate(rest) if n == before), None)
        if at is None:
            continue
        spent, usual = spent + seconds, usual + rest[at][1]
        rest = rest[at + 1 :]
    at = next((i for i, (n, _) in enumerate(rest) if n == name), None)
    this, after = (0.0, rest) if at is None else (rest[at][1], rest[at + 1 :])
    if usual:
        pace = spent / usual
    elif this and own_remaining is not None:
        pace = (elapsed + own_remaining) / this
    else:
        return None
    return sum(t for _, t in after) * pace + max(this * pace - elapsed, own_remaining or 0.0, 0.0)


def loop_stages(settings: LoopSettings, task: Task, folder: Path) -> Generator[Call, CallRecord, LoopHistory]:
    """All of a loop."""
    story = yield from attempts_and_repairs(settings, task, folder)
    story.sweep_records = yield from success_by_parameter(settings, task, folder, story)
    return story


def attempts_and_repairs(settings: LoopSettings, task: Task, folder: Path) -> Generator[Call, CallRecord, LoopHistory]:
    """The policies one after the other, with the repairs between them: all but what only a report asks for."""
    story = LoopHistory()
    first = Attempt("prior", Path(settings.run) if settings.run else folder / "0-prior", folder / "0-prior.controller")
    if not settings.run:
        trained = yield _train_call(settings, first.run, (), settings.training_options("first"), "worlds of the prior")
        if trained.failure:
            story.stop_reason = f"training failed: {trained.failure}"
            return story
    exported = yield _export_call(first)
    if exported.failure:
        story.stop_reason = exported.failure
        return story
    story.attempts.append((yield from _run_on_robot(settings, task, folder, first, 0, None)))
    for k in range(1, settings.rounds + 1):
        last = story.attempts[-1]
        story.stop_reason = reason_not_repairable(last)
        if story.stop_reason:
            break
        repair = yield from make_repair(settings, task, folder, story, k)
        story.repairs.append(repair)
        if repair.action in ("none", "by hand"):
            break
        attempt = yield from _retrain_and_run(settings, task, folder, last, repair, k)
        if isinstance(attempt, str):
            story.stop_reason = attempt
            break
        story.attempts.append(attempt)
        if is_solved(attempt) or (k > 1 and not has_improved(story)):
            break
    if (
        not story.stop_reason
        and story.attempts[-1].certificate_record is None
        and story.repairs
        and story.repairs[-1].action == "none"
    ):
        story.attempts[-1] = yield from _validate(settings, task, story.attempts[-1], folder / "0-certificate.html", None)
    return story


def success_by_parameter(
    settings: LoopSettings, task: Task, folder: Path, history: LoopHistory
) -> Generator[Call, CallRecord, tuple[CallRecord, ...]]:
    """The first and the last policy in many worlds, wider than the prior: success against each number."""
    if len(history.attempts) < 2:
        return ()
    wide, done = folder / "wide.json", []
    if not wide.exists():
        task.robot.prior.scaled(SWEEP_PRIOR_SCALE).save(wide)
    for a, name in ((history.attempts[0], "before"), (history.attempts[-1], "after")):
        out = folder / f"worlds-{name}.parquet"
        options = (
            "--belief",
            str(wide),
            "--worlds",
            str(SWEEP_WORLDS),
            "--seed",
            str(settings.seed + 2),
            "--episodes",
            str(out),
        )
        doc = f"the policy {name} in {SWEEP_WORLDS} worlds, {SWEEP_PRIOR_SCALE:g} times as wide as the prior"
        done.append((yield Call("worlds", doc, ("evaluate", str(a.run), *options), (out,))))
    return tuple(done)


def _train_call(
    settings: LoopSettings, out: Path, options: tuple[str, ...], duration_options: tuple[str, ...], worlds_text: str
) -> Call:
    args = ("train", settings.task, "-o", str(out), *options, *duration_options, "--seed", str(settings.seed))
    return Call("train", f"train {settings.task} in {worlds_text}", args, (out,))


def _export_call(attempt: Attempt) -> Call:
    args = ("export", str(attempt.run), "-o", str(attempt.controller))
    return Call("export", "carry it over: one file that checks itself", args, (attempt.controller,))


def _run_on_robot(
    settings: LoopSettings, task: Task, folder: Path, attempt: Attempt, round_index: int, twin: Path | None
) -> Generator[Call, CallRecord, Attempt]:
    """Run on the robot, watched and measured."""
    records: list[CallRecord] = []
    for take in range(MAX_TAKES):
        out = folder / f"{round_index}-{attempt.name}{f'-{take + 1}' if take else ''}.mcap"
        args = (
            "run",
            str(attempt.controller),
            "--link",
            settings.robot_link(folder),
            "--record",
            str(out),
            "--seconds",
            f"{settings.seconds:g}",
        )
        asked = recording_commands(task, settings.seconds, settings.seed + take)
        args += ("--command", *asked) if asked else ()
        records.append((yield Call("record", "run it on the robot and record", args, (out,))))
        enough = recorded_seconds(records) >= MIN_RECORDED_FRACTION * settings.seconds
        # A virtual robot that is asked for nothing else does nothing else.
        if enough or not out.exists() or (settings.watched and not asked):
            break
    attempt = replace(attempt, run_records=tuple(records))
    if settings.watched:
        options = (
            "--reality",
            settings.reality_argument(folder),
            "--worlds",
            str(WATCHED_EPISODES),
            "--seed",
            str(settings.seed + 1),
        )
        args = ("evaluate", str(attempt.run), *options)
        attempt = replace(
            attempt, watched_record=(yield Call("watch", f"watch {WATCHED_EPISODES} episodes of it on the robot", args))
        )
    if not attempt.recordings:
        return attempt
    page = folder / f"{round_index}-{attempt.name}.gap.html"
    args = ("diagnose", str(attempt.controller), *map(str, attempt.recordings), "-o", str(page))
    args += ("--twin", str(twin)) if twin is not None else ()
    args += ("--no-why",) if round_index == settings.rounds else ()
    return replace(attempt, gap_record=(yield Call("gap", "how far is it from the simulator, and why", args, (page,), (0,))))


def recording_commands(task: Task, seconds: float, seed: int) -> tuple[str, ...]:
    """What the policy is asked to do in a recording: another corner of what it was trained for every few seconds."""
    if task.command is None:
        return ()
    signal, rng, out = task.command.signal, np.random.default_rng(seed), []
    low, high = np.array(signal.low), np.array(signal.high)
    for i in range(max(1, round(seconds / COMMAND_HOLD_SECONDS))):
        values = low + (high - low) * rng.uniform(0.1, 0.9, len(low))
        out += [
            (f"{i * COMMAND_HOLD_SECONDS:g}:" if i else "") + f"{label}={v:.2g}"
            for label, v in zip(signal.labels, values, strict=True)
        ]
    return tuple(out)


def reason_not_repairable(attempt: Attempt) -> str:
    """Why nothing can be repaired after an attempt; empty if something can."""
    if not attempt.recordings:
        last = attempt.run_records[-1]
        why = last.result.get("reason") or last.failure
        return f"the robot could not be run: {why}"
    if attempt.gap_record is None or attempt.gap_record.failure:
        ended = next((str(d.result["reason"]) for d in attempt.run_records if d.result.get("reason")), "")
        stopped = f" The robot had been stopped: {ended}" if ended else ""
        return (
            "the recording cannot be used: "
            f"{attempt.gap_record.failure if attempt.gap_record else 'it was not measured'}{stopped}"
        )
    if not attempt.diagnosis.get("hypotheses"):
        return attempt.diagnosis.get("headline") or "the recording says nothing"
    return ""


def _retrain_and_run(
    settings: LoopSettings, task: Task, folder: Path, last: Attempt, repair: Repair, round_index: int
) -> Generator[Call, CallRecord, Attempt | str]:
    """A policy for the twin, tried on the robot; or why there is none."""
    trained = yield from _train_for_repair(settings, folder, last, repair, round_index)
    if trained.failure:
        return f"training failed: {trained.failure}"
    success = trained.result["evaluation"]["success"]
    if success["high"] < MIN_SUCCESS_TO_DEPLOY:
        share = f"{100 * success['rate']:.0f} %"
        return (
            f"a policy that was trained on the twin succeeds in {share} of its worlds: the robot as it is cannot do this task, "
            "or needs far more training"
        )
    attempt = Attempt("twin", trained.call.outputs[0], folder / f"{round_index}-twin.controller")
    exported = yield _export_call(attempt)
    if exported.failure:
        return exported.failure
    attempt = yield from _validate(settings, task, attempt, folder / f"{round_index}-certificate.html", repair.twin)
    return (yield from _run_on_robot(settings, task, folder, attempt, round_index, repair.twin))


def _train_for_repair(
    settings: LoopSettings, folder: Path, last: Attempt, repair: Repair, round_index: int
) -> Generator[Call, CallRecord, CallRecord]:
    """The policy before goes on with the twin; if that leads nowhere, another begins anew; what is not good yet goes on.

    Of all of them the one that succeeds most often on the twin is taken.
    """
    where = "the twin" if repair.twin else "worlds of the prior"
    where += {"wider": ", wider", "longer": ", for longer", "adapt": ", to adapt"}.get(repair.action, "")
    options = ("--belief", str(repair.twin)) if repair.twin else ()
    options += ("--width", f"{WIDER_PRIOR_SCALE:g}") if repair.action == "wider" else ()
    anew = ("--method", "rma") if repair.action == "adapt" else ()

    def training(before: Path | None, out: Path, how: str) -> Call:
        begins = ("--from", str(before), "--kl", "0") if before else anew
        return _train_call(settings, out, begins + options, settings.training_options("on" if before else "anew"), where + how)

    begun, out = bool(anew), folder / f"{round_index}-twin"
    done = [(yield training(None if anew else last.run, out, ""))]
    rates = [_success_rate(done[-1])]
    for n in range(2, settings.max_trainings + 1):
        if done[-1].failure or rates[-1] >= MIN_SUCCESS_RATE:
            break
        lost = not begun and rates[-1] < RESTART_FROM_SCRATCH_BELOW
        stuck = rates[-1] < ABANDON_SCRATCH_BELOW or rates[-1] <= max(rates[:-1], default=-1.0)
        if stuck and not lost:
            break
        if lost:
            begun, rates = True, []
        before, out = None if lost else out, folder / f"{round_index}-twin-{n}"
        done.append((yield training(before, out, ", from nothing" if lost else ", further")))
        rates.append(_success_rate(done[-1]))
    return max(reversed(done), key=_success_rate)


def _success_rate(trained: CallRecord) -> float:
    """Success of a policy in the worlds that it was trained in; less than any if it could not be trained."""
    return -1.0 if trained.failure else float(trained.result["evaluation"]["success"]["rate"])


def _validate(
    settings: LoopSettings, task: Task, attempt: Attempt, page: Path, twin: Path | None
) -> Generator[Call, CallRecord, Attempt]:
    stages = tuple(stage.name for stage in protocol.load_protocol(default_protocol(task.robot)).stages[:PROTOCOL_STAGES])
    args = ("validate", str(attempt.controller), *(("--on", str(twin)) if twin else ()), "--stages", *stages)
    args += ("-o", str(page), "--seed", str(settings.seed))
    done = yield Call("validate", "put it through the protocol", args, (page, page.with_suffix(".json")))
    return replace(attempt, certificate_record=done)
