"""MCAP files of others: messages in JSON, protobuf or ROS 2's CDR, flattened to columns."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mcap.opcode import Opcode
from mcap.records import Channel, Schema

from isthmus.core.errors import BadInput, unreadable_file
from isthmus.core.progress import Progress, silent
from isthmus.data.importers.columns import Table, TopicRows, check_size, table_from_topics
from isthmus.data.mcap import container

Decoder = Callable[[bytes], Any]


@dataclass
class MessageCollector:
    """What has come in so far, by channel."""

    source: str
    schemas: dict[int, Schema] = field(default_factory=dict)
    channels: dict[int, Channel] = field(default_factory=dict)
    decoders: dict[int, Decoder | None] = field(default_factory=dict)
    topics: dict[str, TopicRows] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    value_count: int = 0
    """Numbers of all topics, with those that are missing."""
    present_count: int = 0
    """Those that are not."""

    def add_definition(self, opcode: int, content: bytes) -> None:
        if opcode == Opcode.SCHEMA:
            schema = container.parse_record(Schema, content, self.source)
            self.schemas[schema.id] = schema
        elif opcode == Opcode.CHANNEL:
            self.add_channel(container.parse_record(Channel, content, self.source))

    def add_channel(self, channel: Channel) -> None:
        """From now on, messages of this number belong to this channel."""
        if channel != self.channels.get(channel.id):
            self.channels[channel.id] = channel
            self.decoders.pop(channel.id, None)

    def add_message(self, channel: int, stamp: int, data: bytes) -> None:
        if channel not in self.channels:
            raise BadInput(f"{self.source} has messages of a channel that it does not describe.")
        topic = self.channels[channel].topic
        if channel not in self.decoders:
            self.decoders[channel] = self._make_decoder(self.channels[channel])
        decode = self.decoders[channel]
        if decode is None:
            return
        try:
            message = decode(data)
        except Exception as error:  # a decoder of another project may raise anything about broken data
            raise BadInput(f"{self.source} has a message on {topic} that cannot be decoded: {error}.") from None
        rows = self.topics.setdefault(topic, TopicRows(topic))
        values = rows.message_values(stamp, message)
        self.value_count += rows.size_with(values) - rows.size
        self.present_count += 1 + len(values)
        check_size(self.source, self.value_count, self.present_count)
        rows.add(stamp, values)

    def _make_decoder(self, channel: Channel) -> Decoder | None:
        schema, encoding = self.schemas.get(channel.schema_id), channel.message_encoding
        try:
            if encoding == "json":
                return json.loads
            if encoding == "protobuf" and schema is not None:
                return protobuf_decoder(schema.name, schema.data)
            if encoding == "cdr" and schema is not None:
                from isthmus.data.importers.cdr import cdr_decoder

                return cdr_decoder(schema.name, schema.encoding, schema.data.decode(errors="replace"))
        except BadInput:
            raise
        except Exception as error:  # as above, about a broken or unknown schema
            self.notes.append(f"{channel.topic} left out: its schema cannot be read ({str(error)[:80]}).")
            return None
        self.notes.append(f"{channel.topic} left out: its messages are {encoding or 'of no named encoding'}.")
        return None


def load_mcap(path: Path, progress: Progress = silent) -> Table:
    messages = MessageCollector(str(path))
    complete = read_mcap(path, messages, progress)
    notes = [*messages.notes, *([] if complete else ["the file is cut; this is what came before."])]
    return table_from_topics(str(path), "mcap", messages.topics.values(), notes)


def read_mcap(path: Path, messages: MessageCollector, progress: Progress = silent) -> bool:
    """Put all messages of a file into `messages`; False if the file is cut."""
    where, complete = str(path), False
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            for opcode, content in container.iter_records(file, size, where):
                progress(file.tell() / size)
                if opcode == Opcode.CHUNK:
                    _collect_chunk(container.decompress_chunk(content, where), messages)
                elif opcode == Opcode.MESSAGE:
                    _collect_chunk(container.RECORD_HEADER.pack(opcode, len(content)) + content, messages)
                elif opcode in (Opcode.DATA_END, Opcode.FOOTER):
                    complete = True
                else:
                    messages.add_definition(opcode, content)
    except OSError as error:
        raise unreadable_file(where, error) from None
    return complete


def _collect_chunk(body: bytes, messages: MessageCollector) -> None:
    others, found = container.split_chunk(body, messages.source)
    for opcode, content in others:
        messages.add_definition(opcode, content)
    for channel, _, stamp, start, stop in found:
        messages.add_message(channel, stamp, body[start:stop])


def protobuf_decoder(name: str, descriptors: bytes) -> Decoder:
    """A decoder from a serialized FileDescriptorSet."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool, files = descriptor_pool.DescriptorPool(), descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    waiting = {f.name: f for f in files.file}
    while waiting:
        ready = [f for f in waiting.values() if not set(f.dependency) & set(waiting)]
        if not ready:
            raise ValueError("its files import each other")
        for file in ready:
            pool.Add(file)  # type: ignore[attr-defined]
            del waiting[file.name]
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return lambda data: _to_plain(kind.FromString(data))


def _to_plain(message: Any, depth: int = 0) -> Any:
    """A protobuf message as dicts and lists, with fields at their default."""
    if not hasattr(message, "DESCRIPTOR"):
        return message
    if depth > 16:
        return None
    out, inner = {}, partial(_to_plain, depth=depth + 1)
    for f in message.DESCRIPTOR.fields:
        value = getattr(message, f.name)
        if f.message_type is not None and f.message_type.GetOptions().map_entry:
            out[f.name] = {str(k): inner(v) for k, v in value.items()}
        elif f.is_repeated if hasattr(f, "is_repeated") else f.label == 3:
            out[f.name] = [inner(v) for v in value]
        elif f.message_type is None or message.HasField(f.name):
            out[f.name] = inner(value)
    return out
