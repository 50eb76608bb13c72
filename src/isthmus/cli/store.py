"""The store of episodes: add to it, query it, verify it."""

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
    """Query the store in SQL: tables episodes, signals, events, labels, tags, artifacts, links and entries.

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
    """Check every byte of the store, and name the first entry that was altered.

    example: isthmus data verify --head 3f2a90c1
    """

    head: str = ""
    """Hash of the last entry as noted earlier: if the chain lacks it, entries were removed or rewritten."""
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
    if args.json:
        render.emit(added.to_dict())
    else:
        render.print_line(f"{added.episodes:,} episodes and {added.artifacts:,} artifacts added to {args.store}", "bold")
        if added.already_there:
            render.print_line(f"{added.already_there:,} were there already")
        if added.skipped_files:
            render.print_line(f"{added.skipped_files:,} other files skipped")
        render.print_line(f"{added.entries} entries, head {added.head[:16]}")
        for problem in added.problems:
            render.print_line(f"- {problem}")
    return 2 if added.problems else 0


def _run_query(args: Query) -> int:
    from isthmus.data.store import Store

    found = Store.open(args.store).query(args.sql, args.rows)
    if args.json:
        render.emit(found.to_dict())
        return 0
    values = [list(row.values()) for row in found.rows]
    numbers = [i for i in range(len(found.columns)) if all(isinstance(row[i], int | float | None) for row in values)]
    cells = [[_cell_text(value) for value in row] for row in values]
    render.out.print(render.table("", list(found.columns), cells, tuple(numbers)))
    if found.more:
        render.print_line(f"the first {args.rows:,} rows; --rows shows more")
    return 0


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

    with render.progress_bar(f"verifying {args.store}") as bar:
        found = Store.open(args.store).verify(args.head, bar.update)
    if args.json:
        render.emit(found.to_dict())
    elif found.problem:
        render.print_line(found.problem)
        render.print_line(f"the {found.entries} entries before it are whole" if found.first_altered else f"head {found.head}")
    else:
        render.print_line(f"{args.store} is whole: {found.entries} entries, {found.rows.get('episodes', 0):,} episodes", "bold")
        render.print_line(f"head {found.head}")
    return 0 if found.whole else 1
