"""How much of each parameter of its world can be read from what a policy knows.

example: isthmus probe runs/student --worlds 600 -o probe.png
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from isthmus.cli import render
from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable

if TYPE_CHECKING:
    from isthmus.core.statistics import Estimate
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
    dynamics: Annotated[Path | None, tyro.conf.arg(aliases=["--belief"])] = None
    """Worlds: a file with a belief, or a twin with all that it has; by default those that the run trained over."""
    seed: int = 1000
    """Seed of the worlds."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for a bar chart, NAME.png."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    if args.out is not None and args.out.suffix != ".png":
        raise BadInput(f"-o takes a file NAME.png, not {args.out}.")
    check_writable(args.out)
    from isthmus.cli.compare_ import emit_with_files
    from isthmus.learn.evaluate.probe import probe

    with render.progress_bar(f"probing {args.run}") as bar:
        result = probe(args.run, worlds=args.worlds, dynamics=args.dynamics, seed=args.seed, progress=bar.update)
    total = result.train_worlds + result.held_out_worlds
    title = f"{result.task}, {result.method}: {result.held_out_worlds} worlds held out of {total}"
    if args.json:
        return emit_with_files(result, lambda: _write_figure(result, title, args.out))
    try:
        files = _write_figure(result, title, args.out)
    finally:
        _print_result(result, title)
    for file in files:
        render.print_line(f"wrote {file}")
    return 0


def _print_result(result: ProbeResult, title: str) -> None:
    from isthmus.cli.comparison_tables import print_fitted_tables

    render.print_line(title)
    for what in result.features:
        render.print_line(f"{what:<9} {FEATURE_DESCRIPTIONS[what]}")
    render.out.print()
    rows = [[name, *(r2_text(probes[name].best) for probes in result.features.values())] for name in result.names]
    how = "R² by the better of a straight and a curved regression, 95 % interval"
    print_fitted_tables(how, "parameter", [[what] for what in result.features], rows)


def _write_figure(result: ProbeResult, title: str, out: Path | None) -> list[Path]:
    """The figure, where it is asked for."""
    if out is None:
        return []
    from isthmus.studio.figures.comparison import save_figure
    from isthmus.studio.figures.probe import probe_figure

    save_figure(probe_figure(result, FEATURE_DESCRIPTIONS, title), out)
    return [out]


def r2_text(r2: Estimate) -> str:
    return "cannot be read" if r2.value <= 0 else f"{r2.value:.2f} ({r2.low:.2f}, {r2.high:.2f})"
