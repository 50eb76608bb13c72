"""Find the numbers of a robot from recordings of it, with intervals, and say what the recordings cannot tell.

example: isthmus identify go1 walk1.mcap walk2.mcap -o unit7.twin

example: isthmus identify pendulum swing.mcap --only strength joint_friction -o desk.twin

example: isthmus identify pendulum swing.mcap --posterior sample
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from isthmus.cli import render
from isthmus.cli.option_checks import check_not_negative
from isthmus.cli.recording_checks import check_recordings
from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable
from isthmus.robots.dynamics import resolve_dynamics, resolve_robot

if TYPE_CHECKING:
    from isthmus.real2sim.identify.identify import Identification
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief

INTERVAL_LEVEL = 0.9
MAX_RHAT, MIN_EFFECTIVE_DRAWS = 1.1, 200
"""Draws whose R-hat is larger, or which are worth fewer independent ones, are told to be taken with caution."""

TYPICAL_FIT_STEPS, PROGRESS_SHARES = 25, {"how sure": (0.55, 0.9), "judging": (0.9, 0.99)}
"""Steps that a fit takes as a rule, and the shares of the time that what follows it takes."""


@dataclass(frozen=True)
class Args:
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT")]
    """Robot, as in `isthmus list`, or a model or config file; or a twin, whose belief is then refined."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RECORDING …")]
    """Recordings of it (.mcap)."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for the twin, NAME.twin."""
    belief: Path | None = None
    """What is believed before: a belief file or a twin; by default the robot's prior."""
    actuator: Path | None = None
    """Motor law for the twin: a file of `isthmus actuator`."""
    expected: Path | None = None
    """Experiment of `isthmus excite` that was recorded (.mcap): what it promised is shown beside what came out."""
    only: tuple[str, ...] = ()
    """Parameters to fit; by default all that the belief leaves open."""
    fix: tuple[str, ...] = ()
    """Parameters to leave as they are."""
    trust: bool = False
    """Fit also what looks wrong, such as another unit or exchanged joints; it is said all the same."""
    horizon: float = 0.0
    """Seconds that the simulator predicts ahead; 0 chooses it by the noise. Of a robot on its feet, the length of a piece."""
    search: Literal["auto", "always", "never"] = "auto"
    """Look all over the belief for a better fit: where the first one leaves more than noise, always, or never."""
    posterior: Literal["gauss", "sample"] = "gauss"
    """The belief afterwards: normal, from the curvature at the optimum, or made of draws."""
    seed: int = 0
    """Of the search and of the draws: the same seed gives the same result."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.data.mcap.reader import read_episode
    from isthmus.real2sim.identify.fit import noise_by_signal, posterior_belief
    from isthmus.real2sim.identify.identify import identify
    from isthmus.real2sim.identify.motor_law_files import belief_with_delay, load_law_onto
    from isthmus.real2sim.residual.prior import free_parameters, noise_parameters
    from isthmus.robots.twin import Twin

    if not args.recordings:
        raise BadInput("give at least one recording.")
    if args.out is not None and args.out.suffix != ".twin":
        raise BadInput(f"-o takes a file NAME.twin, not {args.out}.")
    check_not_negative(args, "horizon")
    if args.seed < 0:
        raise BadInput("--seed must not be negative.")
    robot, old = resolve_robot(args.robot)
    belief, promised = _prior_belief(args, robot, old), _expected_intervals(args.expected)
    if args.actuator is not None:
        robot, delay = load_law_onto(args.actuator, robot)
        belief = belief_with_delay(robot, belief, delay)
    open_ = free_parameters(robot, belief)
    for name in (*args.only, *args.fix):
        robot.space.index(name)
    for name in args.only:
        if name in noise_parameters(robot.space):
            raise BadInput(f"{name} is not fitted: the noise of a signal comes from what the fit leaves.")
    names = tuple(n for n in (args.only or open_) if n not in args.fix)
    if not names:
        raise BadInput("no parameter is left to fit.")
    episodes = [read_episode(path) for path in args.recordings]
    findings = check_recordings(robot, episodes, args.recordings, args.json, args.trust)
    check_writable(args.out)
    began = time.perf_counter()
    with render.progress_bar(f"identifying {robot.name}") as bar:
        found = identify(
            robot,
            episodes,
            belief,
            names,
            args.horizon,
            report=lambda step, cost: bar.update(PROGRESS_SHARES["how sure"][0] * min(step / TYPICAL_FIT_STEPS, 1.0)),
            findings=findings,
            trust=args.trust,
            search=args.search,
            posterior=args.posterior,
            seed=args.seed,
            progress=lambda what, share: bar.update(_overall_fraction(what, share), what),
        )
    seconds = time.perf_counter() - began
    after = posterior_belief(robot, found.fit, belief)
    entry = {
        "recordings": [e.hash for e in episodes],
        "findings": [f.to_dict() for f in findings],
        "error": {"before": _error_record(found.errors_before), "after": _error_record(found.errors_after)},
        "left": noise_by_signal(robot, found.fit.noise),
        "before": belief.to_dict(),
        "belief": after.to_dict(),
    }
    twin = replace(old or Twin(args.robot, robot.model_hash, belief), unit=robot.unit).with_fit(after, entry)
    if args.out is not None:
        twin = twin.save(args.out)
    if args.json:
        render.emit({**_json_record(args, robot, found, belief, twin, seconds), **({"promised": promised} if promised else {})})
        return 0
    _print_result(robot, found, belief, seconds)
    _print_expected(found, promised)
    if args.out is not None:
        render.print_line(f"wrote {args.out}")
    return 0


def _overall_fraction(what: str, share: float) -> float:
    low, high = PROGRESS_SHARES.get(what, (0.0, 0.99))
    return low + (high - low) * min(share, 1.0)


def _prior_belief(args: Args, robot: Robot, old: Any) -> Belief:
    if args.belief is not None and old is not None:
        raise BadInput("a twin brings its own belief; --belief is for robots.")
    return resolve_dynamics(args.belief, robot)[1]


def _expected_intervals(path: Path | None) -> dict[str, list[float]]:
    """The intervals that an experiment was expected to give."""
    if path is None:
        return {}
    from isthmus.data.mcap.reader import read_episode

    found = read_episode(path).origin.get("expected")
    if not isinstance(found, dict):
        raise BadInput(f"{path} is not an experiment of `isthmus excite`: it does not say what to expect.")
    return {name: [float(x) for x in ends] for name, ends in found.items()}


def _print_expected(found: Identification, promised: dict[str, list[float]]) -> None:
    """Widths of intervals as the experiment promised them and as they came out."""
    rows = []
    for name in (n for n in promised if n in found.fit.space.names):
        wide = [high - low for low, high in (promised[name], found.fit.interval(name, INTERVAL_LEVEL))]
        rows.append([name, *(f"{w:.3g}" for w in wide), f"{wide[1] / max(wide[0], 1e-300):.2f}"])
    if rows:
        columns = ["width of the 90 % interval", "promised", "came out", "ratio"]
        render.out.print(render.table("", columns, rows, right=(1, 2, 3)))


def _error_record(pair: tuple) -> dict[str, float | None]:
    fitted, held = pair
    return {"fitted": _finite_or_none(fitted.overall), "held_out": _finite_or_none(held.overall) if held else None}


def _json_record(args: Args, robot: Robot, found: Identification, belief: Belief, twin: Any, seconds: float) -> dict[str, Any]:
    f = found.fit
    after = f.belief
    params = {}
    for name in f.space.names:
        low, high = after.interval(name, INTERVAL_LEVEL)
        was = belief.interval(name, INTERVAL_LEVEL)
        value = f.value(name)
        params[name] = {"value": value, "low": low, "high": high, "before": list(was), "unit": robot.space[name].unit}
    signals = [{"signal": c.signal, "label": c.label, "unit": c.unit} for c in found.errors_after[0].components]
    for i, row in enumerate(signals):
        row |= {
            "noise": _finite_or_none(found.noise_floor[i]),
            **{
                f"{when}_{part}": _finite_or_none(e.rms[i]) if e else None
                for when, pair in (("before", found.errors_before), ("after", found.errors_after))
                for part, e in zip(("fitted", "held_out"), pair, strict=True)
            },
        }
    return {
        "robot": robot.name,
        "recordings": [str(p) for p in args.recordings],
        "inputs": twin.history[-1]["recordings"],
        "twin": str(args.out) if args.out else None,
        "twin_hash": twin.hash,
        "level": INTERVAL_LEVEL,
        "parameters": params,
        "correlations": f.correlations().round(4).tolist(),
        "undetermined": [
            {"parts": dict(d.parts), "information": d.information, "text": d.text} for d in f.undetermined_directions()
        ],
        "at_bounds": list(f.at_bounds()),
        "signals": signals,
        "error": twin.history[-1]["error"],
        "findings": [f.to_dict() for f in found.findings],
        "horizon": found.horizon_seconds,
        "followed": found.uses_observer,
        "segments": {"fitted": len(found.train), "held_out": len(found.held_out) if found.held_out else 0},
        "steps": f.steps,
        "search": asdict(found.restart) if found.restart else None,
        "posterior": _posterior_record(found),
        "seconds": seconds,
    }


def _posterior_record(found: Identification) -> dict[str, Any]:
    draws = found.fit.samples
    if draws is None:
        return {"kind": "gauss"}
    told = {name: getattr(draws, name) for name in ("ess", "acceptance", "rhat", "sweeps")}
    return {"kind": "sample", "particles": len(draws.z), **told}


def _finite_or_none(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def _print_result(robot: Robot, found: Identification, belief: Belief, seconds: float) -> None:
    f = found.fit
    after = f.belief
    how = (
        f"{found.horizon_seconds:.2g} s, followed tick by tick"
        if found.uses_observer
        else f"{found.horizon_seconds:.2g} s ahead"
    )
    render.print_line(
        f"{robot.name}: {len(found.train)} segments fitted, {len(found.held_out) if found.held_out else 0} held out, "
        f"{how}, {seconds:.0f} s"
    )
    if not math.isfinite(found.errors_after[0].overall):
        render.print_line("Nothing moves in what was recorded, so it says nothing: what was believed stays.", "yellow")
    rows = []
    for name in f.space.names:
        p = robot.space[name]
        was, now = belief.interval(name, INTERVAL_LEVEL), after.interval(name, INTERVAL_LEVEL)
        told = 1.0 - (now[1] - now[0]) / max(was[1] - was[0], 1e-300)
        value = f.value(name)
        rows.append(
            (told, [name, p.unit, f"{value:.4g}", _format_interval(now), _format_interval(was), f"{100 * max(told, 0):.0f} %"])
        )
    rows = [row for _, row in sorted(rows, key=lambda r: -r[0])]
    columns = ["parameter", "unit", "found", "90 % interval", "before", "narrower"]
    render.out.print(render.table("", columns, rows, right=(2, 5)))
    _print_search_and_draws(found)
    for direction in f.undetermined_directions():
        render.print_line(direction.text)
    for name in f.at_bounds():
        render.print_line(f"{name} is at its hard bound.")
    signals: dict[str, list[int]] = {}
    for i, c in enumerate(found.errors_after[0].components):
        signals.setdefault(c.signal, []).append(i)
    cells = [[s, *(_mean_error(e, i) for e in (*found.errors_before, *found.errors_after))] for s, i in signals.items()]
    columns = ["error / noise", "before", "held out", "fitted", "held out"]
    render.out.print(render.table("", columns, cells, right=(1, 2, 3, 4)))


def _print_search_and_draws(found: Identification) -> None:
    """How a search went, and what the draws are worth."""
    looked, draws = found.restart, found.fit.samples
    if looked:
        came = "led to a better fit" if looked.kept else "led to none better"
        left = " and ".join(f"{x:.3g}" for x in looked.left)
        render.print_line(
            f"A search through {looked.worlds} worlds {came}: {left} times the noise are left without and with it."
        )
    if draws:
        render.print_line(
            f"{len(draws.z)} draws, worth {draws.ess:.0f} independent ones; "
            f"{100 * draws.acceptance:.0f} % of moves accepted, R-hat {draws.rhat:.2f}."
        )
        if draws.rhat > MAX_RHAT or draws.ess < MIN_EFFECTIVE_DRAWS:
            render.print_line("The draws have not settled: take the intervals with caution.", "yellow")


def _mean_error(e: Any, which: list[int]) -> str:
    import numpy as np

    if e is None or not np.isfinite(e.relative[which]).any():
        return "–"
    return f"{np.sqrt(np.nanmean(e.relative[which] ** 2)):.3g}"


def _format_interval(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.4g} to {ends[1]:.4g}"
