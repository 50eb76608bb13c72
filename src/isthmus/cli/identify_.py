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

from isthmus.cli import show
from isthmus.cli.checks import not_negative
from isthmus.cli.looked import looked_through
from isthmus.cli.worlds import robot_of, worlds_of
from isthmus.errors import BadInput
from isthmus.files import check_places

if TYPE_CHECKING:
    from isthmus.identify.study import Study
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief

LEVEL = 0.9
SETTLED, FEW = 1.1, 200
"""Draws whose R-hat is larger, or which are worth fewer independent ones, are told to be taken with caution."""

STEPS, PARTS = 25, {"how sure": (0.55, 0.9), "judging": (0.9, 0.99)}
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
    from isthmus.data.reader import read
    from isthmus.identify.fit import by_signal, free, noise_params, posterior
    from isthmus.identify.law import put_law, with_delay
    from isthmus.identify.study import study
    from isthmus.identify.twin import Twin

    if not args.recordings:
        raise BadInput("give at least one recording.")
    if args.out is not None and args.out.suffix != ".twin":
        raise BadInput(f"-o takes a file NAME.twin, not {args.out}.")
    not_negative(args, "horizon")
    if args.seed < 0:
        raise BadInput("--seed must not be negative.")
    robot, old = robot_of(args.robot)
    belief, promised = _belief(args, robot, old), _promised(args.expected)
    if args.actuator is not None:
        robot, delay = put_law(args.actuator, robot)
        belief = with_delay(robot, belief, delay)
    open_ = free(robot, belief)
    for name in (*args.only, *args.fix):
        robot.space.index(name)
    for name in args.only:
        if name in noise_params(robot.space):
            raise BadInput(f"{name} is not fitted: the noise of a signal comes from what the fit leaves.")
    names = tuple(n for n in (args.only or open_) if n not in args.fix)
    if not names:
        raise BadInput("no parameter is left to fit.")
    episodes = [read(path) for path in args.recordings]
    findings = looked_through(robot, episodes, args.recordings, args.json, args.trust)
    check_places(args.out)
    began = time.perf_counter()
    with show.bar(f"identifying {robot.name}") as bar:
        found = study(
            robot,
            episodes,
            belief,
            names,
            args.horizon,
            report=lambda step, cost: bar.update(PARTS["how sure"][0] * min(step / STEPS, 1.0)),
            findings=findings,
            trust=args.trust,
            search=args.search,
            posterior=args.posterior,
            seed=args.seed,
            progress=lambda what, share: bar.update(_share(what, share), what),
        )
    seconds = time.perf_counter() - began
    after = posterior(robot, found.fit, belief)
    entry = {
        "recordings": [e.hash for e in episodes],
        "findings": [f.to_dict() for f in findings],
        "error": {"before": _errors(found.before), "after": _errors(found.after)},
        "left": by_signal(robot, found.fit.noise),
        "before": belief.to_dict(),
        "belief": after.to_dict(),
    }
    twin = replace(old or Twin(args.robot, robot.model_hash, belief), unit=robot.unit).fitted(after, entry)
    if args.out is not None:
        twin = twin.save(args.out)
    if args.json:
        show.emit({**_record(args, robot, found, belief, twin, seconds), **({"promised": promised} if promised else {})})
        return 0
    _tell(robot, found, belief, seconds)
    _compare(found, promised)
    if args.out is not None:
        show.say(f"wrote {args.out}")
    return 0


def _share(what: str, share: float) -> float:
    low, high = PARTS.get(what, (0.0, 0.99))
    return low + (high - low) * min(share, 1.0)


def _belief(args: Args, robot: Robot, old: Any) -> Belief:
    if args.belief is not None and old is not None:
        raise BadInput("a twin brings its own belief; --belief is for robots.")
    return worlds_of(args.belief, robot)[1]


def _promised(path: Path | None) -> dict[str, list[float]]:
    """The intervals that an experiment was expected to give."""
    if path is None:
        return {}
    from isthmus.data.reader import read

    found = read(path).origin.get("expected")
    if not isinstance(found, dict):
        raise BadInput(f"{path} is not an experiment of `isthmus excite`: it does not say what to expect.")
    return {name: [float(x) for x in ends] for name, ends in found.items()}


def _compare(found: Study, promised: dict[str, list[float]]) -> None:
    """Widths of intervals as the experiment promised them and as they came out."""
    rows = []
    for name in (n for n in promised if n in found.fit.space.names):
        wide = [high - low for low, high in (promised[name], found.fit.interval(name, LEVEL))]
        rows.append([name, *(f"{w:.3g}" for w in wide), f"{wide[1] / max(wide[0], 1e-300):.2f}"])
    if rows:
        columns = ["width of the 90 % interval", "promised", "came out", "ratio"]
        show.out.print(show.table("", columns, rows, right=(1, 2, 3)))


def _errors(pair: tuple) -> dict[str, float | None]:
    fitted, held = pair
    return {"fitted": _number(fitted.overall), "held_out": _number(held.overall) if held else None}


