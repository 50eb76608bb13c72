"""A store: add to it, mark what is in it, ask it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import content_hash
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
"""Is told how much has been read, 0 to 1, and how many episodes have been added for good."""


@dataclass
class AddResult:
    episodes: int = 0
    artifacts: int = 0
    there: int = 0
    """Rows that the store had already."""
    passed: int = 0
    """Files in folders that are none of ours."""
    problems: list[str] = field(default_factory=list)


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
        sources, added, waiting, size, began = Sources.from_paths(paths), AddResult(), [], 0, time.monotonic()
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
        added.passed, added.problems = sources.skipped_files, sources.problems
        return added

    def _commit(self, items: Iterable[StoreItem], added: AddResult) -> None:
        """Write what is new among the items as one entry."""
        rows: dict[str, list[Row]] = {}
        with self.chain.writer_lock():
            known, own = self.known_hashes(), {table: set() for table in HASHED_TABLES}
            for item in items:
                found = item.row["hash"]
                if found in known[item.table] or found in own[item.table]:
                    added.there += 1
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
        self._commit(items, AddResult())
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

    def query(self, sql: str, rows: int = 1_000) -> engine.QueryResult:
        """The answer to one SELECT, up to so many rows."""
        self.chain.read()
        self.chain.check_parts()
        return engine.run_query(self.chain, sql, rows)
