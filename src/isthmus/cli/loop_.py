"""Close the sim-to-real gap in one command: train, run on the robot, diagnose, identify, retrain, validate; and one report.

example: isthmus loop pendulum/swingup

example: isthmus loop go1/walk --hidden 7 -o runs/unit7

example: isthmus loop crazyflie/hover --link zenoh --rounds 3
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from isthmus.cli import render
from isthmus.core.errors import BadInput
from isthmus.core.plain import to_plain

if TYPE_CHECKING:
    from isthmus.pipeline.outcome import LoopResult
    from isthmus.sim.robot import Robot

DEFAULT_TASK = "crazyflie/hover"
DEFAULT_FAMILY = "mixed"
"""Of the hidden reality of a task that ships none: parameters outside the prior, and physics that training lacks."""
SHIPPED_REALITY = "hidden.toml"
"""Name, in the loop's folder, of a reality that ships with a task."""


@dataclass(frozen=True)
class Args:
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]")] = DEFAULT_TASK
    """Task to learn, as in `isthmus list`."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for everything; the same command resumes what is there. By default runs/loop-…."""
    reality: Path | None = None
    """Virtual robot: file that says how it differs from its model, or hidden:SEED[:FAMILY]. The loop does not read it."""
    hidden: int | None = None
    """Virtual robot: seed of a reality that is drawn, and revealed only at the end."""
    family: str = ""
    """With --hidden: draw from this family only (mixed, unmodelled, parametric-outside, …)."""
    link: str = ""
    """A real robot, over a link of `isthmus run`."""
    policy: Annotated[Path | None, tyro.conf.arg(name="run")] = None
    """Run to start with, instead of training one."""
    rounds: int = 1
    """Repairs (measure, repair, retrain), at most."""
    budget: float = 0.0
    """Minutes for the whole loop, about; 0 for what the task needs."""
    seconds: float = 0.0
    """Length of a recording, s; 0 for what the task needs."""
    seed: int = 0
    """Seed of everything random."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.cli.loop_progress import LoopProgress
    from isthmus.pipeline.loop import loop, loop_settings
    from isthmus.studio.reports.loop import write_loop_report
    from isthmus.tasks.catalogue import get_task

    robot = get_task(args.task).robot
    link, folder, shipped = _robot_and_folder(args, robot)
    lengths: dict[str, Any] = {"rounds": args.rounds, "budget": args.budget, "seconds": args.seconds, "seed": args.seed}
    options = {"link": link, "run": args.policy, **lengths}
    settings = loop_settings(args.task, **options)
    if shipped is not None and not (folder / SHIPPED_REALITY).exists():
        from isthmus.core.files import atomic_write

        atomic_write(folder / SHIPPED_REALITY, shipped.read_bytes())
    with LoopProgress(args.json, settings) as watch, render.show_total_remaining(watch.remaining_seconds):
        found = loop(args.task, out=folder, **options, observer=watch)
    found = replace(found, truth=_revealed_truth(link, robot))
    with render.progress_bar("writing the report") as bar:
        page = write_loop_report(found, folder, folder / "report.html", bar.update)
    return _print_result(found, page, robot, args.json)


def _robot_and_folder(args: Args, robot: Robot) -> tuple[str, Path, Path | None]:
    """The link to the robot, the loop's folder, and the reality that ships with the task, if that is the robot."""
    if sum(x is not None and x != "" for x in (args.reality, args.hidden, args.link)) > 1:
        raise BadInput("a loop is about one robot: give --reality, --hidden or --link, and only one of them.")
    if args.family and args.hidden is None:
        raise BadInput("--family goes with --hidden SEED.")
    shipped = _shipped_reality(args.task)
    word, name = ("", "") if args.link else _reality_and_suffix(args, robot, shipped.exists())
    if args.link:
        from isthmus.deploy.links.registry import check_link

        check_link(args.link)
        name = "-" + args.link.replace(":", "-").replace("/", "-")
    folder = args.out or Path("runs") / f"loop-{args.task.replace('/', '-')}{name}"
    if word == SHIPPED_REALITY:
        return f"sim:{folder / SHIPPED_REALITY}", folder, shipped
    return args.link or f"sim:{word}", folder, None


def _reality_and_suffix(args: Args, robot: Robot, ships: bool) -> tuple[str, str]:
    """The reality of a virtual robot, as links take it, and what its folder is called after it."""
    from isthmus.sim.reality.hidden import HIDDEN_PREFIX, parse_reality

    if args.reality is not None:
        word = str(args.reality)
        parse_reality(word, robot).check(robot)
        if not word.startswith(HIDDEN_PREFIX):
            return str(args.reality.absolute()), f"-{args.reality.stem}"
    elif args.hidden is None and ships:
        return SHIPPED_REALITY, ""
    else:
        parts = ("1", DEFAULT_FAMILY) if args.hidden is None else (str(args.hidden), args.family)
        word = HIDDEN_PREFIX + ":".join(part for part in parts if part)
        parse_reality(word, robot)
    return word, "-" + word.replace(":", "-")


def _shipped_reality(task: str) -> Path:
    import isthmus.pipeline

    return Path(isthmus.pipeline.__file__).parent / "realities" / f"{task.replace('/', '-')}.toml"


def _revealed_truth(link: str, robot: Robot) -> dict[str, Any] | None:
    """The hidden dynamics of a virtual robot, once the loop is over; None if they cannot be read any more."""
    if not link.startswith("sim:"):
        return None
    from isthmus.sim.reality.hidden import parse_reality

    try:
        return to_plain(parse_reality(link.removeprefix("sim:"), robot).to_dict())
    except BadInput as error:
        render.err.print(f"the truth cannot be revealed: {error}", markup=False)
        return None


def _print_result(found: LoopResult, page: Path, robot: Robot, as_json: bool) -> int:
    from isthmus.pipeline.outcome import describe_truth

    if as_json:
        render.emit(found.to_dict())
    else:
        render.print_line("")
        for line in found.sentences:
            render.print_line(line)
        if found.truth is not None:
            render.print_line(f"Truth: {describe_truth(found.truth, robot.space)}.")
        render.print_line(f"report: {page}", "bold")
    return 0 if found.able else 1
