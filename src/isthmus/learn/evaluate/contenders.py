"""The runs of a comparison: what they are called, which of them are seeds of one method, and whether they can be compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput
from isthmus.core.files import content_hash
from isthmus.learn import checkpoint, runs
from isthmus.learn.evaluate.world_sets import covered_fraction
from isthmus.learn.policies.actor import Actor
from isthmus.learn.policies.actor_spec import available_signals
from isthmus.learn.policies.base_controller import check_robot
from isthmus.learn.runs import Run, RunConfig
from isthmus.tasks.samplers.adr import ADR
from isthmus.tasks.task import Task, privileged_signals
from isthmus.world import Belief

REFERENCE_LABELS = {"teacher": "teacher", "initial_run": "from", "failures": "failures", "base.controller": "base"}
"""What stands for other runs and files among the facts of a run, and how it is called in a method's name."""
SEED_SUFFIX = re.compile(r"[-_ ][0-9]+$")
"""Of a seed, at the end of a folder's name."""
SAMPLER_PREFIX = "env.sampler."
"""Where a checkpoint keeps the state of what chooses the worlds."""


@dataclass(frozen=True)
class Contender:
    name: str
    """Short, and different from the others'."""
    method: str
    """Equal for runs that differ in their seed only, and in the seeds of the runs before them; or by their names."""
    run: Run
    actor: Actor
    training_belief: Belief
    """The worlds that it met in training; where they were widened on the way, the last ones."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": str(self.run.folder),
            "name": self.name,
            "method": self.method,
            "task": self.run.config.task,
            "seed": self.run.config.seed,
            "run_hash": self.run.record["hash"],
            "checkpoint": checkpoint.newest(self.run.folder).name,
            "belief_hash": self.training_belief.hash,
        }


def load_contenders(folders: tuple[Path, ...], task: Task, by_name: bool = False) -> list[Contender]:
    """Load runs; one that cannot do the task is a BadInput. Methods are told from what was asked, or from folders' names."""
    found = [runs.load(folder) for folder in folders]
    names = short_names(folders)
    methods = methods_from_names(names, found) if by_name else methods_from_configs(found)
    made = []
    for run, name, method in zip(found, names, methods, strict=True):
        check_robot(run, task, f"runs of one robot are compared; {run.folder}")
        try:
            actor = runs.load_actor(run)
        except BadInput as error:
            raise BadInput(f"{run.folder} cannot be loaded: {error}") from None
        check_signals(run, actor, task)
        made.append(Contender(name, method, run, actor, load_training_belief(run)))
    return made


def load_training_belief(run: Run) -> Belief:
    """The worlds of a run's training: its belief, or the ranges that it had widened when its newest policy was saved."""
    if not run.config.adr:
        return run.belief
    path = checkpoint.newest(run.folder)
    arrays, _ = checkpoint.read(path)
    adr = ADR(run.belief, run.config.settings.worlds, run.task.success_threshold)
    try:
        adr.restore({name.removeprefix(SAMPLER_PREFIX): a for name, a in arrays.items() if name.startswith(SAMPLER_PREFIX)})
    except KeyError as error:
        raise BadInput(f"{path} does not hold the ranges that the run had reached: {error} is missing.") from None
    return adr.as_belief()


def check_signals(run: Run, actor: Actor, task: Task) -> None:
    """Raise BadInput unless the task gives everything that the policy sees."""
    offered = available_signals(task.robot.contract, task)
    for signal in actor.spec.signals:
        if offered.get(signal.name) != signal:
            raise BadInput(f"{run.folder} observes {signal.name!r} of {run.config.task}, which {task.name} does not give.")
    if actor.spec.privileged and actor.spec.privileged != privileged_signals(task):
        raise BadInput(f"{run.folder} is told more or less than {task.name} can tell.")


def short_names(folders: tuple[Path, ...]) -> list[str]:
    """The last parts of each path, as many as it takes to tell them apart; the same path again gets a number."""
    paths = [folder.absolute().parts for folder in folders]
    names = []
    for i, own in enumerate(paths):
        others = [p for p in paths if p != own]
        parts = next(k for k in range(1, len(own) + 1) if k == len(own) or all(p[-k:] != own[-k:] for p in others))
        again = paths[:i].count(own)
        names.append("/".join(own[-parts:]) + (f" ({again + 1})" if again else ""))
    return names


def methods_from_names(names: Sequence[str], found: Sequence[Run]) -> list[str]:
    """The names of runs without the number of a seed; runs of different methods cannot have the same."""
    methods = [SEED_SUFFIX.sub("", name) or name for name in names]
    kinds = dict(zip(methods, (run.config.method for run in found), strict=True))
    for method, run in zip(methods, found, strict=True):
        if run.config.method != kinds[method]:
            raise BadInput(
                f"by its name {run.folder} is one of {method}, but its method is {run.config.method}, not {kinds[method]}."
            )
    return methods


def methods_from_configs(found: list[Run]) -> list[str]:
    """The method of each run; where runs of one method differ in more than their seed, with what is special about it."""
    facts, usual = [config_facts(run, found) for run in found], _flatten(asdict(RunConfig("")))
    names = []
    for run, own in zip(found, facts, strict=True):
        same = [f for f in facts if f["method"] == own["method"]]
        special = [k for k in own if k != "belief" and any(f.get(k) != own[k] for f in same) and usual.get(k, "") != own[k]]
        parts = [own["method"], *(_fact_text(key, own[key]) for key in special)]
        if any(f["belief"] != own["belief"] for f in same):
            parts.append(f"range {100 * covered_fraction(run.belief):.0f} %")
        names.append(", ".join(parts))
    told = {name: [own for n, own in zip(names, facts, strict=True) if n == name] for name in names}
    alike = [all(f == own for f in told[n]) for n, own in zip(names, facts, strict=True)]
    return [n if a else f"{n}, variant {content_hash(f)[:6]}" for n, a, f in zip(names, alike, facts, strict=True)]


def config_facts(run: Run, others: Sequence[Run] = ()) -> dict[str, Any]:
    """What was asked of a run, by dotted name, but for seeds; of the run before it, the hash of what was asked of that one.

    A run that has not noted what was asked of the one before it can find that one among `others`.
    """
    facts = _flatten(runs.experiment_key(run))
    known = {one.initial_hash: runs.experiment_hash(one) for one in others}
    return facts | {name: known.get(facts[name], facts[name]) for name in ("teacher", "initial_run")}


def _fact_text(key: str, value: Any) -> str:
    """A fact in a method's name."""
    return (
        f"{REFERENCE_LABELS[key]} {value[:6]}" if key in REFERENCE_LABELS else f"{key.rpartition('.')[2]} {_value_text(value)}"
    )


def _flatten(value: dict[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flatten(inner, f"{before}{key}.") if isinstance(inner, dict) else {f"{before}{key}": inner}
    return flat


def _value_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "×".join(_value_text(v) for v in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
