"""Episodes as a LeRobot dataset (v3.0)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.files import write_json
from isthmus.data.contract import Contract
from isthmus.data.episode import Episode
from isthmus.data.exporters.parquet import write_table
from isthmus.data.importers.parquet import import_pyarrow

STATS_PERCENTILES = (1, 10, 50, 90, 99)


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
    write_table(folder / "data/chunk-000/file-000.parquet", pa.table(data))
    every = {**frames, **{n: v[:, None] for n, v in counters.items()}}
    rows = []
    for i, n in enumerate(lengths):
        own = {f"stats/{name}/{k}": v for name, x in every.items() for k, v in _stats(x[starts[i] : starts[i + 1]]).items()}
        about = {"episode_index": i, "tasks": [task], "length": n, "data/chunk_index": 0, "data/file_index": 0}
        span = {"dataset_from_index": int(starts[i]), "dataset_to_index": int(starts[i + 1])}
        rows.append({**about, **span, **own, "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
    write_table(folder / "meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(rows))
    write_table(folder / "meta/tasks.parquet", _tasks_table(pa, [task]))
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
