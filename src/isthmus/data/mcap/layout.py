"""How one control tick lies in a row of numbers, and in the messages of a recording.

A row is [time, *signals, *operator, *target, *wanted, *status], side by side in the order of the contract. In a recording
the same row is one message per topic, each a protobuf message of `double` fields: every value is a tag and eight bytes, so
all messages of a topic have one layout, and a block of rows is encoded or decoded by a few array copies:

    chunk = layout.encode(rows, times, first)         (n, width) -> the bytes of n · topics MCAP message records
    values = topic.decode(payloads)                   (n, size) bytes -> (n, fields)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode, Event, check_signal_names

MAX_ROW_WIDTH = 20_000
"""Most numbers per tick. Protobuf reserves field numbers from 19,000 on, and no topic comes near."""
RECORD_DTYPE = np.dtype(
    [("opcode", "u1"), ("length", "<u8"), ("channel", "<u2"), ("sequence", "<u4"), ("log", "<u8"), ("publish", "<u8")]
)
"""Head of an MCAP message record, packed."""
MESSAGE_OPCODE = 0x05
INDEX_DTYPE = np.dtype([("time", "<u8"), ("offset", "<u8")])


@dataclass(frozen=True)
class Topic:
    """One channel of a recording: which columns of a row its messages carry."""

    name: str
    """`/signals/joint_pos`, `/operator/command`, `/target`, `/wanted`, `/status`."""
    labels: tuple[str, ...]
    columns: tuple[int, ...]
    unit: str = ""
    frame: str = ""

    @cached_property
    def field_names(self) -> tuple[str, ...]:
        """Names of the protobuf fields: the labels, as far as protobuf can spell them, and no two alike."""
        return protobuf_names(self.labels)

    @cached_property
    def zero_message(self) -> np.ndarray:
        """A message of zeros."""
        return np.frombuffer(b"".join(_field_tag(i) + bytes(8) for i in range(len(self.labels))), np.uint8)

    @cached_property
    def value_strides(self) -> list[tuple[slice, int, int]]:
        """(fields, offset of the first value, bytes from value to value) per stretch of tags of one length."""
        lengths = [len(_field_tag(i)) for i in range(len(self.labels))]
        runs, offset = [], 0
        for length in sorted(set(lengths)):
            first, count = lengths.index(length), lengths.count(length)
            runs.append((slice(first, first + count), offset + length, length + 8))
            offset += count * (length + 8)
        return runs

    def value_views(self, raw: np.ndarray, offset: int = 0) -> list[tuple[slice, np.ndarray]]:
        """Views of the values of (n, size) bytes whose messages start at `offset`."""
        n, size = raw.shape
        return [
            (part, np.ndarray((n, part.stop - part.start), "<f8", raw, offset + at, (size, step)))
            for part, at, step in self.value_strides
        ]

    def decode(self, raw: np.ndarray) -> np.ndarray | None:
        """(n, size) bytes to (n, fields); None if they are not messages of this topic."""
        if raw.shape[1] != len(self.zero_message):
            return None
        raw, out = np.ascontiguousarray(raw), np.empty((len(raw), len(self.labels)))
        bare = raw.copy()
        for (part, values), (_, rest) in zip(self.value_views(raw), self.value_views(bare), strict=True):
            out[:, part] = values
            rest[:] = 0.0
        return out if (bare == self.zero_message).all() else None


@dataclass(frozen=True)
class Layout:
    """Where everything is in a row."""

    contract: Contract
    operator: tuple[Signal, ...] = ()
    status: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_signal_names(self.contract, self.operator, self.status)
        if self.width > MAX_ROW_WIDTH:
            raise BadInput(f"a recording holds at most {MAX_ROW_WIDTH} numbers per tick, not {self.width}.")

    @cached_property
    def width(self) -> int:
        sizes = self.contract.width + sum(s.size for s in self.operator)
        return 1 + sizes + 2 * self.contract.target.size + len(self.status)

    @cached_property
    def columns(self) -> dict[str, slice]:
        """Of a row: `time`, each signal by its name, `target`, `wanted` and `status`."""
        m = self.contract.target.size
        sizes = {s.name: s.size for s in (*self.contract.signals, *self.operator)}
        found, at = {}, 0
        for name, size in {"time": 1, **sizes, "target": m, "wanted": m, "status": len(self.status)}.items():
            found[name] = slice(at, at + size)
            at += size
        return found

    @cached_property
    def topics(self) -> tuple[Topic, ...]:
        """In the order of a row; `/status`, which also has the time, comes last."""

        def topic(name: str, signal: Signal, columns: str) -> Topic:
            at = self.columns[columns]
            return Topic(name, signal.labels, tuple(range(at.start, at.stop)), signal.unit, signal.frame)

        found = [topic(f"/signals/{s.name}", s, s.name) for s in self.contract.signals]
        found += [topic(f"/operator/{s.name}", s, s.name) for s in self.operator]
        found += [topic(f"/{name}", self.contract.target, name) for name in ("target", "wanted")]
        at = self.columns["status"]
        return (*found, Topic("/status", ("time", *self.status), (0, *range(at.start, at.stop))))

    @cached_property
    def _record_offsets(self) -> list[int]:
        """Where the record of each topic starts in the records of one tick, and last how long they are."""
        return np.cumsum([0, *(RECORD_DTYPE.itemsize + len(t.zero_message) for t in self.topics)]).tolist()

    @cached_property
    def _zero_records(self) -> np.ndarray:
        """The records of one tick, with zeros for the values, the times and the sequence."""
        parts = []
        for channel, topic in enumerate(self.topics, 1):
            head = np.array(
                (MESSAGE_OPCODE, RECORD_DTYPE.itemsize - 9 + len(topic.zero_message), channel, 0, 0, 0), RECORD_DTYPE
            )
            parts.append(head.tobytes() + topic.zero_message.tobytes())
        return np.frombuffer(b"".join(parts), np.uint8)

    @cached_property
    def tick_bytes(self) -> int:
        """Of one tick in a recording, without its index."""
        return self._record_offsets[-1]

    def encode(self, rows: np.ndarray, times: np.ndarray, first: int) -> tuple[bytes, list[bytes]]:
        """Message records of (n, width) rows, tick by tick, and per topic the entries of their index.

        `times` are ns, (n,); ticks count from `first`. Channels are numbered from 1 in the order of the topics.
        """
        n, size = len(rows), self.tick_bytes
        if n == 0:
            return b"", [b""] * len(self.topics)
        raw = np.repeat(self._zero_records[None], n, axis=0)
        sequence = np.arange(first, first + n, dtype=np.uint64) & 0xFFFFFFFF
        entries = []
        for topic, offset in zip(self.topics, self._record_offsets, strict=False):
            head = np.ndarray((n,), RECORD_DTYPE, raw, offset, (size,))
            head["sequence"], head["log"], head["publish"] = sequence, times, times
            values = rows[:, topic.columns]
            for part, view in topic.value_views(raw, offset + RECORD_DTYPE.itemsize):
                view[:] = values[:, part]
            index = np.empty(n, INDEX_DTYPE)
            index["time"], index["offset"] = times, offset + size * np.arange(n, dtype=np.uint64)
            entries.append(index.tobytes())
        return raw.tobytes(), entries

    @cached_property
    def _constant_bytes(self) -> np.ndarray:
        """Which bytes of the records of a tick are the same in every tick."""
        fixed = np.ones(self.tick_bytes, bool)
        for topic, offset in zip(self.topics, self._record_offsets, strict=False):
            # The head ends with the sequence number (4 bytes) and two times (8 each).
            fixed[offset + RECORD_DTYPE.itemsize - 20 : offset + RECORD_DTYPE.itemsize] = False
            for part, at, step in topic.value_strides:
                for i in range(part.stop - part.start):
                    start = offset + RECORD_DTYPE.itemsize + at + i * step
                    fixed[start : start + 8] = False
        return fixed

    def decode(self, body: bytes) -> tuple[np.ndarray, np.ndarray]:
        """The ticks at the start of a chunk that lie as `encode` lays them: their numbers (n,) and rows (n, width).

        Ticks that lie otherwise, and whatever follows them, are left to a reader that goes message by message.
        """
        n, size = len(body) // self.tick_bytes, self.tick_bytes
        raw = np.frombuffer(body, np.uint8, n * size).reshape(n, size)
        right = (raw[:, self._constant_bytes] == self._zero_records[self._constant_bytes]).all(axis=1)
        heads = (
            [np.ndarray((n,), RECORD_DTYPE, body, offset, (size,))["sequence"] for offset in self._record_offsets[:-1]]
            if n
            else []
        )
        for sequence in heads[1:]:
            right &= sequence == heads[0]
        n = n if right.all() else int(np.argmin(right))
        rows = np.empty((n, self.width))
        for topic, offset in zip(self.topics, self._record_offsets, strict=False) if n else ():
            for part, view in topic.value_views(raw[:n], offset + RECORD_DTYPE.itemsize):
                rows[:, topic.columns[part]] = view
        return (heads[0][:n].astype(np.int64) if n else np.empty(0, np.int64)), rows

    def to_episode(
        self, rows: np.ndarray, events: tuple[Event, ...] = (), origin: Mapping[str, Any] | None = None, complete: bool = True
    ) -> Episode:
        """What (T, width) rows say."""
        at = self.columns
        return Episode(
            contract=self.contract,
            time=rows[:, 0],
            signals={s.name: rows[:, at[s.name]] for s in (*self.contract.signals, *self.operator)},
            target=rows[:, at["target"]],
            wanted=rows[:, at["wanted"]],
            operator=self.operator,
            status=dict(zip(self.status, rows[:, at["status"]].T, strict=True)),
            events=events,
            origin=origin or {},
            complete=complete,
        )

    @staticmethod
    def rows_from_episode(episode: Episode) -> np.ndarray:
        """(T, width), the other way round."""
        names = [s.name for s in (*episode.contract.signals, *episode.operator)]
        parts = [episode.time[:, None], *(episode.signals[n] for n in names), episode.target, episode.wanted]
        return np.concatenate([*parts, *(c[:, None] for c in episode.status.values())], axis=1)


def protobuf_names(labels: tuple[str, ...]) -> tuple[str, ...]:
    """A protobuf name per label: distinct, also where case and underscores do not count."""
    found, taken = [], set()
    for i, label in enumerate(labels):
        name = re.sub(r"[^A-Za-z0-9_]", "_", label)[:100]
        name = name if re.match(r"[A-Za-z]", name) else f"n{name}"
        while (key := name.replace("_", "").lower()) in taken:
            name = f"{name}_{i}"
        taken.add(key)
        found.append(name)
    return tuple(found)


def _field_tag(index: int) -> bytes:
    """Of the field of that index: its number, from 1, and wire type 1 (eight bytes), as a varint."""
    value, out = (index + 1) << 3 | 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
