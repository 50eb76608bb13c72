"""Write a policy as a controller: one file with an ONNX graph and its contract, checked tick by tick.

example: isthmus export runs/a -o a.controller
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from isthmus.cli import render
from isthmus.core.errors import BadInput
from isthmus.core.files import check_writable


@dataclass(frozen=True)
class Args:
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path()
    """File of the controller."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    if args.out == Path():
        raise BadInput("say where the controller goes: -o FILE.")
    from isthmus.learn import runs
    from isthmus.learn.policies.export import export

    found = runs.load(args.run)
    check_writable(args.out)
    with render.progress_bar("exporting") as bar:
        checked = export(found, runs.load_actor(found), args.out, bar.update)
    if args.json:
        render.emit({"controller": str(args.out), "run": str(args.run), "run_hash": found.record["hash"], **checked})
    else:
        render.print_line(f"{args.out}: {checked['bytes'] / 1e3:.0f} kB, hash {checked['hash'][:12]}")
        render.out.print(f"{checked['ticks']} ticks against training: largest difference {checked['checks']['recorded']:.1e}")
        rest = ", ".join(f"{kind} {worst:.1e}" for kind, worst in checked["checks"].items() if kind != "recorded")
        render.out.print(f"other signals: {rest}")
    return 0
