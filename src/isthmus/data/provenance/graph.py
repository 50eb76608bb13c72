"""Where something came from and what came of it: model, belief, run, controller, recording, twin, by their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput, unknown_name
from isthmus.data.store.rows import Row
from isthmus.data.store.sources import Sources
from isthmus.data.store.store import MIN_HASH_DIGITS, Store

SELF_ROLES = ("began as", "unit")
"""Hashes that an artifact holds and that stand for itself; a belief that it holds is a thing of its own."""
FILELESS_KINDS = ("model",)
"""Kinds that have no file of their own."""


@dataclass
class ProvenanceNode:
    hash: str
    kind: str
    file: str = ""
    about: str = ""
    found: bool = True
    """False: others name it, and nothing with this hash was found."""


@dataclass
class ProvenanceGraph:
    """Nodes by hash, and who names whom as a parent, in which role."""

    nodes: dict[str, ProvenanceNode] = field(default_factory=dict)
    parents: dict[str, dict[str, str]] = field(default_factory=dict)
    """Child -> parent -> role."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Other hashes that stand for a node."""

    def add_artifact(self, row: Mapping[str, Any]) -> None:
        words = [row.get("task") or row.get("robot") or "", row.get("about") or ""]
        self._add_node(ProvenanceNode(row["hash"], row["kind"], row.get("file") or "", ", ".join(w for w in words if w)))
        for role, found in row.get("parents") or ():
            self._add_link(row["hash"], role, found)
            if role == "model" and found not in self.nodes:
                self.nodes[found] = ProvenanceNode(found, "model", about=f"of {row.get('robot') or 'a robot'}")
        for role, found in row.get("holds") or ():
            if role in SELF_ROLES:
                self.aliases[found] = row["hash"]
            else:
                if found not in self.nodes:
                    self.nodes[found] = ProvenanceNode(found, "belief", row.get("file") or "", f"in the {row['kind']}")
                self._add_link(found, "held in" if role == "belief" else "once held in", row["hash"])

    def add_episode(self, row: Mapping[str, Any]) -> None:
        """A recording, or an episode of a list."""
        words = [row.get("source") or "", f"unit {row['unit']}" if row.get("unit") else "", row.get("task") or ""]
        seconds = row.get("seconds")
        words += [f"{seconds:.1f} s" if seconds is not None else "", "" if row.get("complete") in (None, 1, True) else "cut"]
        kind = "episode" if row.get("list") else "recording"
        self._add_node(ProvenanceNode(row["hash"], kind, row.get("file") or "", ", ".join(w for w in words if w)))
        for role in ("controller", "list", "run", "belief", "reality"):
            if row.get(role) and not (role in ("run", "belief") and row.get("controller")):
                self._add_link(row["hash"], role, row[role])
        for parent in row.get("parents") or ():
            self._add_link(row["hash"], "parent", parent)
        if row.get("model"):
            self._add_link(row["hash"], "model", row["model"])
            self.nodes.setdefault(
                row["model"], ProvenanceNode(row["model"], "model", about=f"of {row.get('robot') or 'a robot'}")
            )

    def _add_node(self, node: ProvenanceNode) -> None:
        before = self.nodes.get(node.hash)
        # A belief in a file of its own is told by that; what is only held elsewhere gives way.
        if before is None or not before.found or before.about.startswith("in the "):
            self.nodes[node.hash] = node

    def _add_link(self, child: str, role: str, parent: str) -> None:
        if child != parent:
            own = self.parents.setdefault(child, {})
            if own.get(parent, "parent") == "parent":
                own[parent] = role

    def finalize(self) -> None:
        """Let other hashes stand for their nodes, and make a node of everything that is only named."""
        for child, own in self.parents.items():
            self.parents[child] = {self.aliases.get(h, h): role for h, role in own.items() if self.aliases.get(h, h) != child}
        for own in list(self.parents.values()):
            for found, role in own.items():
                if found not in self.nodes:
                    kind = {"teacher": "run", "fine-tunes": "run", "base": "run", "failures": "belief", "parent": "something"}
                    self.nodes[found] = ProvenanceNode(found, kind.get(role, role), found=role in FILELESS_KINDS)

    def children(self) -> dict[str, dict[str, str]]:
        """Parent -> child -> role."""
        found: dict[str, dict[str, str]] = {}
        for child, own in self.parents.items():
            for parent, role in own.items():
                found.setdefault(parent, {})[child] = role
        return found

    def find_hash(self, prefix: str) -> str:
        """The hash that begins so."""
        every = {**dict.fromkeys(self.nodes), **dict.fromkeys(self.aliases)}
        found = (
            sorted({self.aliases.get(h, h) for h in every if h.startswith(prefix)}) if len(prefix) >= MIN_HASH_DIGITS else []
        )
        if len(found) > 1:
            raise BadInput(f"{len(found)} hashes begin with {prefix!r}: {found[0][:16]}, {found[1][:16]}, ….")
        if not found:
            raise unknown_name("file or hash", prefix, {h[: max(len(prefix), MIN_HASH_DIGITS)] for h in list(every)[:10_000]})
        return found[0]

    def reachable(self, start: str, onward: Mapping[str, Mapping[str, str]]) -> list[str]:
        """All that can be reached from there, itself left out, in the order in which it is met."""
        found: dict[str, None] = {}
        waiting = [start]
        while waiting:
            for h in onward.get(waiting.pop(0), {}):
                if h not in found and h != start:
                    found[h] = None
                    waiting.append(h)
        return list(found)


