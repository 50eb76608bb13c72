"""Where something came from and what came of it, as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.text import Text
from rich.tree import Tree

from isthmus.cli import render
from isthmus.cli.store import DEFAULT_STORE

if TYPE_CHECKING:
    from isthmus.data.provenance.graph import ProvenanceGraph

MAX_CHILDREN = 12
"""Lines under one line of a tree."""
MAX_LINKS_TO_PRUNE = 50
"""Links of one thing up to which those are left out that lead where others lead, too."""
MAX_TREE_DEPTH = 20


@dataclass(frozen=True)
class Trace:
    """Where something came from, and what came of it: model, belief, run, controller, recordings, twin.

    example: isthmus data trace a.controller
    """

    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WHAT")]
    """File, folder of a run, or first digits of a hash."""
    look: tuple[Path, ...] = ()
    """Files and folders to look through beside the store; where there is no store, by default the folder of the file."""
    store: Path = DEFAULT_STORE
    """Folder of the store."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Trace) -> int:
    from isthmus.data.provenance.trace import find_provenance, trace_result

    found = find_provenance(args.what, look=args.look, store=args.store)
    if args.json:
        render.emit(trace_result(found).to_dict())
        return 0
    graph, start = found.graph, found.start
    tree = Tree(_node_text(graph, start))
    for title, onward in (("came from", graph.parents), ("led to", graph.children())):
        if onward.get(start):
            _add_branches(tree.add(Text(title, "dim")), graph, start, onward, {start})
    render.out.print(tree)
    for problem in found.problems:
        render.print_line(f"- {problem}")
    return 0


def _add_branches(tree: Tree, graph: ProvenanceGraph, start: str, onward: Any, above: set[str]) -> None:
    """Lines for all that follows; what follows by way of something else is shown there."""
    own = onward.get(start, {})
    later = {h for other in own for h in graph.reachable(other, onward)} if len(own) <= MAX_LINKS_TO_PRUNE else set()
    found = [(h, role) for h, role in own.items() if h not in later]
    for h, role in found[:MAX_CHILDREN]:
        again = h in above
        told = "" if role == graph.nodes[start].kind else role
        branch = tree.add(_node_text(graph, h, told, again))
        if not again and len(above) < MAX_TREE_DEPTH:
            _add_branches(branch, graph, h, onward, {*above, h})
    if len(found) > MAX_CHILDREN:
        tree.add(Text(f"… and {len(found) - MAX_CHILDREN} more", "dim"))


def _node_text(graph: ProvenanceGraph, h: str, role: str = "", again: bool = False) -> Text:
    node = graph.nodes[h]
    kind = node.kind if role in ("", node.kind, "parent", "held in") else f"{node.kind}, {role}"
    if not node.found:
        return Text(f"{kind} {h[:12]}  missing: nothing with this hash is in the store or the folders", "yellow")
    line = Text(f"{kind} ", "bold").append(h[:12], "cyan")
    if node.file:
        line.append(f"  {_relative_path(node.file)}")
    if node.about:
        line.append(f"  {render.printable(node.about)}", "dim")
    return line.append("  (see above)") if again else line


def _relative_path(file: str) -> str:
    """As seen from here; and whether it is still there."""
    path = Path(file)
    try:
        shown = path.relative_to(Path.cwd())
    except ValueError:
        shown = path
    return render.printable(str(shown)) + ("" if path.exists() else " (gone)")
