"""The store of episodes: add to it, ask it, label what is in it, verify it, and trace where something came from."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.text import Text
from rich.tree import Tree

from isthmus.cli import show
from isthmus.errors import BadInput, Interrupted

if TYPE_CHECKING:
    from isthmus.data.store import Store
    from isthmus.data.store.trace import Graph

FOLDER = Path("store")
MOST_CHILDREN = 12
"""Lines under one line of a tree."""
DEEPEST = 20


@dataclass(frozen=True)
class Add:
    """Put recordings, lists of episodes, runs, controllers, twins, beliefs and comparisons into the store, each once.

    example: isthmus data add walk.mcap runs/a a.controller unit7.twin
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Files, and folders to look through."""
    tag: tuple[str, ...] = ()
    """Words to tag the episodes with."""
    store: Path = FOLDER
    """Folder of the store."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class Query:
    """Ask the store in SQL: tables episodes, signals, events, labels, tags, artifacts, links and entries.

    example: isthmus data query "select unit, count(*), avg(success) from episodes where source = 'real' group by 1"
    """

    sql: Annotated[str, tyro.conf.Positional]
    """One SELECT; `describe episodes` lists columns."""
    rows: int = 1000
    """Rows to show at most."""
    store: Path = FOLDER
    """Folder of the store."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class Label:
    """Note what a person saw in an episode: an event with its time, tags, or whether it succeeded; or show all such notes.

    example: isthmus data label walk.mcap "slipped on the mat" --start 3.2 --stop 4.1 --tag slip --success no
    """

    episode: Annotated[str, tyro.conf.Positional]
    """Recording, or first digits of an episode's hash."""
    text: Annotated[str, tyro.conf.Positional] = ""
    """What was seen; without it, and without --tag and --success, all labels of the episode are shown."""
    start: float | None = None
    """Seconds into the episode; without it, the label is about all of it."""
    stop: float | None = None
    """Where it ends; by default at its start."""
    tag: tuple[str, ...] = ()
    """Words to tag the episode with."""
    success: Literal["", "yes", "no"] = ""
    """Whether the episode was a success."""
    withdraw: str = ""
    """Take back a label or tag: first digits of its hash."""
    who: str = ""
    """Who says so; by default the user of this computer."""
    store: Path = FOLDER
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
    store: Path = FOLDER
    """Folder of the store."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class Trace:
    """Where something came from, and what came of it: model, belief, run, controller, recordings, twin.

    example: isthmus data trace a.controller
    """

    what: Annotated[str, tyro.conf.Positional]
    """File, folder of a run, or first digits of a hash."""
    look: tuple[Path, ...] = ()
    """Files and folders to look through beside the store; where there is no store, by default the folder of the file."""
    store: Path = FOLDER
    """Folder of the store."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Add | Query | Label | Verify | Trace) -> int:
    if isinstance(args, Add):
        return _add(args)
    if isinstance(args, Query):
        return _query(args)
    if isinstance(args, Label):
        return _label(args)
    return _verify(args) if isinstance(args, Verify) else _trace(args)


def _add(args: Add) -> int:
    from isthmus.data.store import Store

    if not args.files:
        raise BadInput("say what to add: isthmus data add FILE|FOLDER ….")
    store, count = Store(args.store), 0
    with show.bar(f"adding to {args.store}") as bar:

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
        show.emit({"store": str(args.store), **vars(added), "entries": len(store.chain.entries), "head": head})
    else:
        show.say(f"{added.episodes:,} episodes and {added.artifacts:,} artifacts added to {args.store}", "bold")
        if added.there:
            show.say(f"{added.there:,} were there already")
        if added.passed:
            show.say(f"{added.passed:,} other files passed over")
        show.say(f"{len(store.chain.entries)} entries, head {head[:16]}")
        for problem in added.problems:
            show.say(f"- {problem}")
    return 2 if added.problems else 0


def _query(args: Query) -> int:
    from isthmus.data.store import Store

    if args.rows < 1:
        raise BadInput("--rows must be at least 1.")
    store = Store.open(args.store)
    found = store.query(args.sql, args.rows)
    if args.json:
        rows = [dict(zip(_distinct(found.names), row, strict=True)) for row in found.rows]
        show.emit(
            {"store": str(args.store), "head": store.chain.head, "columns": found.names, "rows": rows, "more": found.more}
        )
        return 0
    numbers = [all(isinstance(row[i], int | float | None) for row in found.rows) for i in range(len(found.names))]
    cells = [[_cell(value) for value in row] for row in found.rows]
    show.out.print(show.table("", found.names, cells, tuple(i for i, right in enumerate(numbers) if right)))
    if found.more:
        show.say(f"the first {args.rows:,} rows; --rows shows more")
    return 0


