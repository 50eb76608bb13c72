"""Keys of every result type in JSON are pinned in keys.json: a renamed key breaks whoever reads results.

After a deliberate change, write keys.json anew: python tests/contracts/test_result_keys.py
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import isthmus
from isthmus.core.results import Result

KEYS = Path(__file__).with_name("keys.json")


def result_types() -> dict[str, type[Result]]:
    """Every result type of the package, by its kind."""
    for module in pkgutil.walk_packages(isthmus.__path__, "isthmus."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, rest = {}, list(Result.__subclasses__())
    while rest:
        cls = rest.pop()
        rest += cls.__subclasses__()
        if dataclasses.is_dataclass(cls) and cls.__module__.startswith("isthmus."):
            assert cls.kind not in found, f"two result types are called {cls.kind!r}"
            found[cls.kind] = cls
    return found


def keys(annotation: Any, path: str = "") -> Iterator[str]:
    """Paths of the values that JSON has for a type: `a.b` of tables, `a[]` of lists, `a.*` of tables by any name."""
    origin, args = get_origin(annotation), get_args(annotation)
    if dataclasses.is_dataclass(annotation):
        hints = get_type_hints(annotation)
        for field in dataclasses.fields(annotation):
            yield from keys(hints[field.name], f"{path}.{field.name}".lstrip("."))
    elif origin in (Union, types.UnionType):
        for part in args:
            if part is not type(None):
                yield from keys(part, path)
    elif origin is tuple:
        yield from keys(args[0], f"{path}[]")
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield from keys(args[1], f"{path}.*")
    else:
        yield path


def all_keys() -> dict[str, list[str]]:
    return {kind: sorted(set(keys(cls))) for kind, cls in sorted(result_types().items())}


def test_keys_of_results_are_as_pinned():
    assert all_keys() == json.loads(KEYS.read_text())


if __name__ == "__main__":
    KEYS.write_text(json.dumps(all_keys(), indent=1) + "\n")
