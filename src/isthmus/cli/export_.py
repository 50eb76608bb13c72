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
    from isthmus.learn.policies.export import export

    with render.progress_bar("exporting") as bar:
        result = export(args.run, args.out, progress=bar.update)
    if args.json:
        render.emit(result.to_dict())
        return 0
    worst = result.largest_difference
    render.print_line(f"{args.out}: {result.bytes / 1e3:.0f} kB, hash {result.controller_hash[:12]}")
    render.out.print(f"{result.ticks} ticks against training: largest difference {worst['recorded']:.1e}")
    rest = ", ".join(f"{kind} {difference:.1e}" for kind, difference in worst.items() if kind != "recorded")
    render.out.print(f"other signals: {rest}")
    return 0
