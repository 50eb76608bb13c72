"""Design the excitation that is most informative about the undetermined parameters, within the robot's limits.

example: isthmus excite unit7.twin --seconds 10 -o probe.mcap

example: isthmus excite pendulum --only joint_friction strength -o probe.controller

example: isthmus excite unit7.twin --policy runs/walk --only ground_friction payload
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from isthmus.cli import render

if TYPE_CHECKING:
    from isthmus.real2sim.identify.excite import ExcitationResult


@dataclass(frozen=True)
class Args:
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT")]
    """Twin whose undetermined parameters the experiment is for; or a robot, as in `isthmus list`, or a model or config file."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for the targets: NAME.controller to run on the robot, or NAME.mcap with the expected recording."""
    policy: Path | None = None
    """Run whose policy moves the robot: the experiment is then commands to it, not motor targets."""
    seconds: float = 10.0
    """Length of the experiment in s."""
    only: tuple[str, ...] = ()
    """Parameters to identify; by default all that are not fixed."""
    belief: Path | None = None
    """With a robot: its present belief; by default its prior."""
    horizon: float = 0.5
    """Prediction horizon of the fit to come, in s."""
    tries: int = 400
    """Experiments to simulate."""
    seed: int = 0
    """Seed of the search."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.real2sim.identify.excite import excite

    with render.progress_bar(f"experiments with {args.robot}") as bar:
        result = excite(
            args.robot,
            args.out,
            seconds=args.seconds,
            policy=args.policy,
            only=args.only,
            dynamics=args.belief,
            horizon=args.horizon,
            tries=args.tries,
            seed=args.seed,
            progress=bar.update,
        )
    if args.json:
        render.emit(result.to_dict())
    else:
        _print_result(result)
    return 0


def _print_result(result: ExcitationResult) -> None:
    rows = [
        [name, *(f"{low:.3g} to {high:.3g}" for low, high in (p.before, p.expected, p.expected_baseline))]
        for name, p in sorted(result.parameters.items())
    ]
    render.out.print(render.table("90 % intervals", ["parameter", "now", "expected", "baseline"], rows))
    render.print_line(
        f"information {result.information:.1f} nats; baseline of the same length {result.baseline_information:.1f} nats."
    )
    if result.commands:
        commands = " ".join(result.commands)
        render.print_line(f"give these commands to the policy: isthmus run POLICY.controller --command {commands}")
    if result.file is not None:
        render.print_line(f"wrote {result.file}")
