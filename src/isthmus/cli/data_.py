"""Recordings: import those of other programs, export ours, say what is in a file; and the store of all episodes, simulated and
real: add to it, query it in SQL, label episodes, verify it, trace where something came from.

example: isthmus data info walk.mcap
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from isthmus.cli import label, recording_table, render, store, trace
from isthmus.core.errors import BadInput


@dataclass(frozen=True)
class Import:
    """Read a recording of others (CSV, Parquet, MCAP, ROS 2 bag) under a mapping file, checked against the robot.

    example: isthmus data import log.csv --robot go1 --map go1.toml -o walk.mcap
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """File, or folder of a ROS 2 bag."""
    robot: str
    """Whose contract: a robot's name or model, a FILE.controller, or another recording."""
    map: Path
    """Which column is which signal, in which unit (TOML)."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path()
    """Recording to write, .mcap."""
    force: bool = False
    """Write over a file that exists."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class Export:
    """Write recordings as Parquet, as a LeRobot dataset, or, to mend a cut one, as MCAP.

    example: isthmus data export walk.mcap -o walk.parquet
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE …")]
    """Recordings."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path()
    """FILE.parquet, FILE.mcap, or a folder for --format lerobot."""
    format: Literal["auto", "parquet", "lerobot", "mcap"] = "auto"
    """`auto` goes by the name's ending."""
    task: str = ""
    """What the robot did, in words, for a LeRobot dataset."""
    force: bool = False
    """Write over a file that exists; a LeRobot dataset always needs a new or empty folder."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class Info:
    """What is in a file: for a recording the robot, signals and events; for any other file its columns.

    example: isthmus data info walk.mcap
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    json: bool = False
    """Print one JSON object instead of text."""


Args = (
    Annotated[Import, tyro.conf.subcommand("import", prefix_name=False)]
    | Annotated[Export, tyro.conf.subcommand("export", prefix_name=False)]
    | Annotated[Info, tyro.conf.subcommand("info", prefix_name=False)]
    | Annotated[store.Add, tyro.conf.subcommand("add", prefix_name=False)]
    | Annotated[store.Query, tyro.conf.subcommand("query", prefix_name=False)]
    | Annotated[label.Label, tyro.conf.subcommand("label", prefix_name=False)]
    | Annotated[store.Verify, tyro.conf.subcommand("verify", prefix_name=False)]
    | Annotated[trace.Trace, tyro.conf.subcommand("trace", prefix_name=False)]
)


def run(args: Import | Export | Info | store.Add | store.Query | store.Verify | label.Label | trace.Trace) -> int:
    try:
        if isinstance(args, trace.Trace):
            return trace.run(args)
        if isinstance(args, label.Label):
            return label.run(args)
        if isinstance(args, store.Add | store.Query | store.Verify):
            return store.run(args)
        if isinstance(args, Import):
            return _run_import(args)
        return _run_export(args) if isinstance(args, Export) else _run_info(args)
    except BadInput as error:
        # It may quote names out of a file.
        raise BadInput(render.printable(str(error))) from None


def _run_import(args: Import) -> int:
    from isthmus.data.recordings import import_recording

    with render.progress_bar("importing") as bar:
        made = import_recording(
            args.file, args.out, robot=args.robot, column_map=args.map, overwrite=args.force, progress=bar.update
        )
    if args.json:
        render.emit(made.to_dict())
        return 0
    recording_table.print_title(args.out, recording_table.summary(made.robot, made.ticks, made.duration, made.rate))
    recording_table.print_list("warnings", made.warnings)
    return 0


def _run_export(args: Export) -> int:
    from isthmus.data.exporters.export import export_recordings

    made = export_recordings(args.files, args.out, format=args.format, task=args.task, overwrite=args.force)
    if args.json:
        render.emit(made.to_dict())
        return 0
    several = "s" if made.episodes > 1 else ""
    recording_table.print_title(args.out, f"{made.episodes} episode{several}, {made.ticks} ticks, {made.format}")
    recording_table.print_list("warnings", made.warnings)
    return 0


def _run_info(args: Info) -> int:
    from isthmus.data.recordings import RecordingInfo, describe

    with render.deferred_progress_bar("reading") as progress:
        found = describe(args.file, progress)
    if args.json:
        render.emit(found.to_dict())
    elif isinstance(found, RecordingInfo):
        recording_table.print_recording(args.file, found)
    else:
        recording_table.print_columns(args.file, found)
    return 0
