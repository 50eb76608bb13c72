"""Where a file or hash came from, and what was made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isthmus.core.errors import BadInput
from isthmus.core.results import Result
from isthmus.data.provenance.graph import ProvenanceGraph, ProvenanceNode, provenance_graph
from isthmus.data.store.hash_chain import CHAIN_FILE
from isthmus.data.store.sources import read_items
from isthmus.data.store.store import Store

DEFAULT_STORE = Path("store")


@dataclass(frozen=True)
class Provenance:
    """The graph around one hash."""

    graph: ProvenanceGraph
    start: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class ProvenanceLink:
    child: str
    role: str
    parent: str


@dataclass(frozen=True)
class TraceResult(Result, kind="trace"):
    start: str
    """Hash that was traced."""
    nodes: tuple[ProvenanceNode, ...]
    links: tuple[ProvenanceLink, ...]
    came_from: tuple[str, ...]
    """Hashes of all ancestors."""
    led_to: tuple[str, ...]
    """Hashes of all descendants."""
    missing: tuple[str, ...]
    """Hashes that others name and that were not found."""
    problems: tuple[str, ...]


def find_provenance(what: str, *, look: Sequence[Path] = (), store: Path = DEFAULT_STORE) -> Provenance:
    """The graph around a file, the folder of a run, or the first digits of a hash.

    It is searched in the store and in `look`; where there is no store, by default in the folder of the file.
    """
    opened = Store(store) if (store / CHAIN_FILE).exists() else None
    if opened is None and store != DEFAULT_STORE:
        Store.open(store)
    path, start, folders = Path(what), what, list(look)
    if path.exists():
        start = _file_hash(path)
        folders = [path, *folders] if folders or opened is not None else [path.resolve().parent]
    elif opened is None and not folders:
        raise BadInput(f"there is no {what} and no store {store}; give a file, or --store or --look.")
    graph, problems = provenance_graph(opened, folders, start)
    return Provenance(graph, graph.find_hash(start), tuple(problems))


def trace(what: str, *, look: Sequence[Path] = (), store: Path = DEFAULT_STORE) -> TraceResult:
    """Ancestors and descendants of a file, the folder of a run, or the first digits of a hash."""
    return trace_result(find_provenance(what, look=look, store=store))


def trace_result(found: Provenance) -> TraceResult:
    graph, start = found.graph, found.start
    up, down = graph.reachable(start, graph.parents), graph.reachable(start, graph.children())
    shown = dict.fromkeys((start, *up, *down))
    links = [ProvenanceLink(c, r, p) for c in shown for p, r in graph.parents.get(c, {}).items() if p in shown]
    missing = tuple(h for h in dict.fromkeys((*up, *down)) if not graph.nodes[h].found)
    nodes = tuple(graph.nodes[h] for h in (start, *up, *down))
    return TraceResult(start, nodes, tuple(links), tuple(up), tuple(down), missing, found.problems)


def _file_hash(path: Path) -> str:
    if path.is_dir() and not (path / "run.json").exists():
        raise BadInput(f"{path} is not a run: it has no run.json.")
    return next(read_items(path)).row["hash"]
