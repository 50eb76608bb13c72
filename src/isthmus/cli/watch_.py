"""Has a unit changed since its twin was fitted: which number, since when, by how much, and what must be done about it.

example: isthmus watch unit7.twin monday.mcap tuesday.mcap wednesday.mcap

example: isthmus watch unit7.twin walk_*.mcap --baseline 5 --run runs/walk -o drift.png
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from isthmus.cli import show
from isthmus.cli.checks import not_negative
from isthmus.cli.looked import looked_through
from isthmus.errors import BadInput
from isthmus.files import check_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isthmus.data.episode import Episode
    from isthmus.identify.watch import Change, Watched
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief

LEVEL, TRAINED = 0.9, 0.99
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
    from isthmus.data.reader import read
    from isthmus.files import write_json
    from isthmus.gap.suspect import cleaned
    from isthmus.identify.score import look
    from isthmus.identify.twin import Twin, is_twin
    from isthmus.identify.watch import watch
    from isthmus.robots import get_robot

    _check(args)
    if not is_twin(args.twin):
        raise BadInput(f"{args.twin} is not a twin (.twin); make one with `isthmus identify ROBOT RECORDINGS -o NAME.twin`.")
    twin = Twin.load(args.twin)
    usual = get_robot(twin.robot)
    robot = twin.on(usual, str(args.twin))
    for name in args.only:
        robot.space.index(name)
    trained = _trained(args, robot)
    files = [str(p) for p in args.recordings]
    episodes = [read(path) for path in args.recordings]
    _check_recordings(episodes, files, robot)
    findings = looked_through(robot, episodes, args.recordings, args.json, args.trust, "take")
    check_places(args.out)
    fitted = set(twin.history[-1].get("recordings", ())) if twin.history else set()
    own = [i for i, e in enumerate(episodes) if e.hash in fitted]
    with show.bar(f"watching {robot.name}") as bar:
        clean = cleaned(episodes, findings)
        unit = look(robot, clean, twin.belief, usual.prior, args.only, args.horizon, files=files, left=twin.left)
        found = watch(unit, args.alarms, args.baseline, own, report=lambda share: bar.update(min(share, 0.99)))
    record = _record(args, twin, found, trained, episodes, files)
    if args.out is not None and args.out.suffix == ".json":
        write_json(args.out, show.plain(record))
    elif args.out is not None:
        from isthmus.cli.watched import picture

        picture(args.out, found, files)
    if args.json:
        show.emit(record)
    else:
        _tell(record, found, files)
        if args.out is not None:
            show.say(f"wrote {args.out}")
    return 1 if record["changed"] else 0


def _check(args: Args) -> None:
    if not args.recordings:
        raise BadInput("give at least one recording.")
    if args.out is not None and args.out.suffix not in (".json", ".png"):
        raise BadInput(f"-o takes a file NAME.json or NAME.png, not {args.out}.")
    if not 0 < args.alarms <= 1000:
        raise BadInput("--alarms takes false alarms per 1,000 recordings, more than 0 and at most 1000.")
    if not 0 <= args.baseline < len(args.recordings):
        raise BadInput(f"--baseline takes 0 to {len(args.recordings) - 1} of the {len(args.recordings)} recordings.")
    not_negative(args, "horizon")
    if args.belief is not None and args.run is not None:
        raise BadInput("give --belief or --run, not both: each says what the policy was trained in.")


def _check_recordings(episodes: Sequence[Episode], files: Sequence[str], robot: Robot) -> None:
    """Of this robot, with something in them, each once and one after the other."""
    from isthmus.gap.tracks import check_contract

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


def _trained(args: Args, robot: Robot) -> Belief | None:
    from isthmus.cli.worlds import worlds_of
    from isthmus.world import adopt

    if args.run is not None:
        from isthmus.learn import runs

        return adopt(runs.load(args.run).belief, robot.space, str(args.run))
    return worlds_of(args.belief, robot)[1] if args.belief is not None else None


# What is said --------------------------------------------------------------------------------------------------

CAUSES = (
    (("coulomb", "viscous", "damping", "frictionloss"), "wear of the joint", "a joint that has run in or warmed up"),
    (("strength", "kp", "torque_limit"), "a fresh battery or cooler motors", "an empty battery, hot motors or a worn one"),
    (("payload", "mass"), "a load put on", "a load taken off"),
    (("friction",), "rougher ground or new soles", "worn soles or smoother ground"),
    (("bias",), "a sensor that has moved", "a sensor that has moved"),
    (("action_delay", "sensor_delay", "lag"), "a slower link or motor", "a faster link or motor"),
)
"""Fields that a parameter acts on, and what may be behind its going up and down."""


def _cause(robot: Robot, name: str, up: bool) -> str:
    from isthmus.world import Target

    fields = {Target.parse(t).field for t in robot.space[name].targets}
    return next((rise if up else fall for known, rise, fall in CAUSES if fields & set(known)), "")


def _change(found: Watched, change: Change, twin: Any, trained: Belief | None, files: Sequence[str]) -> dict[str, Any]:
    space, robot = found.unit.now.space.subset([change.name]), found.unit.robot
    mean = found.unit.now.mean[found.unit.now.space.index(change.name)]
    value = lambda off: float(space.from_unconstrained(mean[None] + off)[0])  # noqa: E731
    after, ends = value(change.size.now), [value(x) for x in change.size.interval(LEVEL)]
    inside = lambda belief, level: _within(belief.interval(change.name, level), after)  # noqa: E731
    if trained is not None and not inside(trained, TRAINED):
        needed = "retraining"
    else:
        needed = "none" if inside(twin.belief, LEVEL) else "re-identification"
    return {
        "name": change.name,
        "unit": robot.space[change.name].unit,
        "before": value(0.0),
        "after": after,
        "low": ends[0],
        "high": ends[1],
        "alike": list(change.alike),
        "cause": _cause(robot, change.name, change.size.now > 0),
        "needed": needed,
        **_when(change, files),
    }


def _within(ends: tuple[float, float], x: float) -> bool:
    return ends[0] <= x <= ends[1]


def _when(change: Change, files: Sequence[str]) -> dict[str, Any]:
    at, low, high = change.since
    return {
        "shape": change.shape,
        "since": {"recording": at, "low": low, "high": high, "file": files[at]},
        "alarm": {"recording": change.alarm, "file": files[change.alarm]},
    }


def _record(
    args: Args, twin: Any, found: Watched, trained: Belief | None, episodes: Sequence[Episode], files: Sequence[str]
) -> dict[str, Any]:
    import numpy as np

    changes = [_change(found, c, twin, trained, files) for c in found.changes]
    beyond = found.beyond and {"times": float(np.exp(0.5 * found.beyond.size.now)), **_when(found.beyond, files)}
    order = ("none", "re-identification", "retraining")
    needed = max([c["needed"] for c in changes] + (["re-identification"] if beyond else ["none"]), key=order.index)
    parameters = {}
    for name in found.unit.now.space.names:
        test = found.evidence.get(name)
        parameters[name] = {"watched": test is not None, "evidence": np.exp(np.minimum(test.total, 600.0)) if test else None}
    return {
        "robot": found.unit.robot.name,
        "twin": str(args.twin),
        "twin_hash": twin.hash,
        "recordings": list(files),
        "inputs": [e.hash for e in episodes],
        "trained_in": trained.hash if trained is not None else None,
        "false_alarms_per_1000": args.alarms,
        "false_alarm_at_most": min(1.0, args.alarms * (len(files) - args.baseline) / 1000.0),
        "evidence_needed": found.level,
        "baseline": args.baseline,
        "twin_interval_too_narrow_by": found.widened,
        "changed": bool(changes or beyond),
        "needed": needed,
        "changes": changes,
        "beyond": beyond,
        "error_over_noise": found.left,
        "parameters": parameters,
        "undetermined": [{"parts": dict(d.parts), "text": d.text} for d in found.undetermined],
        "horizon": found.unit.ahead,
    }


def _tell(record: dict[str, Any], found: Watched, files: Sequence[str]) -> None:
    n = len(files)
    watched = len(found.evidence)
    show.say(
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
        show.out.print(show.table("", columns, rows, right=(2, 3)))
    if record["beyond"]:
        b = record["beyond"]
        show.say(
            f"physics has changed beyond the numbers since {b['since']['file']}: errors that no parameter explains have grown "
            f"{b['times']:.2g}-fold; see `isthmus residual`."
        )
    for direction in found.undetermined:
        show.say(direction.text)
    unwatched = [name for name, p in record["parameters"].items() if not p["watched"]]
    if unwatched:
        show.say(f"not watched, for these recordings do not tell: {', '.join(unwatched)}.")
    if not watched and not record["changed"]:
        show.say("cannot tell whether it has changed, because nothing is told about any parameter: let it move.")
    else:
        show.say(f"needed: {record['needed']}" if record["changed"] else "no change in what was watched.")
