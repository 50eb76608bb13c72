"""What else lies on disk: runs, beliefs, controllers, twins, motor laws and comparisons, by their hashes and their parents'.

Read from the JSON inside of them alone, so that neither torch nor MuJoCo is needed to tell where something came from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from isthmus.data import archive
from isthmus.data.store.rows import Item, is_text
from isthmus.errors import BadInput
from isthmus.files import content_hash, read_bytes, read_json
from isthmus.world import Belief

Link = tuple[str, str]
"""Role and hash."""
LARGE = 64 * 2**20
UNIT = {"unit.json": 2**20, "learned.safetensors": LARGE}
"""Parts of an archive that say how a unit differs from its model, in the order in which they are hashed."""
DEEPEST = 8
KINDS = ("belief", "run", "comparison")
"""Kinds of JSON files that are known here."""


def read_artifact(path: Path, file: str) -> Item:
    """The artifact in a file; `file` is how the store will name it. What is none is a BadInput."""
    readers: Mapping[str, Callable[[Path], dict[str, Any]]] = {
        ".controller": _controller,
        ".twin": _twin,
        ".actuator": _actuator,
        ".json": _json,
    }
    if path.suffix not in readers:
        raise BadInput(f"{path} is neither a recording nor a list nor an artifact of ours.")
    row = readers[path.suffix](path)
    row["parents"] = [link for link in dict.fromkeys(row.get("parents", ())) if link[1]]
    return Item("artifacts", row | {"file": file})


def is_artifact(path: Path) -> bool:
    """Whether a file may be one, by its name and, for JSON, by what it says it is."""
    if path.suffix in (".controller", ".twin", ".actuator"):
        return True
    if path.suffix != ".json":
        return False
    try:
        return read_json(path).get("kind") in KINDS
    except BadInput:
        return False


def _opened(path: Path, name: str, what: str, other: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, bytes], str]:
    """The JSON of an archive, all its parts, and its hash."""
    data = read_bytes(path, 3 * LARGE)
    needed = {name: LARGE, **({"controller.onnx": LARGE} if name == "contract.json" else {})}
    parts = archive.unpack(data, needed, other, what, str(path))
    try:
        fields = json.loads(parts[name])
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not {what}: {error}.") from None
    if not isinstance(fields, dict):
        raise BadInput(f"{path} is not {what}.")
    return fields, parts, content_hash(data)


def _text(data: Any, *names: str) -> str:
    """An entry within tables in tables, if it is a text."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data if is_text(data) else ""


def _texts(data: Any) -> list[str]:
    return [x for x in data if is_text(x)] if isinstance(data, list) else []


def _controller(path: Path) -> dict[str, Any]:
    fields, _, found = _opened(path, "contract.json", "a controller", {})
    parents = [(role, _text(fields, f"{role}_hash")) for role in ("run", "belief", "model")]
    about = {"kind": "controller", "robot": _text(fields, "robot", "robot"), "task": _text(fields, "task")}
    return {"hash": found, **about, "parents": parents}


def _twin(path: Path) -> dict[str, Any]:
    fields, parts, found = _opened(path, "twin.json", "a twin", UNIT)
    history = [h for h in fields.get("history") or () if isinstance(h, dict)]
    parents = [("recording", h) for entry in history for h in _texts(entry.get("recordings"))]
    belief = Belief.from_dict(fields.get("belief") or {}, str(path)).hash
    holds = [("belief", belief)]
    holds += [("earlier belief", h) for entry in history if (h := _text(entry, "belief_hash")) and h != belief]
    if "unit.json" in parts:
        holds.append(("unit", content_hash(b"".join(parts[name] for name in UNIT if name in parts))))
    about = {"hash": found, "kind": "twin", "robot": _text(fields, "robot"), "about": f"{len(history)} fits"}
    return about | {"parents": [*parents, ("model", _text(fields, "model_hash"))], "holds": list(dict.fromkeys(holds))}


def _actuator(path: Path) -> dict[str, Any]:
    fields, _, found = _opened(path, "actuator.json", "a motor law", UNIT)
    parents = [("recording", h) for h in _texts(fields.get("inputs"))]
    return {
        "hash": found,
        "kind": "actuator",
        "robot": _text(fields, "robot"),
        "about": _text(fields, "law"),
        "parents": parents,
    }


def _json(path: Path) -> dict[str, Any]:
    data = read_json(path)
    kind = data.get("kind")
    if kind not in KINDS:
        raise BadInput(f"{path} is no artifact of ours: its kind is {str(kind)[:40]!r}, not one of {', '.join(KINDS)}.")
    if kind == "belief":
        belief = Belief.from_dict(data, str(path))
        return {"hash": belief.hash, "kind": "belief", "about": f"{len(belief.free())} of {len(belief.space)} numbers vary"}
    own = {k: v for k, v in data.items() if k != "hash"}
    if data.get("hash") != content_hash(own):
        raise BadInput(f"{path} was altered after it was written: its hash does not fit.")
    return {"hash": data["hash"], "kind": kind, **(_run(data) if kind == "run" else _comparison(data))}


def _run(data: dict[str, Any]) -> dict[str, Any]:
    plan = data.get("plan")
    parents = [("belief", _text(data, "belief_hash")), ("model", _text(data, "model_hash"))]
    parents += [(role, _text(plan, name)) for role, name in (("teacher", "teacher"), ("fine-tunes", "start"))]
    parents += [("unit", _text(plan, "unit")), ("failures", _text(plan, "failures"))]
    parents += [("base", h) for h in _bases(plan)]
    began = _text(data, "began_as")
    about = ", ".join(x for x in (_text(plan, "method"), f"seed {plan.get('seed')}" if isinstance(plan, dict) else "") if x)
    row = {"robot": _text(data, "robot"), "task": _text(plan, "task"), "about": about, "parents": parents}
    return row | {"holds": [("began as", began)] if began else []}


def _bases(plan: Any, depth: int = 0) -> Iterator[str]:
    """Runs whose policies a policy corrects."""
    base = plan.get("base") if isinstance(plan, dict) else None
    if isinstance(base, dict) and depth < DEEPEST:
        yield _text(base, "run")
        yield from _bases(base.get("plan"), depth + 1)


def _comparison(data: dict[str, Any]) -> dict[str, Any]:
    runs = data.get("runs") if isinstance(data.get("runs"), list) else []
    grounds = data.get("grounds") if isinstance(data.get("grounds"), dict) else {}
    parents = [("run", _text(run, "run_hash")) for run in runs or ()] + [("belief", _text(data, "belief_hash"))]
    parents += [("reality", _text(ground, "reality_hash")) for ground in (grounds or {}).values()]
    return {"task": _text(data, "task"), "about": f"{len(runs or ())} runs", "parents": parents}
