"""Episodes for other tools: Parquet tables, there and back bit for bit, and the LeRobot dataset layout."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.files import atomic_write, canonical_json, write_json
from isthmus.core.from_plain import from_plain
from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode, Event
from isthmus.data.importers.parquet import import_pyarrow, open_parquet, read_numbers
from isthmus.data.mcap.layout import Layout

EPISODE_METADATA_KEY = b"isthmus.episode"
"""Of the schema's metadata."""
STATS_PERCENTILES = (1, 10, 50, 90, 99)


def column_names(episode: Episode) -> list[str]:
    """Of a Parquet table: `time`, `joint_pos.FR_hip`, …, `target.X`, `wanted.X`, `status.NAME`, in the order of a row."""
    target = episode.contract.target.labels
    names = [f"{s.name}.{x}" for s in (*episode.contract.signals, *episode.operator) for x in s.labels]
    names += [f"{part}.{x}" for part in ("target", "wanted") for x in target]
    return ["time", *names, *(f"status.{name}" for name in episode.status)]


def write_parquet(path: str | Path, episode: Episode) -> None:
    """One column per value, float64; contract, origin and events go into the metadata of the schema."""
    pa = import_pyarrow()
    about = episode.metadata() | {"hash": episode.hash}
    table = pa.table(
        [pa.array(np.ascontiguousarray(c)) for c in Layout.rows_from_episode(episode).T], names=column_names(episode)
    )
    _write_table(Path(path), table.replace_schema_metadata({EPISODE_METADATA_KEY: canonical_json(about).encode()}))


def is_episode_parquet(path: str | Path) -> bool:
    """Whether a Parquet file was written by `write_parquet`."""
    try:
        return EPISODE_METADATA_KEY in (open_parquet(Path(path)).schema_arrow.metadata or {})
    except BadInput:
        return False


def read_parquet(path: str | Path) -> Episode:
    """What `write_parquet` wrote; anything else is a BadInput."""
    pa, file, where = import_pyarrow(), open_parquet(Path(path)), str(path)
    raw = (file.schema_arrow.metadata or {}).get(EPISODE_METADATA_KEY)
    if raw is None:
        raise BadInput(f"{where} is not an episode of Isthmus; `isthmus data import` takes other tables.")
    try:
        about = json.loads(raw)
        contract = Contract.from_dict(about["contract"], where)
        operator, status = _parse_list(Signal, about["operator"], where), tuple(map(str, about["status"]))
        events, origin, complete = _parse_list(Event, about["events"], where), about["origin"], about["complete"] is True
        columns = read_numbers(file, Path(path))
    except (KeyError, TypeError, RecursionError, ValueError, OSError, pa.ArrowException) as error:
        raise error if isinstance(error, BadInput) else BadInput(f"{where} is broken: {error}.") from None
    layout = Layout(contract, operator, status)
    if len(columns) != layout.width or not isinstance(origin, dict):
        raise BadInput(f"{where} has {len(columns)} columns, but its contract needs {layout.width}.")
    return layout.to_episode(np.stack(columns, axis=1), events, origin, complete)


