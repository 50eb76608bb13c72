"""Recordings as files: read any of ours, write one, import one of another program, say what is in a file."""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.files import atomic_write
from isthmus.core.progress import Progress, silent
from isthmus.core.results import Result
from isthmus.core.statistics import Rate
from isthmus.data.contract import Contract
from isthmus.data.episode import Episode, Event
from isthmus.data.mcap.writer import is_recording, read_episode, write_episode

PARQUET_SUFFIXES = (".parquet", ".pq")


@dataclass(frozen=True)
class ImportResult(Result, kind="data-import"):
    recording: str
    hash: str
    parents: tuple[str, ...]
    robot: str
    ticks: int
    duration: float
    """s."""
    rate: float
    """Hz."""
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ValueRange:
    low: float
    """Lowest finite value; NaN if there is none."""
    high: float
    missing: int
    """Values that are not finite numbers."""


@dataclass(frozen=True)
class SignalRange(ValueRange):
    unit: str
    size: int


@dataclass(frozen=True)
class ColumnRange(ValueRange):
    kind: str
    count: int


@dataclass(frozen=True)
class RecordingInfo(Result, kind="recording"):
    recording: str
    hash: str
    robot: str
    contract_hash: str
    origin: Mapping[str, Any]
    complete: bool
    """False for a recording that ends at its last complete chunk."""
    ticks: int
    duration: float
    """s."""
    rate: float
    """Hz."""
    missed: Rate | None
    """Fraction of deadlines missed, if the recording has them."""
    signals: Mapping[str, SignalRange]
    status: Mapping[str, ValueRange]
    events: tuple[Event, ...]


@dataclass(frozen=True)
class TableInfo(Result, kind="table"):
    """A file that is not a recording of ours."""

    file: str
    format: str
    columns: Mapping[str, ColumnRange]
    notes: tuple[str, ...]


def read_any(path: Path) -> Episode:
    """An episode from a recording (MCAP), or from a Parquet file that `data export` wrote."""
    if path.suffix in PARQUET_SUFFIXES:
        from isthmus.data.exporters.parquet import read_parquet

        return read_parquet(path)
    return read_episode(path)


def contract_of(robot: str) -> Contract:
    """Contract of a robot by name or model file, of the robot that a controller is for, or of a recording."""
    path = Path(robot)
    # Controllers and robots are of rooms above this one; they are named by strings and loaded when they are needed.
    if path.suffix == ".controller":
        return importlib.import_module("isthmus.deploy.onnx_controller").OnnxController.load(path).manifest.robot
    if path.suffix in (".mcap", *PARQUET_SUFFIXES):
        return read_any(path).contract
    try:
        robots = importlib.import_module("isthmus.robots")
    except ImportError:
        raise BadInput(f"{robot!r} by name needs the lab: pip install 'isthmus[lab]'; or give a controller.") from None
    return robots.get_robot(robot).contract


def write_recording(path: Path, episode: Episode) -> None:
    """Write an episode as MCAP, all of it or nothing."""
    out = io.BytesIO()
    write_episode(out, episode)
    atomic_write(path, out.getvalue())


def check_overwrite(out: Path, sources: Sequence[Path], overwrite: bool) -> None:
    """Raise BadInput if `out` is one of the sources, a folder, or exists and may not be written over."""
    if not out.exists():
        return
    if any(f.exists() and out.samefile(f) for f in sources):
        raise BadInput(f"{out} would be written over while it is read; give it another name.")
    if out.is_dir():
        raise BadInput(f"{out} is a folder; give the name of a file.")
    if not overwrite:
        raise BadInput(f"{out} exists; give another name, or --force to write over it.")


def import_recording(
    file: Path, out: Path, *, robot: str, column_map: Path, overwrite: bool = False, progress: Progress = silent
) -> ImportResult:
    """Import a log of another program (CSV, Parquet, MCAP, ROS 2 bag) by a column map, checked against the robot's contract."""
    from isthmus.data.mapping import import_file, read_column_map

    if out.suffix != ".mcap":
        raise BadInput("say where the recording goes: -o FILE.mcap.")
    check_overwrite(out, (file, column_map, Path(robot)), overwrite)
    mapping = read_column_map(column_map)
    episode, warnings = import_file(file, mapping, contract_of(robot), str(column_map), progress)
    write_recording(out, episode)
    parents = tuple(episode.origin.get("parents", ()))
    numbers = len(episode), episode.duration, episode.rate
    return ImportResult(str(out), episode.hash, parents, episode.contract.robot, *numbers, tuple(warnings))


def describe(path: Path, progress: Progress = silent) -> RecordingInfo | TableInfo:
    """What is in a file: for a recording the robot, signals and events; for any other table its columns."""
    from isthmus.data.exporters.parquet import is_episode_parquet
    from isthmus.data.importers import load_table

    if is_recording(path) or (path.suffix in PARQUET_SUFFIXES and is_episode_parquet(path)):
        return _describe_recording(path, read_any(path))
    table = load_table(path, progress)
    columns = {c.name: ColumnRange(*_finite_range(c.values), c.kind, len(c.values)) for c in table.columns.values()}
    return TableInfo(table.source, table.kind, columns, tuple(table.notes))


def _describe_recording(path: Path, episode: Episode) -> RecordingInfo:
    contract = episode.contract
    parts = [(s.name, s.unit, episode.signals[s.name]) for s in (*contract.signals, *episode.operator)]
    parts += [("target", contract.target.unit, episode.target), ("wanted", contract.target.unit, episode.wanted)]
    missed = None
    if "missed" in episode.status and len(episode):
        count = int(np.nansum(np.maximum(episode.status["missed"], 0)))
        missed = Rate.from_counts(count, max(len(episode), count, round(episode.duration * contract.rate) + 1))
    return RecordingInfo(
        recording=str(path),
        hash=episode.hash,
        robot=contract.robot,
        contract_hash=contract.hash,
        origin=dict(episode.origin),
        complete=episode.complete,
        ticks=len(episode),
        duration=episode.duration,
        rate=episode.rate,
        missed=missed,
        signals={name: SignalRange(*_finite_range(values), unit, values.shape[1]) for name, unit, values in parts},
        status={name: ValueRange(*_finite_range(values)) for name, values in episode.status.items()},
        events=tuple(episode.events),
    )


def _finite_range(values: np.ndarray) -> tuple[float, float, int]:
    """Lowest and highest finite value, and how many are missing."""
    fine = values[np.isfinite(values)]
    return (float(fine.min()), float(fine.max()), values.size - fine.size) if fine.size else (np.nan, np.nan, values.size)