def _record(args: Args, robot: Robot, found: Study, belief: Belief, twin: Any, seconds: float) -> dict[str, Any]:
    f = found.fit
    after = f.belief
    params = {}
    for name in f.space.names:
        low, high = after.interval(name, LEVEL)
        was = belief.interval(name, LEVEL)
        value = f.value(name)
        params[name] = {"value": value, "low": low, "high": high, "before": list(was), "unit": robot.space[name].unit}
    signals = [{"signal": c.signal, "label": c.label, "unit": c.unit} for c in found.after[0].components]
    for i, row in enumerate(signals):
        row |= {
            "noise": _number(found.floor[i]),
            **{
                f"{when}_{part}": _number(e.rms[i]) if e else None
                for when, pair in (("before", found.before), ("after", found.after))
                for part, e in zip(("fitted", "held_out"), pair, strict=True)
            },
        }
    return {
        "robot": robot.name,
        "recordings": [str(p) for p in args.recordings],
        "inputs": twin.history[-1]["recordings"],
        "twin": str(args.out) if args.out else None,
        "twin_hash": twin.hash,
        "level": LEVEL,
        "parameters": params,
        "correlations": f.correlations().round(4).tolist(),
        "undetermined": [{"parts": dict(d.parts), "information": d.information, "text": d.text} for d in f.undetermined()],
        "at_bounds": list(f.at_bounds()),
        "signals": signals,
        "error": twin.history[-1]["error"],
        "findings": [f.to_dict() for f in found.findings],
        "horizon": found.ahead,
        "followed": found.followed,
        "segments": {"fitted": len(found.train), "held_out": len(found.held_out) if found.held_out else 0},
        "steps": f.steps,
        "search": asdict(found.looked) if found.looked else None,
        "posterior": _posterior(found),
        "seconds": seconds,
    }


def _posterior(found: Study) -> dict[str, Any]:
    draws = found.fit.draws
    if draws is None:
        return {"kind": "gauss"}
    told = {name: getattr(draws, name) for name in ("ess", "acceptance", "rhat", "sweeps")}
    return {"kind": "sample", "particles": len(draws.z), **told}


def _number(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def _tell(robot: Robot, found: Study, belief: Belief, seconds: float) -> None:
    f = found.fit
    after = f.belief
    how = f"{found.ahead:.2g} s, followed tick by tick" if found.followed else f"{found.ahead:.2g} s ahead"
    show.say(
        f"{robot.name}: {len(found.train)} segments fitted, {len(found.held_out) if found.held_out else 0} held out, "
        f"{how}, {seconds:.0f} s"
    )
    if not math.isfinite(found.after[0].overall):
        show.say("Nothing moves in what was recorded, so it says nothing: what was believed stays.", "yellow")
    rows = []
    for name in f.space.names:
        p = robot.space[name]
        was, now = belief.interval(name, LEVEL), after.interval(name, LEVEL)
        told = 1.0 - (now[1] - now[0]) / max(was[1] - was[0], 1e-300)
        value = f.value(name)
        rows.append((told, [name, p.unit, f"{value:.4g}", _range(now), _range(was), f"{100 * max(told, 0):.0f} %"]))
    rows = [row for _, row in sorted(rows, key=lambda r: -r[0])]
    columns = ["parameter", "unit", "found", "90 % interval", "before", "narrower"]
    show.out.print(show.table("", columns, rows, right=(2, 5)))
    _tell_ways(found)
    for direction in f.undetermined():
        show.say(direction.text)
    for name in f.at_bounds():
        show.say(f"{name} is at its hard bound.")
    signals: dict[str, list[int]] = {}
    for i, c in enumerate(found.after[0].components):
        signals.setdefault(c.signal, []).append(i)
    cells = [[s, *(_mean(e, i) for e in (*found.before, *found.after))] for s, i in signals.items()]
    columns = ["error / noise", "before", "held out", "fitted", "held out"]
    show.out.print(show.table("", columns, cells, right=(1, 2, 3, 4)))


def _tell_ways(found: Study) -> None:
    """How a search went, and what the draws are worth."""
    looked, draws = found.looked, found.fit.draws
    if looked:
        came = "led to a better fit" if looked.kept else "led to none better"
        left = " and ".join(f"{x:.3g}" for x in looked.left)
        show.say(f"A search through {looked.worlds} worlds {came}: {left} times the noise are left without and with it.")
    if draws:
        show.say(
            f"{len(draws.z)} draws, worth {draws.ess:.0f} independent ones; "
            f"{100 * draws.acceptance:.0f} % of moves accepted, R-hat {draws.rhat:.2f}."
        )
        if draws.rhat > SETTLED or draws.ess < FEW:
            show.say("The draws have not settled: take the intervals with caution.", "yellow")


def _mean(e: Any, which: list[int]) -> str:
    import numpy as np

    if e is None or not np.isfinite(e.relative[which]).any():
        return "–"
    return f"{np.sqrt(np.nanmean(e.relative[which] ** 2)):.3g}"


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.4g} to {ends[1]:.4g}"