def _distinct(names: list[str]) -> list[str]:
    """Two columns may have one name; an object has each once."""
    return [name if names.index(name) == i else f"{name}:{i + 1}" for i, name in enumerate(names)]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{k} {_cell(v)}" for k, v in value.items())
    return ", ".join(map(_cell, value)) if isinstance(value, list) else str(value)


def _label(args: Label) -> int:
    from isthmus.data.store import Store

    store = Store.open(args.store)
    episode = _episode(store, args.episode)
    if args.withdraw:
        if args.text or args.tag or args.success:
            raise BadInput("--withdraw takes a label back; it does not go with a new one.")
        old = store.find(args.withdraw, "marks")
        mine = [row[0] for row in _notes(store, episode)]
        if old not in mine:
            raise BadInput(f"{args.withdraw} is not a label of {args.episode}, or was withdrawn before.")
        made = [store.mark(episode, _who(args), withdraws=old)]
    else:
        made = _make(args, store, episode)
    if args.json:
        notes = [
            dict(zip(("hash", "start", "stop", "text", "tag", "success", "who", "noted"), n, strict=True))
            for n in _notes(store, episode)
        ]
        show.emit({"store": str(args.store), "episode": episode, "made": made, "labels": notes, "head": store.chain.head})
        return 0
    notes = _notes(store, episode)
    show.say(f"{args.episode}  {episode[:16]}: {len(notes)} notes", "bold")
    rows = [
        [
            h[:12],
            "–" if a is None else f"{a:g} to {b:g} s",
            text or "",
            tag or "",
            "" if ok is None else "yes" if ok else "no",
            who,
            when[:19],
        ]
        for h, a, b, text, tag, ok, who, when in notes
    ]
    if rows:
        show.out.print(show.table("", ["label", "when", "what", "tag", "success", "who", "noted, UTC"], rows))
    return 0


def _make(args: Label, store: Store, episode: str) -> list[str]:
    """Write the notes that the options ask for; their hashes."""
    start, stop = args.start, args.start if args.stop is None else args.stop
    if start is None and stop is not None:
        raise BadInput("--stop needs --start.")
    if start is not None and stop is not None:
        if not args.text:
            raise BadInput("--start and --stop go with a text: what was seen then?")
        length = store.query(f"select seconds from episodes where hash = '{episode}'", 1).rows[0][0]  # noqa: S608
        if not 0 <= start <= stop or (length is not None and stop > length):
            whole = f" and lie within the episode's {length:.2f} s" if length is not None else ""
            raise BadInput(f"--start and --stop must follow each other{whole}, not {start:g} and {stop:g}.")
    for what, text in (("a label", args.text), *(("a tag", t) for t in args.tag)):
        if len(text) > 10_000 or (what == "a tag" and not text.strip()):
            raise BadInput(f"{what} is a text of 1 to 10,000 characters.")
    made, who = [], _who(args)
    if args.text:
        made.append(store.mark(episode, who, text=args.text, start=start, stop=stop))
    made += [store.mark(episode, who, tag=tag) for tag in dict.fromkeys(args.tag)]
    if args.success:
        made.append(store.mark(episode, who, success=args.success == "yes"))
    return made


def _who(args: Label) -> str:
    try:
        return args.who or getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def _notes(store: Store, episode: str) -> list[tuple[Any, ...]]:
    """Hash, start, stop, text, tag, success, who and when of all notes that stand."""
    sql = f"select hash, start, stop, text, tag, success, who, noted from standing where episode = '{episode}'"  # noqa: S608
    return store.query(sql + " and withdraws is null order by noted", 10_000).rows


def _episode(store: Store, name: str) -> str:
    """The hash of an episode in the store, by its recording or its first digits."""
    path = Path(name)
    if not path.is_file():
        return store.find(name)
    from isthmus.data.store.sources import read_items

    if path.suffix not in (".mcap", ".parquet", ".pq"):
        raise BadInput(f"{name} is not a recording; a label is about an episode.")
    item = next(read_items(path))
    if item.table != "episodes":
        raise BadInput(f"{name} is a list of episodes; give the first digits of the hash of one of them.")
    store.chain.read()
    if item.row["hash"] not in store.known()["episodes"]:
        raise BadInput(f"{name} is not in the store {store.folder}; `isthmus data add {name}` puts it there.")
    return item.row["hash"]


