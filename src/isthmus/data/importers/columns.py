"""Columns of numbers, each with its own time stamps where the source has them, and how nested messages become columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from isthmus.core.errors import BadInput, unknown_name

MAX_VALUES = 2**27
"""Numbers of one table, 1 GiB of them."""
MAX_UNCHECKED_VALUES = 2**24
MAX_SPARSITY = 64
"""A table of more than DENSE numbers has a value in at least one of so many places; else a small file would fill the memory."""
MAX_COLUMNS = 20_000
MAX_LIST = 256
"""Longest list whose entries become columns; longer ones are images or point clouds."""
MAX_DEPTH = 16


def check_size(source: str, size: int, present: int) -> None:
    """Refuse a table of `size` numbers, of which the file gives `given` and the rest is missing, before it is made."""
    if size > MAX_VALUES:
        raise BadInput(f"{source} has more than {MAX_VALUES} values and is not read.")
    if size > max(MAX_UNCHECKED_VALUES, MAX_SPARSITY * present):
        raise BadInput(f"{source} makes a table of {size} places for {present} values, almost all missing, and is not read.")


@dataclass(frozen=True)
class Column:
    name: str
    values: np.ndarray
    """(n,) float64, NaN where missing. Of a text, all NaN."""
    stamps: np.ndarray | None = None
    """(n,) s since the table's zero, when each value was logged; None if the source does not say."""
    kind: Literal["number", "text"] = "number"


@dataclass(frozen=True)
class Table:
    source: str
    """Path, for messages."""
    kind: Literal["csv", "parquet", "mcap", "ros2"]
    columns: Mapping[str, Column]
    time_origin: float = 0.0
    """Unix time of stamp 0, s; 0 if unknown."""
    lines: np.ndarray | None = None
    """(n,) line in a text file per row."""
    notes: tuple[str, ...] = ()
    """What was left out or repaired while reading."""

    def __getitem__(self, name: str) -> Column:
        """A column of numbers; any other name is a BadInput with the nearest ones."""
        numbers = [c.name for c in self.columns.values() if c.kind == "number"]
        if name in self.columns and name not in numbers:
            raise BadInput(f"column {name!r} of {self.source} holds text, not numbers.")
        if name not in self.columns:
            raise unknown_name("column", name, numbers, self.source)
        return self.columns[name]


@dataclass
class TopicRows:
    """Columns of one topic while messages come in; fields may come and go."""

    topic: str
    stamps: array = field(default_factory=lambda: array("q"))
    """ns."""
    columns: dict[str, array] = field(default_factory=dict)
    skipped_fields: set[str] = field(default_factory=set)
    """Fields that are no numbers, or too long."""

    @property
    def size(self) -> int:
        """Numbers that it comes to, with those that are missing."""
        return len(self.stamps) * (1 + len(self.columns))

    def message_values(self, stamp: int, message: Any) -> dict[str, float]:
        """The numbers of a message given as dicts, lists and scalars, logged at `stamp` ns."""
        if not 0 <= stamp < 2**63:
            raise BadInput(f"{self.topic} has a message at {stamp} ns, which is no moment.")
        found: dict[str, float] = {}
        for name, value in flatten(message, stamp, self.skipped_fields):
            found.setdefault(name, value)
            if len(found) > MAX_COLUMNS:
                raise BadInput(f"{self.topic} has more than {MAX_COLUMNS} fields.")
        return found

    def size_with(self, values: Mapping[str, float]) -> int:
        """`size` after these are added: a field that is new is missing in all messages before."""
        fields = len(self.columns) + sum(name not in self.columns for name in values)
        if fields > MAX_COLUMNS:
            raise BadInput(f"{self.topic} has more than {MAX_COLUMNS} fields.")
        return (len(self.stamps) + 1) * (1 + fields)

    def add(self, stamp: int, values: Mapping[str, float]) -> None:
        n = len(self.stamps)
        for name, value in values.items():
            column = self.columns.setdefault(name, array("d"))
            if len(column) < n:
                column.frombytes(np.full(n - len(column), np.nan).tobytes())
            column.append(value)
        self.stamps.append(stamp)


def table_from_topics(source: str, kind: Literal["mcap", "ros2"], topics: Iterable[TopicRows], notes: Iterable[str]) -> Table:
    """One table from all topics, each in the order of its stamps; zero is the first stamp of all. It uses up the topics."""
    topics = [t for t in topics if len(t.stamps)]
    zero = min((min(t.stamps) for t in topics), default=0)
    columns, said = {}, list(notes)
    for rows in topics:
        stamps = np.frombuffer(rows.stamps, np.int64)
        order = np.argsort(stamps, kind="stable")
        # ns since 1970 do not fit a float64; their difference to zero does.
        seconds = (stamps[order] - zero) / 1e9
        for name in list(rows.columns):
            # Taken out one by one, so that no more than one column is there twice.
            values = rows.columns.pop(name)
            full = np.full(len(stamps), np.nan)
            full[: len(values)] = values
            full = full[order] + (seconds if name.endswith(TIMESTAMP_SUFFIX) else 0.0)
            full_name = _encodable(f"{rows.topic}.{name.removesuffix(TIMESTAMP_SUFFIX)}")
            columns[full_name] = Column(full_name, full, seconds)
        if rows.skipped_fields:
            shown = _encodable(", ".join(sorted(rows.skipped_fields)[:6]))
            said.append(f"{rows.topic}: {shown} left out, neither numbers nor lists of up to {MAX_LIST} of them.")
    return Table(source, kind, columns, zero / 1e9, notes=tuple(said))


def _encodable(text: str) -> str:
    """JSON can name half a character, which no file or screen takes."""
    return text.encode(errors="backslashreplace").decode()


TIMESTAMP_SUFFIX = "\0stamp"
"""Marks a field that is a moment, as s after the stamp of its message, until `gather` knows the table's zero."""


def flatten(value: Any, stamp: int, skipped: set[str], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """(`field.sub[3]`, number) for everything in a message; pairs of sec and nanosec become one moment."""
    if isinstance(value, bool | int | float | np.number | np.bool_):
        try:
            yield prefix or "value", float(value)
        except OverflowError:
            skipped.add(prefix)
    elif depth > MAX_DEPTH:
        skipped.add(prefix)
    elif isinstance(value, Mapping):
        if (moment := _timestamp_ns(value)) is not None and abs(moment) < 2**63:
            yield prefix + TIMESTAMP_SUFFIX, (moment - stamp) / 1e9
            return
        for key, inner in value.items():
            yield from flatten(inner, stamp, skipped, f"{prefix}.{key}" if prefix else str(key), depth + 1)
    elif isinstance(value, list | tuple | np.ndarray) and len(value) <= MAX_LIST:
        for i, inner in enumerate(value):
            yield from flatten(inner, stamp, skipped, f"{prefix}[{i}]", depth + 1)
    elif value is not None:
        skipped.add(prefix)


def _timestamp_ns(value: Mapping[str, Any]) -> int | None:
    """ns since 1970, of a message that is a time stamp."""
    for sec, nano in (("sec", "nanosec"), ("sec", "nsec"), ("seconds", "nanos")):
        if set(value) == {sec, nano} and type(value[sec]) is int and type(value[nano]) is int:
            return value[sec] * 10**9 + value[nano]
    return None
