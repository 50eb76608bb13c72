"""The whole way: train, run on the robot, explain the gap, close it, train again, prove it; and one report.

example: isthmus loop pendulum/swingup

example: isthmus loop go1/walk --hidden 7 -o runs/unit7

example: isthmus loop crazyflie/hover --link zenoh --rounds 3
"""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import time
import traceback
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from isthmus.cli import render
from isthmus.cli.options import check_not_negative
from isthmus.core.errors import BadInput

if TYPE_CHECKING:
    from isthmus.pipeline.evidence import LoopSettings
    from isthmus.pipeline.journal import Call, CallRecord

DEFAULT_TASK = "crazyflie/hover"
CRASH_EXIT_CODE = 70
"""Exit code of a command that did not end as it should."""
DEFAULT_FAMILY = "mixed"
"""Of the reality of a task with which none comes: numbers outside of the prior, and physics that training lacks."""


@dataclass(frozen=True)
class Args:
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]")] = DEFAULT_TASK
    """Task to learn, as in `isthmus list`."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for everything; the same command goes on with what is there. By default runs/loop-…."""
    reality: Path | None = None
    """Virtual robot: file that says how it differs from its model, or hidden:SEED[:FAMILY]. The loop does not read it."""
    hidden: int | None = None
    """Virtual robot: seed of a reality that is drawn, and told only at the end."""
    family: str = ""
    """With --hidden: draw from this family only (mixed, unmodelled, parametric-outside, …)."""
    link: str = ""
    """A real robot, over a link of `isthmus run`."""
    policy: Annotated[Path | None, tyro.conf.arg(name="run")] = None
    """Run to begin with, instead of training one."""
    rounds: int = 1
    """Times that it measures, repairs and trains again, at most."""
    budget: float = 0.0
    """Minutes for all of it, about; 0 takes what the task needs."""
    seconds: float = 0.0
    """Length of a recording; 0 for what the task needs."""
    seed: int = 0
    """Seed of everything random."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    settings, folder = settings_from_options(args)
    from isthmus.core.files import read_json, write_json
    from isthmus.pipeline.evidence import SHIPPED_REALITY
    from isthmus.pipeline.journal import Journal, exclusive_folder, run_calls
    from isthmus.pipeline.outcome import loop_result
    from isthmus.pipeline.stages import loop_stages
    from isthmus.studio.reports.loop import write_loop_report
    from isthmus.tasks.catalogue import get_task

    task = get_task(settings.task)
    with exclusive_folder(folder):
        asked, plan = dataclasses.asdict(settings), folder / "loop.json"
        if plan.exists():
            _check_same_settings(read_json(plan).get("settings"), asked, folder)
        else:
            if settings.watched == SHIPPED_REALITY:
                (folder / SHIPPED_REALITY).write_bytes(_shipped_reality(settings.task).read_bytes())
            write_json(plan, {"kind": "loop", "settings": asked})
        began = time.monotonic()
        watch = _ProgressPrinter(args.json, settings)
        with render.show_total_remaining(watch.remaining_seconds):
            story, steps = run_calls(loop_stages(settings, task, folder), Journal(folder), run_command, watch)
        truth = _revealed_truth(settings, folder, task.robot.name)
        found = loop_result(story, task.robot.space, truth)
        with render.progress_bar("writing the report") as bar:
            page = write_loop_report(folder / "report.html", story, settings, task, found, steps, bar.update)
    code = 0 if found.good else 1
    if args.json:
        where = {"folder": str(folder), "report": str(page), "seconds": time.monotonic() - began, "exit": code}
        render.emit(found.to_dict() | where)
        return code
    render.print_line("")
    for line in found.sentences:
        render.print_line(line)
    render.print_line(f"report: {page}", "bold")
    return code


def settings_from_options(args: Args) -> tuple[LoopSettings, Path]:
    """What the options ask for, and the folder that it goes to."""
    from isthmus.pipeline.budgets import task_budget
    from isthmus.pipeline.evidence import LoopSettings
    from isthmus.tasks.catalogue import get_task

    task = get_task(args.task)
    check_not_negative(args, "budget", "seconds", "seed")
    if sum(x is not None and x != "" for x in (args.reality, args.hidden, args.link)) > 1:
        raise BadInput("a loop is about one robot: give --reality, --hidden or --link, and only one of them.")
    if args.family and args.hidden is None:
        raise BadInput("--family goes with --hidden SEED.")
    if not 1 <= args.rounds <= 20:
        raise BadInput("--rounds must be between 1 and 20.")
    seconds = args.seconds or task_budget(args.task).recording_seconds
    if not 2.0 <= seconds <= 600.0:
        raise BadInput("--seconds must be between 2 and 600.")
    word, name = _reality_and_suffix(args, task.robot)
    folder = args.out or Path("runs") / f"loop-{args.task.replace('/', '-')}{name}"
    run = _checked_run(args.policy, args.task) if args.policy is not None else ""
    return LoopSettings(args.task, args.link, word, seconds, args.rounds, args.budget, args.seed, run), folder


def _checked_run(run: Path, task: str) -> str:
    from isthmus.learn import runs
    from isthmus.tasks.catalogue import get_task

    found = runs.load(run)
    if found.config.task != task:
        raise BadInput(f"{run} is a policy for {found.config.task}, not for {task}.")
    if found.belief.hash != get_task(task).robot.prior.hash or found.task.robot.unit.hash != get_task(task).robot.unit.hash:
        raise BadInput(f"{run} was trained in other worlds than the prior of {found.task.robot.name}; a loop begins there.")
    return str(run.absolute())


def _reality_and_suffix(args: Args, robot: Any) -> tuple[str, str]:
    """The word for a virtual robot's reality, empty for a real one, and what its folder is called after it."""
    from isthmus.deploy.links.registry import check_link
    from isthmus.pipeline.evidence import SHIPPED_REALITY
    from isthmus.sim.reality.hidden import HIDDEN_PREFIX, parse_reality

    if args.link:
        check_link(args.link)
        return "", "-" + args.link.replace(":", "-").replace("/", "-")
    if args.reality is not None:
        word = str(args.reality)
        parse_reality(word, robot).check(robot)
        if not word.startswith(HIDDEN_PREFIX):
            return str(args.reality.absolute()), f"-{args.reality.stem}"
    elif args.hidden is None and _shipped_reality(args.task).exists():
        return SHIPPED_REALITY, ""
    else:
        parts = ("1", DEFAULT_FAMILY) if args.hidden is None else (str(args.hidden), args.family)
        word = HIDDEN_PREFIX + ":".join(part for part in parts if part)
        parse_reality(word, robot)
    return word, "-" + word.replace(":", "-")


