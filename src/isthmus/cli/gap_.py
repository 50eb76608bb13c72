"""How far recordings are from the simulator, why, and what they show that no simulated world does.

example: isthmus gap a.controller walk.mcap -o gap.html

example: isthmus gap a.controller walk1.mcap walk2.mcap --twin unit7.twin --json
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from isthmus.cli import show
from isthmus.cli.worlds import worlds_of
from isthmus.errors import BadInput
from isthmus.files import check_places

if TYPE_CHECKING:
    from isthmus.deploy.controller import Manifest
    from isthmus.diagnose.whole import Diagnosis
    from isthmus.gap.whole import Gap
    from isthmus.sim.robot import Robot

SHOWN = 8
"""Uncovered windows that are printed."""


@dataclass(frozen=True)
class Args:
    controller: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="CONTROLLER")]
    """Controller that was in charge (NAME.controller)."""
    recordings: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RECORDING …")]
    """Recordings of the robot under it (.mcap)."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File for the report, NAME.html."""
    belief: Path | None = None
    """Worlds of the simulator: a belief file; by default those of the controller's task."""
    twin: Path | None = None
    """The same from a twin, with its motors, ground and learned forces."""
    robot: str = ""
    """Model or config file of the robot, where the controller's is not one of `isthmus list`."""
    why: bool = True
    """Look for the cause; --no-why only measures."""
    space: Literal["pca", "learned"] = "pca"
    """Space in which windows are compared: principal axes, or one that a network learns from simulated windows."""
    worlds: int = 64
    """Worlds in which the controller runs."""
    seed: int = 0
    """Of the worlds: the same seed gives the same report."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    _check(args)
    from isthmus.data.reader import read
    from isthmus.deploy.controller import Controller
    from isthmus.gap.whole import measure
    from isthmus.identify.twin import Twin

    controller = Controller.load(args.controller)
    robot, task = _robot(controller.manifest, args.robot, str(args.controller))
    robot, belief = worlds_of(args.twin or args.belief, robot)
    task = replace(task, robot=robot) if task is not None else None
    episodes, names = [read(path) for path in args.recordings], [str(p) for p in args.recordings]
    check_places(args.out)
    began = time.perf_counter()
    with show.bar(f"measuring {robot.name}") as bar:
        found = measure(
            robot, task, controller, episodes, belief, names, args.worlds, args.seed, report=bar.update, space=args.space
        )
    why = None
    if args.why and not found.still:
        with show.bar("looking for the cause") as bar:
            from isthmus.diagnose.whole import diagnose

            why = diagnose(robot, controller, episodes, belief, found, task, report=bar.update)
    elif args.why:
        from isthmus.diagnose.whole import Diagnosis

        why = Diagnosis(found.cannot_tell[0])
    if found.far is None and not found.still and not (why and why.fault):
        raise BadInput(found.cannot_tell[0])
    record: dict[str, Any] = {
        "kind": "gap",
        "robot": robot.name,
        "task": controller.manifest.task,
        "inputs": {
            "controller": controller.hash,
            "recordings": [e.hash for e in episodes],
            "belief": belief.hash,
            "twin": Twin.load(args.twin).hash if args.twin else None,
            "model": robot.model_hash,
        },
        "trained_on": {"belief": controller.manifest.belief_hash, "run": controller.manifest.run_hash},
        "why": why.to_dict() if why else None,
        **found.to_dict(),
    }
    if args.out is not None:
        from isthmus.files import atomic_write
        from isthmus.studio.report.gap import gap_page, verdict_section

        verdict = verdict_section(why) if why else None
        atomic_write(args.out, gap_page(found, show.plain(record), verdict, robot).encode())
    if args.json:
        show.emit(record | {"report": str(args.out) if args.out else None, "seconds": time.perf_counter() - began})
        return 0
    if why is not None and not found.still:
        _tell_why(why)
    _tell(found, time.perf_counter() - began)
    if args.out is not None:
        show.say(f"wrote {args.out}")
    return 0


def _tell_why(why: Diagnosis) -> None:
    show.say(why.headline, "bold")
    if why.verdict is None:
        return
    from isthmus.diagnose.words import NAMED, percent

    rows = [[percent(h.p), h.cause, text.sentence] for h, text in why.advice if h.p >= NAMED]
    show.out.print(show.table("", ["", "cause", "what speaks for it"], rows, right=(0,)))
    if why.verdict.cause is not None:
        show.say(f"do: {why.advice[0][1].action}")
        if why.advice[0][1].gain:
            show.say(f"expect: {why.advice[0][1].gain}")


def _check(args: Args) -> None:
    if not args.recordings:
        raise BadInput("give at least one recording.")
    if args.out is not None and args.out.suffix != ".html":
        raise BadInput(f"-o takes a file NAME.html, not {args.out}.")
    if args.belief is not None and args.twin is not None:
        raise BadInput("give --belief or --twin, not both.")
    if args.twin is not None and args.twin.suffix != ".twin":
        raise BadInput(f"--twin takes a file NAME.twin, not {args.twin}.")
    if not 8 <= args.worlds <= 1000:
        raise BadInput("--worlds must be between 8 and 1000.")
    if args.seed < 0:
        raise BadInput("--seed must not be negative.")


def _robot(manifest: Manifest, name: str, where: str) -> tuple[Robot, Any]:
    """The robot that a controller is for, and its task if that is one of ours."""
    from isthmus.robots import get_robot
    from isthmus.tasks import TASKS, get_task

    task = get_task(manifest.task) if manifest.task in TASKS and not name else None
    robot = task.robot if task is not None else get_robot(name or manifest.robot.robot)
    if robot.model_hash != manifest.model_hash:
        raise BadInput(f"{where} was made for another model of {manifest.robot.robot} than this one of {robot.name}.")
    if robot.contract.target.labels != manifest.robot.target.labels:
        raise BadInput(f"{where} and {robot.name} have targets of different names.")
    return robot, task


def _tell(found: Gap, seconds: float) -> None:
    from isthmus.gap.answers import told

    for finding in found.findings:
        show.say(f"{'suspect' if finding.refused else 'note'}: {finding}")
    for line in found.cannot_tell:
        show.say(line, "yellow")
    for line in told(found.answers):
        show.say(f"note: {line}")
    if found.far is not None:
        _tell_far(found)
    if found.behaviour is not None:
        rows = []
        for m in found.behaviour.measures:
            low, high = m.ends
            mark = "outside" if m.outside else ""
            rows.append(
                [f"{m.group}: {m.name}", m.unit, f"{m.recorded:.3g}", f"{m.middle:.3g}", f"{low:.3g} to {high:.3g}", mark]
            )
        columns = ["what it does", "unit", "recorded", "simulated", "90 % of worlds", ""]
        show.out.print(show.table("", columns, rows, right=(2, 3)))
        show.say(f"so far from the worlds in some respect would be a world by chance: p = {found.behaviour.p:.3g}")
    if found.coverage is not None:
        c = found.coverage
        show.say(f"uncovered windows   {c.uncovered}, {100 * c.alarms:g} % expected; p = {c.p_uncovered:.3g}")
        show.say(f"alike               energy distance {c.energy:.3g}, p = {c.p_alike:.3g}")
        for u in c.listed[:SHOWN]:
            show.say(
                f"  {found.names[u.recording]} at {u.second:.2f} s: {u.distance:.2g} times the threshold, {', '.join(u.why)}"
            )
    for r in found.regions:
        show.say(f"learned force on {', '.join(r.names)}: outside of what it was taught {r.outside}")
    show.say(f"{seconds:.0f} s")


def _tell_far(found: Gap) -> None:
    f = found.far
    assert f is not None
    ahead = [f"{1e3 * h:.0f} ms" for h in f.horizons]
    rows = [[name, *(f"{m.value:.3g}" for m in row)] for name, row in f.signals.items()]
    show.out.print(show.table("", ["error / noise", *ahead], rows, right=tuple(range(1, len(ahead) + 1))))
    s = f.score
    show.say(f"score  {s.value:.3g} times the noise ({s.low:.3g} to {s.high:.3g}, n = {s.n}); best world {f.worlds.min():.3g}")
    if f.replay is not None:
        r, after = f.replay, f.replay.lost_after
        show.say(
            f"replay {after.value:.2g} s until it has lost the robot ({after.low:.2g} to {after.high:.2g}, n = {after.n});"
        )
        show.say(f"       the right simulator would hold for {r.possible:.2g} s of {r.time[-1]:.2g} s")
