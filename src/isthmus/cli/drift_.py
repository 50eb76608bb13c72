"""Has a unit changed since its twin was fitted: which parameter, since when, by how much, and what is needed.

example: isthmus drift unit7.twin monday.mcap tuesday.mcap wednesday.mcap

example: isthmus drift unit7.twin walk_*.mcap --baseline 5 --run runs/walk -o drift.png
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from isthmus.cli import render
from isthmus.cli.recording_checks import print_findings
from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable

if TYPE_CHECKING:
    from isthmus.real2sim.drift.drift import DriftResult


@dataclass(frozen=True)
class Args:
    twin: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TWIN")]
    """The unit as it was last fitted (.twin)."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RECORDING …")]
    """Recordings of it (.mcap), in the order of time."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for the result, NAME.json, or for a plot of it, NAME.png."""
    alarms: float = 1.0
    """False alarms per 1,000 recordings, at most."""
    baseline: int = 0
    """Number of leading recordings that are known to be without a change."""
    belief: Path | None = None
    """Distribution that the policy was trained on: a belief file or a twin."""
    run: Path | None = None
    """The same: the run that trained it."""
    only: tuple[str, ...] = ()
    """Parameters to monitor; by default all that the twin leaves free."""
    horizon: float = 0.0
    """Prediction horizon in s; 0 chooses it by the noise."""
    trust: bool = False
    """Do not refuse suspicious recordings; still report them."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.core.files import write_json
    from isthmus.real2sim.drift.drift import analyse_drift

    if args.out is not None and args.out.suffix not in (".json", ".png"):
        raise BadInput(f"-o takes a file NAME.json or NAME.png, not {args.out}.")
    if args.belief is not None and args.run is not None:
        raise BadInput("give --belief or --run, not both: each says what the policy was trained on.")
    check_writable(args.out)
    with render.progress_bar(f"monitoring {args.twin.name}") as bar:
        found = analyse_drift(
            args.twin,
            args.recordings,
            alarms_per_1000=args.alarms,
            baseline=args.baseline,
            trained_on=args.run or args.belief,
            only=args.only,
            horizon=args.horizon,
            trust=args.trust,
            progress=bar.update,
        )
    result = found.result
    if args.out is not None and args.out.suffix == ".json":
        write_json(args.out, result.to_dict())
    elif args.out is not None:
        from isthmus.cli.drift_plot import save_drift_plot

        save_drift_plot(args.out, found.analysis, result.recordings)
    if args.json:
        render.emit(result.to_dict())
    else:
        _print_result(result)
        if args.out is not None:
            render.print_line(f"wrote {args.out}")
    return 1 if result.changed else 0


def _print_result(result: DriftResult) -> None:
    print_findings(result.findings)
    n = len(result.recordings)
    unmonitored = [name for name, p in result.parameters.items() if not p.monitored]
    monitored = len(result.parameters) - len(unmonitored)
    render.print_line(
        f"{result.robot}: {n} recording{'s' * (n > 1)}, {monitored} of {len(result.parameters)} parameters monitored; "
        f"probability of a false alarm in these recordings: at most {100 * result.false_alarm_bound:.2g} %."
    )
    rows = [
        [
            *(" or ".join([c.name, *c.indistinguishable]), c.unit, f"{c.before:.4g}", f"{c.after:.4g}"),
            *(f"{c.low:.4g} to {c.high:.4g}", c.shape or "jump or drift", c.since.file, c.alarm.file),
            *(c.possible_cause or "–", c.needed),
        ]
        for c in result.changes
    ]
    if rows:
        columns = [
            "parameter",
            "unit",
            "before",
            "after",
            "90 %",
            "shape",
            "since",
            "certain after",
            "possible cause",
            "needed",
        ]
        render.out.print(render.table("", columns, rows, right=(2, 3)))
    if growth := result.unexplained_growth:
        render.print_line(
            f"the unmodelled physics has changed since {growth.since.file}: errors that no parameter explains have grown "
            f"{growth.factor:.2g}-fold; see `isthmus residual`."
        )
    for direction in result.undetermined:
        render.print_line(direction.text)
    if unmonitored:
        render.print_line(f"not monitored, because these recordings do not determine them: {', '.join(unmonitored)}.")
    if not monitored and not result.changed:
        render.print_line("cannot tell whether it has changed: the recordings determine no parameter; let the robot move.")
    else:
        render.print_line(f"needed: {result.needed}" if result.changed else "no change in what was monitored.")
