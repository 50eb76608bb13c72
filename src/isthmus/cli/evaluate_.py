"""Measure a policy over many worlds: success with its interval, and each reward term.

example: isthmus evaluate runs/a --worlds 500 --set ground_friction=0.3 payload=1.5
example: isthmus evaluate runs/a --failures hard.json

example: isthmus evaluate runs/a --worlds 10000 --episodes a.parquet
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from isthmus.cli import render
from isthmus.cli.option_assignments import parse_assignments


@dataclass(frozen=True)
class Args:
    policy: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    worlds: int = 500
    """Worlds, one episode in each."""
    dynamics: Annotated[Path | None, tyro.conf.arg(aliases=["--belief", "--twin"])] = None
    """Worlds: a belief, or a twin with its motors and learned forces; by default the belief that the run was given."""
    nominal: bool = False
    """Hold every parameter at its nominal value."""
    set: tuple[str, ...] = ()
    """Hold parameters at values, as NAME=VALUE."""
    reality: str = ""
    """Virtual robot that every world is, with missing physics, wiring faults and sensor errors: a file, or hidden:SEED."""
    seed: int = 1000
    """Seed of the worlds."""
    failures: Path | None = None
    """File for the worlds that did not succeed, as a belief; `isthmus train --failures` takes it."""
    episodes: Path | None = None
    """File for one row per world, NAME.parquet: e, success, score and metrics; `isthmus data add` takes it."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.learn.evaluate.evaluate import evaluate

    with render.progress_bar(f"evaluating {args.policy}") as bar:
        result = evaluate(
            args.policy,
            worlds=args.worlds,
            seed=args.seed,
            dynamics=args.dynamics,
            reality=args.reality,
            nominal=args.nominal,
            set=parse_assignments("set", args.set),
            failures=args.failures,
            episodes=args.episodes,
            progress=bar.update,
        )
    if args.failures and result.failures is None:
        render.err.print(f"every world succeeded: {args.failures} was not written.")
    elif result.failures:
        render.err.print(f"{args.failures} lists the {result.failures.worlds} worlds that did not succeed.")
    if args.json:
        render.emit(result.to_dict())
        return 0
    where = f" of {args.reality}" if args.reality else ""
    render.out.print(f"{result.task}, {args.worlds} worlds{where}, {result.seconds_per_episode:.3g} s per episode")
    render.out.print(f"success  {result.success}")
    render.out.print(f"failed   {result.falls}")
    render.out.print(f"score    {result.score:.3f}\n")
    rows = [[name, f"{m.value:.3f}", f"± {m.high - m.value:.3f}"] for name, m in result.metrics.items()]
    render.out.print(render.table("", ["metric", "mean", "95 %"], rows, right=(1,)))
    rows = [[name, f"{value:+.4f}"] for name, value in sorted(result.rewards.items(), key=lambda x: -abs(x[1]))]
    render.out.print(render.table("", ["reward term", "per second"], rows, right=(1,)))
    if result.episodes:
        render.print_line(f"wrote {result.episodes.file}")
    return 0
