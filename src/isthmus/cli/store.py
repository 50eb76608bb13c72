"""The store of episodes: add to it, ask it, verify it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from isthmus.cli import render
from isthmus.core.errors import BadInput, Interrupted

DEFAULT_STORE = Path("store")


@dataclass(frozen=True)
class Add:
    """Put recordings, lists of episodes, runs, controllers, twins, beliefs and comparisons into the store, each once.

    example: isthmus data add walk.mcap runs/a a.controller unit7.twin
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE …")]
    """Files, and folders to look through."""
    tag: tuple[str, ...] = ()
    """Words to tag the episodes with."""
    store: Path = DEFAULT_STORE
    """Folder of the store."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class Query:
    """Ask the store in SQL: tables episodes, signals, events, labels, tags, artifacts, links and entries.

    example: isthmus data query "select unit, count(*), avg(success) from episodes where source = 'real' group by 1"
    """

    sql: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SQL")]
    """One SELECT; `describe episodes` lists columns."""
    rows: int = 1000
    """Rows to show at most."""
    store: Path = DEFAULT_STORE
    """Folder of the store."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class Verify:
    """Look at every byte of the store, and name the first entry that was altered.

    example: isthmus data verify --head 3f2a90c1
    """

    head: str = ""
    """Hash of the last entry as it was noted before: the chain must hold it, so that nothing before it was taken away."""
    store: Path = DEFAULT_STORE
    """Folder of the store."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Add | Query | Verify) -> int:
    if isinstance(args, Add):
        return _run_add(args)
    return _run_query(args) if isinstance(args, Query) else _run_verify(args)


def _run_add(args: Add) -> int:
    from isthmus.data.store import Store

    if not args.files:
        raise BadInput("say what to add: isthmus data add FILE|FOLDER ….")
    store, count = Store(args.store), 0
    with render.progress_bar(f"adding to {args.store}") as bar:

        def report(fraction: float, episodes: int) -> None:
            nonlocal count
            count = episodes
            bar.update(fraction, f"{episodes} episodes")

        try:
            added = store.add(args.files, args.tag, report)
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted: {count} episodes are in {args.store}; the same command adds the rest.") from None
    head = store.chain.head
    if args.json:
        render.emit({"store": str(args.store), **vars(added), "entries": len(store.chain.entries), "head": head})
    else:
        render.print_line(f"{added.episodes:,} episodes and {added.artifacts:,} artifacts added to {args.store}", "bold")
        if added.there:
            render.print_line(f"{added.there:,} were there already")
        if added.passed:
            render.print_line(f"{added.passed:,} other files passed over")
        render.print_line(f"{len(store.chain.entries)} entries, head {head[:16]}")
        for problem in added.problems:
            render.print_line(f"- {problem}")
    return 2 if added.problems else 0


def _run_query(args: Query) -> int:
    from isthmus.data.store import Store

    if args.rows < 1:
        raise BadInput("--rows must be at least 1.")
    store = Store.open(args.store)
    found = store.query(args.sql, args.rows)
    if args.json:
        rows = [dict(zip(_unique_names(found.names), row, strict=True)) for row in found.rows]
        render.emit(
            {"store": str(args.store), "head": store.chain.head, "columns": found.names, "rows": rows, "more": found.more}
        )
        return 0
    numbers = [all(isinstance(row[i], int | float | None) for row in found.rows) for i in range(len(found.names))]
    cells = [[_cell_text(value) for value in row] for row in found.rows]
    render.out.print(render.table("", found.names, cells, tuple(i for i, right in enumerate(numbers) if right)))
    if found.more:
        render.print_line(f"the first {args.rows:,} rows; --rows shows more")
    return 0


def _unique_names(names: list[str]) -> list[str]:
    """Two columns may have one name; an object has each once."""
    return [name if names.index(name) == i else f"{name}:{i + 1}" for i, name in enumerate(names)]


def _cell_text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{k} {_cell_text(v)}" for k, v in value.items() if v is not None)
    return ", ".join(map(_cell_text, value)) if isinstance(value, list) else str(value)


def _run_verify(args: Verify) -> int:
    from isthmus.data.store import Store

    chain = Store.open(args.store).chain
    with render.progress_bar(f"verifying {args.store}") as bar:
        problem = chain.verify(bar.update)
    entries, head = len(chain.entries), chain.head
    altered = entries + 1 if problem else None
    if not problem and args.head and not any(e.hash.startswith(args.head) for e in chain.entries):
        problem = f"{args.store} has no entry whose hash begins with {args.head}: entries were taken away or written anew."
    rows = {}
    for entry in chain.entries:
        for table, part in entry.parts.items():
            rows[table] = rows.get(table, 0) + part.rows
    if args.json:
        whole = {"store": str(args.store), "whole": not problem, "entries": entries, "rows": rows, "head": head}
        render.emit({**whole, "problem": problem or None, "first_altered": altered})
    elif problem:
        render.print_line(problem)
        render.print_line(f"the {entries} entries before it are whole" if altered else f"head {head}")
    else:
        render.print_line(f"{args.store} is whole: {entries} entries, {rows.get('episodes', 0):,} episodes", "bold")
        render.print_line(f"head {head}")
    return 1 if problem else 0
