"""MCAP files: written chunk by chunk so that what is on disk always opens, and read without trusting a byte.

The records are those of the `mcap` package. Its own writer packs and indexes message by message, which at nine topics costs
about 45 µs per tick under the interpreter's lock; here a chunk is handed over ready-made, and the control loop goes on.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import BinaryIO, TypeVar

from mcap.data_stream import ReadDataStream, RecordBuilder
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import (
    Channel,
    Chunk,
    ChunkIndex,
    DataEnd,
    Footer,
    Header,
    McapRecord,
    Metadata,
    MetadataIndex,
    Schema,
    Statistics,
    SummaryOffset,
)
from mcap.writer import MCAP0_MAGIC

from isthmus.core.errors import BadInput

MAX_FILE_BYTES = 8 * 2**30
"""Bytes of a file that is read."""
MAX_RECORD_BYTES = 64 * 2**20
"""Bytes of a record that is read, and of a chunk when it is unpacked."""
RECORD_HEADER = struct.Struct("<BQ")
MESSAGE_HEADER = struct.Struct("<BQHIQQ")
SKIPPED_OPCODES = (Opcode.ATTACHMENT, Opcode.MESSAGE_INDEX)
"""Records whose content nobody here reads."""

R = TypeVar("R", bound=McapRecord)
MessageSlice = tuple[int, int, int, int, int]
"""A message: channel, sequence, log time in ns, and where its data starts and ends in the chunk."""


class ChunkWriter:
    """Header, metadata, schemas and channels at once; then ready-made chunks; at the end what makes the file searchable.

    Every record goes to the stream in one piece. If the stream refuses, the file is cut back to its last complete record,
    and every later call raises the same OSError.
    """

    def __init__(self, stream: BinaryIO, metadata: Metadata, schemas: Sequence[Schema], channels: Sequence[Channel]):
        self._stream, self._offset, self._error = stream, 0, None
        self._schemas, self._channels = schemas, channels
        self._counts = dict.fromkeys((c.id for c in channels), 0)
        self._chunks: list[ChunkIndex] = []
        self._write(MCAP0_MAGIC + pack_records(Header("", "isthmus")))
        record = pack_records(metadata)
        self._metadata_index = MetadataIndex(self._offset, len(record), metadata.name)
        self._write(record + pack_records(*schemas, *channels))

    def write_chunk(self, body: bytes, span: tuple[int, int], index: Mapping[int, bytes]) -> None:
        """`body` is message records, `span` the first and last log time, `index` 16 bytes per message, by channel."""
        record = pack_records(Chunk("", body, span[1], span[0], zlib.crc32(body), len(body)))
        parts, offsets, at = [record], {}, self._offset + len(record)
        for channel, entries in index.items():
            offsets[channel] = at
            head = RECORD_HEADER.pack(Opcode.MESSAGE_INDEX, 6 + len(entries)) + struct.pack("<HI", channel, len(entries))
            parts += [head, entries]
            at += len(head) + len(entries)
        entry = ChunkIndex(
            chunk_length=len(record),
            chunk_start_offset=self._offset,
            compression="",
            compressed_size=len(body),
            message_end_time=span[1],
            message_index_length=at - self._offset - len(record),
            message_index_offsets=offsets,
            message_start_time=span[0],
            uncompressed_size=len(body),
        )
        self._write(b"".join(parts))
        self._chunks.append(entry)
        for channel, entries in index.items():
            self._counts[channel] += len(entries) // 16

    def finish(self) -> None:
        """Write the summary. The stream stays open."""
        end = pack_records(DataEnd(0))
        start = self._offset + len(end)
        groups = {
            Opcode.SCHEMA: self._schemas,
            Opcode.CHANNEL: self._channels,
            Opcode.STATISTICS: [self._statistics()],
            Opcode.CHUNK_INDEX: self._chunks,
            Opcode.METADATA_INDEX: [self._metadata_index],
        }
        summary, offsets = b"", []
        for opcode, records in groups.items():
            part = pack_records(*records)
            if part:
                offsets.append(SummaryOffset(opcode, start + len(summary), len(part)))
            summary += part
        offset_start = start + len(summary)
        summary += pack_records(*offsets)
        crc = zlib.crc32(summary + RECORD_HEADER.pack(Opcode.FOOTER, 20) + struct.pack("<QQ", start, offset_start))
        self._write(end + summary + pack_records(Footer(start, offset_start, crc)) + MCAP0_MAGIC)

    def _statistics(self) -> Statistics:
        return Statistics(
            attachment_count=0,
            channel_count=len(self._channels),
            channel_message_counts=self._counts,
            chunk_count=len(self._chunks),
            message_count=sum(self._counts.values()),
            metadata_count=1,
            message_start_time=min((c.message_start_time for c in self._chunks), default=0),
            message_end_time=max((c.message_end_time for c in self._chunks), default=0),
            schema_count=len(self._schemas),
        )

    def _write(self, data: bytes) -> None:
        if self._error is not None:
            raise self._error
        try:
            rest = memoryview(data)
            while rest:
                # An unbuffered stream may take a part only.
                rest = rest[self._stream.write(rest) or 0 :]
        except OSError as error:
            self._error = error
            with contextlib.suppress(OSError, ValueError):
                self._stream.truncate(self._offset)
            raise
        self._offset += len(data)


def pack_records(*records: McapRecord) -> bytes:
    """Records one after the other."""
    builder = RecordBuilder()
    for record in records:
        record.write(builder)
    return builder.end()


def iter_records(file: BinaryIO, size: int, where: str) -> Iterator[tuple[int, bytes]]:
    """(opcode, content) of every complete record of a file of `size` bytes; the footer only if all of the file is there."""
    if size > MAX_FILE_BYTES:
        raise BadInput(f"{where} is larger than {MAX_FILE_BYTES / 2**30:g} GiB and is not read.")
    if file.read(len(MCAP0_MAGIC)) != MCAP0_MAGIC:
        raise BadInput(f"{where} is not an MCAP file.")
    while len(head := file.read(RECORD_HEADER.size)) == RECORD_HEADER.size:
        opcode, length = RECORD_HEADER.unpack(head)
        if opcode in SKIPPED_OPCODES:
            file.seek(min(length, size), 1)
            continue
        if opcode == 0 or length > MAX_RECORD_BYTES:
            raise BadInput(f"{where} is broken at byte {file.tell() - RECORD_HEADER.size}: a record of {length} bytes.")
        content = file.read(length)
        if len(content) < length:
            return
        if opcode == Opcode.FOOTER:
            tail = file.read(len(MCAP0_MAGIC) + 1)
            if tail == MCAP0_MAGIC:
                yield opcode, content
            elif not MCAP0_MAGIC.startswith(tail):
                raise BadInput(f"{where} goes on after its end.")
            return
        yield opcode, content


def parse_record(kind: type[R], content: bytes, where: str) -> R:
    """A record of the `mcap` package from its content."""
    try:
        return kind.read(ReadDataStream(BytesIO(content)))  # type: ignore[attr-defined]
    except (McapError, struct.error, ValueError, OverflowError, MemoryError) as error:
        raise BadInput(f"{where} has a broken {kind.__name__.lower()} record: {error or type(error).__name__}.") from None


def decompress_chunk(content: bytes, where: str) -> bytes:
    """The records inside a chunk, checked against its checksum, at most MAX_RECORD bytes of them."""
    chunk = parse_record(Chunk, content, where)
    try:
        data = _decompress(chunk.compression, chunk.data)
    except Exception as error:  # whatever the two decompressors raise about broken data
        raise BadInput(f"{where} has a chunk that cannot be unpacked: {error}.") from None
    if len(data) > MAX_RECORD_BYTES or len(data) != chunk.uncompressed_size:
        raise BadInput(
            f"{where} has a chunk that does not have the size it claims, or more than {MAX_RECORD_BYTES // 2**20} MiB."
        )
    if chunk.uncompressed_crc and zlib.crc32(data) != chunk.uncompressed_crc:
        raise BadInput(f"{where} has a damaged chunk: its checksum is wrong.")
    return data


def _decompress(compression: str, data: bytes) -> bytes:
    """At most one byte more than MAX_RECORD, whatever the data claim."""
    if compression == "":
        return data
    if compression == "zstd":
        import zstandard

        return zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(data).read(MAX_RECORD_BYTES + 1)
    if compression == "lz4":
        import lz4.frame

        return lz4.frame.LZ4FrameDecompressor().decompress(data, MAX_RECORD_BYTES + 1)
    raise ValueError(f"compression {compression!r} is neither zstd nor lz4")


def split_chunk(body: bytes, where: str) -> tuple[list[tuple[int, bytes]], list[MessageSlice]]:
    """Schemas and channels inside a chunk, as (opcode, content), and its messages."""
    others, messages, at, end = [], [], 0, len(body)
    while at < end:
        if end - at < RECORD_HEADER.size:
            raise BadInput(f"{where} has a chunk with half a record.")
        opcode, length = RECORD_HEADER.unpack_from(body, at)
        stop = at + RECORD_HEADER.size + length
        if stop > end or (opcode == Opcode.MESSAGE and length < MESSAGE_HEADER.size - RECORD_HEADER.size):
            raise BadInput(f"{where} has a chunk with half a record.")
        if opcode == Opcode.MESSAGE:
            _, _, channel, sequence, log_time, _ = MESSAGE_HEADER.unpack_from(body, at)
            messages.append((channel, sequence, log_time, at + MESSAGE_HEADER.size, stop))
        else:
            others.append((opcode, body[at + RECORD_HEADER.size : stop]))
        at = stop
    return others, messages
