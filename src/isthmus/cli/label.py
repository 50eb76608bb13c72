"""What people saw in the episodes of a store."""

from __future__ import annotations

import getpass
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from isthmus.cli import render
from isthmus.cli.store import DEFAULT_STORE
from isthmus.core.errors import BadInput

if TYPE_CHECKING:
    from isthmus.data.store import Store

NOTE_COLUMNS = ("hash", "start", "stop", "text", "tag", "success", "who", "noted")


@dataclass(frozen=True)
class Label:
    """Note what a person saw in an episode: an event with its time, tags, or whether it succeeded; or show all such notes.

    example: isthmus data label walk.mcap "slipped on the mat" --start 3.2 --stop 4.1 --tag slip --success no
    """

    episode: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="EPISODE")]
    """Recording, or first digits of an episode's hash."""
    text: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[TEXT]")] = ""
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
    store: Path = DEFAULT_STORE
    """Folder of the store."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Label) -> int:
    from isthmus.data.store import Store

    store = Store.open(args.store)
    episode = _episode_hash(store, args.episode)
    said = _withdrawal(args, store, episode) if args.withdraw else _new_notes(args, store, episode)
    made = store.add_marks(episode, _author(args), said) if said else []
    notes = _valid_notes(store, episode)
    if args.json:
        render.emit({"store": str(args.store), "episode": episode, "made": made, "labels": notes, "head": store.chain.head})
        return 0
    render.print_line(f"{args.episode}  {episode[:16]}: {len(notes)} notes", "bold")
    if notes:
        columns = ["label", "when", "what", "tag", "success", "who", "noted, UTC"]
        render.out.print(render.table("", columns, [_table_row(note) for note in notes]))
    return 0


def _table_row(note: dict[str, Any]) -> list[str]:
    when = "" if note["start"] is None else f"{note['start']:g} to {note['stop']:g} s"
    good = {None: "", 0: "no", 1: "yes"}[note["success"]]
    return [note["hash"][:12], when, note["text"] or "", note["tag"] or "", good, note["who"], note["noted"][:19]]


def _withdrawal(args: Label, store: Store, episode: str) -> list[dict[str, Any]]:
    if args.text or args.tag or args.success:
        raise BadInput("--withdraw takes a label back; it does not go with a new one.")
    old = store.find_hash(args.withdraw, "marks")
    if old not in [note["hash"] for note in _valid_notes(store, episode)]:
        raise BadInput(f"{args.withdraw} is not a label of {args.episode}, or was withdrawn before.")
    return [{"withdraws": old}]


def _new_notes(args: Label, store: Store, episode: str) -> list[dict[str, Any]]:
    """The notes that the options ask for."""
    from isthmus.data.store.rows import is_text

    start, stop = args.start, args.start if args.stop is None else args.stop
    if start is None and stop is not None:
        raise BadInput("--stop needs --start.")
    if not all(is_text(text) for text in (args.text, *args.tag)) or not all(tag.strip() for tag in args.tag):
        raise BadInput("a label or tag is a text of at most 10,000 characters.")
    span = {}
    if start is not None and stop is not None:
        if not args.text:
            raise BadInput("--start and --stop go with a text: what was seen then?")
        length = store.query(f"select seconds from episodes where hash = '{episode}'", 1).rows[0][0]  # noqa: S608
        if not 0 <= start <= stop or stop > (math.inf if length is None else length):
            whole = "" if length is None else f" and lie within the episode's {length:.2f} s"
            raise BadInput(f"--start and --stop must follow each other{whole}, not {start:g} and {stop:g}.")
        span = {"start": start, "stop": stop}
    said: list[dict[str, Any]] = [{"text": args.text, **span}] if args.text else []
    said += [{"tag": tag} for tag in dict.fromkeys(args.tag)]
    return said + ([{"success": args.success == "yes"}] if args.success else [])


def _author(args: Label) -> str:
    try:
        return args.who or getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def _valid_notes(store: Store, episode: str) -> list[dict[str, Any]]:
    """All notes on an episode that stand, the oldest first."""
    sql = f"select {', '.join(NOTE_COLUMNS)} from standing where episode = '{episode}'"  # noqa: S608
    found = store.query(sql + " and withdraws is null order by noted, hash", 10_000)
    return [dict(zip(NOTE_COLUMNS, row, strict=True)) for row in found.rows]


def _episode_hash(store: Store, name: str) -> str:
    """The hash of an episode in the store, by its recording or its first digits."""
    path = Path(name)
    if not path.is_file():
        return store.find_hash(name)
    from isthmus.data.store.sources import read_items

    if path.suffix not in (".mcap", ".parquet", ".pq"):
        raise BadInput(f"{name} is not a recording; a label is about an episode.")
    item = next(read_items(path))
    if item.table != "episodes":
        raise BadInput(f"{name} is a list of episodes; give the first digits of the hash of one of them.")
    store.chain.read()
    if item.row["hash"] not in store.known_hashes()["episodes"]:
        raise BadInput(f"{name} is not in the store {store.folder}; `isthmus data add {name}` puts it there.")
    return item.row["hash"]
