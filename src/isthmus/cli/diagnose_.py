"""How far recordings are from the simulator, why, and what they show that no simulated world does.

example: isthmus diagnose a.controller walk.mcap -o gap.html

example: isthmus diagnose a.controller walk1.mcap walk2.mcap --twin unit7.twin --json
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from isthmus.cli import render
from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable
from isthmus.core.plain import to_plain
from isthmus.robots.dynamics import resolve_dynamics

if TYPE_CHECKING:
    from isthmus.deploy.manifest import Manifest
    from isthmus.real2sim.diagnose.diagnose import Diagnosis
    from isthmus.real2sim.measure.measure import Gap
    from isthmus.sim.robot import Robot

WINDOWS_SHOWN = 8
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
    worlds: int = 64
    """Worlds in which the controller runs."""
    seed: int = 0
    """Of the worlds: the same seed gives the same report."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    _check_options(args)
    from isthmus.data.mcap.reader import read_episode
    from isthmus.deploy.onnx_controller import OnnxController
    from isthmus.real2sim.measure.measure import measure
    from isthmus.robots.twin import Twin

    controller = OnnxController.load(args.controller)
    robot, task = _controller_robot(controller.manifest, args.robot, str(args.controller))
    robot, belief = resolve_dynamics(args.twin or args.belief, robot)
    task = replace(task, robot=robot) if task is not None else None
    episodes, names = [read_episode(path) for path in args.recordings], [str(p) for p in args.recordings]
    check_writable(args.out)
    began = time.perf_counter()
    with render.progress_bar(f"measuring {robot.name}") as bar:
        found = measure(robot, task, controller, episodes, belief, names, args.worlds, args.seed, report=bar.update)
    why = None
    if args.why and not found.motionless:
        with render.progress_bar("looking for the cause") as bar:
            from isthmus.real2sim.diagnose.diagnose import diagnose

            why = diagnose(robot, controller, episodes, belief, found, task, report=bar.update)
    elif args.why:
        from isthmus.real2sim.diagnose.diagnose import Diagnosis

        why = Diagnosis(found.limitations[0])
    if found.prediction_error is None and not found.motionless and not (why and why.names_fault):
        raise BadInput(found.limitations[0])
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
        from isthmus.core.files import atomic_write
        from isthmus.studio.reports.diagnosis import diagnosis_page, verdict_section

        verdict = verdict_section(why) if why else None
        atomic_write(args.out, diagnosis_page(found, to_plain(record), verdict, robot).encode())
    if args.json:
        render.emit(record | {"report": str(args.out) if args.out else None, "seconds": time.perf_counter() - began})
        return 0
    if why is not None and not found.motionless:
        _print_diagnosis(why)
    _print_gap(found, time.perf_counter() - began)
    if args.out is not None:
        render.print_line(f"wrote {args.out}")
    return 0


def _print_diagnosis(why: Diagnosis) -> None:
    render.print_line(why.headline, "bold")
    if why.verdict is None:
        return
    from isthmus.real2sim.diagnose.wording import MIN_SENTENCE_PROBABILITY, format_percent

    rows = [
        [format_percent(h.probability), h.cause, text.sentence]
        for h, text in why.advice
        if h.probability >= MIN_SENTENCE_PROBABILITY
    ]
    render.out.print(render.table("", ["", "cause", "what speaks for it"], rows, right=(0,)))
    if why.verdict.cause is not None:
        render.print_line(f"do: {why.advice[0][1].action}")
        if why.advice[0][1].gain:
            render.print_line(f"expect: {why.advice[0][1].gain}")


def _check_options(args: Args) -> None:
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


def _controller_robot(manifest: Manifest, name: str, where: str) -> tuple[Robot, Any]:
    """The robot that a controller is for, and its task if that is one of ours."""
    from isthmus.robots import get_robot
    from isthmus.tasks.catalogue import TASKS, get_task

    task = get_task(manifest.task) if manifest.task in TASKS and not name else None
    robot = task.robot if task is not None else get_robot(name or manifest.robot.robot)
    if robot.model_hash != manifest.model_hash:
        raise BadInput(f"{where} was made for another model of {manifest.robot.robot} than this one of {robot.name}.")
    if robot.contract.target.labels != manifest.robot.target.labels:
        raise BadInput(f"{where} and {robot.name} have targets of different names.")
    return robot, task


def _print_gap(found: Gap, seconds: float) -> None:
    from isthmus.real2sim.measure.command_response import dead_zone_sentences

    for finding in found.findings:
        render.print_line(f"{'suspect' if finding.refused else 'note'}: {finding}")
    for line in found.limitations:
        render.print_line(line, "yellow")
    for line in dead_zone_sentences(found.command_responses):
        render.print_line(f"note: {line}")
    if found.prediction_error is not None:
        _print_prediction_error(found)
    if found.behaviour is not None:
        rows = []
        for m in found.behaviour.metrics:
            low, high = m.interval_90
            mark = "outside" if m.outside else ""
            rows.append(
                [f"{m.group}: {m.name}", m.unit, f"{m.recorded:.3g}", f"{m.median:.3g}", f"{low:.3g} to {high:.3g}", mark]
            )
        columns = ["what it does", "unit", "recorded", "simulated", "90 % of worlds", ""]
        render.out.print(render.table("", columns, rows, right=(2, 3)))
        render.print_line(
            f"so far from the worlds in some respect would be a world by chance: p = {found.behaviour.p_value:.3g}"
        )
    if found.coverage is not None:
        c = found.coverage
        render.print_line(
            f"uncovered windows   {c.uncovered}, {100 * c.false_alarm_rate:g} % expected; p = {c.p_uncovered:.3g}"
        )
        render.print_line(f"alike               energy distance {c.energy_distance:.3g}, p = {c.p_same_distribution:.3g}")
        for u in c.uncovered_windows[:WINDOWS_SHOWN]:
            render.print_line(
                f"  {found.names[u.recording]} at {u.second:.2f} s: {u.distance:.2g} times the threshold, {', '.join(u.why)}"
            )
    for r in found.force_regions:
        render.print_line(f"learned force on {', '.join(r.names)}: outside of what it was taught {r.outside}")
    render.print_line(f"{seconds:.0f} s")


def _print_prediction_error(found: Gap) -> None:
    f = found.prediction_error
    assert f is not None
    ahead = [f"{1e3 * h:.0f} ms" for h in f.horizons]
    rows = [[name, *(f"{m.value:.3g}" for m in row)] for name, row in f.signals.items()]
    render.out.print(render.table("", ["error / noise", *ahead], rows, right=tuple(range(1, len(ahead) + 1))))
    s = f.score
    render.print_line(
        f"score  {s.value:.3g} times the noise ({s.low:.3g} to {s.high:.3g}, n = {s.n}); best world {f.world_scores.min():.3g}"
    )
    if f.replay is not None:
        r, after = f.replay, f.replay.divergence_time
        render.print_line(
            f"replay {after.value:.2g} s until it has lost the robot ({after.low:.2g} to {after.high:.2g}, n = {after.n});"
        )
        render.print_line(f"       the right simulator would hold for {r.achievable_time:.2g} s of {r.time[-1]:.2g} s")
