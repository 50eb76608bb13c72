"""How well a policy does over many worlds: one episode in each, success rate with an exact interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable
from isthmus.core.progress import Progress, silent
from isthmus.core.results import Result
from isthmus.core.statistics import Estimate, Rate
from isthmus.data.store.episode_lists import write_episode_list
from isthmus.learn import checkpoint, runs
from isthmus.learn.evaluate.rollout import EpisodeTable, run_episodes
from isthmus.learn.policies.actor import Actor
from isthmus.learn.runs import Run
from isthmus.robots.dynamics import resolve_dynamics
from isthmus.sim.reality import Reality
from isthmus.sim.reality.hidden import parse_reality
from isthmus.tasks.samplers.failures import failing_worlds
from isthmus.tasks.samplers.sampler import succeeded
from isthmus.tasks.task import Task
from isthmus.world import Belief

if TYPE_CHECKING:
    from isthmus.robots.dynamics import DynamicsSource

METRIC_UNITS = {
    "velocity_error": "m/s",
    "distance": "m",
    "angle_error": "rad",
    "tilt": "rad",
    "power": "W",
    "effort": "of hovering",
}
"""Units of the metrics that are shown with one."""
Z_95 = 1.96
"""Half-width of a 95 % interval, in standard errors."""


@dataclass(frozen=True)
class WorldFile:
    """A file with one row or particle per world."""

    file: str
    hash: str
    worlds: int


@dataclass(frozen=True)
class Evaluation(Result, kind="evaluation"):
    """A policy over `success.n` worlds, one episode in each."""

    task: str
    success: Rate
    falls: Rate
    """Episodes that a termination ended."""
    score: float
    """Mean score, 0 to 1."""
    metrics: Mapping[str, Estimate]
    """Mean of each metric over episodes."""
    rewards: Mapping[str, float]
    """Mean reward of each term, 1/s."""
    seconds_per_episode: float
    inputs: Mapping[str, str]
    """Hashes: of the run, and of the belief or reality that the worlds are of."""
    run: str = ""
    """Folder of the run."""
    checkpoint: str = ""
    failures: WorldFile | None = None
    """The worlds that did not succeed, as a belief, where a file was asked for and there are any."""
    episodes: WorldFile | None = None
    """The list of all episodes, where a file was asked for."""


def evaluate(
    policy: Run | Path | str,
    *,
    worlds: int = 500,
    seed: int = 1000,
    dynamics: DynamicsSource | None = None,
    reality: Reality | Path | str | None = None,
    nominal: bool = False,
    set: Mapping[str, float] | None = None,
    failures: Path | None = None,
    episodes: Path | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Run one episode of a run's newest policy in each of `worlds` worlds.

    dynamics   worlds: a belief or a twin, loaded or as a file; by default the belief that the run was given
    reality    the virtual robot that every world is: a Reality, its file, or hidden:SEED; excludes the three below
    nominal    hold every parameter at its nominal value;  set: hold some at values
    failures   file for the worlds that did not succeed, as a belief;  episodes: NAME.parquet, one row per world
    """
    if worlds < 1:
        raise BadInput("worlds must be at least 1.")
    if seed < 0:
        raise BadInput("seed must not be negative.")
    if reality and (dynamics or nominal or set):
        raise BadInput("a reality says everything about the worlds; dynamics, nominal and set do not go with it.")
    if reality and failures:
        raise BadInput("failures lists worlds of a belief; it does not go with a reality, which is one robot.")
    check_episode_list_path(episodes)
    check_writable(failures, episodes)
    run = runs.as_run(policy)
    actor = runs.load_actor(run)
    robot, belief = resolve_dynamics(dynamics, run.task.robot, run.belief)
    task, belief = run.task.on(robot), with_fixed(belief, nominal, set or {})
    if failures and not len(belief.free()):
        raise BadInput("failures lists worlds that failed, but every parameter is fixed here: there is only one world.")
    found = reality if isinstance(reality, Reality) or not reality else parse_reality(str(reality), run.task.robot)
    rows = run_episodes(task, actor, worlds, seed, belief, reality=found or None, progress=progress)
    source = {"reality": found.hash} if found else {"belief": belief.hash}
    return replace(
        summarize_episodes(task, rows),
        inputs={"run": run.record["hash"], **source},
        run=str(run.folder),
        checkpoint=checkpoint.newest(run.folder).name,
        failures=write_failing_worlds(failures, rows, run.task, belief) if failures else None,
        episodes=write_episodes(episodes, run, task, rows, seed, [], **source) if episodes else None,
    )


