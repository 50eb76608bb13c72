"""The tables of a store: their columns, and rows as Parquet."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from isthmus.core.files import content_hash
from isthmus.data.importers.parquet import import_pyarrow
from isthmus.data.store.hash_chain import ParquetPart

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
        "started": "moment",
        "seconds": "number",
        "ticks": "whole",
        "success": "flag",
        "failed": "flag",
        "score": "number",
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
NUMBER_GROUPS = ("e", "metrics")
"""Numbers by name in a row of `episodes`. In Parquet each is a column, `e.payload`: a question reads only what it asks for."""


def arrow_type(name: str) -> Any:
    """A kind of value as Arrow has it."""
    pa = import_pyarrow()
    return {
        "text": pa.string,
        "number": pa.float64,
        "whole": pa.int64,
        "flag": pa.int8,
        "moment": lambda: pa.timestamp("us"),
        "texts": lambda: pa.list_(pa.string()),
        "links": lambda: pa.list_(pa.struct([("role", pa.string()), ("hash", pa.string())])),
    }[name]()


def arrow_schema(table: str, names: Sequence[str] = ()) -> Any:
    """Columns of a table as Arrow has them; `names` are further ones, of numbers."""
    pa = import_pyarrow()
    own = [(column, arrow_type(name)) for column, name in TABLES[table].items()]
    return pa.schema([*own, *((name, pa.float64()) for name in names)])


def encode_rows(table: str, rows: Sequence[Mapping[str, Any]]) -> tuple[ParquetPart, bytes]:
    """Rows, in which a column may be left out, as the bytes of a Parquet file. Equal rows make equal bytes."""
    pa, out = import_pyarrow(), io.BytesIO()
    columns = [_arrow_column(name, [row.get(column) for row in rows]) for column, name in TABLES[table].items()]
    found = [(group, name) for group in NUMBER_GROUPS for name in _group_names(group, rows)] if table == "episodes" else []
    columns += [pa.array([row.get(group, {}).get(name) for row in rows], pa.float64()) for group, name in found]
    names = tuple(f"{group}.{name}" for group, name in found)
    pa.parquet.write_table(pa.table(columns, schema=arrow_schema(table, names)), out, compression="zstd")
    data = out.getvalue()
    return ParquetPart(content_hash(data), len(data), len(rows), names), data


def _group_names(group: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """All names in a group, in the order in which they come; rows of one list have the same."""
    kinds = dict.fromkeys(tuple(row.get(group, ())) for row in rows)
    return list(dict.fromkeys(chain.from_iterable(kinds)))


def _arrow_column(name: str, values: list[Any]) -> Any:
    pa = import_pyarrow()
    if name == "moment":
        values = [None if v is None else round(v * 1e6) for v in values]
        return pa.array(values, pa.int64()).cast(pa.timestamp("us"))
    if name == "links":
        values = [[{"role": role, "hash": h} for role, h in v or ()] for v in values]
    elif name == "texts":
        values = [list(v or ()) for v in values]
    elif name == "flag":
        values = [None if v is None else int(v) for v in values]
    return pa.array(values, arrow_type(name))


def read_hashes(path: Path) -> list[str]:
    """The column `hash` of a part."""
    return import_pyarrow().parquet.read_table(path, columns=["hash"]).column("hash").to_pylist()
