"""Measure how well a twin predicts recordings, per signal and horizon, in units of the sensor noise.

example: isthmus predict unit7.twin other.mcap
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from isthmus.cli import render
from isthmus.cli.recording_checks import print_findings

if TYPE_CHECKING:
    from isthmus.real2sim.identify.predict import PredictionResult


@dataclass(frozen=True)
class Args:
    twin: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TWIN")]
    """Twin of `isthmus identify` (.twin)."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RECORDING …")]
    """Recordings of that unit (.mcap), as a rule others than it was fitted to."""
    horizon: float = 0.0
    """Prediction horizon of the multi-step error in s; 0 chooses it by the noise."""
    trust: bool = False
    """Do not refuse suspicious recordings; still report them."""
    seed: int = 0
    """Seed of the bootstrap intervals."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.real2sim.identify.predict import predict

    with render.progress_bar(f"predicting with {args.twin.name}") as bar:
        result = predict(
            args.twin, args.recordings, horizon=args.horizon, trust=args.trust, seed=args.seed, progress=bar.update
        )
    if args.json:
        render.emit(result.to_dict())
    else:
        _print_result(result)
    return 0


def _print_result(result: PredictionResult) -> None:
    print_findings(result.findings)
    render.print_line(
        f"score {result.score.value:.3g} × noise (95 %: {result.score.low:.3g} to {result.score.high:.3g}); "
        "1 is as good as the sensors."
    )
    ahead = [f"{1e3 * h:.0f} ms" for h in result.horizons]
    rows = [[name, *(f"{x.value:.3g}" for x in row)] for name, row in result.by_signal.items()]
    render.out.print(render.table("", ["error / noise", *ahead], rows, right=tuple(range(1, len(ahead) + 1))))
    render.print_line(f"multi-step error over {result.horizon:.2g} s: {result.error:.3g} × noise, {result.seconds:.0f} s")
