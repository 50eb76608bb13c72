"""The calls of a loop, one after the other; what each found decides about the next ones.

    train on the prior -> export -> run and record -> diagnose
    -> repair -> train on the twin -> export -> validate -> run again -> measure

A repair is what the diagnosis recommends; causes that training cannot remove end the loop, for a person. The robot is known
by its link alone.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.learn.train import TrainResult
from isthmus.pipeline import decisions
from isthmus.pipeline.budgets import task_budget
from isthmus.pipeline.evidence import Attempt, LoopHistory, Repair, repeats_samples, run_seconds
from isthmus.pipeline.journal import Call, CallRecord
from isthmus.pipeline.outcome import clue_name, parameters_outside_prior
from isthmus.pipeline.settings import RECORDING, REPAIR, REPORT, RETRAIN, LoopSettings
from isthmus.real2sim.identify.excite import ExcitationResult
from isthmus.real2sim.identify.identify import IdentifyResult
from isthmus.sim.indexing import drives_joints
from isthmus.sim.physics.ground import contact_parameters
from isthmus.tasks.task import Task
from isthmus.validation import protocol
from isthmus.validation.stage import default_protocol

Calls = Generator[Call, CallRecord, Any]


def loop_stages(settings: LoopSettings, task: Task, folder: Path) -> Generator[Call, CallRecord, LoopHistory]:
    """All calls of a loop: the attempts and repairs, and then what only the report shows."""
    history = yield from attempts_and_repairs(settings, task, folder)
    history.sweeps = yield from success_by_parameter(settings, task, folder, history)
    return history


def attempts_and_repairs(settings: LoopSettings, task: Task, folder: Path) -> Generator[Call, CallRecord, LoopHistory]:
    """The policies one after the other, with the repairs between them."""
    history = LoopHistory()
    first = Attempt("prior", Path(settings.run) if settings.run else folder / "0-prior", folder / "0-prior.controller")
    if not settings.run:
        trained = yield _train(settings, first.run, "worlds of the prior", settings.training_length("first"))
        if trained.failure:
            history.stop_reason = f"training failed: {trained.failure}"
            return history
    exported = yield _export(first)
    if exported.failure:
        history.stop_reason = exported.failure
        return history
    history.attempts.append((yield from _run_on_robot(settings, task, folder, first, 0, None)))
    for k in range(1, settings.rounds + 1):
        last = history.attempts[-1]
        history.stop_reason = decisions.reason_not_repairable(last)
        if history.stop_reason:
            break
        repair = yield from _repair(settings, task, folder, history, k)
        history.repairs.append(repair)
        if repair.action in ("none", "by hand"):
            break
        attempt = yield from _retrain_and_run(settings, task, folder, last, repair, k)
        if isinstance(attempt, str):
            history.stop_reason = attempt
            break
        history.attempts.append(attempt)
        improved = decisions.has_improved([a.evidence for a in history.attempts])
        if decisions.is_finished(attempt.evidence) or (k > 1 and not improved):
            break
    if not history.stop_reason and history.repairs and history.repairs[-1].action == "none":
        last = history.attempts[-1]
        if last.validation is None:
            history.attempts[-1] = yield from _validate(settings, task, last, None)
    return history


def success_by_parameter(
    settings: LoopSettings, task: Task, folder: Path, history: LoopHistory
) -> Generator[Call, CallRecord, tuple[CallRecord, ...]]:
    """The first and the last policy in worlds of a wider prior: success against each parameter, for the report."""
    if len(history.attempts) < 2:
        return ()
    wide, done = folder / "wide.json", []
    if not wide.exists():
        task.robot.prior.scaled(REPORT.sweep_prior_scale).save(wide)
    for attempt, name in ((history.attempts[0], "before"), (history.attempts[-1], "after")):
        out = folder / f"worlds-{name}.parquet"
        arguments = {
            "policy": attempt.run,
            "dynamics": wide,
            "worlds": REPORT.sweep_worlds,
            "seed": settings.seed + 2,
            "episodes": out,
        }
        worlds = f"{REPORT.sweep_worlds} worlds, {REPORT.sweep_prior_scale:g} times as wide as the prior"
        purpose = f"for the report: evaluate the policy {name} in {worlds}"
        done.append((yield Call("sweep", purpose, "evaluate", arguments, (out,))))
    return tuple(done)


def _train(settings: LoopSettings, out: Path, worlds: str, length: dict[str, float], **options: Any) -> Call:
    arguments = {"task": settings.task, "out": out, **options, **length, "seed": settings.seed}
    return Call("train", f"train {settings.task} in {worlds}", "train", arguments, (out,))


def _export(attempt: Attempt) -> Call:
    arguments = {"run": attempt.run, "out": attempt.controller}
    return Call("export", "export it as a controller that checks itself", "export", arguments, (attempt.controller,))


# On the robot -----------------------------------------------------------------------------------------------------


def _run_on_robot(
    settings: LoopSettings, task: Task, folder: Path, attempt: Attempt, round_index: int, twin: Path | None
) -> Generator[Call, CallRecord, Attempt]:
    """The policy run on the robot, recorded, and compared with the simulator; in the last round without a diagnosis."""
    records: list[CallRecord] = []
    again = True
    while again:
        take = len(records)
        out = folder / f"{round_index}-{attempt.name}{f'-{take + 1}' if take else ''}.mcap"
        arguments = {
            "controller": attempt.controller,
            "link": settings.link,
            "record": out,
            "seconds": settings.seconds,
            "command": recording_commands(task, settings.seconds, settings.seed + take),
        }
        records.append((yield Call("record", "run it on the robot and record", "run", arguments, (out,))))
        repeats = take > 0 and out.exists() and repeats_samples(out, records[-2].call.outputs[0])
        again = decisions.records_again(take + 1, run_seconds(records), settings.seconds, out.exists(), repeats)
    attempt = replace(attempt, runs=tuple(records))
    if not attempt.recordings:
        return attempt
    arguments = {"controller": attempt.controller, "recordings": attempt.recordings, "dynamics": twin}
    arguments["out"] = folder / f"{round_index}-{attempt.name}.gap.html"
    last = round_index == settings.rounds
    purpose = "measure the gap to the simulator" if last else "measure the gap to the simulator and diagnose its cause"
    verb = "measure" if last else "diagnose"
    return replace(attempt, measured=(yield Call("diagnose", purpose, verb, arguments, (arguments["out"],))))


def recording_commands(task: Task, seconds: float, seed: int) -> tuple[str, ...]:
    """Operator commands of a recording: another random one of the trained range every few seconds."""
    if task.command is None:
        return ()
    signal, rng, out = task.command.signal, np.random.default_rng(seed), []
    low, high = np.array(signal.low), np.array(signal.high)
    for i in range(max(1, round(seconds / RECORDING.command_hold))):
        values = low + (high - low) * rng.uniform(0.1, 0.9, len(low))
        start = f"{i * RECORDING.command_hold:g}:" if i else ""
        out += [f"{start}{label}={v:.2g}" for label, v in zip(signal.labels, values, strict=True)]
    return tuple(out)


def _validate(settings: LoopSettings, task: Task, attempt: Attempt, twin: Path | None) -> Generator[Call, CallRecord, Attempt]:
    chosen = protocol.load_protocol(default_protocol(task.robot)).stages[: REPAIR.protocol_stages]
    arguments: dict[str, Any] = {"controller": attempt.controller, "stages": tuple(stage.name for stage in chosen)}
    arguments |= ({"on": str(twin)} if twin else {}) | {"seed": settings.seed}
    return replace(attempt, validation=(yield Call("validate", "validate it in simulation", "validate", arguments)))


# Repairs ----------------------------------------------------------------------------------------------------------


def _repair(
    settings: LoopSettings, task: Task, folder: Path, history: LoopHistory, round_index: int
) -> Generator[Call, CallRecord, Repair]:
    """The repair that the diagnosis asks for, with the dynamics to retrain on."""
    last, known = history.attempts[-1], history.last_twin
    action = decisions.choose_repair(decisions.situation_of(history, round_index))
    if action in ("none", "by hand"):
        return Repair(last.cause, action)
    if action in ("longer", "wider", "adapt"):
        return Repair(last.cause, action, known)
    files = tuple(p for a in history.attempts for p in a.recordings)
    experiment: CallRecord | None = None
    if action == "experiment":
        experiment = yield from _record_experiment(settings, task, folder, history, round_index)
        files += tuple(p for p in (experiment.call.outputs if experiment else ()) if p.exists())
    out = folder / f"{round_index}-numbers.twin"
    # No global search: missing physics would mislead it, and the gap was measured from the middle of the prior.
    arguments = {"robot": task.robot.name, "recordings": files, "out": out, "search": "never"}
    arguments |= task_budget(settings.task).fit_options | {"seed": settings.seed}
    identified = yield Call("identify", "identify its parameters", "identify", arguments, (out,))
    if identified.failure:
        return Repair(last.cause, "wider", known, identified, experiment)
    twin, learned = yield from _learn_unexplained(task, folder, last, identified, out, files, round_index)
    return Repair(last.cause, "experiment" if experiment else "identify", twin, identified, experiment, learned)


def _record_experiment(
    settings: LoopSettings, task: Task, folder: Path, history: LoopHistory, round_index: int
) -> Generator[Call, CallRecord, CallRecord | None]:
    """A recording of the most informative excitation; None where none is safe."""
    last, out = history.attempts[-1], folder / f"{round_index}-probe.mcap"
    length = {"seconds": RECORDING.experiment_seconds}
    arguments: dict[str, Any] = {"robot": str(history.last_twin or task.robot.name), **length}
    purpose = "design the most informative experiment"
    if task.robot.morphology.base:
        chosen = yield Call("excite", purpose, "excite", arguments | {"policy": last.run})
        found = chosen.result_as(ExcitationResult)
        if found is None or not found.commands:
            return None
        arguments = {"controller": last.controller, "command": found.commands}
    else:
        player = folder / f"{round_index}-probe.controller"
        chosen = yield Call("excite", purpose, "excite", arguments | {"out": player}, (player,))
        if chosen.failure:
            return None
        arguments = {"controller": player}
    arguments |= {"link": settings.link, "record": out, **length}
    done = yield Call("experiment", "run the experiment on the robot", "run", arguments, (out,))
    return done if out.exists() else None


def _learn_unexplained(
    task: Task, folder: Path, last: Attempt, identified: CallRecord, twin: Path, files: tuple[Path, ...], round_index: int
) -> Generator[Call, CallRecord, tuple[Path, tuple[CallRecord, ...]]]:
    """The twin with the physics that parameters do not explain, if there is some, and the calls that looked for it."""
    found = identified.result_as(IdentifyResult)
    assert found is not None
    clue = clue_name(last.diagnosis)
    unexplained = decisions.is_unexplained(last.cause, (found.error.after.held_out, found.error.after.fitted))
    outside = any(m.name in contact_parameters(task.robot) for m in parameters_outside_prior(found))
    options, tried = task_budget(task.name).fit_options, ()
    if decisions.learns_ground(task.robot.morphology.legged, outside, unexplained, clue):
        out = folder / f"{round_index}-ground.twin"
        arguments = {"twin": twin, "recordings": files, "only": "ground", "out": out, **options}
        done = yield Call("ground", "fit the ground contact model", "learn_residual", arguments, (out,))
        if done.status == "done" and out.exists():
            return out, (done,)
        tried = (done,)
    if not unexplained:
        return twin, tried
    if decisions.learns_actuator(drives_joints(task.robot), clue):
        out = folder / f"{round_index}-actuator.twin"
        arguments = {"robot": str(twin), "files": files, "out": out, **options}
        done = yield Call("actuator", "fit an actuator model", "fit_actuator", arguments, (out,))
    else:
        out = folder / f"{round_index}-residual.twin"
        arguments = {"twin": twin, "recordings": files, "out": out, **options}
        done = yield Call("force", "learn the residual dynamics", "learn_residual", arguments, (out,))
    kept = done.status == "done" and out.exists()
    return (out if kept else twin), (*tried, done)


# Retraining -------------------------------------------------------------------------------------------------------


def _retrain_and_run(
    settings: LoopSettings, task: Task, folder: Path, last: Attempt, repair: Repair, round_index: int
) -> Generator[Call, CallRecord, Attempt | str]:
    """A policy for the twin, tried on the robot; or why there is none."""
    trained = yield from _retrain(settings, folder, last, repair, round_index)
    found = trained.result_as(TrainResult)
    if found is None:
        return f"training failed: {trained.failure}"
    if reason := decisions.reason_not_to_deploy(found.evaluation.success):
        return reason
    attempt = Attempt("twin", trained.call.outputs[0], folder / f"{round_index}-twin.controller")
    exported = yield _export(attempt)
    if exported.failure:
        return exported.failure
    attempt = yield from _validate(settings, task, attempt, repair.twin)
    return (yield from _run_on_robot(settings, task, folder, attempt, round_index, repair.twin))


def _retrain(
    settings: LoopSettings, folder: Path, last: Attempt, repair: Repair, round_index: int
) -> Generator[Call, CallRecord, CallRecord]:
    """The policy before is fine-tuned on the twin; if it gets stuck, another starts from scratch; both may continue.

    Of all of them the one with the highest success over the twin's worlds is taken.
    """
    worlds = "the twin" if repair.twin else "worlds of the prior"
    worlds += {"wider": ", wider", "longer": ", for longer", "adapt": ", with RMA"}.get(repair.action, "")
    options: dict[str, Any] = {"dynamics": repair.twin} if repair.twin else {}
    options |= {"width": RETRAIN.wider_prior_scale} if repair.action == "wider" else {}

    def training(start: Path | None, out: Path, how: str) -> Call:
        begin = {"start": start, "max_kl": 0.0} if start else {"method": "rma"} if repair.action == "adapt" else {}
        length = settings.training_length("continued" if start else "from scratch")
        return _train(settings, out, worlds + how, length, **begin, **options)

    from_scratch, out = repair.action == "adapt", folder / f"{round_index}-twin"
    done = [(yield training(None if from_scratch else last.run, out, ""))]
    rates = [_success_rate(done[-1])]
    for n in range(2, settings.max_trainings + 1):
        if done[-1].failure:
            break
        following = decisions.next_training(rates, from_scratch)
        if following in ("good", "stop"):
            break
        if following == "restart":
            from_scratch, rates = True, []
        start, out = None if following == "restart" else out, folder / f"{round_index}-twin-{n}"
        done.append((yield training(start, out, ", from scratch" if following == "restart" else ", further")))
        rates.append(_success_rate(done[-1]))
    return max(reversed(done), key=_success_rate)


def _success_rate(record: CallRecord) -> float:
    """Success over the worlds that a policy was trained in; -1 if it could not be trained."""
    found = record.result_as(TrainResult)
    return -1.0 if found is None else found.evaluation.success.rate
