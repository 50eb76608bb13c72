"""Fit the motor law: the simplest that predicts held-out data as well as any, with a network only if that helps.

example: isthmus actuator go1 bench.parquet --motors '.*_calf' -o calf.actuator

example: isthmus actuator unit7.twin walk1.mcap walk2.mcap -o unit7.twin
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from isthmus.cli import render
from isthmus.cli.recording_checks import print_findings

if TYPE_CHECKING:
    from isthmus.real2sim.identify.fit_actuator import ActuatorResult


@dataclass(frozen=True)
class Args:
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT")]
    """Robot, as in `isthmus list`, or a model or config file; or a twin."""
    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE …")]
    """Tables (.csv, .parquet) with measured torques, or recordings (.mcap) without."""
    motors: str = ".*"
    """Motors that share the law, as a regular expression of their labels."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for the law, NAME.actuator, or for a twin that has it, NAME.twin."""
    torque_constant: float = 0.0
    """N·m per ampere, for tables that have current.LABEL in place of torque.LABEL."""
    horizon: float = 0.0
    """Without torques: prediction horizon in s; 0 chooses it by the noise."""
    laws: tuple[str, ...] = ()
    """Without torques: laws to try on top of the robot's; by default all."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.real2sim.identify.fit_actuator import fit_actuator

    with render.progress_bar(f"motors of {args.robot}") as bar:
        result = fit_actuator(
            args.robot,
            args.files,
            args.out,
            motors=args.motors,
            laws=args.laws,
            torque_constant=args.torque_constant,
            horizon=args.horizon,
            progress=bar.update,
        )
    if args.json:
        render.emit(result.to_dict())
    else:
        _print_result(result)
    return 0


def _print_result(result: ActuatorResult) -> None:
    from isthmus.real2sim.identify.motor_identification import NETWORK
    from isthmus.real2sim.identify.motor_laws import LAW_PARAMETER_PREFIX, MOTOR_LAW_TERMS

    print_findings(result.findings)
    doc = {term.name: term.doc for term in MOTOR_LAW_TERMS} | {NETWORK: "and a network on top"}
    unit = "N·m" if result.unit == "N·m" else "error / noise"
    rows = [
        [c.law + " ←" * (c.law == result.law), doc.get(c.law, ""), f"{c.fitted:.4g}", f"{c.held_out:.4g}"]
        for c in result.candidates
    ]
    title = f"{len(result.motors)} motors of {result.robot}"
    render.out.print(render.table(title, ["law", "", f"fitted, {unit}", "held out"], rows, right=(2, 3)))
    chosen = next(c for c in result.candidates if c.law == result.law)
    rows = [[name.removeprefix(LAW_PARAMETER_PREFIX), f"{value:.4g}"] for name, value in chosen.values.items()]
    render.out.print(render.table("", ["parameter", "estimate"], rows, right=(1,)))
    if not any(c.law == NETWORK for c in result.candidates):
        render.print_line("Only noise is left: no other law was tried.")
    elif result.network is None:
        render.print_line("A network does not predict held-out data better: none is needed.")
    if result.file is not None:
        render.print_line(f"wrote {result.file}")
