"""Protobuf schemas of a recording, self-describing, so that any viewer of MCAP files can show its values by name."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import BadInput
from isthmus.data.episode import Event, EventLevel
from isthmus.data.mcap.layout import Topic, protobuf_names

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

LOG_SCHEMA_NAME = "foxglove.Log"
"""Schema of events: viewers know it by this name and show it as a log."""
LEVEL_NUMBERS: dict[EventLevel, int] = {"info": 2, "warning": 3, "error": 4}
"""Levels as that schema counts them."""


def topic_schemas(topics: tuple[Topic, ...]) -> list[tuple[str, bytes]]:
    """(name, serialized FileDescriptorSet) per topic: one optional `double` per label."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

    found = []
    for topic, name in zip(topics, protobuf_names(tuple(t.name.strip("/") for t in topics)), strict=True):
        file = FileDescriptorProto(name=f"isthmus/{name}.proto", package="isthmus", syntax="proto2")
        message = file.message_type.add(name=name)
        for number, field in enumerate(topic.field_names, 1):
            message.field.add(
                name=field,
                number=number,
                type=FieldDescriptorProto.TYPE_DOUBLE,
                label=FieldDescriptorProto.LABEL_OPTIONAL,
            )
        found.append((f"isthmus.{name}", FileDescriptorSet(file=[file]).SerializeToString()))
    return found


def log_schema() -> bytes:
    """Serialized FileDescriptorSet of `foxglove.Log`, and beside it the exact time within the episode."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    return FileDescriptorSet(file=_log_files()).SerializeToString()


def encode_event(event: Event, log_time: int) -> bytes:
    message = _log_class()(level=LEVEL_NUMBERS[event.level], message=event.text, name=event.name, seconds=event.time)
    message.timestamp.seconds, message.timestamp.nanos = divmod(log_time, 10**9)
    return message.SerializeToString()


def decode_event(data: bytes, where: str) -> Event:
    from google.protobuf.message import DecodeError

    levels: dict[int, EventLevel] = {number: level for level, number in LEVEL_NUMBERS.items()}
    try:
        message: Any = _log_class().FromString(data)
        return Event(message.seconds, levels[message.level], message.name, message.message)
    except (DecodeError, KeyError, ValueError):
        raise BadInput(f"{where} has an event that cannot be read.") from None


@cache
def _log_class() -> type[Any]:
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in _log_files():
        pool.Add(file)  # type: ignore[attr-defined]
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(LOG_SCHEMA_NAME))


@cache
def _log_files() -> list[FileDescriptorProto]:
    from google.protobuf import timestamp_pb2
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    stamp = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    file = FileDescriptorProto(name="foxglove/Log.proto", package="foxglove", syntax="proto3", dependency=[stamp.name])
    log = file.message_type.add(name="Log")
    levels = log.enum_type.add(name="Level")
    for number, name in enumerate(("UNKNOWN", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")):
        levels.value.add(name=name, number=number)
    optional = Field.LABEL_OPTIONAL
    log.field.add(name="timestamp", number=1, type=Field.TYPE_MESSAGE, label=optional, type_name=".google.protobuf.Timestamp")
    log.field.add(name="level", number=2, type=Field.TYPE_ENUM, label=optional, type_name=".foxglove.Log.Level")
    for number, name in ((3, "message"), (4, "name"), (5, "file")):
        log.field.add(name=name, number=number, type=Field.TYPE_STRING, label=optional)
    log.field.add(name="line", number=6, type=Field.TYPE_FIXED32, label=optional)
    log.field.add(name="seconds", number=100, type=Field.TYPE_DOUBLE, label=optional)
    return [stamp, file]
