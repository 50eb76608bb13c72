"""Checkpoints: one safetensors file each, written whole or not at all, with a hash of what is inside.

The file holds named arrays; what is not an array (counters, generator states, parents' hashes) is JSON in its
header. Nothing is executed by loading one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from isthmus.core.errors import BadInput
from isthmus.core.files import atomic_write, canonical_json
from isthmus.learn.migrate import migrate_arrays

MAX_BYTES = 4 * 2**30
KEEP_NEWEST = 2
"""Newest checkpoints that stay on disk."""


def _digest(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> str:
    h = hashlib.sha256(canonical_json(meta).encode())
    for name in sorted(arrays):
        a = arrays[name]
        h.update(f"{name}{a.dtype}{a.shape}".encode())
        h.update(a.tobytes())
    return h.hexdigest()


def write(path: Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    whole = {name: a if a.flags.c_contiguous else a.copy(order="C") for name, a in arrays.items()}
    header = {"isthmus": canonical_json(meta), "hash": _digest(whole, meta)}
    atomic_write(path, save(whole, metadata=header))


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and metadata; a file that is missing, truncated or altered is a BadInput that names it."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise BadInput(f"{path} is larger than {MAX_BYTES // 2**30} GiB and is not read.")
        raw = path.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + length])["__metadata__"]
        arrays, meta = load(raw), json.loads(header["isthmus"])
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}.") from error
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise BadInput(f"{path} is not a whole checkpoint ({type(error).__name__}); delete it to use an older one.") from None
    if not isinstance(meta, dict) or header.get("hash") != _digest(arrays, meta):
        raise BadInput(f"{path} was altered after it was written: its hash does not fit; delete it to use an older one.")
    return migrate_arrays(arrays), meta


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints of a run, oldest first."""
    return sorted((folder / "checkpoints").glob("[0-9]*.safetensors"), key=lambda p: (len(p.stem), p.stem))


def newest(folder: Path) -> Path:
    found = list_checkpoints(folder)
    if not found:
        raise BadInput(f"{folder} has no checkpoint yet.")
    return found[-1]


def prune(folder: Path) -> None:
    for old in list_checkpoints(folder)[:-KEEP_NEWEST]:
        old.unlink(missing_ok=True)
    for part in (folder / "checkpoints").glob(".*.part"):
        part.unlink(missing_ok=True)
