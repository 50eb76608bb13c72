"""Identify a robot's dynamics parameters from recordings of it, with intervals, and report what they do not determine.

example: isthmus identify go1 walk1.mcap walk2.mcap -o unit7.twin

example: isthmus identify pendulum swing.mcap --only strength joint_friction -o desk.twin

example: isthmus identify pendulum swing.mcap --posterior sample
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from isthmus.cli import render
from isthmus.cli.recording_checks import print_findings

if TYPE_CHECKING:
    from isthmus.real2sim.identify.identify import IdentifyResult

MAX_RHAT = 1.1
MIN_EFFECTIVE_DRAWS = 200
"""Posterior samples with a larger R-hat, or with fewer effective draws, get a warning."""


@dataclass(frozen=True)
class Args:
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT")]
    """Robot, as in `isthmus list`, or a model or config file; or a twin, whose belief is then refined."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RECORDING …")]
    """Recordings of it (.mcap)."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for the twin, NAME.twin."""
    belief: Path | None = None
    """Prior: a belief file or a twin; by default the robot's prior."""
    actuator: Path | None = None
    """Motor law for the twin: a file of `isthmus actuator`."""
    expected: Path | None = None
    """Experiment of `isthmus excite` that was recorded (.mcap): compare the intervals it was expected to give."""
    only: tuple[str, ...] = ()
    """Parameters to fit; by default all that the prior leaves free."""
    fix: tuple[str, ...] = ()
    """Parameters not to fit."""
    trust: bool = False
    """Do not refuse suspicious recordings (another unit, swapped joints …); still report them."""
    horizon: float = 0.0
    """Prediction horizon in s; 0 chooses it by the noise. For a robot on its feet, the length of a segment."""
    search: Literal["auto", "always", "never"] = "auto"
    """Global search for a better fit: if the first one leaves more than noise, always, or never."""
    posterior: Literal["gauss", "sample"] = "gauss"
    """Posterior: Gaussian, from the curvature at the optimum, or sampled."""
    seed: int = 0
    """Seed of the search and of the samples."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.real2sim.identify.identify import identify

    with render.progress_bar(f"identifying {args.robot}") as bar:
        result = identify(
            args.robot,
            args.recordings,
            args.out,
            dynamics=args.belief,
            actuator=args.actuator,
            only=args.only,
            fix=args.fix,
            horizon=args.horizon,
            search=args.search,
            posterior=args.posterior,
            trust=args.trust,
            expected=args.expected,
            seed=args.seed,
            progress=bar.update,
        )
    if args.json:
        render.emit(result.to_dict())
    else:
        _print_result(result)
    return 0


def _print_result(result: IdentifyResult) -> None:
    print_findings(result.findings)
    how = "followed by an observer" if result.uses_observer else "ahead"
    render.print_line(
        f"{result.robot}: {result.segments.fitted} segments fitted, {result.segments.held_out} held out, "
        f"{result.horizon:.2g} s {how}, {result.seconds:.0f} s"
    )
    if not math.isfinite(result.error.after.fitted):
        render.print_line("Nothing moves in the recordings: the belief stays as it was.", "yellow")
    rows = []
    for name, p in result.parameters.items():
        narrower = 1.0 - (p.high - p.low) / max(p.before[1] - p.before[0], 1e-300)
        cells = [name, p.unit, f"{p.value:.4g}", _format_interval((p.low, p.high)), _format_interval(p.before)]
        rows.append((narrower, [*cells, f"{100 * max(narrower, 0):.0f} %"]))
    rows = [row for _, row in sorted(rows, key=lambda r: -r[0])]
    columns = ["parameter", "unit", "estimate", "90 % interval", "before", "narrower"]
    render.out.print(render.table("", columns, rows, right=(2, 5)))
    _print_search_and_samples(result)
    for direction in result.undetermined:
        render.print_line(direction.text)
    for name in result.at_bounds:
        render.print_line(f"{name} is at its hard bound.")
    _print_signal_errors(result)
    _print_expected(result)
    if result.twin is not None:
        render.print_line(f"wrote {result.twin}")


def _print_search_and_samples(result: IdentifyResult) -> None:
    search, samples = result.search, result.posterior
    if search:
        outcome = "found a better fit" if search.kept else "found no better fit"
        before, after = (f"{x:.3g}" for x in search.unexplained_noise)
        render.print_line(
            f"A global search through {search.worlds} worlds {outcome}: residual {before} × noise without it, {after} with it."
        )
    if samples.kind == "sample":
        ess, acceptance, rhat = (x or math.nan for x in (samples.ess, samples.acceptance, samples.rhat))
        render.print_line(
            f"{samples.particles} posterior samples, {ess:.0f} effective; {100 * acceptance:.0f} % accepted, R-hat {rhat:.2f}."
        )
        if rhat > MAX_RHAT or ess < MIN_EFFECTIVE_DRAWS:
            render.print_line("The sampler has not converged: the intervals are not reliable.", "yellow")


def _print_signal_errors(result: IdentifyResult) -> None:
    """Prediction error in units of the noise by signal, root mean square over its components."""
    signals: dict[str, list[list[float]]] = {}
    for s in result.signals:
        errors = (s.before_fitted, s.before_held_out, s.after_fitted, s.after_held_out)
        signals.setdefault(s.signal, []).append([e / s.noise if s.noise else math.nan for e in errors])
    rows = [[name, *map(_root_mean_square, zip(*errors, strict=True))] for name, errors in signals.items()]
    columns = ["error / noise", "before", "held out", "fitted", "held out"]
    render.out.print(render.table("", columns, rows, right=(1, 2, 3, 4)))


def _root_mean_square(values: tuple[float, ...]) -> str:
    known = [x * x for x in values if math.isfinite(x)]
    return f"{math.sqrt(sum(known) / len(known)):.3g}" if known else "–"


def _print_expected(result: IdentifyResult) -> None:
    """Widths of intervals as the experiment was expected to give them and as they came out."""
    rows = []
    for name in (n for n in result.expected if n in result.parameters):
        p, (low, high) = result.parameters[name], result.expected[name]
        rows.append([name, f"{high - low:.3g}", f"{p.high - p.low:.3g}", f"{(p.high - p.low) / max(high - low, 1e-300):.2f}"])
    if rows:
        columns = ["width of the 90 % interval", "expected", "found", "ratio"]
        render.out.print(render.table("", columns, rows, right=(1, 2, 3)))


def _format_interval(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.4g} to {ends[1]:.4g}"
