"""Files that are never half written, and hashes of what is in them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput, unreadable_file

MAX_JSON_BYTES = 64 * 1024 * 1024


def canonical_json(data: Any) -> str:
    """One text per value: sorted keys, no spaces, floats with all their digits, no NaN."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_hash(data: Any) -> str:
    """SHA-256 of the canonical JSON of `data`, or of the bytes themselves."""
    raw = data if isinstance(data, bytes) else canonical_json(data).encode()
    return hashlib.sha256(raw).hexdigest()


def atomic_write(path: Path, data: bytes) -> None:
    """Write all of `data` or nothing: a reader sees the old file or the new one, also after a crash."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror or error}.") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
        sync_folder(path.parent)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise BadInput(f"cannot write {path}: {error.strerror or error}.") from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """A file that was put there is there for good."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    atomic_write(path, (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_bytes(path: Path | str, limit: int) -> bytes:
    """A whole file of at most `limit` bytes; one that is missing or larger is a BadInput that names it."""
    path = Path(path)
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise BadInput(f"{path} is not a regular file and is not read.")
        if found.st_size > limit:
            raise BadInput(f"{path} is larger than {limit // 2**20} MiB and is not read.")
        return path.read_bytes()
    except OSError as error:
        raise unreadable_file(path, error) from None


def parse_toml(raw: bytes, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where} is not valid TOML: {error}.") from error


def read_toml(path: Path | str, limit: int) -> dict[str, Any]:
    """Read a TOML table; a missing, oversized or broken file is a BadInput that names it."""
    return parse_toml(read_bytes(path, limit), str(path))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; a missing, oversized or broken file is a BadInput that names it."""
    raw = read_bytes(path, MAX_JSON_BYTES)
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(data, dict):
        raise BadInput(f"{path} holds a {type(data).__name__}, not an object.")
    return data


def check_writable(*paths: Path | None) -> None:
    """Raise BadInput unless these files, where there are any, can be written; their folder is made."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise BadInput(f"cannot write {path}: it is a folder.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror or error}.") from error
