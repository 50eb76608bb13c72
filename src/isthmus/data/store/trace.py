"""Where something came from and what came of it: model, belief, run, controller, recording, twin, by their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.data.store.rows import Row
from isthmus.data.store.sources import Sources
from isthmus.data.store.store import LEAST, Store
from isthmus.errors import BadInput, unknown

SAME = ("began as", "unit")
"""Hashes that an artifact holds and that stand for itself; a belief that it holds is a thing of its own."""
ROOTS = ("model",)
"""Kinds that have no file of their own."""


@dataclass
class Node:
    hash: str
    kind: str
    file: str = ""
    about: str = ""
    found: bool = True
    """False: others name it, and nothing with this hash was found."""


@dataclass
class Graph:
    """Nodes by hash, and who names whom as a parent, in which role."""

    nodes: dict[str, Node] = field(default_factory=dict)
    parents: dict[str, dict[str, str]] = field(default_factory=dict)
    """Child -> parent -> role."""
    same: dict[str, str] = field(default_factory=dict)
    """Other hashes that stand for a node."""

    def artifact(self, row: Mapping[str, Any]) -> None:
        words = [row.get("task") or row.get("robot") or "", row.get("about") or ""]
        self._put(Node(row["hash"], row["kind"], row.get("file") or "", ", ".join(w for w in words if w)))
        for role, found in row.get("parents") or ():
            self._link(row["hash"], role, found)
            if role == "model" and found not in self.nodes:
                self.nodes[found] = Node(found, "model", about=f"of {row.get('robot') or 'a robot'}")
        for role, found in row.get("holds") or ():
            if role in SAME:
                self.same[found] = row["hash"]
            else:
                if found not in self.nodes:
                    self.nodes[found] = Node(found, "belief", row.get("file") or "", f"in the {row['kind']}")
                self._link(found, "held in" if role == "belief" else "once held in", row["hash"])

    def episode(self, row: Mapping[str, Any]) -> None:
        """A recording, or an episode of a list."""
        words = [row.get("source") or "", f"unit {row['unit']}" if row.get("unit") else "", row.get("task") or ""]
        seconds = row.get("seconds")
        words += [f"{seconds:.1f} s" if seconds is not None else "", "" if row.get("complete") in (None, 1, True) else "cut"]
        kind = "episode" if row.get("list") else "recording"
        self._put(Node(row["hash"], kind, row.get("file") or "", ", ".join(w for w in words if w)))
        for role in ("controller", "list", "run", "belief", "reality"):
            if row.get(role) and not (role in ("run", "belief") and row.get("controller")):
                self._link(row["hash"], role, row[role])
        for parent in row.get("parents") or ():
            self._link(row["hash"], "parent", parent)
        if row.get("model"):
            self._link(row["hash"], "model", row["model"])
            self.nodes.setdefault(row["model"], Node(row["model"], "model", about=f"of {row.get('robot') or 'a robot'}"))

    def _put(self, node: Node) -> None:
        before = self.nodes.get(node.hash)
        # A belief in a file of its own is told by that; what is only held elsewhere gives way.
        if before is None or not before.found or before.about.startswith("in the "):
            self.nodes[node.hash] = node

    def _link(self, child: str, role: str, parent: str) -> None:
        if child != parent:
            own = self.parents.setdefault(child, {})
            if own.get(parent, "parent") == "parent":
                own[parent] = role

    def close(self) -> None:
        """Let other hashes stand for their nodes, and make a node of everything that is only named."""
        for child, own in self.parents.items():
            self.parents[child] = {self.same.get(h, h): role for h, role in own.items() if self.same.get(h, h) != child}
        for own in list(self.parents.values()):
            for found, role in own.items():
                if found not in self.nodes:
                    kind = {"teacher": "run", "fine-tunes": "run", "base": "run", "failures": "belief", "parent": "something"}
                    self.nodes[found] = Node(found, kind.get(role, role), found=role in ROOTS)

    def children(self) -> dict[str, dict[str, str]]:
        """Parent -> child -> role."""
        found: dict[str, dict[str, str]] = {}
        for child, own in self.parents.items():
            for parent, role in own.items():
                found.setdefault(parent, {})[child] = role
        return found

    def resolve(self, start: str) -> str:
        """The hash that begins so."""
        every = {**dict.fromkeys(self.nodes), **dict.fromkeys(self.same)}
        found = sorted({self.same.get(h, h) for h in every if h.startswith(start)}) if len(start) >= LEAST else []
        if len(found) > 1:
            raise BadInput(f"{len(found)} hashes begin with {start!r}: {found[0][:16]}, {found[1][:16]}, ….")
        if not found:
            raise unknown("file or hash", start, {h[: max(len(start), LEAST)] for h in list(every)[:10_000]})
        return found[0]

    def reach(self, start: str, onward: Mapping[str, Mapping[str, str]]) -> list[str]:
        """All that can be reached from there, itself left out, in the order in which it is met."""
        found: dict[str, None] = {}
        waiting = [start]
        while waiting:
            for h in onward.get(waiting.pop(0), {}):
                if h not in found and h != start:
                    found[h] = None
                    waiting.append(h)
        return list(found)


def gather(store: Store | None, folders: Iterable[Path], start: str) -> tuple[Graph, list[str]]:
    """The graph of a store and of folders, and a sentence about each file that could not be read.

    Episodes of lists stay with their list, which tells how many there are; only the one that `start` names is a node.
    """
    graph, problems = Graph(), []
    if store is not None:
        _from_store(graph, store, start)
    sources = Sources.of(list(folders))
    counts: dict[str, int] = {}
    for item, _ in sources.items():
        if item.table == "artifacts":
            graph.artifact(item.row)
        elif "list" not in item.row or (len(start) >= LEAST and item.row["hash"].startswith(start)):
            graph.episode(item.row)
        if "list" in item.row:
            counts[item.row["list"]] = counts.get(item.row["list"], 0) + 1
    for found, n in counts.items():
        graph.nodes[found].about = _listed(graph.nodes[found].about, n)
    graph.close()
    return graph, problems + sources.problems


def _listed(about: str, n: int) -> str:
    return about if " episode" in about else f"{about}, {n} episode{'s'[: n != 1]}".removeprefix(", ")


def _from_store(graph: Graph, store: Store, start: str) -> None:
    most = 10**6
    found = store.query(
        "select hash, kind, file, robot, task, about, "
        "list_transform(parents, lambda p: [p.role, p.hash]), list_transform(holds, lambda p: [p.role, p.hash]) from artifacts",
        most,
    )
    names = ("hash", "kind", "file", "robot", "task", "about", "parents", "holds")
    for values in found.rows:
        graph.artifact(dict(zip(names, values, strict=True)))
    columns = ("hash", "file", "list", "source", "robot", "unit", "task", "controller", "run", "belief", "reality", "model")
    columns += ("seconds", "complete", "parents")
    also = f"or starts_with(hash, '{start}')" if len(start) >= LEAST and start.isalnum() else ""
    sql = f"select {', '.join(columns)} from added_episodes where list is null {also}"  # noqa: S608
    for values in store.query(sql, most).rows:
        row: Row = dict(zip(columns, values, strict=True))
        graph.episode(row)
    for found_list, n in store.query("select list, count(*) from added_episodes where list is not null group by 1", most).rows:
        if found_list in graph.nodes:
            graph.nodes[found_list].about = _listed(graph.nodes[found_list].about, n)
