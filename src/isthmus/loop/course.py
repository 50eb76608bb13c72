"""What the loop does, step by step: each step is an ordinary command, and what it found decides about the next ones.

    train on the prior -> export -> run and record -> gap
    -> repair -> train on the twin -> export -> validate -> run again -> gap

A repair is what the verdict of `isthmus gap` recommends: nothing, more training, numbers, numbers after an experiment, numbers
and the physics that is missing. Mistakes that training cannot mend end the loop: they are for a person. Nothing here knows
what the robot is: it is a link, and of a virtual one a word that is handed on to commands that run or watch it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from isthmus.loop.steps import Done, Step
from isthmus.tasks.task import Task
from isthmus.validate import protocol
from isthmus.validate.worlds import default_protocol

TICKS = {
    "pendulum/swingup": (450_000, 250_000),
    "cartpole/balance": (400_000, 200_000),
    "crazyflie/hover": (900_000, 500_000),
    "go1/walk": (2_600_000, 1_300_000),
}
"""Control ticks of training on the prior and on a twin, for tasks where we know how many it takes."""
SECONDS = {"": 10.0, "crazyflie/hover": 8.0}
"""Length of a recording, by task."""
HORIZON = {"crazyflie/hover": ("--horizon", "0.2")}
"""Of predictions to which a twin is fitted: a drone is unstable, and far ahead every small mistake is a large one."""
OWN = "hidden.toml"
"""Name, in the loop's folder, of a reality that comes with a task."""
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
BY_HAND = ("wiring", "controller")
"""Causes that no training mends."""
OF_BODY = ("drag", "drag of rotors", "pull", "cable")
"""Missing physics that acts on a body, not in its motors."""
GOOD = 0.9
"""Part of the episodes that must succeed for a robot to be called able."""
CANNOT = 0.1
"""Success in the twin's own worlds below which a policy is not tried on the robot."""
WIDER = 1.6
"""Times the prior's ranges, where no number could be found."""
AS_BELIEVED = "as believed"
"""Law of motors that need no other."""
WORLDS, WIDE = 512, 2.0
"""Worlds in which the first and the last policy are compared, and how wide they are, in widths of the prior."""
LEFT = 1.8
"""Error in units of the noise above which numbers do not explain a recording, whatever the verdict was."""
SHARE = (0.5, 0.25)
"""Of a budget, for training on the prior and on a twin; the rest is for everything else."""


USUAL = (
    *(("train", 60), ("export", 4), ("record", 2), ("watch", 4), ("gap", 30), ("identify", 30), ("residual", 30)),
    *(("train", 30), ("export", 4), ("validate", 4), ("record", 2), ("watch", 4), ("gap", 15), ("worlds", 4), ("worlds", 4)),
)
"""Steps of a loop that needs everything, and about how long each takes, in any unit."""


def left(done: Sequence[tuple[str, float]]) -> float | None:
    """s that a loop may still take, from the names and seconds of its steps so far; None before the first is done."""
    rest, spent, usual = list(USUAL), 0.0, 0.0
    for name, seconds in done:
        at = next((i for i, (n, _) in enumerate(rest) if n == name), None)
        if at is None:
            continue
        spent, usual = spent + seconds, usual + rest[at][1]
        rest = rest[at + 1 :]
    return sum(t for _, t in rest) * spent / usual if usual else None


@dataclass(frozen=True)
class Settings:
    """What a loop was asked for; it goes on only under the same."""

    task: str
    link: str
    """Link to the robot, as `isthmus run` takes it."""
    watched: str = ""
    """Reality of a virtual robot, as `isthmus eval` takes it, for watching it; nothing here reads what it says."""
    seconds: float = 10.0
    rounds: int = 1
    budget: float = 0.0
    """Minutes for all of it; 0 takes what it needs."""
    seed: int = 0
    run: str = ""
    """A policy to begin with, instead of training one."""

    def reality(self, folder: Path) -> str:
        """Of a virtual robot, as commands take it."""
        return str(folder / OWN) if self.watched == OWN else self.watched

    def robot(self, folder: Path) -> str:
        """The link to the robot."""
        return f"sim:{self.reality(folder)}" if self.watched else self.link

    def training(self, which: Literal[0, 1]) -> tuple[str, ...]:
        """Options that say how long a policy is trained on the prior (0) or a twin (1)."""
        if self.budget:
            return "--minutes", f"{self.budget * SHARE[which] / (self.rounds if which else 1):.4g}"
        ticks = TICKS.get(self.task)
        if ticks is not None:
            return "--steps", str(ticks[which])
        from isthmus.learn.recipes import budget

        return "--minutes", f"{budget(self.task) * (1.0, 0.5)[which]:.4g}"


