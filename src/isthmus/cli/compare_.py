"""Compare policies world by world, inside and outside of what they trained on.

example: isthmus compare runs/ppo runs/rma runs/teacher --reality realities

example: isthmus compare runs/narrow runs/wide --sweep payload -o report

example: isthmus compare runs/ppo runs/rma --change payload=4 --at 5 -o report
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from isthmus.cli import render
from isthmus.cli.option_assignments import parse_assignments
from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable, content_hash, write_json

if TYPE_CHECKING:
    from isthmus.learn.evaluate.compare import Comparison


@dataclass(frozen=True)
class Args:
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN …")]
    """Folders of the runs; differences are against the first."""
    worlds: int = 500
    """Worlds per set, one episode in each. Realities share them; each value of a sweep gets a fifth."""
    task: str = ""
    """Task that all are compared on; by default that of the first run."""
    sets: Annotated[tuple[str, ...], tyro.conf.arg(aliases=["--grounds"])] = ("inside", "outside", "nominal")
    """Sets of worlds: inside, outside, nominal. Nothing after it for none."""
    dynamics: Annotated[Path | None, tyro.conf.arg(aliases=["--belief"])] = None
    """Worlds: a file with a belief, or a twin with its motors, ground and forces; by default the prior of the task."""
    reality: Path | None = None
    """Folder of reality files (*.toml), or one such file: each is a set of its own."""
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
    """Folder for lists of all episodes, one per set and run; `isthmus data add` takes them."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    from isthmus.learn.evaluate.compare import compare

    record, figures = output_paths(args.out) if args.out else (None, None)
    check_writable(record, *(figures or ()))
    with render.progress_bar("comparing") as bar:
        result = compare(
            args.runs,
            worlds=args.worlds,
            task=args.task,
            sets=args.sets,
            dynamics=args.dynamics,
            reality=args.reality,
            sweep=args.sweep,
            change=parse_assignments("change", args.change),
            before=parse_assignments("before", args.before),
            at=args.at,
            margin=args.margin,
            reference=args.reference,
            by_name=args.by_name,
            seed=args.seed,
            episodes=args.episodes,
            progress=bar.update,
        )
    write = lambda: _write_files(result, record, figures)  # noqa: E731
    if args.json:
        return emit_with_files(result, write)
    from isthmus.cli import comparison_tables

    try:
        files = write()
    finally:
        # Whatever happens to a file, or to whoever reads our output, neither costs the other.
        comparison_tables.print_comparison(result, args.by_method, result.margin)
    for file in (*files, *result.files):
        render.print_line(f"wrote {file}")
    return 0


def emit_with_files(result: Any, write: Callable[[], list[Path]]) -> int:
    """Write files and print the result as JSON, which holds everything also where a file cannot be written."""
    try:
        files = tuple(str(file) for file in write())
    except BadInput as error:
        render.emit(result.to_dict() | {"error": str(error), "exit": 2})
        print(f"isthmus: {error}", file=sys.stderr)
        return 2
    render.emit(replace(result, files=(*files, *result.files)).to_dict())
    return 0


def output_paths(out: Path) -> tuple[Path | None, tuple[Path, Path, Path] | None]:
    """Where the record goes, and the figures: a folder for all, NAME.json for the record or NAME.png for figures alone."""
    if out.suffix == ".json":
        return out, None
    if out.suffix == ".png":
        return None, (out, out.with_name(f"{out.stem}-sweep.png"), out.with_name(f"{out.stem}-recovery.png"))
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file; -o takes a folder, NAME.json or NAME.png.")
    return out / "compare.json", (out / "compare.png", out / "sweep.png", out / "recovery.png")


def _write_files(result: Comparison, record: Path | None, figures: tuple[Path, Path, Path] | None) -> list[Path]:
    """The record and the figures, where they are asked for."""
    from isthmus.studio.figures.comparison import draw_figures

    if record is not None:
        plain = render.to_plain(result.to_dict())
        write_json(record, plain | {"hash": content_hash(plain)})
    return ([record] if record else []) + (draw_figures(result, *figures) if figures else [])
