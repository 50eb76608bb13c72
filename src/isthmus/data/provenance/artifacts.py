"""What else lies on disk: runs, beliefs, controllers, twins, motor laws and comparisons, by their hashes and their parents'.

Read from the JSON inside of them alone, so that neither torch nor MuJoCo is needed to tell where something came from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput
from isthmus.core.files import content_hash, read_bytes, read_json
from isthmus.data import archive
from isthmus.data.store.rows import StoreItem, is_text
from isthmus.world import Belief

MAX_PART_BYTES = 64 * 2**20
UNIT_PARTS = {"unit.json": 2**20, "learned.safetensors": MAX_PART_BYTES}
"""Parts of an archive that say how a unit differs from its model, in the order in which they are hashed."""
MAX_BASE_DEPTH = 8
JSON_KINDS = ("belief", "run", "comparison")
"""Kinds of JSON files that are known here."""


def read_artifact(path: Path, file: str) -> StoreItem:
    """The artifact in a file; `file` is how the store will name it. What is none is a BadInput."""
    readers: Mapping[str, Callable[[Path], dict[str, Any]]] = {
        ".controller": _controller_row,
        ".twin": _twin_row,
        ".actuator": _actuator_row,
        ".json": _json_row,
    }
    if path.suffix not in readers:
        raise BadInput(f"{path} is neither a recording nor a list nor an artifact of ours.")
    row = readers[path.suffix](path)
    row["parents"] = [link for link in dict.fromkeys(row.get("parents", ())) if link[1]]
    return StoreItem("artifacts", row | {"file": file})


def is_artifact(path: Path) -> bool:
    """Whether a file may be one, by its name and, for JSON, by what it says it is."""
    if path.suffix in (".controller", ".twin", ".actuator"):
        return True
    if path.suffix != ".json":
        return False
    try:
        return read_json(path).get("kind") in JSON_KINDS
    except BadInput:
        return False


def _read_archive(path: Path, name: str, what: str, other: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, bytes], str]:
    """The JSON of an archive, all its parts, and its hash."""
    data = read_bytes(path, 3 * MAX_PART_BYTES)
    needed = {name: MAX_PART_BYTES, **({"controller.onnx": MAX_PART_BYTES} if name == "contract.json" else {})}
    parts = archive.unpack(data, needed, other, what, str(path))
    try:
        fields = json.loads(parts[name])
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not {what}: {error}.") from None
    if not isinstance(fields, dict):
        raise BadInput(f"{path} is not {what}.")
    return fields, parts, content_hash(data)


def _nested_text(data: Any, *names: str) -> str:
    """An entry within tables in tables, if it is a text."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data if is_text(data) else ""


def _text_items(data: Any) -> list[str]:
    return [x for x in data if is_text(x)] if isinstance(data, list) else []


def _controller_row(path: Path) -> dict[str, Any]:
    fields, _, found = _read_archive(path, "contract.json", "a controller", {})
    parents = [(role, _nested_text(fields, f"{role}_hash")) for role in ("run", "belief", "model")]
    about = {"kind": "controller", "robot": _nested_text(fields, "robot", "robot"), "task": _nested_text(fields, "task")}
    return {"hash": found, **about, "parents": parents}


def _twin_row(path: Path) -> dict[str, Any]:
    fields, parts, found = _read_archive(path, "twin.json", "a twin", UNIT_PARTS)
    history = [h for h in fields.get("history") or () if isinstance(h, dict)]
    parents = [("recording", h) for entry in history for h in _text_items(entry.get("recordings"))]
    belief = Belief.from_dict(fields.get("belief") or {}, str(path)).hash
    holds = [("belief", belief)]
    holds += [("earlier belief", h) for entry in history if (h := _nested_text(entry, "belief_hash")) and h != belief]
    if "unit.json" in parts:
        holds.append(("unit", content_hash(b"".join(parts[name] for name in UNIT_PARTS if name in parts))))
    about = {"hash": found, "kind": "twin", "robot": _nested_text(fields, "robot"), "about": f"{len(history)} fits"}
    return about | {"parents": [*parents, ("model", _nested_text(fields, "model_hash"))], "holds": list(dict.fromkeys(holds))}


def _actuator_row(path: Path) -> dict[str, Any]:
    fields, _, found = _read_archive(path, "actuator.json", "a motor law", UNIT_PARTS)
    parents = [("recording", h) for h in _text_items(fields.get("inputs"))]
    return {
        "hash": found,
        "kind": "actuator",
        "robot": _nested_text(fields, "robot"),
        "about": _nested_text(fields, "law"),
        "parents": parents,
    }


def _json_row(path: Path) -> dict[str, Any]:
    data = read_json(path)
    kind = data.get("kind")
    if kind not in JSON_KINDS:
        raise BadInput(f"{path} is no artifact of ours: its kind is {str(kind)[:40]!r}, not one of {', '.join(JSON_KINDS)}.")
    if kind == "belief":
        belief = Belief.from_dict(data, str(path))
        return {"hash": belief.hash, "kind": "belief", "about": f"{len(belief.free())} of {len(belief.space)} numbers vary"}
    own = {k: v for k, v in data.items() if k != "hash"}
    if data.get("hash") != content_hash(own):
        raise BadInput(f"{path} was altered after it was written: its hash does not fit.")
    return {"hash": data["hash"], "kind": kind, **(_run_fields(data) if kind == "run" else _comparison_fields(data))}


def _run_fields(data: dict[str, Any]) -> dict[str, Any]:
    plan = data.get("plan")
    parents = [("belief", _nested_text(data, "belief_hash")), ("model", _nested_text(data, "model_hash"))]
    parents += [
        (role, _nested_text(plan, name))
        for role, name in (("teacher", "teacher"), ("fine-tunes", "initial_run"), ("fine-tunes", "start"))
    ]
    parents += [("unit", _nested_text(plan, "unit")), ("failures", _nested_text(plan, "failures"))]
    parents += [("base", h) for h in _base_runs(plan)]
    began = _nested_text(data, "began_as")
    about = ", ".join(
        x for x in (_nested_text(plan, "method"), f"seed {plan.get('seed')}" if isinstance(plan, dict) else "") if x
    )
    row = {"robot": _nested_text(data, "robot"), "task": _nested_text(plan, "task"), "about": about, "parents": parents}
    return row | {"holds": [("began as", began)] if began else []}


def _base_runs(plan: Any, depth: int = 0) -> Iterator[str]:
    """Runs whose policies a policy corrects."""
    base = plan.get("base") if isinstance(plan, dict) else None
    if isinstance(base, dict) and depth < MAX_BASE_DEPTH:
        yield _nested_text(base, "run")
        yield from _base_runs(base.get("config", base.get("plan")), depth + 1)


def _comparison_fields(data: dict[str, Any]) -> dict[str, Any]:
    runs = data.get("runs") if isinstance(data.get("runs"), list) else []
    grounds = data.get("grounds") if isinstance(data.get("grounds"), dict) else {}
    parents = [("run", _nested_text(run, "run_hash")) for run in runs or ()] + [("belief", _nested_text(data, "belief_hash"))]
    parents += [("reality", _nested_text(ground, "reality_hash")) for ground in (grounds or {}).values()]
    return {"task": _nested_text(data, "task"), "about": f"{len(runs or ())} runs", "parents": parents}
