"""What the loop does, step by step: each step is an ordinary command, and what it found decides about the next ones.

    train on the prior -> export -> run and record -> gap
    -> repair -> train on the twin -> export -> validate -> run again -> gap

A repair is what the verdict of `isthmus gap` recommends: nothing, more training, numbers, numbers after an experiment,
numbers and the physics that is missing, a policy that adapts. Mistakes that training cannot mend end the loop: they are for a
person. Nothing here knows what the robot is: it is a link, and of a virtual one a word that is handed on to commands that run
or watch it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from isthmus.loop.repair import repaired
from isthmus.loop.steps import Done, Step
from isthmus.loop.story import GOOD, Attempt, Repair, Settings, Story, gained, good, recorded
from isthmus.tasks.task import Task
from isthmus.validate import protocol
from isthmus.validate.worlds import default_protocol

TAKES = 3
"""Recordings of a robot that is stopped early, at most."""
ENOUGH = 0.5
"""Part of the seconds asked for after which no other recording is made."""
STAGES = 2
"""Stages of the protocol that a policy is put through; the others ask for more than this robot as it is."""
HOLD = 4.0
"""s for which a recording holds a command."""
JUDGED = 64
"""Episodes in which a virtual robot is watched."""
CANNOT = 0.1
"""Success in the twin's own worlds below which a policy is not tried on the robot …"""
HALF = 0.5
"""… below which another begins anew, in place of one that was trained on the prior first …"""
NOTHING = 0.01
"""… and below which the latter is given up: much begins as a little."""
WIDER = 1.6
"""Times the prior's ranges, where no number could be found."""
WORLDS, WIDE = 256, 2.0
"""Worlds in which the first and the last policy are compared, and how wide they are, in widths of the prior."""


USUAL = (
    *(("train", 60), ("export", 4), ("record", 2), ("watch", 4), ("gap", 30), ("identify", 30), ("residual", 30)),
    *(("train", 30), ("export", 4), ("validate", 4), ("record", 2), ("watch", 4), ("gap", 15), ("worlds", 4), ("worlds", 4)),
)
"""Steps of a loop that needs everything, and about how long each takes, in any unit."""


def left(done: Sequence[tuple[str, float]], name: str = "", elapsed: float = 0.0, own: float | None = None) -> float | None:
    """s that a loop may still take, from the names and seconds of its steps so far; None before anything is known.

    `name` is the step at work, `elapsed` its seconds so far, and `own` what it says it still needs, where it does.
    """
    rest, spent, usual = list(USUAL), 0.0, 0.0
    for before, seconds in done:
        at = next((i for i, (n, _) in enumerate(rest) if n == before), None)
        if at is None:
            continue
        spent, usual = spent + seconds, usual + rest[at][1]
        rest = rest[at + 1 :]
    at = next((i for i, (n, _) in enumerate(rest) if n == name), None)
    this, after = (0.0, rest) if at is None else (rest[at][1], rest[at + 1 :])
    if usual:
        pace = spent / usual
    elif this and own is not None:
        pace = (elapsed + own) / this
    else:
        return None
    return sum(t for _, t in after) * pace + max(this * pace - elapsed, own or 0.0, 0.0)


def course(s: Settings, task: Task, folder: Path) -> Generator[Step, Done, Story]:
    """All of a loop."""
    story = yield from attempted(s, task, folder)
    story.swept = yield from _swept(s, task, folder, story)
    return story


def attempted(s: Settings, task: Task, folder: Path) -> Generator[Step, Done, Story]:
    """The policies one after the other, with the repairs between them: all but what only a report asks for."""
    story = Story()
    first = Attempt("prior", Path(s.run) if s.run else folder / "0-prior", folder / "0-prior.controller")
    if not s.run:
        trained = yield _train(s, first.run, (), s.training("first"), "worlds of the prior")
        if trained.failed:
            story.stopped = f"training failed: {trained.failed}"
            return story
    exported = yield _export(first)
    if exported.failed:
        story.stopped = exported.failed
        return story
    story.attempts.append((yield from _run(s, task, folder, first, 0, None)))
    for k in range(1, s.rounds + 1):
        last = story.attempts[-1]
        story.stopped = _hopeless(last)
        if story.stopped:
            break
        repair = yield from repaired(s, task, folder, story, k)
        story.repairs.append(repair)
        if repair.what in ("none", "by hand"):
            break
        attempt = yield from _again(s, task, folder, last, repair, k)
        if isinstance(attempt, str):
            story.stopped = attempt
            break
        story.attempts.append(attempt)
        if good(attempt) or (k > 1 and not gained(story)):
            break
    if not story.stopped and story.attempts[-1].certificate is None and story.repairs and story.repairs[-1].what == "none":
        story.attempts[-1] = yield from _validated(s, task, story.attempts[-1], folder / "0-certificate.html", None)
    return story


