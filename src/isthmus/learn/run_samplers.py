"""How the worlds of a run are chosen: drawn from its belief, in ranges that widen by themselves, or where it failed before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.learn import runs
from isthmus.learn.algorithms.algorithm import Trainer
from isthmus.learn.runs import Run, RunConfig
from isthmus.sim.robot import Robot
from isthmus.tasks.samplers.adr import ADR, ParameterRangeReached
from isthmus.tasks.samplers.failures import DEFAULT_REVISIT_FRACTION, FailureSampler, collect_failures, particle_values
from isthmus.tasks.samplers.sampler import Sampler
from isthmus.tasks.task import Task
from isthmus.world import Belief

FAILURES_FILE = "failures.json"
"""File inside a run with the failures that it was given."""
ADR_FILE = "adr.json"
"""File inside a run with the ranges that automatic randomization reached, as a belief."""


def with_sampler_options(
    config: RunConfig, adr: bool, revisit: float, failures: Sequence[Path], robot: Robot, read_belief: Callable[[Path], Belief]
) -> tuple[RunConfig, Belief | None]:
    """The plan with the worlds that options ask for, and the failures that are known at the start; `believed` reads a file."""
    revisit = revisit or (DEFAULT_REVISIT_FRACTION if failures else 0.0)
    return replace(config, adr=adr, revisit_fraction=revisit), collect_failures(
        failures, robot, read_belief
    ) if failures else None


def check_sampler_config(config: RunConfig, belief: Belief) -> None:
    """Raise BadInput unless the worlds can be chosen as the plan says."""
    if not 0 <= config.revisit_fraction < 1:
        raise BadInput("--revisit is a share of the episodes: at least 0 and below 1, so that no world is forgotten.")
    if config.adr and config.revisit_fraction:
        raise BadInput("--adr and --revisit, or --failures, both choose the worlds; give one of them.")
    if config.adr and config.context.estimated and not config.initial_run:
        raise BadInput("--adr goes with --method ppo or teacher; a student gets its teacher's adr.json as --belief.")
    if config.adr and not len(belief.free()):
        raise BadInput("--adr has nothing to widen: the belief holds every parameter fixed.")


def create_run(folder: Path, config: RunConfig, task: Task, belief: Belief, known_failures: Belief | None) -> Run:
    """A new run, with the failures that it is to revisit beside it."""
    if known_failures is not None:
        runs.check_new_folder(folder)
        known_failures.save(folder / FAILURES_FILE)
        config = replace(config, failures=known_failures.hash)
    return runs.create(folder, config, task, belief)


def make_sampler(run: Run) -> Sampler | None:
    """What chooses the worlds of a run; None for plain draws from its belief."""
    plan, n, success = run.config, run.config.settings.worlds, run.task.success_threshold
    if plan.adr:
        return ADR(run.belief, n, success)
    widest = run.belief.scaled(run.task.levels[-1].width)
    return FailureSampler(widest, n, success, plan.revisit_fraction, _known_failures(run)) if plan.revisit_fraction else None


def _known_failures(run: Run) -> np.ndarray | None:
    """The failures that a run was given, (k, d)."""
    if not run.config.failures:
        return None
    belief = Belief.load(run.folder / FAILURES_FILE)
    if belief.hash != run.config.failures:
        raise BadInput(f"{run.folder / FAILURES_FILE} does not hold the failures that this run was started with.")
    return particle_values(belief)


def reached_ranges(trainer: Trainer) -> list[ParameterRangeReached]:
    """The ranges that automatic randomization reached, widest first; empty without it."""
    sampler = trainer.env.sampler
    return sampler.reached_ranges() if isinstance(sampler, ADR) else []


def save_reached_ranges(trainer: Trainer) -> None:
    """Write the ranges that automatic randomization reached beside the run."""
    if isinstance(trainer.env.sampler, ADR):
        trainer.env.sampler.as_belief().save(trainer.run.folder / ADR_FILE)
