"""Label episodes of a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from isthmus.cli import render
from isthmus.cli.store import DEFAULT_STORE
from isthmus.core.errors import BadInput

if TYPE_CHECKING:
    from isthmus.data.store.labels import EpisodeLabel


@dataclass(frozen=True)
class Label:
    """Label an episode: an event with its time, tags, or whether it succeeded; or show its labels.

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
    """Withdraw a label or tag: first digits of its hash."""
    who: str = ""
    """Author; by default the user of this computer."""
    store: Path = DEFAULT_STORE
    """Folder of the store."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Label) -> int:
    from isthmus.data.store import Store
    from isthmus.data.store.labels import label, withdraw

    store = Store.open(args.store)
    if args.withdraw:
        if args.text or args.tag or args.success:
            raise BadInput("--withdraw takes a label back; it does not go with a new one.")
        found = withdraw(store, args.episode, args.withdraw, who=args.who)
    else:
        success = {"": None, "yes": True, "no": False}[args.success]
        span = {"start": args.start, "stop": args.stop}
        found = label(store, args.episode, text=args.text, tags=args.tag, success=success, who=args.who, **span)
    if args.json:
        render.emit(found.to_dict())
        return 0
    render.print_line(f"{args.episode}  {found.episode[:16]}: {len(found.labels)} labels", "bold")
    if found.labels:
        columns = ["label", "when", "text", "tag", "success", "who", "noted, UTC"]
        render.out.print(render.table("", columns, [_table_row(one) for one in found.labels]))
    return 0


def _table_row(one: EpisodeLabel) -> list[str]:
    when = "" if one.start is None else f"{one.start:g} to {one.stop:g} s"
    good = {None: "", False: "no", True: "yes"}[one.success]
    return [one.hash[:12], when, one.text or "", one.tag or "", good, one.who, one.noted[:19]]
