"""Episodes as Parquet tables, there and back bit for bit."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.files import atomic_write, canonical_json
from isthmus.core.from_plain import from_plain
from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode, Event
from isthmus.data.importers.parquet import import_pyarrow, open_parquet, read_numbers
from isthmus.data.mcap.layout import Layout

EPISODE_METADATA_KEY = b"isthmus.episode"
"""Of the schema's metadata."""


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
    write_table(Path(path), table.replace_schema_metadata({EPISODE_METADATA_KEY: canonical_json(about).encode()}))


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


def write_table(path: Path, table: Any) -> None:
    out = io.BytesIO()
    import_pyarrow().parquet.write_table(table, out, compression="zstd")
    atomic_write(path, out.getvalue())
