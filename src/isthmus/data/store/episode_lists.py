"""Lists of episodes without a recording each, as an evaluation over thousands of worlds gives them.

FILE.parquet   columns of numbers: success, failed, score, seconds, ticks, world, e.NAME, metrics.NAME; in the metadata what all
               have in common: source, robot, task, run, belief, …
FILE.jsonl     one object per line, with the names of columns of `episodes`
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import atomic_write, canonical_json, content_hash
from isthmus.data.importers.parquet import import_pyarrow, open_parquet, read_numbers
from isthmus.data.store.rows import COLUMN_KINDS, LISTABLE_COLUMNS, MAX_NUMBERS, Row, StoreItem, checked_row, is_name
from isthmus.data.store.tables import NUMBER_GROUPS

EPISODES_METADATA_KEY = b"isthmus.episodes"
"""Of the schema's metadata."""
MAX_LINE = 2**20
PARENT_ROLES = ("run", "controller", "belief", "reality", "model")


def write_episode_list(path: str | Path, common: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> str:
    """Episodes as (n,) columns of numbers, and what all have in common; the hash of the file. NaN stands for unknown."""
    pa = import_pyarrow()
    head = checked_row(dict(common), "what the episodes have in common")
    for name in columns:
        _check_column_name(name, str(path))
    table = pa.table({name: pa.array(np.asarray(values, np.float64)) for name, values in columns.items()})
    out = io.BytesIO()
    pa.parquet.write_table(
        table.replace_schema_metadata({EPISODES_METADATA_KEY: canonical_json(head).encode()}),
        out,
        compression="zstd",
        use_dictionary=False,
    )
    atomic_write(Path(path), out.getvalue())
    return content_hash(out.getvalue())


def is_episode_list(path: Path) -> bool:
    """Whether a file is a list of episodes: Parquet by its metadata, JSON lines by the names in the first one."""
    try:
        if path.suffix == ".jsonl":
            return bool(next(_jsonl_rows(path), ({}, "", 0.0))[0])
        return path.suffix in (".parquet", ".pq") and EPISODES_METADATA_KEY in (open_parquet(path).schema_arrow.metadata or {})
    except (BadInput, OSError):
        return False


def read_episode_list(path: Path, file: str) -> Iterator[StoreItem]:
    """First the list itself, as an artifact, then its episodes. `file` is how the store will name it.

    An episode's hash is of what is said about it, so that the same is the same in whichever list it comes; if two of one
    list say the same, they are two.
    """
    with open(path, "rb") as raw:
        found = hashlib.file_digest(raw, "sha256").hexdigest()
    about: Row = {"hash": found, "kind": "list", "file": file}
    seen: dict[str, int] = {}
    for i, (row, own, done) in enumerate(_jsonl_rows(path) if path.suffix == ".jsonl" else _parquet_rows(path)):
        if i == 0:
            about |= {name: row[name] for name in ("robot", "task") if name in row}
            about["parents"] = [(name, row[name]) for name in PARENT_ROLES if row.get(name)] if path.suffix != ".jsonl" else []
            yield StoreItem("artifacts", about, file_fraction=0.0)
        before = seen.get(own, 0)
        seen[own] = before + 1
        known = content_hash([own, before]) if before else own
        yield StoreItem("episodes", {**row, "hash": known, "file": file, "list": found}, file_fraction=done)
    if not seen:
        yield StoreItem("artifacts", about)


def _check_column_name(name: str, where: str) -> None:
    group, dot, rest = name.partition(".")
    valid = [c for c in LISTABLE_COLUMNS if COLUMN_KINDS[c] in ("number", "whole", "flag", "moment")]
    if not (group in NUMBER_GROUPS and is_name(rest) if dot else name in valid):
        raise unknown_name("column", name, [*valid, *(f"{g}.NAME" for g in NUMBER_GROUPS)], where)


def _parquet_rows(path: Path) -> Iterator[tuple[Row, str, float]]:
    """What a Parquet list says about each episode, its hash, and the part of the list up to there."""
    where, file, pa = str(path), open_parquet(path), import_pyarrow()
    try:
        head = json.loads((file.schema_arrow.metadata or {})[EPISODES_METADATA_KEY])
        names = list(file.schema_arrow.names)
        values = read_numbers(file, path)
    except (KeyError, ValueError, RecursionError, OSError, pa.ArrowException) as error:
        raise error if isinstance(error, BadInput) else BadInput(f"{where} is not a list of episodes: {error}.") from None
    head = checked_row(head, f"{where}: its metadata")
    for name in names:
        _check_column_name(name, where)
    if len(set(names)) != len(names) or len(names) > MAX_NUMBERS:
        raise BadInput(f"{where} has two columns of one name, or more than {MAX_NUMBERS}.")
    kinds = [COLUMN_KINDS.get(name, "number") for name in names]
    columns = [_to_python_values(v, k, f"{where}: {n}") for n, k, v in zip(names, kinds, values, strict=True)]
    split = [name.partition(".")[::2] for name in names]
    total = len(values[0]) if values else 0
    # Hashing the JSON of every row would take most of the time of an import.
    start = hashlib.sha256(canonical_json([head, names]).encode())
    bits = np.stack([np.where(np.isnan(v), np.nan, v) for v in values], axis=1).astype("<f8") if values else np.empty((0, 0))
    for i, numbers in enumerate(zip(*columns, strict=True)):
        row: Row = {**head, **{g: dict(head.get(g, {})) for g in NUMBER_GROUPS}}
        for (group, name), value in zip(split, numbers, strict=True):
            if value is not None:
                if name:
                    row[group][name] = value
                else:
                    row[group] = value
        digest = start.copy()
        digest.update(bits[i].tobytes())
        yield {k: v for k, v in row.items() if v != {}}, digest.hexdigest(), (i + 1) / total


def _to_python_values(values: np.ndarray, kind: str, where: str) -> list[Any]:
    """As Python has them; None for NaN. Of flags and whole numbers, others than those are a BadInput."""
    known = np.isfinite(values)
    if np.isinf(values).any():
        raise BadInput(f"{where} is not finite in some row.")
    if kind in ("flag", "whole"):
        fine = values[known]
        low, high = (0, 1) if kind == "flag" else (-(2**53), 2**53)
        if (fine != np.rint(fine)).any() or (fine < low).any() or (fine > high).any():
            raise BadInput(f"{where} must be {'0 or 1' if kind == 'flag' else 'a whole number'}.")
        plain = bool if kind == "flag" else int
        return [plain(v) if k else None for v, k in zip(values.tolist(), known.tolist(), strict=True)]
    return [v if k else None for v, k in zip(values.tolist(), known.tolist(), strict=True)]


def _jsonl_rows(path: Path) -> Iterator[tuple[Row, str, float]]:
    """The same of a list of JSON lines."""
    size, done = max(path.stat().st_size, 1), 0
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number, done, where = number + 1, done + len(line), f"{path}, line {number + 1}"
            if len(line) > MAX_LINE:
                raise BadInput(f"{where} is longer than {MAX_LINE} bytes.")
            if not line.strip():
                continue
            try:
                data = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadInput(f"{where} is not valid JSON: {error}.") from None
            row = checked_row(data, where)
            yield row, content_hash(row), done / size