def _verify(args: Verify) -> int:
    from isthmus.data.store import Store

    chain = Store.open(args.store).chain
    with show.bar(f"verifying {args.store}") as bar:
        problem = chain.verify(bar.update)
    entries, head = len(chain.entries), chain.head
    if not problem and args.head and not any(e.hash.startswith(args.head) for e in chain.entries):
        problem = f"{args.store} has no entry whose hash begins with {args.head}: entries were taken away or written anew."
    rows = {}
    for entry in chain.entries:
        for table, part in entry.parts.items():
            rows[table] = rows.get(table, 0) + part.rows
    if args.json:
        bad = entries + 1 if problem and not args.head else None
        whole = {"store": str(args.store), "whole": not problem, "entries": entries, "rows": rows, "head": head}
        show.emit({**whole, "problem": problem or None, "first_altered": bad})
    elif problem:
        show.say(problem)
        show.say(f"the {entries} entries before it are whole" if not args.head else f"head {head}")
    else:
        show.say(f"{args.store} is whole: {entries} entries, {rows.get('episodes', 0):,} episodes", "bold")
        show.say(f"head {head}")
    return 1 if problem else 0


def _trace(args: Trace) -> int:
    from isthmus.data.store import Store
    from isthmus.data.store.chain import FILE
    from isthmus.data.store.trace import gather

    store = Store(args.store) if (args.store / FILE).exists() else None
    if store is None and args.store != FOLDER:
        Store.open(args.store)
    path = Path(args.what)
    look, start = list(args.look), args.what
    if path.exists():
        start = _own_hash(path)
        look = [path, *look] if look or store is not None else [path.resolve().parent]
    elif store is None and not look:
        raise BadInput(f"there is no {args.what} and no store {args.store}; give a file, or --store or --look.")
    graph, problems = gather(store, look, start)
    start = graph.resolve(start)
    up, down = graph.reach(start, graph.parents), graph.reach(start, graph.children())
    missing = [graph.nodes[h] for h in dict.fromkeys((*up, *down)) if not graph.nodes[h].found]
    if args.json:
        shown = {start, *up, *down}
        links = [{"child": c, "role": r, "parent": p} for c in shown for p, r in graph.parents.get(c, {}).items() if p in shown]
        nodes = [vars(graph.nodes[h]) for h in (start, *up, *down)]
        about = {"from": up, "led_to": down, "missing": [n.hash for n in missing], "problems": problems}
        show.emit({"start": start, "nodes": nodes, "links": links, **about})
        return 0
    tree = Tree(_node(graph, start))
    for title, onward in (("came from", graph.parents), ("led to", graph.children())):
        if onward.get(start):
            _grow(tree.add(Text(title, "dim")), graph, start, onward, {start})
    show.out.print(tree, soft_wrap=True)
    for problem in problems:
        show.say(f"- {problem}")
    return 0


def _own_hash(path: Path) -> str:
    from isthmus.data.store.sources import read_items

    if path.is_dir() and not (path / "run.json").exists():
        raise BadInput(f"{path} is not a run: it has no run.json.")
    return next(read_items(path)).row["hash"]


def _grow(tree: Tree, graph: Graph, start: str, onward: Any, above: set[str]) -> None:
    """Lines for all that follows, each in the role in which it does."""
    found = list(onward.get(start, {}).items())
    for h, role in found[:MOST_CHILDREN]:
        again = h in above
        branch = tree.add(_node(graph, h, role, again))
        if not again and len(above) < DEEPEST:
            _grow(branch, graph, h, onward, {*above, h})
    if len(found) > MOST_CHILDREN:
        tree.add(Text(f"… and {len(found) - MOST_CHILDREN} more", "dim"))


def _node(graph: Graph, h: str, role: str = "", again: bool = False) -> Text:
    node = graph.nodes[h]
    kind = node.kind if role in ("", node.kind, "parent", "held in") else f"{node.kind} ({role})"
    if not node.found:
        return Text(f"{kind} {h[:12]}  missing: nothing with this hash is in the store or the folders", "yellow")
    line = Text(f"{kind} ", "bold").append(h[:12], "cyan")
    if node.file:
        line.append(f"  {_near(node.file)}")
    if node.about:
        line.append(f"  {show.visible(node.about)}", "dim")
    return line.append("  (see above)") if again else line


def _near(file: str) -> str:
    """As seen from here; and whether it is still there."""
    path = Path(file)
    try:
        shown = path.relative_to(Path.cwd())
    except ValueError:
        shown = path
    return show.visible(str(shown)) + ("" if path.exists() else " (gone)")
