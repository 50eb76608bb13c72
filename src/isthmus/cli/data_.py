"""Recordings: bring those of others into our format, hand ours to other tools, look at what is in a file; and the store of all
episodes, simulated and real: add to it, ask it in SQL, label what a person saw, verify it, trace where something came from.

example: isthmus data info walk.mcap
"""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from rich.text import Text

from isthmus.cli import label, render, store, trace
from isthmus.core.errors import BadInput

if TYPE_CHECKING:
    from isthmus.data.contract import Contract
    from isthmus.data.episode import Episode
    from isthmus.data.importers import Table


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
    from isthmus.data.mapping import import_file, read_column_map

    if args.out.suffix != ".mcap":
        raise BadInput("say where the recording goes: -o FILE.mcap.")
    _check_overwrite(args.out, (args.file, args.map, Path(args.robot)), args.force)
    mapping = read_column_map(args.map)
    contract = contract_of(args.robot)
    with render.progress_bar("importing") as bar:
        episode, warnings = import_file(args.file, mapping, contract, str(args.map), bar.update)
    _write_mcap(args.out, episode)
    if args.json:
        about = {"recording": str(args.out), "hash": episode.hash, "parents": episode.origin.get("parents", [])}
        render.emit({**about, "ticks": len(episode), "duration": episode.duration, "rate": episode.rate, "warnings": warnings})
        return 0
    _print_title(args.out, _summary(episode))
    _print_list("worth a look", warnings)
    return 0


def _run_export(args: Export) -> int:
    from isthmus.data.exporters.parquet import write_lerobot, write_parquet

    if args.out == Path() or not args.files:
        raise BadInput("say what to export and where it goes: isthmus data export FILE.mcap -o FILE.parquet.")
    form = args.format if args.format != "auto" else {".parquet": "parquet", ".mcap": "mcap"}.get(args.out.suffix, "")
    if not form:
        raise BadInput(f"{args.out} could be anything; name it .parquet or .mcap, or add --format lerobot.")
    if len(args.files) > 1 and form != "lerobot":
        raise BadInput("a file holds one recording; export them one by one, or all with --format lerobot.")
    if form != "lerobot":
        _check_overwrite(args.out, args.files, args.force)
    episodes = [read_any(f) for f in args.files]
    warnings: tuple[str, ...] = tuple(
        f"{f} is cut; what came before is exported." for f in _incomplete_files(args.files, episodes)
    )
    if form == "lerobot":
        warnings += write_lerobot(args.out, episodes, args.task)
    elif form == "parquet":
        write_parquet(args.out, episodes[0])
    else:
        _write_mcap(args.out, _repaired_episode(episodes[0]))
    ticks = sum(map(len, episodes))
    if args.json:
        parents = [e.hash for e in episodes]
        render.emit({"out": str(args.out), "format": form, "ticks": ticks, "parents": parents, "warnings": warnings})
        return 0
    _print_title(args.out, f"{len(episodes)} episode{'s'[: len(episodes) > 1]}, {ticks} ticks, {form}")
    _print_list("worth a look", warnings)
    return 0


def _check_overwrite(out: Path, sources: tuple[Path, ...], force: bool) -> None:
    """Nothing is written over unasked, and what is read never."""
    if not out.exists():
        return
    if any(f.exists() and out.samefile(f) for f in sources):
        raise BadInput(f"{out} would be written over while it is read; give it another name.")
    if out.is_dir():
        raise BadInput(f"{out} is a folder; give the name of a file.")
    if not force:
        raise BadInput(f"{out} exists; give another name, or --force to write over it.")


def _run_info(args: Info) -> int:
    from isthmus.data.importers import load_table
    from isthmus.data.mcap.writer import is_recording

    if is_recording(args.file) or _is_episode(args.file):
        return _print_recording(args, read_any(args.file))
    with render.progress_bar("reading") as bar:
        table = load_table(args.file, bar.update)
    return _print_columns(args, table)


def read_any(path: Path) -> Episode:
    """An episode from a recording, or from a Parquet file that `data export` wrote."""
    if path.suffix in (".parquet", ".pq"):
        from isthmus.data.exporters.parquet import read_parquet

        return read_parquet(path)
    from isthmus.data.mcap.writer import read_episode

    return read_episode(path)


def contract_of(robot: str) -> Contract:
    """Of a robot by name or model, of the robot that a controller is for, or of a recording."""
    path = Path(robot)
    if path.suffix == ".controller":
        from isthmus.deploy.onnx_controller import OnnxController

        return OnnxController.load(path).manifest.robot
    if path.suffix in (".mcap", ".parquet", ".pq"):
        return read_any(path).contract
    try:
        from isthmus.robots import get_robot
    except ImportError:
        raise BadInput(f"{robot!r} by name needs the lab: pip install 'isthmus[lab]'; or give a controller.") from None
    return get_robot(robot).contract


def _is_episode(path: Path) -> bool:
    from isthmus.data.exporters.parquet import is_episode_parquet

    return path.suffix in (".parquet", ".pq") and is_episode_parquet(path)


def _write_mcap(path: Path, episode: Episode) -> None:
    from isthmus.core.files import atomic_write
    from isthmus.data.mcap.writer import write_episode

    out = io.BytesIO()
    write_episode(out, episode)
    atomic_write(path, out.getvalue())


def _repaired_episode(episode: Episode) -> Episode:
    """To be written as a whole file; that it was cut is kept in its origin."""
    if episode.complete:
        return episode
    return replace(episode, origin={**episode.origin, "parents": [episode.hash], "cut": True}, complete=True)


