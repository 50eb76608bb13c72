"""Parquet files: numbers, structs as `name.field`, lists as `name[i]`, time stamps as seconds since the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.importers import pages
from isthmus.data.importers.columns import MAX_COLUMNS, MAX_LIST, MAX_VALUES, Column, Table, check_size

MAX_BYTES = 4 * 2**30
BATCH_ROWS = 2**16
"""Rows that are unpacked at a time."""


@dataclass(frozen=True)
class LeafColumn:
    """One column as Parquet stores it: a field of a struct, or the entries of a list."""

    index: int
    name: str
    is_number: bool
    """Whether its type is one of numbers; what is none is not unpacked."""
    width: int
    """Entries per row, where the type says so."""


def import_pyarrow() -> Any:
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
    pa = import_pyarrow()
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
    """All columns of numbers, one after the other; how much there is to unpack is known before anything is unpacked."""
    pa, file, notes, where = import_pyarrow(), open_parquet(path), [], str(path)
    columns: dict[str, Column] = {}
    rows, numbers = file.metadata.num_rows, 0
    try:
        fields = _leaf_columns(pa, file, where)
        kept, given = _readable_leaves(file, path, [leaf for leaves in fields for leaf in leaves if leaf.is_number], notes)
        for field, leaves in zip(file.schema_arrow, fields, strict=True):
            for leaf in leaves:
                if not leaf.is_number:
                    columns[leaf.name] = Column(leaf.name, np.broadcast_to(np.nan, rows), kind="text")
            chosen = [leaf.index for leaf in leaves if leaf.index in kept]
            for found in _expand_columns(pa, field.name, _read_leaves(pa, file, chosen), notes, where, given) if chosen else ():
                columns[found.name] = found
                if len(columns) > MAX_COLUMNS:
                    raise BadInput(f"{path} has more than {MAX_COLUMNS} columns.")
                numbers += rows
                check_size(where, numbers, given)
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        raise error if isinstance(error, BadInput) else BadInput(f"cannot read {path}: {error}.") from None
    return Table(where, "parquet", columns, notes=tuple(notes))


def read_numbers(file: Any, path: Path) -> list[np.ndarray]:
    """(rows,) float64 of every column of a file that has nothing but columns of numbers."""
    pa, where = import_pyarrow(), str(path)
    leaves = [leaf for group in _leaf_columns(pa, file, where) for leaf in group]
    if not all(pa.types.is_float64(field.type) for field in file.schema_arrow):
        raise BadInput(f"{where} is broken: a column is not of float64.")
    _readable_leaves(file, path, leaves, [])
    return [_to_float64(pa, _read_leaves(pa, file, [leaf.index])) for leaf in leaves]


def _leaf_columns(pa: Any, file: Any, where: str) -> list[list[LeafColumn]]:
    """Per column of the table, those of the file."""
    at, found = 0, []
    for field in file.schema_arrow:
        own = [LeafColumn(at + i, *about) for i, about in enumerate(_flatten_type(pa, field.type, field.name))]
        found.append(own)
        at += len(own)
    if at != file.metadata.num_columns:
        raise BadInput(f"{where} has columns of a type that is not known here.")
    return found


def _flatten_type(pa: Any, kind: Any, name: str, is_number: bool = True, width: int = 1) -> Iterator[tuple[str, bool, int]]:
    types = pa.types
    if types.is_struct(kind):
        for field in kind:
            yield from _flatten_type(pa, field.type, f"{name}.{field.name}", is_number, width)
    elif types.is_fixed_size_list(kind):
        yield from _flatten_type(pa, kind.value_type, name, is_number and kind.list_size <= MAX_LIST, width * kind.list_size)
    elif types.is_list(kind) or types.is_large_list(kind):
        yield from _flatten_type(pa, kind.value_type, name, is_number, width)
    elif types.is_map(kind):
        yield from _flatten_type(pa, kind.key_type, name, False)
        yield from _flatten_type(pa, kind.item_type, name, False)
    elif types.is_list_view(kind) or types.is_large_list_view(kind):
        yield from _flatten_type(pa, kind.value_type, name, False)
    elif isinstance(kind, pa.BaseExtensionType):
        yield from _flatten_type(pa, kind.storage_type, name, False)
    else:
        yield name, is_number and (_is_numeric_type(pa, kind) or _is_timestamp_type(pa, kind)), width


def _readable_leaves(file: Any, path: Path, leaves: list[LeafColumn], notes: list[str]) -> tuple[set[int], int]:
    """Which leaves to unpack, and how many values they have; without those whose lists cannot all be short."""
    where, about, kept, given = str(path), file.metadata, set(), 0
    with open(path, "rb") as raw:
        for leaf in leaves:
            deep = file.schema.column(leaf.index).max_repetition_level
            most, own = about.num_rows * MAX_LIST**deep, 0
            for i in range(about.num_row_groups):
                column = about.row_group(i).column(leaf.index)
                own += pages.count_values(raw, column, where, most + MAX_VALUES)
                # A dictionary has at most as many entries as there are values.
                if own > 2 * most:
                    break
            if own > 2 * most and not deep:
                raise BadInput(f"{where} has {own} values or more in column {leaf.name!r}, but {about.num_rows} rows.")
            if own > 2 * most:
                notes.append(f"{leaf.name} left out: it has lists of more than {MAX_LIST} entries.")
                continue
            given += max(own, about.num_rows * leaf.width)
            check_size(where, given, given)
            kept.add(leaf.index)
    return kept, given


def _read_leaves(pa: Any, file: Any, indices: list[int]) -> Any:
    """The array that these leaves of one column make. By number, because a name with a dot can mean two columns."""
    groups = list(range(file.metadata.num_row_groups))
    batches = list(file.reader.iter_batches(BATCH_ROWS, row_groups=groups, column_indices=indices))
    if not batches:
        return file.reader.read_row_groups([], column_indices=indices).column(0).combine_chunks()
    return pa.concat_arrays([batch.column(0) for batch in batches])


def _is_numeric_type(pa: Any, kind: Any) -> bool:
    types = pa.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)


def _is_timestamp_type(pa: Any, kind: Any) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def _expand_columns(pa: Any, name: str, values: Any, notes: list[str], where: str, present: int) -> Iterator[Column]:
    kind = values.type
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], kind)
    types = pa.types
    if types.is_struct(kind):
        for field, inner in zip(kind, values.flatten(), strict=True):
            yield from _expand_columns(pa, f"{name}.{field.name}", inner, notes, where, present)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        longest = pa.compute.max(pa.compute.list_value_length(values)).as_py() or 0
        if longest > MAX_LIST:
            notes.append(f"{name} left out: it has lists of {longest} entries.")
            return
        check_size(where, len(values) * longest, present)
        for i in range(longest):
            yield from _expand_columns(pa, f"{name}[{i}]", _list_entry(pa, values, i), notes, where, present)
    elif _is_timestamp_type(pa, kind):
        moments = values.cast(pa.timestamp("ns")).cast(pa.int64())
        zero = pa.compute.min(moments).as_py() or 0
        yield Column(name, _to_float64(pa, pa.compute.subtract(moments, zero)) / 1e9)
    else:
        yield Column(name, _to_float64(pa, values))


def _list_entry(pa: Any, values: Any, i: int) -> Any:
    """Entry i of every list, null where a list is shorter."""
    long = pa.compute.greater(pa.compute.list_value_length(values), i)
    offsets = np.flatnonzero(pa.compute.fill_null(long, False).to_numpy(zero_copy_only=False))
    entries = pa.compute.list_element(values.take(pa.array(offsets)), i)
    at = np.full(len(values), -1, np.int64)
    at[offsets] = np.arange(len(offsets))
    return entries.take(pa.array(at, mask=at < 0))


def _to_float64(pa: Any, values: Any) -> np.ndarray:
    """float64, NaN for null."""
    return np.asarray(pa.compute.fill_null(values.cast(pa.float64(), safe=False), np.nan), np.float64)
