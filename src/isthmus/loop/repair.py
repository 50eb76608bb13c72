"""What is done about a gap: what its verdict recommends, as far as training can do it.

outside, inside, sensor, link    numbers are identified; where they leave much, motor laws or a force are learned, too
physics                          the same, always with a law or a force
                                 on feet first the ground, if friction is found outside or nothing points at motors
cannot tell, or a later round    an experiment is made first
states, or nothing identified    wider worlds
policy                           longer training
inside, of a twin                a policy that adapts: the world is known as well as it can be, and it still fails
wiring, controller               a person has to do it
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from isthmus.loop.outcome import moved
from isthmus.loop.steps import Done, Step
from isthmus.loop.story import Attempt, Repair, Settings, Story, does
from isthmus.loop.tuned import tuned
from isthmus.sim.ground import surface, walks
from isthmus.sim.sources import on_joints
from isthmus.tasks.task import Task

BY_HAND = ("wiring", "controller")
"""Causes that no training mends."""
OF_BODY = ("drag", "drag of rotors", "pull", "cable")
"""Missing physics that acts on a body, not in its motors."""
LEFT = 1.8
"""Error in units of the noise above which numbers do not explain a recording, whatever the verdict was."""


def repaired(s: Settings, task: Task, folder: Path, story: Story, k: int) -> Generator[Step, Done, Repair]:
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
    if cause == "inside" and known and story.repairs[-1].what != "adapt":
        return Repair(cause, "adapt", known)
    files = tuple(str(p) for a in story.attempts for p in a.recordings)
    probe: Done | None = None
    if cause is None or k > 1:
        probe = yield from _experiment(s, task, folder, story, k)
        files += tuple(str(p) for p in (probe.step.made if probe else ()) if p.exists())
    # No search all over the belief: what is missing would send it everywhere, and the gap was measured from its middle.
    numbers = folder / f"{k}-numbers.twin"
    options = ("--search", "never", *tuned(s.task).ahead, "--seed", str(s.seed))
    args = ("identify", task.robot.name, *files, "-o", str(numbers), *options)
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
    much = last.cause == "physics" or remains >= LEFT
    clue = next((h["clue"] or {} for h in last.why["hypotheses"] if h["cause"] == "physics"), {})
    options, tries = tuned(task.name).ahead, ()
    # Without the right ground its friction bends first, and may make up for nearly all of it.
    bent = any(m.name in surface(task.robot) for m in moved(identified.result["parameters"]))
    if walks(task.robot) and (bent or (much and not clue)):
        out = folder / f"{k}-ground.twin"
        args = ("residual", str(numbers), *files, "--only", "ground", "-o", str(out), *options)
        done = yield Step("ground", "find out what ground it walks on", args, (out,))
        if done.code == 0 and out.exists():
            return out, (done,)
        tries = (done,)
    if not much:
        return numbers, tries
    motors = on_joints(task.robot) and clue.get("name") not in OF_BODY
    verb = "actuator" if motors else "residual"
    what = "find the law of its motors" if motors else "learn the force that no number explains"
    out = folder / f"{k}-{verb}.twin"
    done = yield Step(verb, what, (verb, str(numbers), *files, "-o", str(out), *options), (out,))
    kept = done.code == 0 and out.exists()
    return (out if kept else numbers), (*tries, done)
