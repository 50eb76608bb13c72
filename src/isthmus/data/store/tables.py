"""The tables of a store: their columns, and rows as Parquet."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.data.importers.parquet import pyarrow

TABLES: dict[str, dict[str, str]] = {
    "episodes": {
        "hash": "text",
        "file": "text",
        "list": "text",
        "source": "text",
        "robot": "text",
        "unit": "text",
        "task": "text",
        "controller": "text",
        "run": "text",
        "belief": "text",
        "model": "text",
        "reality": "text",
        "seed": "whole",
        "world": "whole",
        "e": "numbers",
        "started": "moment",
        "seconds": "number",
        "ticks": "whole",
        "success": "flag",
        "failed": "flag",
        "score": "number",
        "metrics": "numbers",
        "stopped": "text",
        "complete": "flag",
        "parents": "texts",
        "tags": "texts",
    },
    "signals": {
        "episode": "text",
        "signal": "text",
        "label": "text",
        "unit": "text",
        "low": "number",
        "high": "number",
        "mean": "number",
        "rms": "number",
        "missing": "whole",
    },
    "events": {"episode": "text", "time": "number", "level": "text", "name": "text", "text": "text"},
    "marks": {
        "hash": "text",
        "episode": "text",
        "start": "number",
        "stop": "number",
        "text": "text",
        "tag": "text",
        "success": "flag",
        "who": "text",
        "noted": "moment",
        "withdraws": "text",
    },
    "artifacts": {
        "hash": "text",
        "kind": "text",
        "file": "text",
        "robot": "text",
        "task": "text",
        "about": "text",
        "parents": "links",
        "holds": "links",
    },
}
"""Column -> kind of value, by table. A flag is 0 or 1, so that its mean is a rate; a moment is in UTC."""


def kind(name: str) -> Any:
    """A kind of value as Arrow has it."""
    pa = pyarrow()
    return {
        "text": pa.string,
        "number": pa.float64,
        "whole": pa.int64,
        "flag": pa.int8,
        "moment": lambda: pa.timestamp("us"),
        "numbers": lambda: pa.map_(pa.string(), pa.float64()),
        "texts": lambda: pa.list_(pa.string()),
        "links": lambda: pa.list_(pa.struct([("role", pa.string()), ("hash", pa.string())])),
    }[name]()


def schema(table: str) -> Any:
    return pyarrow().schema([(column, kind(name)) for column, name in TABLES[table].items()])


def encode(table: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows, in which a column may be left out, as the bytes of a Parquet file. Equal rows make equal bytes."""
    pa, out = pyarrow(), io.BytesIO()
    columns = [_column(name, [row.get(column) for row in rows]) for column, name in TABLES[table].items()]
    pa.parquet.write_table(pa.table(columns, schema=schema(table)), out, compression="zstd")
    return out.getvalue()


def _column(name: str, values: list[Any]) -> Any:
    pa = pyarrow()
    if name == "numbers":
        return _map(values)
    if name == "moment":
        values = [None if v is None else round(v * 1e6) for v in values]
        return pa.array(values, pa.int64()).cast(pa.timestamp("us"))
    if name == "links":
        values = [[{"role": role, "hash": h} for role, h in v or ()] for v in values]
    elif name == "texts":
        values = [list(v or ()) for v in values]
    elif name == "flag":
        values = [None if v is None else int(v) for v in values]
    return pa.array(values, kind(name))


def _map(values: list[dict[str, float] | None]) -> Any:
    """Of names to numbers; from flat lists, which is much faster than row by row."""
    pa = pyarrow()
    offsets = np.cumsum([0, *(len(v or ()) for v in values)], dtype=np.int32)
    keys = pa.array(list(chain.from_iterable(v or () for v in values)), pa.string())
    items = pa.array(list(chain.from_iterable((v or {}).values() for v in values)), pa.float64())
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items)


def hashes(path: Path) -> list[str]:
    """The column `hash` of a part."""
    return pyarrow().parquet.read_table(path, columns=["hash"]).column("hash").to_pylist()