def _incomplete_files(files: tuple[Path, ...], episodes: list[Episode]) -> list[Path]:
    return [f for f, e in zip(files, episodes, strict=True) if not e.complete]


def _summary(episode: Episode) -> str:
    return f"{episode.contract.robot}, {len(episode)} ticks, {episode.duration:.2f} s at {episode.rate:.4g} Hz"


def _print_line(text: str, style: str = "", whole: bool = False) -> None:
    """A line as it is: no markup, no emoji. `whole` is not wrapped, however long."""
    render.out.print(Text(render.printable(text), style), soft_wrap=whole)


def _print_table(title: str, columns: list[str], rows: list[list[str]], right: tuple[int, ...]) -> None:
    render.out.print()
    render.out.print(render.table(title, columns, rows, right))


def _print_title(path: Path, text: str) -> None:
    _print_line(str(path), "bold", whole=True)
    _print_line(text)


def _print_list(title: str, lines: tuple[str, ...] | list[str]) -> None:
    if lines:
        render.out.print()
        _print_line(title, "bold")
        for line in lines:
            _print_line(f"- {line}")


def _finite_range(values: np.ndarray) -> tuple[float, float, int]:
    """Lowest, highest, and how many are missing."""
    fine = values[np.isfinite(values)]
    return (float(fine.min()), float(fine.max()), values.size - fine.size) if fine.size else (np.nan, np.nan, values.size)


def _print_recording(args: Info, episode: Episode) -> int:
    from isthmus.core.statistics import Rate

    contract, origin = episode.contract, episode.origin
    parts = [(s.name, s.unit, episode.signals[s.name]) for s in (*contract.signals, *episode.operator)]
    parts += [("target", contract.target.unit, episode.target), ("wanted", contract.target.unit, episode.wanted)]
    ranges = [(name, unit, values.shape[1], *_finite_range(values)) for name, unit, values in parts]
    status = {name: _finite_range(values) for name, values in episode.status.items()}
    events = Counter((e.level, e.name) for e in episode.events)
    missed = None
    if "missed" in episode.status and len(episode):
        count = int(np.nansum(np.maximum(episode.status["missed"], 0)))
        missed = Rate.from_counts(count, max(len(episode), count, round(episode.duration * contract.rate) + 1))
    if args.json:
        render.emit({
            "recording": str(args.file), "hash": episode.hash, "robot": contract.robot, "contract_hash": contract.hash,
            "origin": dict(origin), "complete": episode.complete, "ticks": len(episode), "duration": episode.duration,
            "rate": episode.rate, "missed": vars(missed) if missed else None,
            "signals": {n: {"unit": u, "size": k, "low": a, "high": b, "missing": c} for n, u, k, a, b, c in ranges},
            "status": {n: {"low": a, "high": b, "missing": c} for n, (a, b, c) in status.items()},
            "events": [vars(e) for e in episode.events],
        })  # fmt: skip
        return 0
    state = "complete" if episode.complete else "cut: it ends at the last complete chunk"
    _print_title(args.file, f"{_summary(episode)}, {state}")
    _print_line(_origin_text(origin))
    if missed:
        _print_line(f"missed deadlines: {missed}")
    rows = [[n, u, str(k), _format_number(a), _format_number(b), str(c or "")] for n, u, k, a, b, c in ranges]
    rows += [[f"status.{n}", "", "1", _format_number(a), _format_number(b), str(c or "")] for n, (a, b, c) in status.items()]
    _print_table("", ["signal", "unit", "size", "lowest", "highest", "missing"], rows, right=(2, 3, 4, 5))
    if events:
        first = {(e.level, e.name): e for e in reversed(episode.events)}
        rows = [
            [level, name, str(n), f"{first[level, name].time:.2f}", first[level, name].text]
            for (level, name), n in events.items()
        ]
        _print_table("events", ["level", "name", "times", "first s", "which says"], rows, right=(2, 3))
    return 0


def _origin_text(origin: Any) -> str:
    started = origin.get("started")
    parts = [f"source {origin.get('source', 'unknown')}"]
    parts += [f"{name} {origin[name]}" for name in ("unit", "task", "file") if origin.get(name)]
    parts += [f"controller {str(origin['controller_hash'])[:12]}"] if origin.get("controller_hash") else []
    if isinstance(started, int | float) and 0 < started < 2**33:
        parts.append(f"started {datetime.fromtimestamp(started, UTC):%Y-%m-%d %H:%M:%S} UTC")
    return ", ".join(parts)


def _format_number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4g}"


def _print_columns(args: Info, table: Table) -> int:
    found = [(c, *_finite_range(c.values)) for c in table.columns.values()]
    if args.json:
        columns = {
            c.name: {"kind": c.kind, "count": len(c.values), "missing": missing, "low": low, "high": high}
            for c, low, high, missing in found
        }
        render.emit({"file": table.source, "format": table.kind, "columns": columns, "notes": table.notes})
        return 0
    _print_title(args.file, f"{table.kind}, {len(found)} columns; not a recording of ours")
    rows = [
        [
            c.name,
            c.kind,
            str(len(c.values)),
            str(missing or "") if c.kind == "number" else "",
            _format_number(low),
            _format_number(high),
        ]
        for c, low, high, missing in found
    ]
    _print_table("", ["column", "kind", "count", "missing", "lowest", "highest"], rows, right=(2, 3, 4, 5))
    _print_list("notes", table.notes)
    return 0
