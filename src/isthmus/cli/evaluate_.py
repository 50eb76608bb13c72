"""Measure a policy over many worlds: success with its interval, and each reward term.

example: isthmus evaluate runs/a --worlds 500 --set ground_friction=0.3 payload=1.5
example: isthmus evaluate runs/a --failures hard.json

example: isthmus evaluate runs/a --worlds 10000 --episodes a.parquet
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from isthmus.cli import render
from isthmus.cli.evaluation_episodes import check_episode_list_path, write_episodes
from isthmus.cli.options import parse_assignments
from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable
from isthmus.robots.dynamics import resolve_dynamics

if TYPE_CHECKING:
    from isthmus.world import Belief


@dataclass(frozen=True)
class Args:
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    worlds: int = 500
    """Worlds, one episode in each."""
    belief: Path | None = None
    """File with the distribution of worlds; by default the one that the run was given."""
    twin: Path | None = None
    """Twin to evaluate on: its numbers, its motors and its learned forces."""
    nominal: bool = False
    """Hold every parameter at its nominal value."""
    set: tuple[str, ...] = ()
    """Hold parameters at values, as NAME=VALUE."""
    reality: str = ""
    """Reality of which every world is one, with missing physics, wiring faults and sensor errors: a file, or hidden:SEED."""
    seed: int = 1000
    """Seed of the worlds."""
    failures: Path | None = None
    """File for the worlds that did not succeed, as a belief; `isthmus train --failures` takes it."""
    episodes: Path | None = None
    """File for one row per world, NAME.parquet: e, success, score and metrics; `isthmus data add` takes it."""
    json: bool = False
    """Print one JSON object instead of text."""


def with_fixed(belief: Belief, nominal: bool, assignments: tuple[str, ...]) -> Belief:
    """The belief that options ask for, starting from one."""
    if nominal:
        belief = belief.nominal()
    return belief.fix(parse_assignments("set", assignments))


def run(args: Args) -> int:
    if args.worlds < 1:
        raise BadInput("--worlds must be at least 1.")
    if args.seed < 0:
        raise BadInput("--seed must not be negative.")
    if args.reality and (args.belief or args.twin or args.nominal or args.set):
        raise BadInput("--reality says everything about the worlds; --belief, --twin, --nominal and --set do not go with it.")
    if args.belief and args.twin:
        raise BadInput("a twin brings its own belief; --belief does not go with --twin.")
    if args.reality and args.failures:
        raise BadInput("--failures lists worlds of a belief; it does not go with --reality, which is one robot.")
    check_episode_list_path(args.episodes)
    check_writable(args.failures, args.episodes)
    from isthmus.learn import runs
    from isthmus.learn.checkpoint import newest
    from isthmus.learn.evaluate.evaluate import evaluate
    from isthmus.sim.reality.hidden import parse_reality

    found = runs.load(args.run)
    actor = runs.load_actor(found)
    unit, belief = resolve_dynamics(args.twin or args.belief, found.task.robot, found.belief)
    task, belief = found.task.on(unit), with_fixed(belief, args.nominal, args.set)
    if args.failures and not len(belief.free()):
        raise BadInput("--failures lists worlds that failed, but every parameter is fixed here: there is only one world.")
    reality = parse_reality(args.reality, found.task.robot) if args.reality else None
    with render.progress_bar(f"evaluating {found.config.task}") as bar:
        result = evaluate(task, actor, args.worlds, args.seed, belief, reality=reality, report=bar.update)
    files = _write_failing_worlds(args.failures, result, found.task, belief)
    if args.episodes:
        of = {"belief": belief.hash} if reality is None else {"reality": reality.hash}
        files["episodes"] = write_episodes(args.episodes, found, task, result.episodes, args.seed, [], **of)
    if args.json:
        worlds = {"belief_hash": belief.hash} if reality is None else {"reality_hash": reality.hash}
        hashes = {"run_hash": found.record["hash"], **worlds, "checkpoint": newest(found.folder).name}
        render.emit({"run": str(args.run), "task": found.config.task, **hashes, **result.to_dict(), **files})
        return 0
    where = f" of {args.reality}" if args.reality else ""
    render.out.print(f"{found.config.task}, {args.worlds} worlds{where}, one episode of {found.task.episode:g} s in each")
    render.out.print(f"success  {result.success}")
    render.out.print(f"failed   {result.falls}")
    render.out.print(f"score    {result.score:.3f}\n")
    rows = [[name, f"{mean:.3f}", f"± {1.96 * error:.3f}"] for name, (mean, error) in result.metrics.items()]
    render.out.print(render.table("", ["metric", "mean", "95 %"], rows, right=(1,)))
    rows = [[name, f"{value:+.4f}"] for name, value in sorted(result.rewards.items(), key=lambda x: -abs(x[1]))]
    render.out.print(render.table("", ["reward term", "per second"], rows, right=(1,)))
    if args.episodes:
        render.print_line(f"wrote {args.episodes}")
    return 0


def _write_failing_worlds(path: Path | None, result, task, belief) -> dict:
    """Write the worlds that did not succeed, and say so."""
    if path is None:
        return {}
    from isthmus.tasks.samplers.failures import failing_worlds

    worlds = failing_worlds(result.episodes, task.success_threshold, belief)
    if worlds is None:
        render.err.print(f"every world succeeded: {path} was not written.")
        return {"failures": None}
    worlds.save(path)
    count = result.success.n - round(result.success.n * result.success.rate)
    render.err.print(f"{path} lists the {count} worlds that did not succeed.")
    return {"failures": {"file": str(path), "hash": worlds.hash, "worlds": count}}
