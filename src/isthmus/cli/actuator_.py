"""Find the law of the motors: the simplest that predicts what it was not fitted to, and a network only if that helps.

example: isthmus actuator go1 bench.parquet --motors '.*_calf' -o calf.actuator

example: isthmus actuator unit7.twin walk1.mcap walk2.mcap -o unit7.twin
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from isthmus.cli import show
from isthmus.cli.checks import not_negative
from isthmus.cli.looked import looked_through
from isthmus.cli.worlds import robot_of
from isthmus.errors import BadInput, unknown
from isthmus.files import check_places

if TYPE_CHECKING:
    from isthmus.identify.actuator import Actuator, Climbed
    from isthmus.identify.twin import Twin
    from isthmus.sim.robot import Robot


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
    """Without torques: seconds that the simulator predicts ahead; 0 chooses it by the noise."""
    laws: tuple[str, ...] = ()
    """Without torques: laws to try on top of what is believed; by default the whole ladder."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.identify.law import save_law
    from isthmus.identify.twin import Twin

    if not args.files:
        raise BadInput("give at least one table with torques, or one recording.")
    if args.out is not None and args.out.suffix not in (".actuator", ".twin"):
        raise BadInput(f"-o takes a file NAME.actuator or NAME.twin, not {args.out}.")
    not_negative(args, "horizon", "torque_constant")
    try:
        re.compile(args.motors)
    except re.error as error:
        raise BadInput(f"--motors takes a regular expression, not {args.motors!r}: {error}.") from None
    kinds = {path.suffix == ".mcap" for path in args.files}
    if len(kinds) > 1:
        raise BadInput("tables with torques and recordings without do not go together.")
    robot, old = robot_of(args.robot)
    check_places(args.out)
    began = time.perf_counter()
    climbed, inputs, notes = _unseen(args, robot, old) if kinds == {True} else _measured(args, robot)
    found, belief = climbed.actuator, climbed.belief
    entry = {"recordings": inputs, "actuator": found.chosen, "error": {t.name: t.held_out for t in found.tried}}
    entry |= {"findings": notes, "belief": belief.to_dict()} | ({"left": climbed.left} if climbed.left else {})
    unit = replace(robot.unit, motors=found.motors, learned=_kept(robot, found))
    if args.out is not None and args.out.suffix == ".twin":
        twin = old or Twin(args.robot, robot.model_hash, belief)
        twin = replace(twin, unit=unit).fitted(belief, entry).save(args.out)
    elif args.out is not None:
        save_law(args.out, robot, found, inputs)
    if args.json:
        show.emit(_record(args, robot, found, inputs, time.perf_counter() - began) | {"findings": notes})
        return 0
    _tell(robot, found)
    if args.out is not None:
        show.say(f"wrote {args.out}")
    return 0


def _measured(args: Args, robot: Robot) -> tuple[Climbed, list[str], list]:
    from isthmus.files import content_hash, read_bytes
    from isthmus.identify.actuator import Climbed, climb_bench
    from isthmus.identify.bench import read_bench
    from isthmus.identify.law import with_delay

    bench = read_bench(args.files, robot, args.motors, args.torque_constant)
    with show.bar(f"motors of {robot.name}") as bar:
        found = climb_bench(robot, bench, bar.update)
    belief = with_delay(robot, robot.prior, found.delay)
    return Climbed(found, belief, {}), [content_hash(read_bytes(path, 2**31)) for path in args.files], []


def _unseen(args: Args, robot: Robot, old: Twin | None) -> tuple[Climbed, list[str], list]:
    from isthmus.data.reader import read
    from isthmus.identify.actuator import climb
    from isthmus.identify.ladder import LADDER
    from isthmus.identify.study import prepare
    from isthmus.robots import get_robot
    from isthmus.sim.sources import on_joints
    from isthmus.world import adopt

    labels = [label for label in robot.contract.target.labels if re.fullmatch(args.motors, label)]
    if not labels:
        raise unknown("motor", args.motors, robot.contract.target.labels, f"those of {robot.name}")
    if not on_joints(robot):
        raise BadInput(f"{robot.name} has no motors of ours that drive joints: `isthmus residual` learns forces on its body.")
    rungs = {rung.name: rung for rung in LADDER}
    for law in args.laws:
        if law not in rungs:
            raise unknown("motor law", law, list(rungs), "--laws")
    ladder = [rung for name, rung in rungs.items() if not args.laws or name in args.laws]
    episodes = [read(path) for path in args.files]
    findings = looked_through(robot, episodes, args.files, args.json)
    parts = prepare(robot, episodes, robot.prior, args.horizon, findings=findings)
    if parts.held_out is None:
        raise BadInput(f"the recordings give {len(parts.train)} segments: too few to hold some out and judge by them.")
    inputs, known = [x.hash for x in episodes], robot.prior
    if old is not None:
        known = adopt(old.before(inputs, get_robot(old.robot).prior), robot.space, args.robot)
    with show.bar(f"motors of {robot.name}") as bar:
        found = climb(
            parts.robot, parts.train, parts.held_out, robot.prior, parts.floor, labels,
            report=bar.update, before=known, ladder=ladder,
        )  # fmt: skip
    return found, inputs, [f.to_dict() for f in findings]


def _kept(robot: Robot, found: Actuator) -> tuple:
    """The robot's forces, with the new one in place of older ones of the same motors."""
    older = tuple(x for x in robot.unit.learned if x.kind != "motor" or not set(x.names) & set(found.labels))
    return (*older, found.learned) if found.learned is not None else older


def _record(args: Args, robot: Robot, found: Actuator, inputs: list[str], seconds: float) -> dict[str, Any]:
    from isthmus.identify.law import law_record

    return {"file": str(args.out) if args.out else None, "inputs": inputs, **law_record(robot, found), "seconds": seconds}


def _tell(robot: Robot, found: Actuator) -> None:
    from isthmus.identify.actuator import NETWORK
    from isthmus.identify.ladder import FIGURE, LADDER

    doc = {rung.name: rung.doc for rung in LADDER} | {NETWORK: "and what a network finds on top"}
    unit = "N·m" if found.unit == "N·m" else "error / noise"
    rows = [
        [t.name + (" ←" if t.name == found.chosen else ""), doc.get(t.name, ""), f"{t.fitted:.4g}", f"{t.held_out:.4g}"]
        for t in found.tried
    ]
    show.out.print(
        show.table(
            f"{len(found.labels)} motors of {robot.name}", ["law", "", f"fitted, {unit}", "held out"], rows, right=(2, 3)
        )
    )
    chosen = next(t for t in found.tried if t.name == found.chosen)
    rows = [[name.removeprefix(FIGURE), f"{value:.4g}"] for name, value in chosen.values.items()]
    show.out.print(show.table("", ["figure", "found"], rows, right=(1,)))
    if not any(t.name == NETWORK for t in found.tried):
        show.say("Nothing but noise is left: no other law was tried.")
    elif found.learned is None:
        show.say("A network does not predict better what it was not fitted to: none is needed.")