def provenance_graph(store: Store | None, folders: Iterable[Path], start: str) -> tuple[ProvenanceGraph, list[str]]:
    """The graph of a store and of folders, and a sentence about each file that could not be read.

    Episodes of lists stay with their list, which tells how many there are; only the one that `start` names is a node.
    """
    graph, problems = ProvenanceGraph(), []
    if store is not None:
        _add_store(graph, store, start)
    sources = Sources.from_paths(list(folders))
    counts: dict[str, int] = {}
    for item, _ in sources.items():
        if item.table == "artifacts":
            graph.add_artifact(item.row)
        elif "list" not in item.row or (len(start) >= MIN_HASH_DIGITS and item.row["hash"].startswith(start)):
            graph.add_episode(item.row)
        if "list" in item.row:
            counts[item.row["list"]] = counts.get(item.row["list"], 0) + 1
    for found, n in counts.items():
        graph.nodes[found].about = _with_episode_count(graph.nodes[found].about, n)
    graph.finalize()
    return graph, problems + sources.problems


def _with_episode_count(about: str, n: int) -> str:
    return about if " episode" in about else f"{about}, {n} episode{'s'[: n != 1]}".removeprefix(", ")


def _add_store(graph: ProvenanceGraph, store: Store, start: str) -> None:
    most = 10**6
    found = store.select(
        "select hash, kind, file, robot, task, about, "
        "list_transform(parents, lambda p: [p.role, p.hash]), list_transform(holds, lambda p: [p.role, p.hash]) from artifacts",
        most,
    )
    names = ("hash", "kind", "file", "robot", "task", "about", "parents", "holds")
    for values in found.rows:
        graph.add_artifact(dict(zip(names, values, strict=True)))
    columns = ("hash", "file", "list", "source", "robot", "unit", "task", "controller", "run", "belief", "reality", "model")
    columns += ("seconds", "complete", "parents")
    also = f"or starts_with(hash, '{start}')" if len(start) >= MIN_HASH_DIGITS and start.isalnum() else ""
    sql = f"select {', '.join(columns)} from added_episodes where list is null {also}"  # noqa: S608
    for values in store.select(sql, most).rows:
        row: Row = dict(zip(columns, values, strict=True))
        graph.add_episode(row)
    for found_list, n in store.select("select list, count(*) from added_episodes where list is not null group by 1", most).rows:
        if found_list in graph.nodes:
            graph.nodes[found_list].about = _with_episode_count(graph.nodes[found_list].about, n)
