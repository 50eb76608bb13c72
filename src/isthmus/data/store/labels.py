"""Labels of people on episodes of a store: texts with a time, tags, success. Nothing is deleted; a label is withdrawn."""

from __future__ import annotations

import getpass
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput
from isthmus.core.results import Result
from isthmus.data.store.rows import is_text
from isthmus.data.store.sources import read_items
from isthmus.data.store.store import Store

LABEL_COLUMNS = ("hash", "start", "stop", "text", "tag", "success", "who", "noted")
MAX_LABELS = 10_000
"""Labels of one episode that are shown."""


@dataclass(frozen=True)
class EpisodeLabel:
    hash: str
    start: float | None
    """s into the episode; None if it is about all of it."""
    stop: float | None
    text: str | None
    tag: str | None
    success: bool | None
    who: str
    noted: str
    """When, UTC."""


@dataclass(frozen=True)
class LabelsResult(Result, kind="store-labels"):
    store: str
    episode: str
    """Its hash."""
    made: tuple[str, ...]
    """Hashes of the rows that were added."""
    labels: tuple[EpisodeLabel, ...]
    """All valid labels of the episode, the oldest first."""
    head: str


def label(
    store: Store,
    episode: str,
    *,
    text: str = "",
    start: float | None = None,
    stop: float | None = None,
    tags: tuple[str, ...] = (),
    success: bool | None = None,
    who: str = "",
) -> LabelsResult:
    """Label an episode, given by its recording or the first digits of its hash; with no label, only show those it has.

    `start` and `stop` are s into the episode; `who` is by default the user of this computer.
    """
    found = find_episode(store, episode)
    stop = start if stop is None else stop
    if start is None and stop is not None:
        raise BadInput("--stop needs --start.")
    if not all(is_text(word) for word in (text, *tags)) or not all(tag.strip() for tag in tags):
        raise BadInput("a label or tag is a text of at most 10,000 characters.")
    span: dict[str, float] = {}
    if start is not None and stop is not None:
        if not text:
            raise BadInput("--start and --stop go with a text: what was seen then?")
        _check_span(store, found, start, stop)
        span = {"start": start, "stop": stop}
    rows: list[dict[str, Any]] = [{"text": text, **span}] if text else []
    rows += [{"tag": tag} for tag in dict.fromkeys(tags)]
    rows += [{"success": success}] if success is not None else []
    return _result(store, found, store.add_marks(found, who or _user_name(), rows) if rows else [])


def withdraw(store: Store, episode: str, old_label: str, *, who: str = "") -> LabelsResult:
    """Withdraw a label or tag of an episode, given by the first digits of its hash."""
    found = find_episode(store, episode)
    old = store.find_hash(old_label, "marks")
    if old not in [one.hash for one in valid_labels(store, found)]:
        raise BadInput(f"{old_label} is not a label of {episode}, or was withdrawn before.")
    return _result(store, found, store.add_marks(found, who or _user_name(), [{"withdraws": old}]))


def valid_labels(store: Store, episode: str) -> tuple[EpisodeLabel, ...]:
    """Labels of an episode that were not withdrawn, the oldest first."""
    sql = f"select {', '.join(LABEL_COLUMNS)} from valid_labels where episode = '{episode}'"  # noqa: S608
    found = store.query(sql + " and withdraws is null order by noted, hash", MAX_LABELS)
    as_bool = lambda value: None if value is None else bool(value)  # noqa: E731
    return tuple(EpisodeLabel(**{**row, "success": as_bool(row["success"])}) for row in found.rows)


def find_episode(store: Store, name: str) -> str:
    """Hash of an episode in the store, by its recording or the first digits of its hash."""
    path = Path(name)
    if not path.is_file():
        return store.find_hash(name)
    if path.suffix not in (".mcap", ".parquet", ".pq"):
        raise BadInput(f"{name} is not a recording; a label is about an episode.")
    item = next(read_items(path))
    if item.table != "episodes":
        raise BadInput(f"{name} is a list of episodes; give the first digits of the hash of one of them.")
    store.chain.read()
    if item.row["hash"] not in store.known_hashes()["episodes"]:
        raise BadInput(f"{name} is not in the store {store.folder}; `isthmus data add {name}` puts it there.")
    return item.row["hash"]


def _check_span(store: Store, episode: str, start: float, stop: float) -> None:
    length = store.query(f"select seconds from episodes where hash = '{episode}'", 1).rows[0]["seconds"]  # noqa: S608
    if not 0 <= start <= stop or stop > (math.inf if length is None else length):
        whole = "" if length is None else f" and lie within the episode's {length:.2f} s"
        raise BadInput(f"--start and --stop must follow each other{whole}, not {start:g} and {stop:g}.")


def _result(store: Store, episode: str, made: list[str]) -> LabelsResult:
    return LabelsResult(str(store.folder), episode, tuple(made), valid_labels(store, episode), store.chain.head)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
