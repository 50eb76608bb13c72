"""Learn the force that no number explains, from recordings, and add it to a twin.

example: isthmus residual unit7.twin walk1.mcap walk2.mcap
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from isthmus.cli import show
from isthmus.cli.checks import not_negative
from isthmus.cli.looked import looked_through
from isthmus.errors import BadInput, unknown


@dataclass(frozen=True)
class Args:
    twin: Annotated[Path, tyro.conf.Positional]
    """Twin whose numbers were found with `isthmus identify`."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Recordings of that unit (.mcap)."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for the twin with the force; by default the twin itself."""
    joints: tuple[str, ...] = ()
    """Joints that the force acts on; by default all, the body's own included."""
    horizon: float = 0.0
    """Seconds that the simulator predicts ahead; 0 chooses it by the noise."""
    seed: int = 0
    """Seed of the networks."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.data.reader import read
    from isthmus.identify.missing import learn
    from isthmus.identify.rollout import feature_names, with_force
    from isthmus.identify.study import errors, prepare
    from isthmus.identify.twin import Twin, is_twin
    from isthmus.robots import get_robot
    from isthmus.sim.unit import MOST_LEARNED

    if not is_twin(args.twin):
        raise BadInput(f"{args.twin} is not a twin; make one with `isthmus identify ROBOT RECORDINGS -o NAME.twin`.")
    if not args.recordings:
        raise BadInput("give at least one recording.")
    out = args.out or args.twin
    if not is_twin(out):
        raise BadInput(f"-o takes a file NAME.twin, not {out}.")
    not_negative(args, "horizon")
    twin = Twin.load(args.twin)
    if len(twin.unit.learned) >= MOST_LEARNED:
        raise BadInput(f"{args.twin} has {MOST_LEARNED} learned forces already, as many as a twin can have.")
    robot = twin.on(get_robot(twin.robot), str(args.twin))
    names = [robot.model.joint(j).name for j in range(robot.model.njnt)]
    for name in args.joints:
        if name not in names:
            raise unknown("joint", name, names, f"those of {robot.name}")
    episodes = [read(path) for path in args.recordings]
    began = time.perf_counter()
    findings = looked_through(robot, episodes, args.recordings, args.json)
    parts = prepare(robot, episodes, robot.prior, args.horizon, findings=findings)
    if parts.held_out is None:
        raise BadInput(f"the recordings give {len(parts.train)} segments: too few to hold some out and judge by them.")
    e = robot.prior.median()
    with show.bar(f"learning what {robot.name} lacks") as bar:
        learned = learn(
            parts.robot, parts.train, e, parts.floor, "body", args.joints or tuple(names), args.seed,
            report=lambda done, found: bar.update(done, f"cost {found.cost:.3g}"),
        )  # fmt: skip
    both = (parts.robot, with_force(parts.robot, learned))
    before, after = (
        [errors(r, s, parts.floor, parts.floor, [e])[0].overall for s in (parts.train, parts.held_out)] for r in both
    )
    better = after[1] < before[1]
    entry = {
        "recordings": [x.hash for x in episodes],
        "learned": "force",
        "findings": [f.to_dict() for f in findings],
        "error": {
            "before": {"fitted": before[0], "held_out": before[1]},
            "after": {"fitted": after[0], "held_out": after[1]},
        },
    }
    if better:
        unit = replace(twin.unit, learned=(*twin.unit.learned, learned))
        twin = replace(twin, unit=unit).fitted(twin.belief, entry).save(out)
    largest = dict(zip(_acted(parts.robot, learned.names), map(float, learned.net.unit), strict=True))
    if args.json:
        show.emit({
            "twin": str(out) if better else None,
            "twin_hash": twin.hash,
            "inputs": entry["recordings"],
            "findings": entry["findings"],
            "error": entry["error"],
            "kept": better,
            "largest": largest,
            "features": list(feature_names(parts.robot, learned)),
            "horizon": parts.ahead,
            "segments": {"fitted": len(parts.train), "held_out": len(parts.held_out)},
            "seconds": time.perf_counter() - began,
        })  # fmt: skip
        return 0 if better else 1
    show.say(
        f"{robot.name}: {len(parts.train)} segments learned from, {len(parts.held_out)} held out, {parts.ahead:.2g} s ahead"
    )
    rows = [[what, f"{b:.3g}", f"{a:.3g}"] for what, b, a in zip(("learned from", "held out"), before, after, strict=True)]
    show.out.print(show.table("", ["error / noise", "without", "with the force"], rows, right=(1, 2)))
    if not better:
        show.say("The force does not predict better what it was not learned from, so it was not kept.")
        return 1
    rows = [[name, f"{size:.3g}"] for name, size in sorted(largest.items(), key=lambda x: -x[1])[:12]]
    show.out.print(show.table("", ["degree of freedom", "largest force"], rows, right=(1,)))
    show.say(f"wrote {out}")
    return 0


def _acted(robot, names: tuple[str, ...]) -> list[str]:
    """A name for each number of the force."""
    found = []
    for name in names:
        free = len(robot.model.joint(name).qpos0) == 7
        found += [f"{name} {what} {axis}" for what in ("force", "torque") for axis in "xyz"] if free else [name]
    return found
