"""Parquet files: numbers, structs as `name.field`, lists as `name[i]`, time stamps as seconds since the first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.data.importers.table import MAX_COLUMNS, MAX_LIST, MAX_VALUES, Column, Table
from isthmus.errors import BadInput

MAX_BYTES = 4 * 2**30


def pyarrow() -> Any:
    """The package, or a BadInput that says how to get it."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise BadInput("Parquet files need pyarrow: pip install 'isthmus[lab]'.") from None
    return pyarrow


def open_parquet(path: Path) -> Any:
    """A ParquetFile of bounded size; what is none is a BadInput."""
    pa = pyarrow()
    try:
        file = pa.parquet.ParquetFile(path)
        about = file.metadata
        claimed = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: {str(error).splitlines()[0] if str(error) else 'broken'}.") from None
    if about.num_rows * max(1, about.num_columns) > MAX_VALUES or claimed > MAX_BYTES:
        raise BadInput(f"{path} has more than {MAX_VALUES} values and is not read.")
    return file


def load_parquet(path: Path) -> Table:
    pa, file, notes = pyarrow(), open_parquet(path), []
    columns: dict[str, Column] = {}
    try:
        table = file.read()
        for name, column in zip(table.column_names, table.columns, strict=True):
            for found in _columns(pa, name, column.combine_chunks(), notes):
                if len(columns) >= MAX_COLUMNS:
                    raise BadInput(f"{path} has more than {MAX_COLUMNS} columns.")
                columns[found.name] = found
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        raise error if isinstance(error, BadInput) else BadInput(f"cannot read {path}: {error}.") from None
    return Table(str(path), "parquet", columns, notes=tuple(notes))


def _columns(pa: Any, name: str, values: Any, notes: list[str]) -> Iterator[Column]:
    kind = values.type
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], kind)
    types = pa.types
    if types.is_struct(kind):
        for field, inner in zip(kind, values.flatten(), strict=True):
            yield from _columns(pa, f"{name}.{field.name}", inner, notes)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        longest = pa.compute.max(pa.compute.list_value_length(values)).as_py() or 0
        if longest > MAX_LIST:
            notes.append(f"{name} left out: it has lists of {longest} entries.")
            return
        for i in range(longest):
            yield from _columns(pa, f"{name}[{i}]", _entry(pa, values, i), notes)
    elif types.is_timestamp(kind) or types.is_date(kind):
        moments = values.cast(pa.timestamp("ns")).cast(pa.int64())
        zero = pa.compute.min(moments).as_py() or 0
        yield Column(name, _floats(pa, pa.compute.subtract(moments, zero)) / 1e9)
    elif types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        yield Column(name, _floats(pa, values))
    else:
        yield Column(name, np.full(len(values), np.nan), kind="text")


def _entry(pa: Any, values: Any, i: int) -> Any:
    """Entry i of every list, null where a list is shorter."""
    long = pa.compute.greater(pa.compute.list_value_length(values), i)
    offsets = np.flatnonzero(pa.compute.fill_null(long, False).to_numpy(zero_copy_only=False))
    entries = pa.compute.list_element(values.take(pa.array(offsets)), i)
    at = np.full(len(values), -1, np.int64)
    at[offsets] = np.arange(len(offsets))
    return entries.take(pa.array(at, mask=at < 0))


def _floats(pa: Any, values: Any) -> np.ndarray:
    """float64, NaN for null."""
    return np.asarray(pa.compute.fill_null(values.cast(pa.float64(), safe=False), np.nan), np.float64)
