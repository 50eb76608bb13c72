"""How much of each parameter of its world can be read from what a policy knows.

example: isthmus probe runs/student --worlds 600 -o probe.png
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from isthmus.cli import render
from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable
from isthmus.robots.dynamics import resolve_dynamics

if TYPE_CHECKING:
    from isthmus.learn.evaluate.probe import ProbeResult

FEATURE_DESCRIPTIONS = {
    "ticks": "the last ticks that the policy observes",
    "memory": "all that it remembers of the past",
    "estimate": "what it makes of it: z",
}


@dataclass(frozen=True)
class Args:
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    worlds: int = 600
    """Worlds, at least 20, one episode in each; 70 % to learn to read, at most 1000, the rest to judge."""
    belief: Path | None = None
    """Worlds: a file with a belief, or a twin with all that it has; by default those that the run trained over."""
    seed: int = 1000
    """Seed of the worlds."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for a bar chart, NAME.png."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    if args.seed < 0:
        raise BadInput("--seed must not be negative.")
    if args.out is not None and args.out.suffix != ".png":
        raise BadInput(f"-o takes a file NAME.png, not {args.out}.")
    from isthmus.cli.compare_ import emit_with_files
    from isthmus.learn import runs
    from isthmus.learn.checkpoint import newest
    from isthmus.learn.evaluate import probe
    from isthmus.learn.evaluate.contenders import load_training_belief

    if args.worlds < probe.MIN_WORLDS:
        raise BadInput(f"--worlds must be at least {probe.MIN_WORLDS}.")
    found = runs.load(args.run)
    belief = load_training_belief(found)
    if args.belief is not None:
        robot, belief = resolve_dynamics(args.belief, found.task.robot)
        found = replace(found, task=found.task.on(robot))
    check_writable(args.out)
    with render.progress_bar(f"probing {found.config.task}") as bar:
        report = probe.probe(found, args.worlds, args.seed, belief, bar.update)
    title = (
        f"{found.config.task}, {found.config.method}: {report.held_out_worlds} worlds held out of "
        f"{report.train_worlds + report.held_out_worlds}"
    )
    if args.json:
        record = {
            "run": str(args.run),
            "task": found.config.task,
            "method": found.config.method,
            "run_hash": found.record["hash"],
            "checkpoint": newest(found.folder).name,
            "belief_hash": belief.hash,
            "seed": args.seed,
            "worlds": {"asked": args.worlds, "train": report.train_worlds, "held_out": report.held_out_worlds},
            "features": {what: p.to_dict() for what, p in report.probes.items()},
        }
        return emit_with_files(record, lambda: _write_figure(report, title, args.out))
    try:
        files = _write_figure(report, title, args.out)
    finally:
        _print_result(report, title)
    for file in files:
        render.print_line(f"wrote {file}")
    return 0


def _print_result(report: ProbeResult, title: str) -> None:
    from isthmus.cli.comparison_tables import print_fitted_tables

    render.print_line(title)
    for what in report.probes:
        render.print_line(f"{what:<9} {FEATURE_DESCRIPTIONS[what]}")
    render.out.print()
    rows = [[name, *(r2_text(p.best(name)) for p in report.probes.values())] for name in report.names]
    how = "R² by the better of a straight and a curved regression, 95 % interval"
    print_fitted_tables(how, "parameter", [[what] for what in report.probes], rows)


def _write_figure(report: ProbeResult, title: str, out: Path | None) -> list[Path]:
    """The figure, where it is asked for."""
    if out is None:
        return []
    from isthmus.studio.figures.comparison import save_figure
    from isthmus.studio.figures.probe import probe_figure

    save_figure(probe_figure(report, FEATURE_DESCRIPTIONS, title), out)
    return [out]


def r2_text(read) -> str:
    return "cannot be read" if read.r2 <= 0 else f"{read.r2:.2f} ({read.low:.2f}, {read.high:.2f})"
