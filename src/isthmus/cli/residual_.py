"""Learn physics that no parameter explains and add it to a twin: compliant ground under a robot on feet, then a force.

example: isthmus residual unit7.twin walk1.mcap walk2.mcap
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from isthmus.cli import render
from isthmus.cli.recording_checks import print_findings

if TYPE_CHECKING:
    from isthmus.real2sim.identify.learn_residual import ResidualResult
    from isthmus.real2sim.result_parts import ErrorPair

FORCES_SHOWN = 12
"""Largest components of the force that are printed."""


@dataclass(frozen=True)
class Args:
    twin: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TWIN")]
    """Twin whose parameters were identified with `isthmus identify`."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RECORDING …")]
    """Recordings of that unit (.mcap)."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for the twin with the learned physics; by default the twin itself."""
    only: Literal["ground", "force"] | None = None
    """One of the two; by default, for a robot on feet, first the ground, then a force for the rest."""
    joints: tuple[str, ...] = ()
    """Joints that the force acts on; by default all, the free body included."""
    horizon: float = 0.0
    """Prediction horizon in s; 0 chooses it by the noise."""
    seed: int = 0
    """Seed of the networks."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.real2sim.identify.learn_residual import learn_residual

    with render.progress_bar(f"residual physics of {args.twin.name}") as bar:
        result = learn_residual(
            args.twin,
            args.recordings,
            args.out,
            only=args.only,
            joints=args.joints,
            horizon=args.horizon,
            seed=args.seed,
            progress=bar.update,
        )
    if args.json:
        render.emit(result.to_dict())
    else:
        _print_result(result, args.only)
    return 0 if result.kept else 1


def _print_result(result: ResidualResult, only: str | None) -> None:
    print_findings(result.findings)
    render.print_line(
        f"{result.robot}: {result.segments.fitted} segments learned from, {result.segments.held_out} held out, "
        f"{result.horizon:.2g} s ahead"
    )
    if result.candidates:
        _print_errors("compliant ground", *result.candidates.values())
        _print_ground(result)
    if result.force_error is not None:
        _print_errors("with the force", result.force_error.before, result.force_error.after)
        if "force" not in result.learned:
            render.print_line("The force does not predict held-out segments better, so it was not kept.")
        else:
            largest = sorted(result.largest_force.items(), key=lambda x: -x[1])[:FORCES_SHOWN]
            rows = [[name, f"{size:.3g}"] for name, size in largest]
            render.out.print(render.table("", ["degree of freedom", "largest force"], rows, right=(1,)))
    elif only is None:
        render.print_line("Only noise is left: no force was learned.")
    if result.twin is not None:
        render.print_line(f"wrote {result.twin}")


def _print_errors(column: str, before: ErrorPair, after: ErrorPair) -> None:
    rows = [
        ["learned from", f"{before.fitted:.3g}", f"{after.fitted:.3g}"],
        ["held out", f"{before.held_out:.3g}", f"{after.held_out:.3g}"],
    ]
    render.out.print(render.table("", ["error / noise", "without", column], rows, right=(1, 2)))


def _print_ground(result: ResidualResult) -> None:
    g = result.ground
    if g is None:
        render.print_line("Compliant ground does not predict held-out segments better, so it was not kept.")
        return
    render.print_line(f"The ground is compliant: round feet sink in by {1e3 * g.sink:.2g} mm while it stands.")
    rows = [
        [name, unit, f"{value:.4g}", f"{low:.4g} to {high:.4g}"]
        for name, unit, value, (low, high) in (
            ("stiffness", "N/m", g.stiffness, g.stiffness_interval),
            ("damping", "N·s/m", g.damping, g.damping_interval),
        )
    ]
    render.out.print(render.table("", ["at a point of contact", "unit", "estimate", "90 %"], rows, right=(2, 3)))
    for name in g.at_bounds:
        render.print_line(f"{name} is at the end of its search range.")