def evaluate_actor(
    task: Task, actor: Actor, worlds: int, seed: int = 0, belief: Belief | None = None, progress: Progress = silent
) -> Evaluation:
    """The same for a policy in memory, in worlds of a belief, by default the robot's prior."""
    return summarize_episodes(task, run_episodes(task, actor, worlds, seed, belief, progress=progress))


def summarize_episodes(task: Task, rows: EpisodeTable) -> Evaluation:
    """Rates and means over a table of episodes."""
    n, good = len(rows["score"]), succeeded(rows, task.success_threshold)
    tick = float(task.robot.model.opt.timestep) * task.robot.substeps
    return Evaluation(
        task=task.name,
        success=Rate.from_counts(int(good.sum()), n),
        falls=Rate.from_counts(int(rows["failed"].sum()), n),
        score=float(rows["score"].mean()),
        metrics={name: _mean(rows[name], METRIC_UNITS.get(name, "1")) for name in task.metrics},
        rewards={t.name: float(rows[f"reward/{t.name}"].mean()) / tick for t in task.rewards},
        seconds_per_episode=float(rows["length"].mean()),
        inputs={},
    )


def _mean(x: np.ndarray, unit: str) -> Estimate:
    """Mean of (n,) with its 95 % interval."""
    mean = float(x.mean())
    half = Z_95 * float(x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")
    return Estimate(mean, mean - half, mean + half, unit)


def with_fixed(belief: Belief, nominal: bool, values: Mapping[str, float]) -> Belief:
    """The belief with some parameters held at values, and all others at nominal if asked."""
    return (belief.nominal() if nominal else belief).fix(dict(values))


def write_failing_worlds(path: Path, rows: EpisodeTable, task: Task, belief: Belief) -> WorldFile | None:
    """Write the worlds that did not succeed as a belief; None, and no file, where all succeeded."""
    worlds = failing_worlds(rows, task.success_threshold, belief)
    if worlds is None:
        return None
    worlds.save(path)
    return WorldFile(str(path), worlds.hash, int((~succeeded(rows, task.success_threshold)).sum()))


def check_episode_list_path(path: Path | None) -> None:
    """Raise BadInput unless a list of episodes can have this name, before hours of work."""
    if path is not None and path.suffix != ".parquet":
        raise BadInput(f"a list of episodes is a file NAME.parquet, not {path}.")


def write_episodes(
    path: Path, run: Run, task: Task, rows: EpisodeTable, seed: int, tags: list[str], **hashes: str | None
) -> WorldFile:
    """One row per world for the store: e, success, score, length and metrics; `hashes` of the worlds' belief or reality."""
    robot = task.robot
    common = {"source": "sim", "robot": robot.name, "task": task.name, "run": run.record["hash"], "model": robot.model_hash}
    common |= {"seed": seed, "tags": tags, **{name: h for name, h in hashes.items() if h}}
    columns = {
        "world": np.arange(len(rows["score"])),
        "success": succeeded(rows, task.success_threshold),
        "failed": rows["failed"],
        "score": rows["score"],
        "seconds": rows["length"],
        "ticks": np.rint(rows["length"] * robot.contract.rate),
    }
    metrics = {f"metrics.{name}": rows[name] for name in ("return", *task.metrics)}
    e = {f"e.{name}": rows["e"][:, i] for i, name in enumerate(robot.space.names)}
    return WorldFile(str(path), write_episode_list(path, common, columns | metrics | e), len(rows["score"]))
