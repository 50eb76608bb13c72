"""A store of episodes: add to it, label what is in it, query and verify it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import content_hash
from isthmus.core.progress import Progress, silent
from isthmus.core.results import Result
from isthmus.data.store import sql as engine
from isthmus.data.store import tables
from isthmus.data.store.hash_chain import HashChain
from isthmus.data.store.rows import Row, StoreItem
from isthmus.data.store.sources import Sources

BATCH_ROWS = 20_000
"""Rows that go to disk together. What is reported as added is always whole batches."""
MAX_BATCH_SECONDS = 10.0
"""s after which a smaller batch goes to disk, where files take long to read."""
HASHED_TABLES = ("episodes", "artifacts", "marks")
"""Tables whose rows have a hash and are never in a store twice."""
MAX_COLUMN_NAMES = 5_000
"""Parameters and metrics of all episodes together."""
MIN_HASH_DIGITS = 4
"""Digits of a hash that stand for it."""
AddProgress = Callable[[float, int], None]
"""Called with the fraction that has been read, 0 to 1, and the number of episodes that are on disk."""


@dataclass
class _Counts:
    """Rows that were added, and those that the store had already."""

    episodes: int = 0
    artifacts: int = 0
    already_there: int = 0


@dataclass(frozen=True)
class AddResult(Result, kind="store-add"):
    store: str
    episodes: int
    """Rows that were added."""
    artifacts: int
    already_there: int
    """Rows that the store had already."""
    skipped_files: int
    """Files in folders that are of no known kind."""
    problems: tuple[str, ...]
    entries: int
    """Of the hash chain."""
    head: str
    """Hash of the last entry."""


@dataclass(frozen=True)
class QueryResult(Result, kind="store-query"):
    store: str
    head: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    """Values by column; a second column of one name is NAME:INDEX."""
    more: bool
    """Whether there are further rows."""


@dataclass(frozen=True)
class VerifyResult(Result, kind="store-verify"):
    store: str
    whole: bool
    entries: int
    """Sound entries of the hash chain."""
    rows: Mapping[str, int]
    """By table."""
    head: str
    problem: str
    first_altered: int | None
    """Number of the first altered entry."""


class Store:
    """All episodes of a project in one folder: recordings and simulated episodes, asked in SQL, under one hash chain."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        self.chain = HashChain(self.folder)
        self._known_hashes: dict[str, set[str]] = {table: set() for table in HASHED_TABLES}
        self._entries_seen = 0
        """Entries whose hashes are among those known."""

    @staticmethod
    def open(folder: Path | str) -> Store:
        """A store that exists; anything else is a BadInput."""
        store = Store(folder)
        if not store.chain.path.exists():
            raise BadInput(f"{store.folder} is not a store; `isthmus data add FILE… --store {store.folder}` makes one.")
        return store

    # Adding -------------------------------------------------------------------------------------------------------

    def add(
        self, paths: Sequence[Path], tags: Sequence[str] = (), report: AddProgress = lambda fraction, episodes: None
    ) -> AddResult:
        """Everything in files and folders that is not there yet. Killed at any moment, what was reported stays."""
        sources, added, waiting, size, began = Sources.from_paths(paths), _Counts(), [], 0, time.monotonic()
        for item, fraction in sources.items():
            if tags and item.table == "episodes":
                item.row["tags"] = list(dict.fromkeys([*item.row.get("tags", ()), *tags]))
            waiting.append(item)
            size += 1 + sum(len(rows) for rows in item.related_rows.values())
            if size >= BATCH_ROWS or time.monotonic() - began > MAX_BATCH_SECONDS:
                self._commit(waiting, added)
                waiting, size, began = [], 0, time.monotonic()
                report(fraction, added.episodes)
        self._commit(waiting, added)
        report(1.0, added.episodes)
        return AddResult(
            store=str(self.folder),
            episodes=added.episodes,
            artifacts=added.artifacts,
            already_there=added.already_there,
            skipped_files=sources.skipped_files,
            problems=tuple(sources.problems),
            entries=len(self.chain.entries),
            head=self.chain.head,
        )

    def _commit(self, items: Iterable[StoreItem], added: _Counts) -> None:
        """Write what is new among the items as one entry."""
        rows: dict[str, list[Row]] = {}
        with self.chain.writer_lock():
            known, own = self.known_hashes(), {table: set() for table in HASHED_TABLES}
            for item in items:
                found = item.row["hash"]
                if found in known[item.table] or found in own[item.table]:
                    added.already_there += 1
                    continue
                own[item.table].add(found)
                rows.setdefault(item.table, []).append(item.row)
                for table, more in item.related_rows.items():
                    rows.setdefault(table, []).extend(more)
            parts = {table: tables.encode_rows(table, found) for table, found in rows.items() if found}
            self._check_names(parts["episodes"][0].names if "episodes" in parts else ())
            if parts:
                self.chain.append(parts)
        added.episodes += len(rows.get("episodes", ()))
        added.artifacts += len(rows.get("artifacts", ()))

    def _check_names(self, new: Sequence[str]) -> None:
        """SQL does not tell small letters from capitals: two names that differ in nothing else would be one."""
        spelled: dict[str, str] = {}
        for name in (*self.chain.extra_columns("episodes"), *new):
            if spelled.setdefault(name.casefold(), name) != name:
                raise BadInput(f"{name} is in {self.folder} as {spelled[name.casefold()]} already; spell it as it is there.")
        if len(spelled) > MAX_COLUMN_NAMES:
            raise BadInput(f"{self.folder} would have more than {MAX_COLUMN_NAMES} names of parameters and metrics.")

    def known_hashes(self) -> dict[str, set[str]]:
        """Hashes of all rows that have one, by table."""
        for entry in self.chain.entries[self._entries_seen :]:
            for table in HASHED_TABLES:
                if table in entry.parts:
                    self._known_hashes[table].update(tables.read_hashes(self.folder / entry.parts[table].file))
        self._entries_seen = len(self.chain.entries)
        return self._known_hashes

    # Marks --------------------------------------------------------------------------------------------------------

    def add_marks(self, episode: str, who: str, notes: Sequence[Row]) -> list[str]:
        """Add what a person says about an episode, all of it or nothing; the hashes of the notes."""
        now = time.time()
        rows = [{"episode": episode, "who": who, "noted": now} | note for note in notes]
        items = [StoreItem("marks", row | {"hash": content_hash(row)}) for row in rows]
        self._commit(items, _Counts())
        return [item.row["hash"] for item in items]

    def find_hash(self, prefix: str, table: str = "episodes") -> str:
        """The hash that begins so; none or several are a BadInput."""
        self.chain.read()
        known = self.known_hashes()[table]
        if prefix in known:
            return prefix
        found = sorted(h for h in known if h.startswith(prefix)) if len(prefix) >= MIN_HASH_DIGITS else []
        if len(found) == 1:
            return found[0]
        what = {"episodes": "episode", "marks": "label", "artifacts": "artifact"}[table]
        if len(found) > 1:
            raise BadInput(f"{len(found)} {table} have hashes that begin with {prefix!r}: {found[0][:16]}, {found[1][:16]}, ….")
        if len(prefix) < MIN_HASH_DIGITS:
            raise BadInput(f"give at least {MIN_HASH_DIGITS} digits of a hash, not {prefix!r}.")
        raise unknown_name(what, prefix, {h[: len(prefix)] for h in sorted(known)[:10_000]}, f"the store {self.folder}")

    # Asking -------------------------------------------------------------------------------------------------------

    def select(self, sql: str, rows: int = 1_000) -> engine.Rows:
        """Rows of one SELECT as tuples, at most so many."""
        self.chain.read()
        self.chain.check_parts()
        return engine.run_query(self.chain, sql, rows)

    def query(self, sql: str, rows: int = 1_000) -> QueryResult:
        """The answer to one SELECT, at most so many rows."""
        if rows < 1:
            raise BadInput("--rows must be at least 1.")
        found = self.select(sql, rows)
        unique = [name if found.names.index(name) == i else f"{name}:{i + 1}" for i, name in enumerate(found.names)]
        table = tuple(dict(zip(unique, row, strict=True)) for row in found.rows)
        return QueryResult(str(self.folder), self.chain.head, tuple(found.names), table, found.more)

    def verify(self, head: str = "", progress: Progress = silent) -> VerifyResult:
        """Check every byte. `head` is a hash noted before: if the chain lacks it, entries were removed or rewritten."""
        problem = self.chain.verify(progress)
        entries, found = self.chain.entries, self.chain.head
        altered = len(entries) + 1 if problem else None
        if not problem and head and not any(e.hash.startswith(head) for e in entries):
            problem = f"{self.folder} has no entry whose hash begins with {head}: entries were taken away or written anew."
        rows: dict[str, int] = {}
        for entry in entries:
            for table, part in entry.parts.items():
                rows[table] = rows.get(table, 0) + part.rows
        return VerifyResult(str(self.folder), not problem, len(entries), rows, found, problem, altered)