@dataclass(frozen=True)
class Attempt:
    """A policy on the robot."""

    name: str
    run: Path
    controller: Path
    records: tuple[Done, ...] = ()
    watched: Done | None = None
    gap: Done | None = None
    certificate: Done | None = None

    @property
    def recordings(self) -> tuple[Path, ...]:
        return tuple(p for done in self.records for p in done.step.made if p.exists())

    @property
    def why(self) -> dict[str, Any]:
        return (self.gap.result.get("why") or {}) if self.gap and not self.gap.failed else {}

    @property
    def cause(self) -> str | None:
        return self.why.get("cause")

    @property
    def success(self) -> dict[str, Any] | None:
        """Of a virtual robot: rate with its interval."""
        return self.watched.result.get("success") if self.watched and not self.watched.failed else None

    @property
    def seconds(self) -> float:
        """Of the robot's time that was recorded."""
        return sum(float(done.result.get("seconds") or 0.0) for done in self.records)


@dataclass(frozen=True)
class Repair:
    """What was done about a gap."""

    cause: str | None
    what: str
    """none, by hand, longer, wider, numbers or experiment."""
    twin: Path | None = None
    identified: Done | None = None
    probe: Done | None = None
    learned: tuple[Done, ...] = ()
    """Motor laws and forces that were tried on top of the numbers."""


@dataclass
class Story:
    """Everything that a loop did, in order."""

    attempts: list[Attempt] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    stopped: str = ""
    """Why it could not go on; empty if it came to its end."""
    swept: tuple[Done, ...] = ()
    """The first and the last policy in many worlds."""

    @property
    def seconds(self) -> float:
        """Of the robot's time that was recorded."""
        probes = [r.probe for r in self.repairs if r.probe is not None]
        return sum(a.seconds for a in self.attempts) + sum(float(p.result.get("seconds") or 0.0) for p in probes)

    @property
    def twin(self) -> Path | None:
        """The last that was made."""
        return next((r.twin for r in reversed(self.repairs) if r.twin), None)

    @property
    def best(self) -> Attempt:
        """The policy that did best on the robot, as far as that is known; of equals the last."""
        return max(reversed(self.attempts), key=lambda a: a.success["rate"] if a.success else 0.0)


def course(s: Settings, task: Task, folder: Path) -> Generator[Step, Done, Story]:
    story = Story()
    first = Attempt("prior", Path(s.run) if s.run else folder / "0-prior", folder / "0-prior.controller")
    if not s.run:
        trained = yield _train(s, first.run, (), s.training(0), "worlds of the prior")
        if trained.failed:
            story.stopped = f"training failed: {trained.failed}"
            return story
    exported = yield _export(first)
    if exported.failed:
        story.stopped = exported.failed
        return story
    story.attempts.append((yield from _tried(s, task, folder, first, 0, None)))
    for k in range(1, s.rounds + 1):
        last = story.attempts[-1]
        story.stopped = _hopeless(last)
        if story.stopped:
            break
        repair = yield from _repaired(s, task, folder, story, k)
        story.repairs.append(repair)
        if repair.what in ("none", "by hand"):
            break
        attempt = yield from _again(s, task, folder, last, repair, k)
        if isinstance(attempt, str):
            story.stopped = attempt
            break
        story.attempts.append(attempt)
        if good(attempt) or (k > 1 and not _gained(story)):
            break
    if not story.stopped and story.attempts[-1].certificate is None and story.repairs and story.repairs[-1].what == "none":
        story.attempts[-1] = yield from _validated(s, task, story.attempts[-1], folder / "0-certificate.html", None)
    story.swept = yield from _swept(s, task, folder, story)
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
        args = (
            "eval",
            str(a.run),
            "--belief",
            str(wide),
            "--worlds",
            str(WORLDS),
            "--seed",
            str(s.seed + 2),
            "--episodes",
            str(out),
        )
        done.append(
            (yield Step("worlds", f"the policy {name} in {WORLDS} worlds, {WIDE:g} times as wide as the prior", args, (out,)))
        )
    return tuple(done)


