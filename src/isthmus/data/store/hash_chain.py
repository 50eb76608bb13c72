"""What makes a store whole: a file of entries, each with the hashes of its parts and the hash of the entry before it.

An entry is appended under a lock, after its parts are on disk, and it is one line: it is there or it is not. A line that a
crash left unfinished was never reported to anybody; readers pass over it, and the next writer takes it away.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput
from isthmus.core.files import atomic_write, canonical_json, content_hash, sync_folder
from isthmus.core.from_plain import from_plain

FORMAT_VERSION = 1
CHAIN_FILE, LOCK_FILE, PARTS_FOLDER = "chain.jsonl", "lock", "parts"
MAX_CHAIN_BYTES = 2**30
"""Bytes of the file of entries."""


@dataclass(frozen=True)
class ParquetPart:
    """Rows of one table, as a Parquet file in the folder of parts."""

    hash: str
    """SHA-256 of its bytes, and its name."""
    size: int
    """Bytes."""
    rows: int
    names: tuple[str, ...] = ()
    """Columns beside those that the table always has: `e.payload`, `metrics.power`."""

    @property
    def file(self) -> str:
        return f"{PARTS_FOLDER}/{self.hash}.parquet"


@dataclass(frozen=True)
class ChainEntry:
    number: int
    """From 1 on."""
    at: float
    """Unix s."""
    parts: Mapping[str, ParquetPart]
    """By table."""
    before: str
    """Hash of the entry before; empty for the first."""
    hash: str
    """Of all the rest."""
    format: int = FORMAT_VERSION


class HashChain:
    """The entries of one store, as far as they have been read; `read` goes on from there."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.path = self.folder / CHAIN_FILE
        self.entries: list[ChainEntry] = []
        self._bytes_read = 0
        """Bytes of complete lines that were read."""

    @property
    def head(self) -> str:
        """Hash of the last entry: who knows it can tell whether any entry up to there was altered or taken away."""
        return self.entries[-1].hash if self.entries else ""

    def read(self) -> list[ChainEntry]:
        """All entries; what others appended meanwhile is added. An altered line is a BadInput that names it."""
        for line in self._new_lines():
            self.entries.append(self._parse_entry(line, len(self.entries) + 1, self.head))
            self._bytes_read += len(line) + 1
        return self.entries

    def _new_lines(self) -> list[bytes]:
        """Complete lines that are new."""
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._bytes_read:
                    raise BadInput(f"{self.path} has become shorter: entries were taken away.")
                if size > MAX_CHAIN_BYTES:
                    raise BadInput(f"{self.path} is larger than {MAX_CHAIN_BYTES // 2**20} MiB and is not read.")
                file.seek(self._bytes_read)
                return file.read(size - self._bytes_read).split(b"\n")[:-1]
        except FileNotFoundError:
            if self._bytes_read:
                raise BadInput(f"{self.path} is gone.") from None
            return []
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror or error}.") from None

    def _parse_entry(self, line: bytes, number: int, before: str) -> ChainEntry:
        where = f"entry {number} of {self.path}"
        try:
            data = json.loads(line)
            own = {k: v for k, v in data.items() if k != "hash"}
            right = data["hash"] == content_hash(own)
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise BadInput(f"{where} was altered: it is not an entry.") from None
        if not right:
            raise BadInput(f"{where} was altered: its hash does not fit.")
        if own.get("format") != FORMAT_VERSION:
            raise BadInput(f"{where} has the format {own.get('format')!r}; this version reads {FORMAT_VERSION}.")
        entry = from_plain(ChainEntry, data, where)
        if entry.before != before or entry.number != number:
            raise BadInput(f"{where} does not follow on the entry before it: one was altered, taken away or put in.")
        for part in entry.parts.values():
            if len(part.hash) != 64 or not set(part.hash) <= set("0123456789abcdef"):
                raise BadInput(f"{where} names a part that cannot be.")
        return entry

    @contextmanager
    def writer_lock(self) -> Iterator[None]:
        """Be the only one who appends; whoever else wants to waits. The system frees the lock of a process that dies."""
        import fcntl

        try:
            (self.folder / PARTS_FOLDER).mkdir(parents=True, exist_ok=True)
            lock = open(self.folder / LOCK_FILE, "ab")  # noqa: SIM115
        except OSError as error:
            raise BadInput(f"cannot write to the store {self.folder}: {error.strerror or error}.") from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.read()
            yield

    def append(self, parts: Mapping[str, tuple[ParquetPart, bytes]]) -> ChainEntry:
        """Add an entry with these parts, by table. The lock must be held; on return it is on disk."""
        for part, data in parts.values():
            atomic_write(self.folder / part.file, data)
        own: dict[str, Any] = {
            "number": len(self.entries) + 1,
            "at": time.time(),
            "parts": {table: asdict(part) for table, (part, _) in parts.items()},
            "before": self.head,
            "format": FORMAT_VERSION,
        }
        line = canonical_json(own | {"hash": content_hash(own)}).encode()
        self._append_line(line + b"\n")
        self.read()
        return self.entries[-1]

    def _append_line(self, line: bytes) -> None:
        new = not self.path.exists()
        try:
            with open(self.path, "r+b" if not new else "xb", buffering=0) as file:
                file.seek(self._bytes_read)
                file.truncate()
                if file.write(line) != len(line):
                    file.truncate(self._bytes_read)
                    raise OSError(28, "No space left on device")
                os.fsync(file.fileno())
            if new:
                sync_folder(self.folder)
        except OSError as error:
            raise BadInput(f"cannot write {self.path}: {error.strerror or error}.") from None

    def extra_columns(self, table: str) -> list[str]:
        """Columns of a table beside those that it always has, in the order in which they came."""
        return list(dict.fromkeys(name for e in self.entries if table in e.parts for name in e.parts[table].names))

    def check_parts(self) -> None:
        """Raise BadInput if a part is missing or has another size; `verify` looks at every byte."""
        for entry in self.entries:
            for table, part in entry.parts.items():
                try:
                    size = (self.folder / part.file).stat().st_size
                except OSError:
                    size = -1
                if size != part.size:
                    what = "is gone" if size < 0 else "was altered"
                    raise BadInput(
                        f"{part.file} ({table}, entry {entry.number}) of {self.folder} {what}: see isthmus data verify."
                    )

    def verify(self, report: Callable[[float], None] = lambda fraction: None) -> str:
        """Look at every byte; a sentence about the first entry that was altered, or nothing."""
        self.entries, self._bytes_read = [], 0
        try:
            lines = self._new_lines()
            for i, line in enumerate(lines):
                entry = self._parse_entry(line, i + 1, self.head)
                for table, part in entry.parts.items():
                    self._check_part_hash(entry, table, part)
                self.entries.append(entry)
                self._bytes_read += len(line) + 1
                report((i + 1) / len(lines))
        except BadInput as error:
            return str(error)
        return ""

    def _check_part_hash(self, entry: ChainEntry, table: str, part: ParquetPart) -> None:
        path, where = self.folder / part.file, f"entry {entry.number} of {self.path}"
        try:
            data = path.read_bytes()
        except OSError as error:
            raise BadInput(f"{where}: its {table}, {part.file}, cannot be read: {error.strerror or error}.") from None
        if content_hash(data) != part.hash:
            raise BadInput(f"{where}: its {table}, {part.file}, was altered: its hash does not fit.")
