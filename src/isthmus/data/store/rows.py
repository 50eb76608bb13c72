"""From an episode, or from what a list says about one, to the rows of a store."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.from_plain import is_encodable
from isthmus.data.episode import Episode
from isthmus.data.store.tables import NUMBER_GROUPS, TABLES

Row = dict[str, Any]
MAX_TEXT, MAX_LIST, MAX_NUMBERS = 10_000, 1_000, 1_000
MAX_UNIX_SECONDS = 2**33
"""Unix s: the year 2242."""
MAX_NAME = 200
COLUMN_KINDS = TABLES["episodes"] | dict.fromkeys(NUMBER_GROUPS, "numbers")
LISTABLE_COLUMNS = tuple(c for c in COLUMN_KINDS if c not in ("hash", "file", "list", "complete"))
"""What a list may say about an episode."""


@dataclass(frozen=True)
class StoreItem:
    """Something to add: a row of `episodes` or of `artifacts`, and rows of other tables that belong to it."""

    table: str
    row: Row
    related_rows: Mapping[str, list[Row]] = field(default_factory=dict)
    file_fraction: float = 1.0
    """Part of its file that has been read up to here."""


# What others say is checked ---------------------------------------------------------------------------------------


def is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT and is_encodable(value)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def is_unix_time(value: Any) -> bool:
    return is_number(value) and 0 <= value < MAX_UNIX_SECONDS


def is_number_table(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) > MAX_NUMBERS:
        return False
    return all(is_name(k) and is_number(v) for k, v in value.items())


def is_name(value: Any) -> bool:
    """Of a parameter or a metric."""
    return is_text(value) and 0 < len(value) <= MAX_NAME and value.isprintable()


def is_text_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_LIST and all(map(is_text, value))


KIND_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (is_text, f"a text of at most {MAX_TEXT} characters"),
    "number": (is_number, "a finite number"),
    "whole": (is_integer, "a whole number"),
    "flag": (lambda v: isinstance(v, bool), "true or false"),
    "moment": (is_unix_time, "a Unix time in seconds"),
    "numbers": (is_number_table, f"a table of at most {MAX_NUMBERS} names with finite numbers"),
    "texts": (is_text_list, f"a list of at most {MAX_LIST} texts"),
}
_EPISODE_CHECKS = {name: KIND_CHECKS[COLUMN_KINDS[name]] for name in LISTABLE_COLUMNS}


def checked_row(row: Any, where: str) -> Row:
    """What a list says about one episode, checked; an unknown name or a value of another kind is a BadInput."""
    if not isinstance(row, dict):
        raise BadInput(f"{where} is not an object with the names of columns.")
    for name, value in row.items():
        if name not in _EPISODE_CHECKS:
            raise unknown_name("column", str(name), LISTABLE_COLUMNS, where)
        right, what = _EPISODE_CHECKS[name]
        if value is not None and not right(value):
            raise BadInput(f"{where}: {name} must be {what}.")
    return {name: value for name, value in row.items() if value is not None}


def origin_value(origin: Mapping[str, Any], name: str, column: str) -> Any:
    """An entry of a recording's origin if it is what the column takes, else nothing: an origin may say anything."""
    value = origin.get(name)
    return value if value is not None and _EPISODE_CHECKS[column][0](value) else None


# Recordings -------------------------------------------------------------------------------------------------------


def item_from_episode(episode: Episode, file: str) -> StoreItem:
    """A recording: its row, the range of each of its signals, and its events."""
    origin = episode.origin
    names = ("source", "unit", "task", "started", "e", "success", "score", "metrics", "parents", "tags", "seed", "world")
    row = {name: value for name in names if (value := origin_value(origin, name, name)) is not None}
    for column in ("controller", "run", "belief", "model", "reality"):
        if (value := origin_value(origin, f"{column}_hash", column)) is not None:
            row[column] = value
    row |= {"hash": episode.hash, "file": file, "robot": episode.contract.robot, "complete": episode.complete}
    row |= {"seconds": episode.duration, "ticks": len(episode)} | _run_ending(episode)
    events = [{"episode": episode.hash, **vars(e)} for e in episode.events]
    return StoreItem("episodes", row, {"signals": list(_signal_statistics(episode)), "events": events})


def _run_ending(episode: Episode) -> Row:
    """Why a run of ours ended, and whether the guard ended it; nothing for recordings of others."""
    last = [e for e in episode.events if e.name in ("stop", "damp")]
    if not last:
        return {}
    return {"stopped": last[0].text, "failed": any(e.name == "damp" and e.level == "error" for e in last)}


def _signal_statistics(episode: Episode):
    contract = episode.contract
    parts = [(s.name, s.unit, s.labels, episode.signals[s.name]) for s in (*contract.signals, *episode.operator)]
    target = contract.target
    parts += [(name, target.unit, target.labels, getattr(episode, name)) for name in ("target", "wanted")]
    parts += [("status", "", (name,), values[:, None]) for name, values in episode.status.items()]
    for signal, unit, labels, values in parts:
        for label, column in zip(labels, values.T, strict=True):
            fine = column[np.isfinite(column)]
            found = {"episode": episode.hash, "signal": signal, "label": label, "unit": unit}
            if fine.size:
                found |= {"low": float(fine.min()), "high": float(fine.max()), "mean": float(fine.mean())}
                found["rms"] = float(np.sqrt(np.mean(np.square(fine))))
            yield found | {"missing": column.size - fine.size}
