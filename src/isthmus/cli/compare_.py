"""Compare policies world by world, inside and outside of what they trained on.

example: isthmus compare runs/ppo runs/rma runs/teacher --reality realities

example: isthmus compare runs/narrow runs/wide --sweep payload -o report

example: isthmus compare runs/ppo runs/rma --change payload=4 --at 5 -o report
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from isthmus.cli import render
from isthmus.cli.option_assignments import parse_assignments
from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable
from isthmus.core.plain import to_plain
from isthmus.robots.dynamics import resolve_dynamics

if TYPE_CHECKING:
    from isthmus.learn.evaluate.comparison_report import Comparison
    from isthmus.learn.evaluate.contenders import Contender
    from isthmus.learn.evaluate.world_sets import WorldSet
    from isthmus.tasks.task import Task

DEFAULT_NOMINAL_MARGIN = 0.05
"""Score that a method may lose in the nominal world, where nothing else is said."""


@dataclass(frozen=True)
class Args:
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN …")]
    """Folders of the runs; differences are against the first."""
    worlds: int = 500
    """Worlds per ground, one episode in each. Realities share them; each value of a sweep gets a fifth."""
    task: str = ""
    """Task that all are compared on; by default that of the first run."""
    grounds: tuple[str, ...] = ("inside", "outside", "nominal")
    """Sets of worlds: inside, outside, nominal. Nothing after it for none."""
    belief: Path | None = None
    """Worlds: a file with a belief, or a twin with its motors, ground and forces; by default the prior of the task."""
    reality: Path | None = None
    """Folder of reality files (*.toml), or one such file: each is a ground of its own."""
    sweep: tuple[str, ...] = ()
    """Parameters to vary one by one between their hard bounds."""
    change: tuple[str, ...] = ()
    """Change parameters in the middle of the episode, as NAME=VALUE, and see how long each run takes to recover."""
    before: tuple[str, ...] = ()
    """Values of those parameters before the change, as NAME=VALUE; by default nominal."""
    at: float | None = None
    """Seconds into the episode at which they change; by default after 40 % of it."""
    margin: float | None = None
    """Score that a method may lose in the nominal world before that is reported; by default 0.05."""
    reference: Path | None = None
    """Run whose method nominal scores are held against; by default the best method."""
    by_method: bool = False
    """Show each method over its runs also where it has only one."""
    by_name: bool = False
    """Runs are one method where their folders' names differ in a number at the end, whatever else was asked of them."""
    seed: int = 1000
    """Seed of the worlds."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for compare.json and figures; or one file, NAME.json or NAME.png."""
    episodes: Path | None = None
    """Folder for lists of all episodes, one per ground and run; `isthmus data add` takes them."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    _check_options(args)
    from isthmus.learn import runs
    from isthmus.learn.evaluate import compare, recovery
    from isthmus.learn.evaluate import world_sets as grounds
    from isthmus.learn.evaluate.comparison_report import Comparison, output_paths
    from isthmus.learn.evaluate.contenders import load_contenders
    from isthmus.learn.evaluate.sweep import sweep_parameter
    from isthmus.tasks.catalogue import get_task

    where = output_paths(args.out) if args.out else (None, None)
    task = get_task(args.task) if args.task else runs.load(args.runs[0]).task.nominal_unit()
    robot, belief = resolve_dynamics(args.belief, task.robot)
    task = task.on(robot)
    space, worlds, seed = task.robot.space, args.worlds, args.seed
    entries = load_contenders(args.runs, task, args.by_name)
    reference, margin = (
        _reference_method(args, [e.method for e in entries]),
        DEFAULT_NOMINAL_MARGIN if args.margin is None else args.margin,
    )
    chosen, left_out = grounds.parametric_world_sets(args.grounds, belief, worlds, seed)
    chosen += grounds.reality_world_sets(args.reality, task, worlds, seed) if args.reality else []
    for name in args.sweep:
        space.index(name)
    after, before = (parse_assignments(option, getattr(args, option)) for option in ("change", "before"))
    event = recovery.WorldChange.for_task(task, after, before, args.at) if after else None
    lists = _episode_list_paths(args.episodes, entries, chosen)
    check_writable(where[0], *(where[1] or ()), *lists)

    with render.progress_bar(f"comparing on {task.name}") as bar:
        parts = _progress_parts(bar, [len(chosen), *([5] * len(args.sweep)), *([3] if event else [])])
        tables = compare.evaluate_contenders(task, entries, chosen, next(parts))
        swept = [sweep_parameter(task, entries, name, belief, worlds, seed, next(parts)) for name in args.sweep]
        changed = recovery.measure_recovery(task, entries, event, belief, worlds, seed, next(parts)) if event else ([], [])

    report = Comparison(
        *(task, entries, belief, worlds, seed, chosen, left_out),
        run_results={name: [compare.run_result(task, own, found[0]) for own in found] for name, found in tables.items()},
        method_results={name: compare.method_results(task, entries, found) for name, found in tables.items()},
        gaps_closed={name: compare.gaps_closed(entries, found) for name, found in tables.items()},
        nominal_losses=compare.nominal_losses(entries, tables["nominal"], margin, reference) if "nominal" in tables else [],
        sweeps=swept,
        change=event,
        recoveries=changed,
    )

    def write() -> list[Path]:
        _write_episode_lists(lists, task, entries, chosen, tables)
        return [*_write_files(report, *where), *lists]

    if args.json:
        return emit_with_files(report.to_dict(), write)
    from isthmus.cli import comparison_tables

    try:
        files = write()
    finally:
        # Whatever happens to a file, or to whoever reads our output, neither costs the other.
        comparison_tables.print_comparison(report, args.by_method, margin)
    for file in files:
        render.print_line(f"wrote {file}")
    return 0


def emit_with_files(found: dict[str, Any], write: Callable[[], list[Path]]) -> int:
    """Write files and print one JSON object, which holds everything also where a file cannot be written."""
    try:
        render.emit(found | {"files": [str(file) for file in write()]})
    except BadInput as error:
        render.emit(found | {"files": [], "error": str(error), "exit": 2})
        print(f"isthmus: {error}", file=sys.stderr)
        return 2
    return 0


def _check_options(args: Args) -> None:
    if not args.runs:
        raise BadInput("say which runs to compare: isthmus compare RUN RUN ….")
    if args.worlds < 1:
        raise BadInput("--worlds must be at least 1.")
    if args.seed < 0:
        raise BadInput("--seed must not be negative.")
    if args.margin is not None and not 0 <= args.margin < math.inf:
        raise BadInput("--margin must be a finite number, not negative.")
    for option in ("margin", "reference"):
        if getattr(args, option) is not None and "nominal" not in args.grounds:
            raise BadInput(f"--{option} needs the nominal ground; add it to --grounds.")
    for name in args.sweep:
        if args.sweep.count(name) > 1:
            raise BadInput(f"--sweep names {name!r} more than once.")
    if not args.change and (args.before or args.at is not None):
        raise BadInput("--before and --at go with --change.")
    if args.episodes is not None and not (args.grounds or args.reality):
        raise BadInput("--episodes lists episodes on grounds and realities; give --grounds or --reality.")
    if not (args.grounds or args.reality or args.sweep or args.change):
        raise BadInput("there is nothing to compare on: give --grounds, --reality, --sweep or --change.")


def _reference_method(args: Args, methods: list[str]) -> str:
    """The method that nominal scores are held against; empty for the best."""
    if args.reference is None:
        return ""
    for folder, method in zip(args.runs, methods, strict=True):
        if args.reference.absolute() == folder.absolute():
            return method
    raise BadInput(f"--reference {args.reference} is not among the runs that are compared.")


def _progress_parts(bar: render.ProgressBar, weights: list[float]):
    """Reports for consecutive parts of the work, which take times in proportion to their weights."""
    total, begun = sum(weights) or 1.0, 0.0
    for weight in weights:
        yield lambda f, note, begun=begun, weight=weight: bar.update((begun + f * weight) / total, note)
        begun += weight


def _episode_list_paths(folder: Path | None, entries: list[Contender], grounds: list[WorldSet]) -> list[Path]:
    """A file for each ground and run, in this order; none without a folder."""
    if folder is None:
        return []
    return [folder / f"{i + 1:02d}-{k + 1:02d}.parquet" for i in range(len(grounds)) for k in range(len(entries))]


def _write_episode_lists(files: list[Path], task: Task, entries: list[Contender], grounds: list[WorldSet], tables: Any) -> None:
    """Every episode on every ground, as lists for the store."""
    if not files:
        return
    from isthmus.cli.evaluation_episodes import write_episodes

    places = iter(files)
    for ground in grounds:
        of = {
            "belief": ground.belief.hash if ground.belief else None,
            "reality": ground.reality.hash if ground.reality else None,
        }
        for entry, rows in zip(entries, tables[ground.name], strict=True):
            write_episodes(next(places), entry.run, task, rows, ground.seed, [ground.name], **of)


def _write_files(report: Comparison, record: Path | None, figures: tuple[Path, Path, Path] | None) -> list[Path]:
    """The record and the figures, where they are asked for."""
    from isthmus.core.files import content_hash, write_json
    from isthmus.studio.figures.comparison import draw_figures

    if record is not None:
        plain = to_plain(report.to_dict())
        write_json(record, plain | {"hash": content_hash(plain)})
    return ([record] if record else []) + (draw_figures(report, *figures) if figures else [])
