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

from isthmus.pipeline.budgets import task_budget
from isthmus.pipeline.evidence import Attempt, LoopHistory, LoopSettings, Repair, performs_task
from isthmus.pipeline.journal import Call, CallRecord
from isthmus.pipeline.outcome import parameters_outside_prior
from isthmus.sim.indexing import drives_joints
from isthmus.sim.physics.ground import contact_parameters
from isthmus.tasks.task import Task

MANUAL_CAUSES = ("wiring", "controller")
"""Causes that no training mends."""
BODY_PHYSICS = ("drag", "drag of rotors", "pull", "cable")
"""Missing physics that acts on a body, not in its motors."""
UNEXPLAINED_ERROR_THRESHOLD = 1.8
"""Error in units of the noise above which numbers do not explain a recording, whatever the verdict was."""


def make_repair(
    settings: LoopSettings, task: Task, folder: Path, history: LoopHistory, round_index: int
) -> Generator[Call, CallRecord, Repair]:
    last, known = history.attempts[-1], history.last_twin
    cause = last.cause
    if cause in MANUAL_CAUSES:
        return Repair(cause, "by hand")
    if cause == "nothing" and performs_task(last):
        return Repair(cause, "none")
    if cause in ("policy", "nothing"):
        return Repair(cause, "longer", known)
    if cause == "states":
        return Repair(cause, "wider", known)
    if cause == "inside" and known and history.repairs[-1].action != "adapt":
        return Repair(cause, "adapt", known)
    files = tuple(str(p) for a in history.attempts for p in a.recordings)
    probe: CallRecord | None = None
    if cause is None or round_index > 1:
        probe = yield from _record_experiment(settings, task, folder, history, round_index)
        files += tuple(str(p) for p in (probe.call.outputs if probe else ()) if p.exists())
    # No search all over the belief: what is missing would send it everywhere, and the gap was measured from its middle.
    numbers = folder / f"{round_index}-numbers.twin"
    options = ("--search", "never", *task_budget(settings.task).horizon_option, "--seed", str(settings.seed))
    args = ("identify", task.robot.name, *files, "-o", str(numbers), *options)
    identified = yield Call("identify", "find its numbers", args, (numbers,), (0,))
    if identified.failure:
        return Repair(cause, "wider", known, identified, probe)
    twin, learned = yield from _learn_unexplained(task, folder, last, identified, numbers, files, round_index)
    return Repair(cause, "experiment" if probe else "numbers", twin, identified, probe, learned)


def _record_experiment(
    settings: LoopSettings, task: Task, folder: Path, history: LoopHistory, round_index: int
) -> Generator[Call, CallRecord, CallRecord | None]:
    """A recording of what tells most about what is not known; None where no experiment is safe."""
    known = history.last_twin
    last, out = history.attempts[-1], folder / f"{round_index}-probe.mcap"
    on = str(known) if known else task.robot.name
    doc, long = "choose the experiment that tells most", ("--seconds", "10")
    if task.robot.morphology.base:
        chosen = yield Call("excite", doc, ("excite", on, "--policy", str(last.run), *long))
        if chosen.failure or not chosen.result.get("commands"):
            return None
        args = ("run", str(last.controller), "--command", *chosen.result["commands"])
    else:
        probe = folder / f"{round_index}-probe.controller"
        chosen = yield Call("excite", doc, ("excite", on, *long, "-o", str(probe)), (probe,))
        if chosen.failure:
            return None
        args = ("run", str(probe))
    done = yield Call(
        "probe", "do the experiment", (*args, "--link", settings.robot_link(folder), "--record", str(out), *long), (out,)
    )
    return done if out.exists() else None


def _learn_unexplained(
    task: Task, folder: Path, last: Attempt, identified: CallRecord, numbers: Path, files: tuple[str, ...], round_index: int
) -> Generator[Call, CallRecord, tuple[Path, tuple[CallRecord, ...]]]:
    """The twin with what numbers do not explain, if there is something, and what was tried."""
    after = identified.result["error"]["after"]
    remains = max(after["held_out"] or 0.0, after["fitted"] or 0.0)
    much = last.cause == "physics" or remains >= UNEXPLAINED_ERROR_THRESHOLD
    clue = next((h["clue"] or {} for h in last.diagnosis["hypotheses"] if h["cause"] == "physics"), {})
    options, tries = task_budget(task.name).horizon_option, ()
    # Without the right ground its friction bends first, and may make up for nearly all of it.
    bent = any(m.name in contact_parameters(task.robot) for m in parameters_outside_prior(identified.result["parameters"]))
    if task.robot.morphology.legged and (bent or (much and not clue)):
        out = folder / f"{round_index}-ground.twin"
        args = ("residual", str(numbers), *files, "--only", "ground", "-o", str(out), *options)
        done = yield Call("ground", "find out what ground it walks on", args, (out,))
        if done.exit_code == 0 and out.exists():
            return out, (done,)
        tries = (done,)
    if not much:
        return numbers, tries
    motors = drives_joints(task.robot) and clue.get("name") not in BODY_PHYSICS
    verb = "actuator" if motors else "residual"
    what = "find the law of its motors" if motors else "learn the force that no number explains"
    out = folder / f"{round_index}-{verb}.twin"
    done = yield Call(verb, what, (verb, str(numbers), *files, "-o", str(out), *options), (out,))
    kept = done.exit_code == 0 and out.exists()
    return (out if kept else numbers), (*tries, done)