def _parse_list(kind: type, data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise BadInput(f"{where} is broken: a list of {kind.__name__.lower()}s is not one.")
    return tuple(from_plain(kind, d, where) for d in data)


def write_lerobot(folder: str | Path, episodes: Sequence[Episode], task: str = "") -> tuple[str, ...]:
    """A LeRobot dataset (v3.0) of episodes of one robot, without images; what is worth knowing, one sentence each.

    `observation.state` is all signals of the contract side by side, `observation.NAME` each signal of the operator, `action`
    the target. Signals that no episode has are left out. That layout has a fixed rate: frame i is at i / fps.
    """
    folder, pa = Path(folder), import_pyarrow()
    contract = _common_contract(episodes)
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty.")
    task = task or f"{contract.robot}"
    features, frames = _feature_frames(episodes, contract)
    fps = _fps(episodes)
    lengths = [len(e) for e in episodes]
    starts = np.cumsum([0, *lengths])
    counters = {
        "timestamp": np.concatenate([np.arange(n) / fps for n in lengths]).astype(np.float32),
        "frame_index": np.concatenate([np.arange(n) for n in lengths]),
        "episode_index": np.repeat(np.arange(len(lengths)), lengths),
        "index": np.arange(starts[-1]),
        "task_index": np.zeros(starts[-1], np.int64),
    }
    data = {n: _list_column(pa, v) for n, v in frames.items()} | {n: pa.array(v) for n, v in counters.items()}
    _write_table(folder / "data/chunk-000/file-000.parquet", pa.table(data))
    every = {**frames, **{n: v[:, None] for n, v in counters.items()}}
    rows = []
    for i, n in enumerate(lengths):
        own = {f"stats/{name}/{k}": v for name, x in every.items() for k, v in _stats(x[starts[i] : starts[i + 1]]).items()}
        about = {"episode_index": i, "tasks": [task], "length": n, "data/chunk_index": 0, "data/file_index": 0}
        span = {"dataset_from_index": int(starts[i]), "dataset_to_index": int(starts[i + 1])}
        rows.append({**about, **span, **own, "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
    _write_table(folder / "meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(rows))
    _write_table(folder / "meta/tasks.parquet", _tasks_table(pa, [task]))
    write_json(folder / "meta/stats.json", {name: _stats(x) for name, x in every.items()})
    single = {n: {"dtype": str(v.dtype), "shape": [1], "names": None} for n, v in counters.items()}
    write_json(
        folder / "meta/info.json",
        {
            "codebase_version": "v3.0",
            "robot_type": contract.robot,
            "total_episodes": len(lengths),
            "total_frames": int(starts[-1]),
            "total_tasks": 1,
            "chunks_size": 1000,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": fps,
            "splits": {"train": f"0:{len(lengths)}"},
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
            "video_path": None,
            "features": {**features, **single},
            "isthmus": {"contract_hash": contract.hash, "parents": [e.hash for e in episodes]},
        },
    )
    uneven = [(np.abs(np.diff(e.time) * fps - 1.0) > 0.5).sum() for e in episodes]
    return tuple(
        f"episode {i}: {n} steps are far from 1/{fps:g} s, and the layout cannot say so." for i, n in enumerate(uneven) if n
    )


def _common_contract(episodes: Sequence[Episode]) -> Contract:
    if not episodes or not all(len(e) for e in episodes):
        raise BadInput("a LeRobot dataset needs episodes with at least one tick each.")
    first = episodes[0]
    for e in episodes[1:]:
        if e.contract.hash != first.contract.hash or e.operator != first.operator:
            raise BadInput("all episodes of a LeRobot dataset must have the same contract and operator's signals.")
    if any(np.isnan(e.target).all() for e in episodes):
        raise BadInput("a LeRobot dataset needs actions, but an episode has no targets.")
    return first.contract


def _fps(episodes: Sequence[Episode]) -> float:
    """Ticks per second, a whole number where that is within 1 %; episodes of different rates do not go together."""
    rates = [e.rate for e in episodes]
    rate = float(np.median(rates))
    if max(rates) > 1.1 * min(rates):
        raise BadInput(f"the episodes have from {min(rates):.4g} to {max(rates):.4g} ticks per second; a dataset has one rate.")
    return round(rate) if abs(rate - round(rate)) < 0.01 * rate else rate


def _feature_frames(episodes: Sequence[Episode], contract: Contract) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Description and (frames, k) values of state, operator's signals and action."""
    values = {s.name: np.concatenate([e.signals[s.name] for e in episodes]) for s in (*contract.signals, *episodes[0].operator)}
    kept = [s for s in contract.signals if not np.isnan(values[s.name]).all()]
    if not kept:
        raise BadInput("a LeRobot dataset needs observations, but the episodes have no signals.")
    found = {"observation.state": ([f"{s.name}.{x}" for s in kept for x in s.labels], [values[s.name] for s in kept])}
    for s in episodes[0].operator:
        found[f"observation.{s.name}"] = (list(s.labels), [values[s.name]])
    found["action"] = (list(contract.target.labels), [np.concatenate([e.target for e in episodes])])
    frames = {name: np.concatenate(parts, axis=1).astype(np.float32) for name, (_, parts) in found.items()}
    features = {n: {"dtype": "float32", "shape": [len(names)], "names": names} for n, (names, _) in found.items()}
    return features, frames


def _stats(x: np.ndarray) -> dict[str, Any]:
    """Per component of (frames, k), over what is not missing; a component that is missing throughout counts as 0."""
    x = np.where(np.isnan(x).all(axis=0), 0.0, x.astype(np.float64))
    found = {"min": np.nanmin(x, 0), "max": np.nanmax(x, 0), "mean": np.nanmean(x, 0), "std": np.nanstd(x, 0)}
    quantiles = dict(zip((f"q{q:02d}" for q in STATS_PERCENTILES), np.nanpercentile(x, STATS_PERCENTILES, axis=0), strict=True))
    return {k: v.tolist() for k, v in found.items()} | {"count": [len(x)]} | {k: v.tolist() for k, v in quantiles.items()}


def _list_column(pa: Any, values: np.ndarray) -> Any:
    """One list per frame; a single component is a plain number there."""
    flat = pa.array(np.ascontiguousarray(values).ravel())
    return flat if values.shape[1] == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _tasks_table(pa: Any, tasks: list[str]) -> Any:
    """A table whose index, as pandas understands it, is the task's text."""
    index = "__index_level_0__"
    about = {
        "index_columns": [index],
        "column_indexes": [],
        "columns": [
            {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64", "metadata": None},
            {"name": None, "field_name": index, "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
        ],
        "creator": {"library": "pyarrow", "version": pa.__version__},
    }
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), index: tasks})
    return table.replace_schema_metadata({b"pandas": json.dumps(about).encode()})


def _write_table(path: Path, table: Any) -> None:
    out = io.BytesIO()
    import_pyarrow().parquet.write_table(table, out, compression="zstd")
    atomic_write(path, out.getvalue())