def _shipped_reality(task: str) -> Path:
    """The reality that comes with a task."""
    import isthmus.pipeline

    return Path(isthmus.pipeline.__file__).parent / "realities" / f"{task.replace('/', '-')}.toml"


def _check_same_settings(before: Any, now: dict[str, Any], folder: Path) -> None:
    if not isinstance(before, dict):
        raise BadInput(f"{folder / 'loop.json'} is not the record of a loop; choose another folder with -o.")
    for name, value in now.items():
        if before.get(name) != value:
            raise BadInput(
                f"{folder} holds a loop with {name} {before.get(name)!r}, not {value!r}: go on with that, or choose another "
                "folder with -o."
            )


def run_command(args: tuple[str, ...]) -> tuple[int, dict[str, Any]]:
    """A command as it is typed, in this process."""
    from isthmus.cli.main import main

    printed = io.StringIO()
    with redirect_stdout(printed):
        try:
            code = main([*args, "--json"], inner=True)
        except (Exception, SystemExit) as error:
            # A mistake in one command must not take the others' work with it.
            traceback.print_exc()
            return CRASH_EXIT_CODE, {"error": f"{type(error).__name__}: {error}"}
    lines = [line for line in printed.getvalue().splitlines() if line.startswith("{")]
    return code, json.loads(lines[-1]) if lines else {}


