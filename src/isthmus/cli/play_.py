"""Watch a policy in the browser and change its world while it moves; or replay a world whose physics failed.

example: isthmus play runs/a
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from isthmus.cli import render
from isthmus.core.errors import BadInput


@dataclass(frozen=True)
class Args:
    what: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="WHAT")]
    """Folder of a run, or a blow-up file (.npz) from one."""
    port: int = 8080
    """Port on this machine; the page is not reachable from others."""
    seconds: float | None = None
    """Stop after this long; without it, Ctrl-C stops."""
    seed: int = 0
    """Seed of noise and disturbances."""
    json: bool = False
    """Print the address as one JSON object."""


def run(args: Args) -> int:
    if not 1 <= args.port <= 65535:
        raise BadInput(f"--port must lie in 1 … 65535, not {args.port}.")
    from isthmus.learn import runs
    from isthmus.studio.live.policy_viewer import replay, serve

    def ready(address: str) -> None:
        if args.json:
            render.emit({"address": address, "what": str(args.what)})
        else:
            render.out.print(f"open {address}  (Ctrl-C stops)")

    try:
        if args.what.suffix == ".npz":
            # A dump inside its run folder is shown on that run's ground.
            folder = args.what.resolve().parent.parent
            task = runs.load(folder).task if (folder / "run.json").exists() else None
            replay(args.what, port=args.port, seconds=args.seconds, task=task, on_ready=ready)
        else:
            found = runs.load(args.what)
            actor = runs.load_actor(found)
            serve(found.task, actor, found.belief, port=args.port, seconds=args.seconds, seed=args.seed, on_ready=ready)
    except KeyboardInterrupt:
        pass  # The way to leave: nothing is lost.
    return 0
