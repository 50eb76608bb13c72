"""How much of each parameter of its world can be read from what a policy knows.

example: isthmus probe runs/student --worlds 600 -o probe.png
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from isthmus.cli import show
from isthmus.cli.worlds import task_on, worlds_of
from isthmus.errors import BadInput
from isthmus.files import check_places

if TYPE_CHECKING:
    from isthmus.adapt.probing.probe import Report

MEANS = {
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
    from isthmus.adapt.comparison.contend import trained
    from isthmus.adapt.probing import probe
    from isthmus.cli.compare_ import emit
    from isthmus.learn import runs
    from isthmus.learn.checkpoint import newest

    if args.worlds < probe.FEWEST:
        raise BadInput(f"--worlds must be at least {probe.FEWEST}.")
    found = runs.load(args.run)
    belief = trained(found)
    if args.belief is not None:
        robot, belief = worlds_of(args.belief, found.task.robot)
        found = replace(found, task=task_on(found.task, robot))
    check_places(args.out)
    with show.bar(f"probing {found.plan.task}") as bar:
        report = probe.probe(found, args.worlds, args.seed, belief, bar.update)
    title = f"{found.plan.task}, {found.plan.method}: {report.held_out} worlds held out of {report.train + report.held_out}"
    if args.json:
        record = {
            "run": str(args.run),
            "task": found.plan.task,
            "method": found.plan.method,
            "run_hash": found.record["hash"],
            "checkpoint": newest(found.folder).name,
            "belief_hash": belief.hash,
            "seed": args.seed,
            "worlds": {"asked": args.worlds, "train": report.train, "held_out": report.held_out},
            "features": {what: p.to_dict() for what, p in report.probes.items()},
        }
        return emit(record, lambda: _write(report, title, args.out))
    try:
        files = _write(report, title, args.out)
    finally:
        _tell(report, title)
    for file in files:
        show.say(f"wrote {file}")
    return 0


def _tell(report: Report, title: str) -> None:
    from isthmus.cli.compared import packed

    show.say(title)
    for what in report.probes:
        show.say(f"{what:<9} {MEANS[what]}")
    show.out.print()
    rows = [[name, *(cell(p.best(name)) for p in report.probes.values())] for name in report.names]
    how = "R² by the better of a straight and a curved regression, 95 % interval"
    packed(how, "parameter", [[what] for what in report.probes], rows)


def _write(report: Report, title: str, out: Path | None) -> list[Path]:
    """The figure, where it is asked for."""
    if out is None:
        return []
    from isthmus.adapt.comparison.figures import save
    from isthmus.adapt.probing.figure import bars

    save(bars(report, MEANS, title), out)
    return [out]


def cell(read) -> str:
    return "cannot be read" if read.r2 <= 0 else f"{read.r2:.2f} ({read.low:.2f}, {read.high:.2f})"
