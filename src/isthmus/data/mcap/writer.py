"""Recordings: MCAP files that Foxglove and Rerun open, that survive `kill -9`, and that hold an Episode bit for bit.

    with Writer(path, contract, operator, ("period", "guard"), origin) as writer:
        writer.rows(block)                      (k, width), columns as in `writer.layout`
        writer.event(Event(1.2, "warning", "stale", "No signal for 40 ms."))
    episode = read(path)

Topics are `/signals/NAME`, `/operator/NAME`, `/target`, `/wanted`, `/status` (with the exact time) and `/events`. Contract,
operator's signals, names and origin are in a metadata record right after the header. Chunks hold half a second.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from mcap.records import Channel, Message, Metadata, Schema

from isthmus.core.errors import BadInput
from isthmus.core.files import canonical_json
from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode, Event, as_plain_json
from isthmus.data.mcap import container, schemas
from isthmus.data.mcap.layout import INDEX_DTYPE, Layout
from isthmus.data.mcap.reader import FORMAT_VERSION, METADATA_NAME, is_recording, metadata_hash, read_episode

__all__ = ["EpisodeWriter", "is_recording", "read_episode", "write_episode"]

CHUNK_SECONDS = 0.5
"""What a crash can cost."""
MAX_CHUNK_BYTES = 8 * 2**20
"""Bytes of a chunk that is written; a tick never needs more than a quarter of it."""
MAX_UNIX_SECONDS = 2**33
"""s since 1970 that a recording can start at, and last: some 270 years."""


class EpisodeWriter:
    """Writes a recording as it happens. For one thread at a time; a call returns before its half second is on disk.

    A file that exists is written over: whether that is wanted is for the caller to know.

    An OSError (disk full) comes out of `rows`, `event` or `close`; then the file is cut back to its last complete chunk and
    opens, and the writer stays as it is: every later call raises the same error.
    """

    def __init__(
        self,
        out: str | Path | BinaryIO,
        contract: Contract,
        operator: tuple[Signal, ...] = (),
        status_names: tuple[str, ...] = (),
        origin: Mapping[str, Any] | None = None,
    ):
        self.layout = Layout(contract, tuple(operator), tuple(status_names))
        about = as_plain_json(origin or {}, "the recording's origin")
        self._start_ns = round(_unix_seconds(about.get("started", 0.0)) * 1e9)
        self._chunk_rows = max(1, min(round(CHUNK_SECONDS * contract.rate), MAX_CHUNK_BYTES // self.layout.tick_bytes))
        self._pending_blocks: list[np.ndarray] = []
        self._pending_rows, self._last_time = 0, -math.inf
        self.written_ticks = 0
        """Ticks that the stream has taken; what came after them is lost if it refuses."""
        self._pending_events: list[Event] = []
        self._events_written, self._closed = 0, False
        kinds = [*schemas.topic_schemas(self.layout.topics), (schemas.LOG_SCHEMA_NAME, schemas.log_schema())]
        records = [Schema(i, data, "protobuf", name) for i, (name, data) in enumerate(kinds, 1)]
        topics = [(t.name, {"unit": t.unit, "frame": t.frame, "labels": json.dumps(t.labels)}) for t in self.layout.topics]
        channels = [Channel(i, name, "protobuf", meta, i) for i, (name, meta) in enumerate([*topics, ("/events", {})], 1)]
        self._event_channel = len(channels)
        header = Metadata(METADATA_NAME, _metadata_texts(self.layout, about))
        self._owns_stream = isinstance(out, str | Path)
        self._stream: Any = open(out, "wb", buffering=0) if isinstance(out, str | Path) else out  # noqa: SIM115
        try:
            self._chunk_writer = container.ChunkWriter(self._stream, header, records, channels)
        except BaseException:
            self._close_stream()
            raise

    def write_rows(self, block: np.ndarray) -> None:
        """(k, width) ticks, whose times are finite and increase."""
        if self._closed:
            raise ValueError("this recording is closed.")
        block = np.array(block, np.float64, ndmin=2)
        if block.shape[1] != self.layout.width:
            raise BadInput(f"a row of this recording has {self.layout.width} numbers, not {block.shape[1]}.")
        if not len(block):
            return
        time = block[:, 0]
        if not (
            max(self._last_time, -MAX_UNIX_SECONDS) < time[0] and time[-1] < MAX_UNIX_SECONDS and (time[1:] > time[:-1]).all()
        ):
            raise BadInput("the times of a recording must be finite and increase from row to row.")
        self._last_time = time[-1]
        self._pending_blocks.append(block)
        self._pending_rows += len(block)
        while self._pending_rows >= self._chunk_rows:
            self._flush()

    def write_event(self, event: Event) -> None:
        """To be written with the rows of its half second."""
        if abs(event.time) >= MAX_UNIX_SECONDS:
            raise BadInput(f"an event at {event.time:g} s is out of reach of a recording.")
        self._pending_events.append(event)
        if len(self._pending_events) >= 1000:
            self._flush()

    def close(self) -> None:
        """Write what is left and the summary. Without it a recording opens too, but counts as cut."""
        if self._closed:
            return
        self._closed = True
        try:
            while self._pending_rows or self._pending_events:
                self._flush()
            self._chunk_writer.finish()
            if self._owns_stream:
                os.fsync(self._stream.fileno())
        finally:
            self._close_stream()

    def _close_stream(self) -> None:
        if self._owns_stream:
            self._stream.close()

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _unix_ns(self, seconds: np.ndarray) -> np.ndarray:
        """ns since 1970, of moments within the episode."""
        return np.maximum(self._start_ns + np.rint(seconds * 1e9).astype(np.int64), 0).astype(np.uint64)

    def _flush(self) -> None:
        """Write one chunk: up to half a second of rows, and all events so far."""
        blocks = self._pending_blocks or [np.empty((0, self.layout.width))]
        rows = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        chunk, rest = rows[: self._chunk_rows], rows[self._chunk_rows :]
        events, self._pending_events = self._pending_events, []
        self._pending_blocks, self._pending_rows = ([rest] if len(rest) else []), len(rest)
        times, logged = self._unix_ns(chunk[:, 0]), self._unix_ns(np.array([e.time for e in events]))
        body, entries = self.layout.encode(chunk, times, self.written_ticks)
        index = {channel: entry for channel, entry in enumerate(entries, 1) if entry}
        where = []
        for event, moment in zip(events, logged.tolist(), strict=True):
            where.append((moment, len(body)))
            body += container.pack_records(
                Message(self._event_channel, moment, schemas.encode_event(event, moment), moment, self._events_written)
            )
            self._events_written += 1
        if where:
            index[self._event_channel] = np.array(where, INDEX_DTYPE).tobytes()
        span = np.concatenate([times, logged])
        self._chunk_writer.write_chunk(body, (int(span.min()), int(span.max())), index)
        self.written_ticks += len(chunk)


def _metadata_texts(layout: Layout, origin: Mapping[str, Any]) -> dict[str, str]:
    texts = {
        "contract": canonical_json(layout.contract.to_dict()),
        "operator": canonical_json([asdict(s) for s in layout.operator]),
        "status": canonical_json(list(layout.status)),
        "origin": canonical_json(dict(origin)),
    }
    return {"format": FORMAT_VERSION, **texts, "hash": metadata_hash(texts)}


def _unix_seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_UNIX_SECONDS:
        raise BadInput(f"`started` in the origin must be a Unix time in seconds, not {str(value)[:40]!r}.")
    return float(value)


def write_episode(path: str | Path | BinaryIO, episode: Episode) -> None:
    """A whole episode at once. What it says about being complete is not kept: this file is."""
    with EpisodeWriter(path, episode.contract, episode.operator, tuple(episode.status), episode.origin) as writer:
        for event in episode.events:
            writer.write_event(event)
        writer.write_rows(Layout.rows_from_episode(episode))