class _ProgressPrinter:
    """Tells of each step as it begins and ends."""

    def __init__(self, quiet: bool, settings: LoopSettings):
        self.quiet, self.settings = quiet, settings
        self.finished: list[tuple[str, float]] = []
        self.running, self.name, self.began = False, "", 0.0

    def remaining_seconds(self, own: float | None = None) -> float | None:
        """s that the loop may still take, from what the command at work says it still needs."""
        from isthmus.pipeline.stages import remaining_seconds

        return remaining_seconds(self.finished, self.name, time.monotonic() - self.began, own)

    def __call__(self, number: int, step: Call, done: CallRecord | None) -> None:
        if done is None:
            self.running, self.name, self.began = True, step.name, time.monotonic()
            more = self.remaining_seconds()
            note = f"about {render.format_duration(more)} left in all" if more else expected_duration(self.settings)
            self._print_line(f"{number:>2}  {step.purpose}  ({note})", "bold")
            self._print_line(f"    isthmus {' '.join(_shell_quoted(a) for a in step.arguments)}", "dim")
            return
        self.finished.append((step.name, done.seconds))
        text = f"not done: {done.failure}" if done.failure else call_summary(done)
        found = ", ".join(
            part for part in (text, render.format_duration(done.seconds) if self.running else "done before") if part
        )
        self._print_line(f"    {found}" if self.running else f"{number:>2}  {step.purpose}: {found}")
        self.running = False

    def _print_line(self, text: str, style: str = "") -> None:
        if self.quiet:
            print(render.printable(text), file=sys.stderr, flush=True)
        else:
            render.print_line(text, style)


def expected_duration(settings: LoopSettings) -> str:
    """What a loop takes as a rule, before anything of it is known."""
    from isthmus.pipeline.budgets import task_budget
    from isthmus.pipeline.stages import TYPICAL_STEP_DURATIONS

    minutes = settings.budget or settings.rounds * task_budget(settings.task).loop_minutes
    stages = f"about {len(TYPICAL_STEP_DURATIONS)} stages as a rule"
    return stages + (f", {minutes:.0f} min in all on two free cores" if minutes else "")


def _shell_quoted(argument: str) -> str:
    return f"'{argument}'" if " " in argument else argument


def call_summary(done: CallRecord) -> str:
    """What a step found, in a few words."""
    r = done.result
    match done.call.arguments[0]:
        case "train":
            return f"success in {_format_rate(r['evaluation']['success'])} of its worlds"
        case "evaluate":
            return f"success in {_format_rate(r['success'])}"
        case "run":
            why = f": {r['reason']}" if r.get("reason") else ""
            ended = "not started" if r.get("status") == "refused" else f"{r.get('status')} after {r.get('seconds', 0):.1f} s"
            return f"{ended}{why}"
        case "diagnose":
            why, score = r.get("why"), r.get("score")
            far = f"{score['value']:.3g} times the noise from the simulator" if score else "cannot tell how far"
            return f"{why['headline']} {far}" if why else far
        case "identify":
            return _parameters_summary(r)
        case "actuator":
            return f"law: {r.get('law')}"
        case "residual":
            if ground := r.get("ground"):
                return f"it gives way: round feet sink in by {1e3 * ground['sink']:.2g} mm while it stands"
            return "kept" if r.get("kept") else "does not help, not kept"
        case "validate":
            return "passed" if r.get("passed") else "not passed"
    return ""


def _parameters_summary(r: dict[str, Any]) -> str:
    from isthmus.pipeline.outcome import parameters_outside_prior

    found = [
        f"{m.name} {m.value:.3g}{'' if m.unit == '1' else ' ' + m.unit}" for m in parameters_outside_prior(r["parameters"])[:3]
    ]
    return ", ".join(found) if found else "nothing that differs from what was believed"


def _format_rate(rate: dict[str, float]) -> str:
    return f"{100 * rate['rate']:.0f} % ({100 * rate['low']:.0f} to {100 * rate['high']:.0f})"


def _revealed_truth(settings: LoopSettings, folder: Path, robot: str) -> dict[str, Any] | None:
    """The truth of a virtual robot, once everything is over; None if it cannot be read any more."""
    if not settings.watched:
        return None
    from isthmus.robots import get_robot
    from isthmus.sim.reality.hidden import parse_reality

    try:
        return parse_reality(settings.reality_argument(folder), get_robot(robot)).to_dict()
    except BadInput as error:
        render.err.print(f"the truth cannot be told: {error}", markup=False)
        return None