def _swept(s: Settings, task: Task, folder: Path, story: Story) -> Generator[Step, Done, tuple[Done, ...]]:
    """The first and the last policy in many worlds, wider than the prior: success against each number."""
    if len(story.attempts) < 2:
        return ()
    wide, done = folder / "wide.json", []
    if not wide.exists():
        task.robot.prior.scaled(WIDE).save(wide)
    for a, name in ((story.attempts[0], "before"), (story.attempts[-1], "after")):
        out = folder / f"worlds-{name}.parquet"
        options = ("--belief", str(wide), "--worlds", str(WORLDS), "--seed", str(s.seed + 2), "--episodes", str(out))
        doc = f"the policy {name} in {WORLDS} worlds, {WIDE:g} times as wide as the prior"
        done.append((yield Step("worlds", doc, ("eval", str(a.run), *options), (out,))))
    return tuple(done)


def _train(s: Settings, out: Path, options: tuple[str, ...], long: tuple[str, ...], where: str) -> Step:
    args = ("train", s.task, "-o", str(out), *options, *long, "--seed", str(s.seed))
    return Step("train", f"train {s.task} in {where}", args, (out,))


def _export(a: Attempt) -> Step:
    args = ("export", str(a.run), "-o", str(a.controller))
    return Step("export", "carry it over: one file that checks itself", args, (a.controller,))


def _run(s: Settings, task: Task, folder: Path, a: Attempt, k: int, twin: Path | None) -> Generator[Step, Done, Attempt]:
    """Run on the robot, watched and measured."""
    records: list[Done] = []
    for take in range(TAKES):
        out = folder / f"{k}-{a.name}{f'-{take + 1}' if take else ''}.mcap"
        args = ("run", str(a.controller), "--link", s.robot(folder), "--record", str(out), "--seconds", f"{s.seconds:g}")
        asked = commands(task, s.seconds, s.seed + take)
        args += ("--command", *asked) if asked else ()
        records.append((yield Step("record", "run it on the robot and record", args, (out,))))
        enough = recorded(records) >= ENOUGH * s.seconds
        # A virtual robot that is asked for nothing else does nothing else.
        if enough or not out.exists() or (s.watched and not asked):
            break
    a = replace(a, records=tuple(records))
    if s.watched:
        options = ("--reality", s.reality(folder), "--worlds", str(JUDGED), "--seed", str(s.seed + 1))
        args = ("eval", str(a.run), *options)
        a = replace(a, watched=(yield Step("watch", f"watch {JUDGED} episodes of it on the robot", args)))
    if not a.recordings:
        return a
    page = folder / f"{k}-{a.name}.gap.html"
    args = ("gap", str(a.controller), *map(str, a.recordings), "-o", str(page))
    args += ("--twin", str(twin)) if twin is not None else ()
    args += ("--no-why",) if k == s.rounds else ()
    return replace(a, gap=(yield Step("gap", "how far is it from the simulator, and why", args, (page,), (0,))))


def commands(task: Task, seconds: float, seed: int) -> tuple[str, ...]:
    """What the policy is asked to do in a recording: another corner of what it was trained for every few seconds."""
    if task.command is None:
        return ()
    signal, rng, out = task.command.signal, np.random.default_rng(seed), []
    low, high = np.array(signal.low), np.array(signal.high)
    for i in range(max(1, round(seconds / HOLD))):
        values = low + (high - low) * rng.uniform(0.1, 0.9, len(low))
        out += [(f"{i * HOLD:g}:" if i else "") + f"{label}={v:.2g}" for label, v in zip(signal.labels, values, strict=True)]
    return tuple(out)


