"""Has a unit changed since its twin was fitted: which number, since when, by how much, and what must be done about it.

example: isthmus drift unit7.twin monday.mcap tuesday.mcap wednesday.mcap

example: isthmus drift unit7.twin walk_*.mcap --baseline 5 --run runs/walk -o drift.png
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from isthmus.cli import render
from isthmus.cli.options import check_not_negative
from isthmus.cli.recording_checks import check_recordings
from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable
from isthmus.core.plain import to_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isthmus.data.episode import Episode
    from isthmus.real2sim.drift.drift import DriftReport, ParameterChange
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief

TWIN_INTERVAL_LEVEL, TRAINING_INTERVAL_LEVEL = 0.9, 0.99
"""Of the twin's interval, and of the interval of the worlds that a policy was trained in."""


@dataclass(frozen=True)
class Args:
    twin: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="TWIN")]
    """The unit as it was last fitted (.twin)."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RECORDING …")]
    """Recordings of it (.mcap), in the order of time."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for the result, NAME.json, or for a picture of it, NAME.png."""
    alarms: float = 1.0
    """False alarms per 1,000 recordings, at most."""
    baseline: int = 0
    """So many of the first recordings are known to be without a change."""
    belief: Path | None = None
    """Worlds that the policy was trained in: a belief file or a twin."""
    run: Path | None = None
    """The same: the run that trained it."""
    only: tuple[str, ...] = ()
    """Parameters to watch; by default all that the twin leaves open."""
    horizon: float = 0.0
    """Seconds that the simulator predicts ahead; 0 chooses it by the noise."""
    trust: bool = False
    """Take also recordings that look wrong; it is said all the same."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.core.files import write_json
    from isthmus.data.mcap.reader import read_episode
    from isthmus.real2sim.drift.drift import drift
    from isthmus.real2sim.drift.score_statistics import drift_inputs
    from isthmus.real2sim.prepare.prepare import prepare
    from isthmus.robots import get_robot
    from isthmus.robots.twin import Twin, is_twin

    _check_options(args)
    if not is_twin(args.twin):
        raise BadInput(f"{args.twin} is not a twin (.twin); make one with `isthmus identify ROBOT RECORDINGS -o NAME.twin`.")
    twin = Twin.load(args.twin)
    usual = get_robot(twin.robot)
    robot = twin.apply_to(usual, str(args.twin))
    for name in args.only:
        robot.space.index(name)
    trained = _training_belief(args, robot)
    files = [str(p) for p in args.recordings]
    episodes = [read_episode(path) for path in args.recordings]
    _check_recordings(episodes, files, robot)
    findings = check_recordings(robot, episodes, args.recordings, args.json, args.trust, "take")
    check_writable(args.out)
    fitted = set(twin.history[-1].get("recordings", ())) if twin.history else set()
    own = [i for i, e in enumerate(episodes) if e.hash in fitted]
    with render.progress_bar(f"watching {robot.name}") as bar:
        unit = drift_inputs(
            prepare(robot, episodes, files, findings),
            twin.belief,
            usual.prior,
            args.only,
            args.horizon,
            unexplained_noise=twin.unexplained_noise,
        )
        found = drift(unit, args.alarms, args.baseline, own, report=lambda share: bar.update(min(share, 0.99)))
    record = _json_record(args, twin, found, trained, episodes, files)
    if args.out is not None and args.out.suffix == ".json":
        write_json(args.out, to_plain(record))
    elif args.out is not None:
        from isthmus.cli.drift_plot import save_drift_plot

        save_drift_plot(args.out, found, files)
    if args.json:
        render.emit(record)
    else:
        _print_result(record, found, files)
        if args.out is not None:
            render.print_line(f"wrote {args.out}")
    return 1 if record["changed"] else 0


def _check_options(args: Args) -> None:
    if not args.recordings:
        raise BadInput("give at least one recording.")
    if args.out is not None and args.out.suffix not in (".json", ".png"):
        raise BadInput(f"-o takes a file NAME.json or NAME.png, not {args.out}.")
    if not 0 < args.alarms <= 1000:
        raise BadInput("--alarms takes false alarms per 1,000 recordings, more than 0 and at most 1000.")
    if not 0 <= args.baseline < len(args.recordings):
        raise BadInput(f"--baseline takes 0 to {len(args.recordings) - 1} of the {len(args.recordings)} recordings.")
    check_not_negative(args, "horizon")
    if args.belief is not None and args.run is not None:
        raise BadInput("give --belief or --run, not both: each says what the policy was trained in.")


def _check_recordings(episodes: Sequence[Episode], files: Sequence[str], robot: Robot) -> None:
    """Of this robot, with something in them, each once and one after the other."""
    from isthmus.real2sim.prepare.tracks import check_contract

    seen: dict[str, str] = {}
    last: tuple[float, str] | None = None
    for episode, name in zip(episodes, files, strict=True):
        try:
            check_contract(episode, robot.contract)
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from None
        if len(episode) < 2:
            raise BadInput(f"{name} is empty: it has {len(episode)} ticks.")
        if episode.hash in seen:
            raise BadInput(f"{name} is the same recording as {seen[episode.hash]}.")
        seen[episode.hash] = name
        started = episode.origin.get("started")
        if isinstance(started, int | float) and not isinstance(started, bool):
            if last is not None and started < last[0]:
                raise BadInput(f"{name} was recorded before {last[1]}; give recordings in the order of time.")
            last = (float(started), name)


def _training_belief(args: Args, robot: Robot) -> Belief | None:
    from isthmus.robots.dynamics import resolve_dynamics
    from isthmus.world import belief_on_space

    if args.run is not None:
        from isthmus.learn import runs

        return belief_on_space(runs.load(args.run).belief, robot.space, str(args.run))
    return resolve_dynamics(args.belief, robot)[1] if args.belief is not None else None


# What is said --------------------------------------------------------------------------------------------------

POSSIBLE_CAUSES = (
    (("coulomb", "viscous", "damping", "frictionloss"), "wear of the joint", "a joint that has run in or warmed up"),
    (("strength", "kp", "torque_limit"), "a fresh battery or cooler motors", "an empty battery, hot motors or a worn one"),
    (("payload", "mass"), "a load put on", "a load taken off"),
    (("friction",), "rougher ground or new soles", "worn soles or smoother ground"),
    (("bias",), "a sensor that has moved", "a sensor that has moved"),
    (("action_delay", "sensor_delay", "lag"), "a slower link or motor", "a faster link or motor"),
)
"""Fields that a parameter acts on, and what may be behind its going up and down."""


def _possible_cause(robot: Robot, name: str, up: bool) -> str:
    from isthmus.world import Target

    fields = {Target.parse(t).field for t in robot.space[name].targets}
    return next((rise if up else fall for known, rise, fall in POSSIBLE_CAUSES if fields & set(known)), "")


def _change_record(
    found: DriftReport, change: ParameterChange, twin: Any, trained: Belief | None, files: Sequence[str]
) -> dict[str, Any]:
    space, robot = found.inputs.twin_prior.space.subset([change.name]), found.inputs.robot
    mean = found.inputs.twin_prior.mean[found.inputs.twin_prior.space.index(change.name)]
    value = lambda off: float(space.from_unconstrained(mean[None] + off)[0])  # noqa: E731
    after, ends = value(change.size.final_value), [value(x) for x in change.size.interval(TWIN_INTERVAL_LEVEL)]
    inside = lambda belief, level: _is_within(belief.interval(change.name, level), after)  # noqa: E731
    if trained is not None and not inside(trained, TRAINING_INTERVAL_LEVEL):
        needed = "retraining"
    else:
        needed = "none" if inside(twin.belief, TWIN_INTERVAL_LEVEL) else "re-identification"
    return {
        "name": change.name,
        "unit": robot.space[change.name].unit,
        "before": value(0.0),
        "after": after,
        "low": ends[0],
        "high": ends[1],
        "alike": list(change.indistinguishable),
        "cause": _possible_cause(robot, change.name, change.size.final_value > 0),
        "needed": needed,
        **_timing_record(change, files),
    }


def _is_within(ends: tuple[float, float], x: float) -> bool:
    return ends[0] <= x <= ends[1]


def _timing_record(change: ParameterChange, files: Sequence[str]) -> dict[str, Any]:
    at, low, high = change.change_start
    return {
        "shape": change.shape,
        "since": {"recording": at, "low": low, "high": high, "file": files[at]},
        "alarm": {"recording": change.alarm_recording, "file": files[change.alarm_recording]},
    }


def _json_record(
    args: Args, twin: Any, found: DriftReport, trained: Belief | None, episodes: Sequence[Episode], files: Sequence[str]
) -> dict[str, Any]:
    import numpy as np

    changes = [_change_record(found, c, twin, trained, files) for c in found.changes]
    beyond = found.unexplained_change and {
        "times": float(np.exp(0.5 * found.unexplained_change.size.final_value)),
        **_timing_record(found.unexplained_change, files),
    }
    order = ("none", "re-identification", "retraining")
    needed = max([c["needed"] for c in changes] + (["re-identification"] if beyond else ["none"]), key=order.index)
    parameters = {}
    for name in found.inputs.twin_prior.space.names:
        test = found.evidence.get(name)
        parameters[name] = {
            "watched": test is not None,
            "evidence": np.exp(np.minimum(test.log_evidence, 600.0)) if test else None,
        }
    return {
        "robot": found.inputs.robot.name,
        "twin": str(args.twin),
        "twin_hash": twin.hash,
        "recordings": list(files),
        "inputs": [e.hash for e in episodes],
        "trained_in": trained.hash if trained is not None else None,
        "false_alarms_per_1000": args.alarms,
        "false_alarm_at_most": min(1.0, args.alarms * (len(files) - args.baseline) / 1000.0),
        "evidence_needed": found.alarm_threshold,
        "baseline": args.baseline,
        "twin_interval_too_narrow_by": found.interval_inflation,
        "changed": bool(changes or beyond),
        "needed": needed,
        "changes": changes,
        "beyond": beyond,
        "error_over_noise": found.unexplained_error,
        "parameters": parameters,
        "undetermined": [{"parts": dict(d.parts), "text": d.text} for d in found.undetermined_directions],
        "horizon": found.inputs.horizon_seconds,
    }


def _print_result(record: dict[str, Any], found: DriftReport, files: Sequence[str]) -> None:
    n = len(files)
    watched = len(found.evidence)
    render.print_line(
        f"{record['robot']}: {n} recording{'s' * (n > 1)}, {watched} of {len(record['parameters'])} parameters watched; a "
        f"false alarm in these recordings has a probability of at most {100 * record['false_alarm_at_most']:.2g} %."
    )
    rows = []
    for c in record["changes"]:
        name = " or ".join([c["name"], *c["alike"]])
        rows.append(
            [
                *(name, c["unit"], f"{c['before']:.4g}", f"{c['after']:.4g}", f"{c['low']:.4g} to {c['high']:.4g}"),
                *(c["shape"] or "jump or drift", c["since"]["file"], c["alarm"]["file"], c["cause"] or "–", c["needed"]),
            ]
        )
    if rows:
        columns = ["parameter", "unit", "was", "is", "90 %", "how", "since", "certain after", "perhaps", "needed"]
        render.out.print(render.table("", columns, rows, right=(2, 3)))
    if record["beyond"]:
        b = record["beyond"]
        render.print_line(
            f"physics has changed beyond the numbers since {b['since']['file']}: errors that no parameter explains have grown "
            f"{b['times']:.2g}-fold; see `isthmus residual`."
        )
    for direction in found.undetermined_directions:
        render.print_line(direction.text)
    unwatched = [name for name, p in record["parameters"].items() if not p["watched"]]
    if unwatched:
        render.print_line(f"not watched, for these recordings do not tell: {', '.join(unwatched)}.")
    if not watched and not record["changed"]:
        render.print_line("cannot tell whether it has changed, because nothing is told about any parameter: let it move.")
    else:
        render.print_line(f"needed: {record['needed']}" if record["changed"] else "no change in what was watched.")
