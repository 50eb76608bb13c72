"""How the worlds of a run are chosen: drawn from its belief, in ranges that widen by themselves, or where it failed before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from isthmus.adapt.adr import ADR, Reached
from isthmus.adapt.failures import REVISIT, Failures, gather, listed
from isthmus.errors import BadInput
from isthmus.learn import runs
from isthmus.learn.runs import Plan, Run
from isthmus.learn.trainer import Trainer
from isthmus.sim.robot import Robot
from isthmus.tasks.sampler import Sampler
from isthmus.tasks.task import Task
from isthmus.world import Belief

KNOWN = "failures.json"
"""File inside a run with the failures that it was given."""
REACHED = "adr.json"
"""File inside a run with the ranges that automatic randomization reached, as a belief."""


def asked(
    plan: Plan, adr: bool, revisit: float, failures: Sequence[Path], robot: Robot, believed: Callable[[Path], Belief]
) -> tuple[Plan, Belief | None]:
    """The plan with the worlds that options ask for, and the failures that are known at the start; `believed` reads a file."""
    revisit = revisit or (REVISIT if failures else 0.0)
    return replace(plan, adr=adr, revisit=revisit), gather(failures, robot, believed) if failures else None


def check(plan: Plan, belief: Belief) -> None:
    """Raise BadInput unless the worlds can be chosen as the plan says."""
    if not 0 <= plan.revisit < 1:
        raise BadInput("--revisit is a share of the episodes: at least 0 and below 1, so that no world is forgotten.")
    if plan.adr and plan.revisit:
        raise BadInput("--adr and --revisit, or --failures, both choose the worlds; give one of them.")
    if plan.adr and plan.context.estimated and not plan.start:
        raise BadInput("--adr goes with --method ppo or teacher; a student gets its teacher's adr.json as --belief.")
    if plan.adr and not len(belief.free()):
        raise BadInput("--adr has nothing to widen: the belief holds every parameter fixed.")


def create(folder: Path, plan: Plan, task: Task, belief: Belief, known: Belief | None) -> Run:
    """A new run, with the failures that it is to revisit beside it."""
    if known is not None:
        runs.check_free(folder)
        known.save(folder / KNOWN)
        plan = replace(plan, failures=known.hash)
    return runs.create(folder, plan, task, belief)


def sampler_of(run: Run) -> Sampler | None:
    """What chooses the worlds of a run; None for plain draws from its belief."""
    plan, n, success = run.plan, run.plan.settings.worlds, run.task.success
    if plan.adr:
        return ADR(run.belief, n, success)
    widest = run.belief.scaled(run.task.levels[-1].width)
    return Failures(widest, n, success, plan.revisit, _known(run)) if plan.revisit else None


def _known(run: Run) -> np.ndarray | None:
    """The failures that a run was given, (k, d)."""
    if not run.plan.failures:
        return None
    belief = Belief.load(run.folder / KNOWN)
    if belief.hash != run.plan.failures:
        raise BadInput(f"{run.folder / KNOWN} does not hold the failures that this run was started with.")
    return listed(belief)


def reached(trainer: Trainer) -> list[Reached]:
    """The ranges that automatic randomization reached, widest first; empty without it."""
    sampler = trainer.env.sampler
    return sampler.reached() if isinstance(sampler, ADR) else []


def keep(trainer: Trainer) -> None:
    """Write the ranges that automatic randomization reached beside the run."""
    if isinstance(trainer.env.sampler, ADR):
        trainer.env.sampler.as_belief().save(trainer.run.folder / REACHED)