def _hopeless(a: Attempt) -> str:
    """Why nothing can be repaired after an attempt; empty if something can."""
    if not a.recordings:
        last = a.records[-1]
        why = last.result.get("why") or last.failed
        return f"the robot could not be run: {why}"
    if a.gap is None or a.gap.failed:
        ended = next((str(d.result["why"]) for d in a.records if d.result.get("why")), "")
        stopped = f" The robot had been stopped: {ended}" if ended else ""
        return f"the recording cannot be used: {a.gap.failed if a.gap else 'it was not measured'}{stopped}"
    if not a.why.get("hypotheses"):
        return a.why.get("headline") or "the recording says nothing"
    return ""


def _again(
    s: Settings, task: Task, folder: Path, last: Attempt, repair: Repair, k: int
) -> Generator[Step, Done, Attempt | str]:
    """A policy for the twin, tried on the robot; or why there is none."""
    trained = yield from _learned(s, folder, last, repair, k)
    if trained.failed:
        return f"training failed: {trained.failed}"
    success = trained.result["evaluation"]["success"]
    if success["high"] < CANNOT:
        share = f"{100 * success['rate']:.0f} %"
        return (
            f"a policy that was trained on the twin succeeds in {share} of its worlds: the robot as it is cannot do this task, "
            "or needs far more training"
        )
    attempt = Attempt("twin", trained.step.made[0], folder / f"{k}-twin.controller")
    exported = yield _export(attempt)
    if exported.failed:
        return exported.failed
    attempt = yield from _validated(s, task, attempt, folder / f"{k}-certificate.html", repair.twin)
    return (yield from _run(s, task, folder, attempt, k, repair.twin))


def _learned(s: Settings, folder: Path, last: Attempt, repair: Repair, k: int) -> Generator[Step, Done, Done]:
    """The policy before goes on with the twin; if that leads nowhere, another begins anew; what is not good yet goes on.

    Of all of them the one that succeeds most often on the twin is taken.
    """
    where = "the twin" if repair.twin else "worlds of the prior"
    where += {"wider": ", wider", "longer": ", for longer", "adapt": ", to adapt"}.get(repair.what, "")
    options = ("--belief", str(repair.twin)) if repair.twin else ()
    options += ("--width", f"{WIDER:g}") if repair.what == "wider" else ()
    anew = ("--method", "rma") if repair.what == "adapt" else ()

    def training(before: Path | None, out: Path, how: str) -> Step:
        begins = ("--from", str(before), "--kl", "0") if before else anew
        return _train(s, out, begins + options, s.training("on" if before else "anew"), where + how)

    begun, out = bool(anew), folder / f"{k}-twin"
    done = [(yield training(None if anew else last.run, out, ""))]
    rates = [_rate(done[-1])]
    for n in range(2, s.trainings + 1):
        if done[-1].failed or rates[-1] >= GOOD:
            break
        lost = not begun and rates[-1] < HALF
        stuck = rates[-1] < NOTHING or rates[-1] <= max(rates[:-1], default=-1.0)
        if stuck and not lost:
            break
        if lost:
            begun, rates = True, []
        before, out = None if lost else out, folder / f"{k}-twin-{n}"
        done.append((yield training(before, out, ", from nothing" if lost else ", further")))
        rates.append(_rate(done[-1]))
    return max(reversed(done), key=_rate)


def _rate(trained: Done) -> float:
    """Success of a policy in the worlds that it was trained in; less than any if it could not be trained."""
    return -1.0 if trained.failed else float(trained.result["evaluation"]["success"]["rate"])


def _validated(s: Settings, task: Task, a: Attempt, page: Path, twin: Path | None) -> Generator[Step, Done, Attempt]:
    stages = tuple(stage.name for stage in protocol.load(default_protocol(task.robot)).stages[:STAGES])
    args = ("validate", str(a.controller), *(("--on", str(twin)) if twin else ()), "--stages", *stages)
    args += ("-o", str(page), "--seed", str(s.seed))
    done = yield Step("validate", "put it through the protocol", args, (page, page.with_suffix(".json")))
    return replace(a, certificate=done)