def _train(s: Settings, out: Path, options: tuple[str, ...], long: tuple[str, ...], where: str) -> Step:
    args = ("train", s.task, "-o", str(out), *options, *long, "--seed", str(s.seed))
    return Step("train", f"train {s.task} in {where}", args, (out,))


def _export(a: Attempt) -> Step:
    args = ("export", str(a.run), "-o", str(a.controller))
    return Step("export", "carry it over: one file that checks itself", args, (a.controller,))


def _tried(s: Settings, task: Task, folder: Path, a: Attempt, k: int, twin: Path | None) -> Generator[Step, Done, Attempt]:
    """Run on the robot, watched and measured."""
    records: list[Done] = []
    for take in range(TAKES):
        out = folder / f"{k}-{a.name}{f'-{take + 1}' if take else ''}.mcap"
        args = ("run", str(a.controller), "--link", s.robot(folder), "--record", str(out), "--seconds", f"{s.seconds:g}")
        asked = commands(task, s.seconds, s.seed + take)
        args += ("--command", *asked) if asked else ()
        records.append((yield Step("record", "run it on the robot and record", args, (out,))))
        enough = sum(float(d.result.get("seconds") or 0.0) for d in records) >= ENOUGH * s.seconds
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
        return f"the recording cannot be used: {a.gap.failed if a.gap else 'it was not measured'}"
    if not a.why.get("hypotheses"):
        return a.why.get("headline") or "the recording says nothing"
    return ""


def good(a: Attempt) -> bool:
    """Whether it passed its validation and the robot did its task: of a virtual one as watched, of another as recorded."""
    if a.certificate is None or a.certificate.code != 0:
        return False
    return does(a)


def _gained(story: Story) -> bool:
    """Whether the last policy is better than all before; of a robot that nobody watches, nobody can tell."""
    rates = [a.success["rate"] for a in story.attempts if a.success]
    return len(rates) < 2 or rates[-1] > max(rates[:-1])


def does(a: Attempt) -> bool:
    """Whether the robot does its task."""
    if a.watched is not None:
        return a.success is not None and float(a.success["rate"]) >= GOOD
    measures = ((a.gap.result.get("behaviour") or {}).get("measures") or []) if a.gap is not None and not a.gap.failed else []
    recorded = next((m["recorded"] for m in measures if m["name"] == "success"), None)
    return bool(a.records) and all(d.code == 0 for d in a.records) and (recorded is None or recorded >= GOOD)


# Repairs ----------------------------------------------------------------------------------------------------------


def _repaired(s: Settings, task: Task, folder: Path, story: Story, k: int) -> Generator[Step, Done, Repair]:
    last, known = story.attempts[-1], story.twin
    cause = last.cause
    if cause in BY_HAND:
        return Repair(cause, "by hand")
    if cause == "nothing" and does(last):
        return Repair(cause, "none")
    if cause in ("policy", "nothing"):
        return Repair(cause, "longer", known)
    if cause == "states":
        return Repair(cause, "wider", known)
    files = tuple(str(p) for a in story.attempts for p in a.recordings)
    probe: Done | None = None
    if cause is None or k > 1:
        probe = yield from _experiment(s, task, folder, story, k)
        files += tuple(str(p) for p in (probe.step.made if probe else ()) if p.exists())
    # No search all over the belief: what is missing would send it everywhere, and the gap was measured from its middle.
    numbers = folder / f"{k}-numbers.twin"
    args = (
        "identify",
        task.robot.name,
        *files,
        "-o",
        str(numbers),
        "--search",
        "never",
        *HORIZON.get(s.task, ()),
        "--seed",
        str(s.seed),
    )
    identified = yield Step("identify", "find its numbers", args, (numbers,), (0,))
    if identified.failed:
        return Repair(cause, "wider", known, identified, probe)
    twin, learned = yield from _learned(task, folder, last, identified, numbers, files, k)
    return Repair(cause, "experiment" if probe else "numbers", twin, identified, probe, learned)


