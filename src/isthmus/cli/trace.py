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
from isthmus.core.errors import BadInput

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
    from isthmus.data.provenance.graph import provenance_graph
    from isthmus.data.store import Store
    from isthmus.data.store.hash_chain import CHAIN_FILE

    store = Store(args.store) if (args.store / CHAIN_FILE).exists() else None
    if store is None and args.store != DEFAULT_STORE:
        Store.open(args.store)
    path = Path(args.what)
    look, start = list(args.look), args.what
    if path.exists():
        start = _file_hash(path)
        look = [path, *look] if look or store is not None else [path.resolve().parent]
    elif store is None and not look:
        raise BadInput(f"there is no {args.what} and no store {args.store}; give a file, or --store or --look.")
    graph, problems = provenance_graph(store, look, start)
    start = graph.find_hash(start)
    up, down = graph.reachable(start, graph.parents), graph.reachable(start, graph.children())
    missing = [graph.nodes[h] for h in dict.fromkeys((*up, *down)) if not graph.nodes[h].found]
    if args.json:
        shown = {start, *up, *down}
        links = [{"child": c, "role": r, "parent": p} for c in shown for p, r in graph.parents.get(c, {}).items() if p in shown]
        nodes = [vars(graph.nodes[h]) for h in (start, *up, *down)]
        about = {"from": up, "led_to": down, "missing": [n.hash for n in missing], "problems": problems}
        render.emit({"start": start, "nodes": nodes, "links": links, **about})
        return 0
    tree = Tree(_node_text(graph, start))
    for title, onward in (("came from", graph.parents), ("led to", graph.children())):
        if onward.get(start):
            _add_branches(tree.add(Text(title, "dim")), graph, start, onward, {start})
    render.out.print(tree)
    for problem in problems:
        render.print_line(f"- {problem}")
    return 0


def _file_hash(path: Path) -> str:
    from isthmus.data.store.sources import read_items

    if path.is_dir() and not (path / "run.json").exists():
        raise BadInput(f"{path} is not a run: it has no run.json.")
    return next(read_items(path)).row["hash"]


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
