"""From the bytes of a recording to an Episode. Nothing in the file is trusted; sizes are bounded."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from mcap.opcode import Opcode
from mcap.records import Channel, Metadata
from mcap.writer import MCAP0_MAGIC

from isthmus.core.errors import BadInput, unreadable_file
from isthmus.core.files import canonical_json, content_hash
from isthmus.core.from_plain import from_plain
from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode, Event
from isthmus.data.mcap import container, schemas
from isthmus.data.mcap.layout import Layout, Topic

FORMAT_VERSION = "1"
METADATA_NAME = "isthmus.recording"
"""Name of the metadata record."""
METADATA_PARTS = ("contract", "operator", "status", "origin")
"""What it holds, as JSON, beside its format and their hash."""
ACCEPTED_RECORDINGS = (
    "recordings are .mcap files of `isthmus run` or of `isthmus data import`, which takes CSV, Parquet, MCAP and ROS 2 bags"
)
"""What may be given as a recording, in words."""
MAX_VALUES = 2**28
"""Numbers of a recording, 2 GiB of them."""
MAX_EVENTS = 1_000_000


@dataclass(frozen=True)
class _RecordingHeader:
    """What a recording says about itself beside the contract."""

    operator: tuple[Signal, ...]
    status: tuple[str, ...]
    origin: Mapping[str, Any]


def metadata_hash(metadata: Mapping[str, str]) -> str:
    """Of the metadata's texts: MCAP has a checksum for chunks, but not for metadata."""
    return content_hash([metadata[name] for name in METADATA_PARTS])


def is_recording(path: str | Path) -> bool:
    """Whether a file is one of our recordings, by its first records."""
    try:
        with open(path, "rb") as file:
            for opcode, content in container.iter_records(file, os.fstat(file.fileno()).st_size, str(path)):
                if opcode != Opcode.HEADER:
                    return (
                        opcode == Opcode.METADATA and container.parse_record(Metadata, content, str(path)).name == METADATA_NAME
                    )
    except (OSError, BadInput):
        pass
    return False


def read_episode(path: str | Path) -> Episode:
    """The episode in a recording.

    A recording that was cut, at whatever byte after its metadata, gives all ticks up to its last complete chunk, with
    `complete` False. A tick is what `/status` has a message for; a value of another topic that has none for that tick (in a
    file that another program has rewritten) is NaN. Whatever else is broken is a BadInput.
    """
    where = str(path)
    try:
        with open(path, "rb") as file:
            if file.read(len(MCAP0_MAGIC)) != MCAP0_MAGIC:
                raise BadInput(f"{where} is not a recording: {ACCEPTED_RECORDINGS}.")
            file.seek(0)
            return _EpisodeReader(where).read_file(file)
    except IsADirectoryError:
        raise BadInput(f"{where} is a folder, not a recording: {ACCEPTED_RECORDINGS}.") from None
    except OSError as error:
        raise unreadable_file(where, error) from None