def _experiment(s: Settings, task: Task, folder: Path, story: Story, k: int) -> Generator[Step, Done, Done | None]:
    """A recording of what tells most about what is not known; None where no experiment is safe."""
    known = story.twin
    last, out = story.attempts[-1], folder / f"{k}-probe.mcap"
    on = str(known) if known else task.robot.name
    doc, long = "choose the experiment that tells most", ("--seconds", "10")
    if task.robot.base:
        chosen = yield Step("excite", doc, ("excite", on, "--policy", str(last.run), *long))
        if chosen.failed or not chosen.result.get("commands"):
            return None
        args = ("run", str(last.controller), "--command", *chosen.result["commands"])
    else:
        probe = folder / f"{k}-probe.controller"
        chosen = yield Step("excite", doc, ("excite", on, *long, "-o", str(probe)), (probe,))
        if chosen.failed:
            return None
        args = ("run", str(probe))
    done = yield Step("probe", "do the experiment", (*args, "--link", s.robot(folder), "--record", str(out), *long), (out,))
    return done if out.exists() else None


def _learned(
    task: Task, folder: Path, last: Attempt, identified: Done, numbers: Path, files: tuple[str, ...], k: int
) -> Generator[Step, Done, tuple[Path, tuple[Done, ...]]]:
    """The twin with what numbers do not explain, if there is something, and what was tried."""
    after = identified.result["error"]["after"]
    remains = max(after["held_out"] or 0.0, after["fitted"] or 0.0)
    if last.cause != "physics" and remains < LEFT:
        return numbers, ()
    from isthmus.sim.sources import target_joints

    clue = next((h["clue"] or {} for h in last.why["hypotheses"] if h["cause"] == "physics"), {})
    driven = target_joints(task.robot, task.robot.model) is not None and task.robot.motors.drive != "native"
    motors = driven and clue.get("name") not in OF_BODY
    verb = "actuator" if motors else "residual"
    what = "find the law of its motors" if motors else "learn the force that no number explains"
    out = folder / f"{k}-{verb}.twin"
    done = yield Step(verb, what, (verb, str(numbers), *files, "-o", str(out), *HORIZON.get(task.name, ())), (out,))
    kept = done.code == 0 and out.exists()
    return (out if kept else numbers), (done,)


def _again(
    s: Settings, task: Task, folder: Path, last: Attempt, repair: Repair, k: int
) -> Generator[Step, Done, Attempt | str]:
    """A policy for the twin, from the one before; or why there is none."""
    out = folder / f"{k}-twin"
    options = ("--from", str(last.run), "--kl", "0")
    options += ("--belief", str(repair.twin)) if repair.twin else ()
    options += ("--width", f"{WIDER:g}") if repair.what == "wider" else ()
    where = ("the twin" if repair.twin else "worlds of the prior") + {"wider": ", wider", "longer": ", for longer"}.get(
        repair.what, ""
    )
    trained = yield _train(s, out, options, s.training(1), where)
    if trained.failed:
        return f"training failed: {trained.failed}"
    success = trained.result["evaluation"]["success"]
    if success["high"] < CANNOT:
        share = f"{100 * success['rate']:.0f} %"
        return (
            f"a policy that was trained on the twin succeeds in {share} of its worlds: the robot as it is cannot do this task, "
            "or needs far more training"
        )
    attempt = Attempt("twin", out, folder / f"{k}-twin.controller")
    exported = yield _export(attempt)
    if exported.failed:
        return exported.failed
    attempt = yield from _validated(s, task, attempt, folder / f"{k}-certificate.html", repair.twin)
    return (yield from _tried(s, task, folder, attempt, k, repair.twin))


def _validated(s: Settings, task: Task, a: Attempt, page: Path, twin: Path | None) -> Generator[Step, Done, Attempt]:
    stages = tuple(stage.name for stage in protocol.load(default_protocol(task.robot)).stages[:STAGES])
    args = ("validate", str(a.controller), *(("--on", str(twin)) if twin else ()), "--stages", *stages)
    args += ("-o", str(page), "--seed", str(s.seed))
    done = yield Step("validate", "put it through the protocol", args, (page, page.with_suffix(".json")))
    return replace(a, certificate=done)
