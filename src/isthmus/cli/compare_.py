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

from isthmus.cli import show
from isthmus.cli.assigned import assigned
from isthmus.cli.worlds import as_designed, task_on, worlds_of
from isthmus.errors import BadInput
from isthmus.files import check_places

if TYPE_CHECKING:
    from isthmus.adapt.comparison.contend import Contender
    from isthmus.adapt.comparison.grounds import Ground
    from isthmus.adapt.comparison.report import Report
    from isthmus.tasks.task import Task

MARGIN = 0.05
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
    _check(args)
    from isthmus.adapt.comparison import grounds, measure, recovery
    from isthmus.adapt.comparison.contend import contenders
    from isthmus.adapt.comparison.report import Report, places
    from isthmus.adapt.comparison.sweep import sweep
    from isthmus.learn import runs
    from isthmus.tasks import get_task

    where = places(args.out) if args.out else (None, None)
    task = get_task(args.task) if args.task else as_designed(runs.load(args.runs[0]).task)
    robot, belief = worlds_of(args.belief, task.robot)
    task = task_on(task, robot)
    space, worlds, seed = task.robot.space, args.worlds, args.seed
    entries = contenders(args.runs, task, args.by_name)
    reference, margin = _reference(args, [e.method for e in entries]), MARGIN if args.margin is None else args.margin
    chosen, left_out = grounds.parametric(args.grounds, belief, worlds, seed)
    chosen += grounds.real(args.reality, task, worlds, seed) if args.reality else []
    for name in args.sweep:
        space.index(name)
    after, before = (assigned(option, getattr(args, option)) for option in ("change", "before"))
    event = recovery.Event.of(task, after, before, args.at) if after else None
    lists = _lists(args.episodes, entries, chosen)
    check_places(where[0], *(where[1] or ()), *lists)

    with show.bar(f"comparing on {task.name}") as bar:
        parts = _shares(bar, [len(chosen), *([5] * len(args.sweep)), *([3] if event else [])])
        tables = measure.measure(task, entries, chosen, next(parts))
        swept = [sweep(task, entries, name, belief, worlds, seed, next(parts)) for name in args.sweep]
        changed = recovery.recoveries(task, entries, event, belief, worlds, seed, next(parts)) if event else ([], [])

    report = Report(
        *(task, entries, belief, worlds, seed, chosen, left_out),
        results={name: [measure.result(task, own, found[0]) for own in found] for name, found in tables.items()},
        groups={name: measure.groups(task, entries, found) for name, found in tables.items()},
        shares={name: measure.recovered(entries, found) for name, found in tables.items()},
        timidity=measure.timidity(entries, tables["nominal"], margin, reference) if "nominal" in tables else [],
        sweeps=swept,
        event=event,
        recoveries=changed,
    )

    def write() -> list[Path]:
        _write_lists(lists, task, entries, chosen, tables)
        return [*_write(report, *where), *lists]

    if args.json:
        return emit(report.to_dict(), write)
    from isthmus.cli import compared

    try:
        files = write()
    finally:
        # Whatever happens to a file, or to whoever reads our output, neither costs the other.
        compared.everything(report, args.by_method, margin)
    for file in files:
        show.say(f"wrote {file}")
    return 0


def emit(found: dict[str, Any], write: Callable[[], list[Path]]) -> int:
    """Write files and print one JSON object, which holds everything also where a file cannot be written."""
    try:
        show.emit(found | {"files": [str(file) for file in write()]})
    except BadInput as error:
        show.emit(found | {"files": [], "error": str(error), "exit": 2})
        print(f"isthmus: {error}", file=sys.stderr)
        return 2
    return 0


def _check(args: Args) -> None:
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


def _reference(args: Args, methods: list[str]) -> str:
    """The method that nominal scores are held against; empty for the best."""
    if args.reference is None:
        return ""
    for folder, method in zip(args.runs, methods, strict=True):
        if args.reference.absolute() == folder.absolute():
            return method
    raise BadInput(f"--reference {args.reference} is not among the runs that are compared.")


def _shares(bar: show.Bar, weights: list[float]):
    """Reports for consecutive parts of the work, which take times in proportion to their weights."""
    total, begun = sum(weights) or 1.0, 0.0
    for weight in weights:
        yield lambda f, note, begun=begun, weight=weight: bar.update((begun + f * weight) / total, note)
        begun += weight


def _lists(folder: Path | None, entries: list[Contender], grounds: list[Ground]) -> list[Path]:
    """A file for each ground and run, in this order; none without a folder."""
    if folder is None:
        return []
    return [folder / f"{i + 1:02d}-{k + 1:02d}.parquet" for i in range(len(grounds)) for k in range(len(entries))]


def _write_lists(files: list[Path], task: Task, entries: list[Contender], grounds: list[Ground], tables: Any) -> None:
    """Every episode on every ground, as lists for the store."""
    if not files:
        return
    from isthmus.cli.episodes import write_episodes

    places = iter(files)
    for ground in grounds:
        of = {
            "belief": ground.belief.hash if ground.belief else None,
            "reality": ground.reality.hash if ground.reality else None,
        }
        for entry, rows in zip(entries, tables[ground.name], strict=True):
            write_episodes(next(places), entry.run, task, rows, ground.seed, [ground.name], **of)


def _write(report: Report, record: Path | None, figures: tuple[Path, Path, Path] | None) -> list[Path]:
    """The record and the figures, where they are asked for."""
    from isthmus.adapt.comparison.report import draw
    from isthmus.files import content_hash, write_json

    if record is not None:
        plain = show.plain(report.to_dict())
        write_json(record, plain | {"hash": content_hash(plain)})
    return ([record] if record else []) + (draw(report, *figures) if figures else [])