class _EpisodeReader:
    """What has been found so far in one file."""

    def __init__(self, where: str):
        self.where = where
        self.layout: Layout | None = None
        self.origin: Mapping[str, Any] = {}
        self.topics: dict[str, Topic] = {}
        self.channels: dict[int, str] = {}
        self.messages_by_topic: dict[str, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
        """(sequence numbers, messages) per topic and chunk."""
        self.tick_blocks: list[np.ndarray] = [np.empty(0, np.int64)]
        self.row_blocks: list[np.ndarray] = []
        """Numbers and rows of the ticks of chunks that lie as our own writer lays them."""
        self.events: list[Event] = []
        self.value_count = 0

    def read_file(self, file: BinaryIO) -> Episode:
        complete = False
        for opcode, content in container.iter_records(file, os.fstat(file.fileno()).st_size, self.where):
            if opcode == Opcode.METADATA and self.layout is None:
                self._read_metadata(container.parse_record(Metadata, content, self.where))
            elif opcode == Opcode.CHANNEL:
                self._read_channel(content)
            elif opcode == Opcode.CHUNK and self.layout is not None:
                self._read_chunk(container.decompress_chunk(content, self.where))
            elif opcode == Opcode.FOOTER:
                complete = True
        return self._build_episode(complete)

    def _read_metadata(self, record: Metadata) -> None:
        if record.name != METADATA_NAME:
            return
        about, where = record.metadata, self.where
        if about.get("format") != FORMAT_VERSION:
            raise BadInput(f"{where} is a recording of format {about.get('format')!r}; this version reads {FORMAT_VERSION!r}.")
        try:
            if about["hash"] != metadata_hash(about):
                raise BadInput(f"{where} has damaged metadata: its hash is wrong.")
            data = {name: json.loads(about[name]) for name in METADATA_PARTS}
            # Half a character, or a number that is none, reads well and cannot be hashed or written again.
            canonical_json(data).encode()
        except KeyError as error:
            raise BadInput(f"{where} has metadata without {error}.") from None
        except (ValueError, RecursionError) as error:
            raise error if isinstance(error, BadInput) else BadInput(f"{where} has broken metadata: {error}.") from None
        contract = Contract.from_dict(data.pop("contract"), where)
        head = from_plain(_RecordingHeader, data, where)
        self.layout, self.origin = Layout(contract, head.operator, head.status), head.origin
        self.topics = {t.name: t for t in self.layout.topics}

    def _read_channel(self, content: bytes) -> None:
        channel = container.parse_record(Channel, content, self.where)
        self.channels[channel.id] = channel.topic

    def _read_chunk(self, body: bytes) -> None:
        assert self.layout is not None
        if all(self.channels.get(i) == topic for i, topic in enumerate(self.topics, 1)):
            ticks, rows = self.layout.decode(body)
            self.tick_blocks.append(ticks)
            self.row_blocks.append(rows)
            self.value_count += rows.size
            body = body[len(rows) * self.layout.tick_bytes :]
        others, messages = container.split_chunk(body, self.where)
        for opcode, content in others:
            if opcode == Opcode.CHANNEL:
                self._read_channel(content)
        table = np.array([(c, s, a, b) for c, s, _, a, b in messages], np.int64).reshape(-1, 4)
        for channel in np.unique(table[:, 0]).tolist():
            if channel not in self.channels:
                raise BadInput(f"{self.where} has messages of a channel that it does not describe.")
            name, (_, sequence, start, stop) = self.channels[channel], table[table[:, 0] == channel].T
            if name == "/events":
                self.events += [schemas.decode_event(body[a:b], self.where) for a, b in zip(start, stop, strict=True)]
            elif name in self.topics:
                self._collect_messages(self.topics[name], body, sequence, start, stop)
        if self.value_count > MAX_VALUES or len(self.events) > MAX_EVENTS:
            raise BadInput(f"{self.where} holds more than {MAX_VALUES} numbers or {MAX_EVENTS} events and is not read.")

    def _collect_messages(self, topic: Topic, body: bytes, sequence: np.ndarray, start: np.ndarray, stop: np.ndarray) -> None:
        size = len(topic.zero_message)
        if not ((stop - start) == size).all():
            raise self._contract_mismatch(topic)
        windows = np.ndarray((len(body) - size + 1, size), np.uint8, body, strides=(1, 1))
        self.messages_by_topic[topic.name].append((sequence, windows[start]))
        self.value_count += len(start) * len(topic.labels)

    def _contract_mismatch(self, topic: Topic) -> BadInput:
        return BadInput(f"{self.where} has messages on {topic.name} that do not fit its contract.")

    def _build_episode(self, complete: bool) -> Episode:
        layout, where = self.layout, self.where
        if layout is None:
            raise BadInput(
                f"{where} is not a recording of Isthmus, as it does not say which robot it is from: {ACCEPTED_RECORDINGS}."
            )
        ticks = np.concatenate([*self.tick_blocks, *(s for s, _ in self.messages_by_topic["/status"])])
        order = np.argsort(ticks, kind="stable")
        if len(np.unique(ticks)) != len(ticks):
            raise BadInput(f"{where} has two ticks of one number.")
        if len(ticks) * layout.width > MAX_VALUES:
            raise BadInput(f"{where} holds more than {MAX_VALUES} numbers and is not read.")
        rest = np.full((len(ticks) - sum(map(len, self.row_blocks)), layout.width), np.nan)
        rows = np.concatenate([*self.row_blocks, rest])
        for topic in layout.topics:
            if not self.messages_by_topic[topic.name]:
                continue
            sequence, raw = (np.concatenate(parts) for parts in zip(*self.messages_by_topic.pop(topic.name), strict=True))
            if (values := topic.decode(raw)) is None:
                raise self._contract_mismatch(topic)
            at = np.searchsorted(ticks, sequence, sorter=order)
            known = at < len(ticks)
            known[known] = ticks[order[at[known]]] == sequence[known]
            rows[np.ix_(order[at[known]], np.array(topic.columns))] = values[known]
        try:
            return layout.to_episode(rows, tuple(self.events), self.origin, complete)
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from None
