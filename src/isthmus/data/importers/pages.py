"""How many values a column of a Parquet file really holds, by the headers of its pages.

What the file says at its end about a column is not what a reader goes by: it unpacks the pages, and a page of a hundred bytes
can stand for 2³¹ values. The headers are small structs in Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from isthmus.core.errors import BadInput

HEADER_WINDOW_BYTES = 4096
"""Bytes that the header of a page of numbers fits in."""
COLUMN_PADDING_BYTES = 100
"""Bytes after a column that readers look at too, because an old writer forgot to count them."""
MAX_DEPTH = 8
PAGE_BYTES = 2**16
VALUE_BYTES = 48
"""A page of n numbers has at most PAGE_BYTES + n · VALUE_BYTES bytes when it is unpacked."""
DATA, DATA_V2, DICTIONARY = 0, 3, 2
"""Kinds of pages; further ones are skipped by readers."""
HEADERS = {DATA: 5, DATA_V2: 8, DICTIONARY: 7}
"""Field of a page's header that says more about it; the number of values is field 1 there."""


def count_values(file: BinaryIO, column: Any, where: str, max_values: int) -> int:
    """Values in the pages of a ColumnChunkMetaData that a reader would unpack; it stops when there are more than `most`."""
    start, claimed = column.data_page_offset, column.num_values
    if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < start:
        start = column.dictionary_page_offset
    at, stop, seen, all_values = start, start + column.total_compressed_size, 0, 0
    while seen < claimed and at < stop + COLUMN_PADDING_BYTES and all_values <= max_values:
        try:
            file.seek(at)
            header = _ThriftCompactReader(file.read(HEADER_WINDOW_BYTES))
            page = header.struct()
            kind, unpacked, packed = (int(page[i]) for i in (1, 2, 3))
            values = int(page[HEADERS[kind]][1]) if kind in HEADERS else 0
        except (KeyError, IndexError, TypeError, ValueError, OverflowError, OSError) as error:
            if at >= stop:
                break
            raise BadInput(f"{where} has a broken page in column {column.path_in_schema[:80]!r}.") from error
        if min(values, packed, unpacked) < 0 or unpacked > PAGE_BYTES + VALUE_BYTES * values:
            raise BadInput(f"{where} has a page of an impossible size in column {column.path_in_schema[:80]!r}.")
        seen += values if kind != DICTIONARY else 0
        all_values += values
        at += header.offset + packed
    return all_values


class _ThriftCompactReader:
    """Thrift's compact protocol, as far as a header needs it: structs become dicts by field number."""

    def __init__(self, data: bytes):
        self.data, self.offset = data, 0

    def byte(self) -> int:
        self.offset += 1
        return self.data[self.offset - 1]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number without an end")

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def skip(self, size: int) -> None:
        self.offset += size
        if self.offset > len(self.data):
            raise IndexError

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > MAX_DEPTH:
            raise ValueError("structs in structs")
        return dict(self._fields(depth))

    def _fields(self, depth: int) -> Iterator[tuple[int, Any]]:
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            yield number, self.value(head & 15, depth)

    def value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self.byte()
        if kind in (4, 5, 6):
            return self.zigzag()
        if kind == 7:
            return self.skip(8)
        if kind == 8:
            return self.skip(self.varint())
        if kind == 12:
            return self.struct(depth + 1)
        # Lists and maps are in no header that numbers need.
        raise ValueError(f"a value of kind {kind}")
