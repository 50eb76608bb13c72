"""What people saw in the episodes of a store."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from isthmus.cli import show
from isthmus.cli.stored import FOLDER
from isthmus.errors import BadInput

if TYPE_CHECKING:
    from isthmus.data.store import Store

NOTE = ("hash", "start", "stop", "text", "tag", "success", "who", "noted")
MAX_TEXT = 10_000


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


def run(args: Label) -> int:
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
        if len(text) > MAX_TEXT or (what == "a tag" and not text.strip()):
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
    sql = f"select {', '.join(NOTE)} from standing where episode = '{episode}'"  # noqa: S608
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
