"""Robots, tasks, methods, links and families of realities; with a robot's name, its signals and the parameters of its world.

example: isthmus list go1
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import tyro

from isthmus.cli import render
from isthmus.deploy.links.registry import LINKS


@dataclass(frozen=True)
class Args:
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[ROBOT]")] = ""
    """Robot to describe: a name, menagerie:NAME, or the path of a model or its config."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    return _describe_robot(args) if args.robot else _list_all(args)


def _list_all(args: Args) -> int:
    from isthmus.learn.training import METHODS
    from isthmus.robots import ROBOTS
    from isthmus.sim.reality.hidden import FAMILIES
    from isthmus.tasks.catalogue import TASKS

    robots, tasks = {name: make() for name, make in ROBOTS.items()}, {name: make() for name, make in TASKS.items()}
    if args.json:
        render.emit({
            "robots": {n: _robot_record(r) for n, r in robots.items()},
            "tasks": {n: {"doc": t.doc, "robot": t.robot.name, "episode": t.episode} for n, t in tasks.items()},
            "methods": METHODS,
            "links": LINKS,
            "families": FAMILIES,
        })  # fmt: skip
        return 0
    rows = [[n, f"{r.contract.rate:g} Hz", f"{len(r.space)} parameters", r.doc] for n, r in robots.items()]
    render.out.print(render.table("robots", ["name", "rate", "world", ""], rows))
    render.out.print("also menagerie:NAME, and the path of any MJCF, URDF or robot config\n")
    rows = [[n, f"{t.episode:g} s", t.doc] for n, t in tasks.items()]
    render.out.print(render.table("tasks", ["name", "episode", ""], rows))
    render.out.print()
    render.out.print(render.table("methods", ["name", ""], [[n, text] for n, text in METHODS.items()]))
    render.out.print()
    render.out.print(render.table("links", ["name", ""], [[n, text] for n, text in LINKS.items()]))
    render.out.print()
    title = "families of realities, for `isthmus robot --hidden SEED`"
    render.out.print(render.table(title, ["name", ""], [[n, text] for n, text in FAMILIES.items()]))
    return 0


def _robot_record(robot) -> dict:
    prior = {name: list(robot.prior.interval(name, 1.0)) for name in robot.prior.free().names}
    return {
        "doc": robot.doc,
        "rate": robot.contract.rate,
        "signals": [asdict(s) for s in robot.contract.signals],
        "target": asdict(robot.contract.target),
        "params": [asdict(p) | {"prior": prior.get(p.name)} for p in robot.space.params],
        "space_hash": robot.space.hash,
        "model_hash": robot.model_hash,
    }


def _describe_robot(args: Args) -> int:
    from isthmus.robots import get_robot

    robot = get_robot(args.robot)
    if args.json:
        render.emit({"robot": args.robot, **_robot_record(robot)})
        return 0
    render.out.print(f"{robot.name}: {robot.doc}\n")
    rows = [[s.name, str(s.size), s.unit, s.frame, ", ".join(s.labels)] for s in robot.contract.signals]
    target = robot.contract.target
    rows.append([f"{target.name} (sent)", str(target.size), target.unit, target.frame, ", ".join(target.labels)])
    render.out.print(render.table("signals, and what is sent", ["name", "size", "unit", "frame", "labels"], rows, right=(1,)))
    rows = []
    for p in robot.space.params:
        low, high = robot.prior.interval(p.name, 1.0)
        rows.append([p.name, f"{p.nominal:g}", f"{low:.3g} to {high:.3g}", f"{p.low:g} to {p.high:g}", p.unit, p.doc])
    render.out.print()
    columns = ["parameter", "nominal", "prior", "hard bounds", "unit", ""]
    render.out.print(render.table("world", columns, rows, right=(1,)))
    return 0
