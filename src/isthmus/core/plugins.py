"""Robots, tasks, algorithms, links and other parts by name: built-in ones, those of installed packages, and those in a file.

    ENGINES = Registry("engines", {"batch": "isthmus.sim.engines.batch.engine:BatchEngine"})
    ENGINES.names()                       {"batch": "isthmus.sim…", …}: nothing is imported
    ENGINES.resolve("batch")              the object
    ENGINES.resolve("my_engine.py:Fast")  from a file, if a person typed that name (see `trust`)

An installed package adds its own by an entry point of the group `isthmus.GROUP`:

    [project.entry-points."isthmus.links"]
    bittle = "isthmus_bittle.serial_link:open_link"

A file is Python code: it is imported only if a person named it in this process. A run or a recording that names one is refused
until that name is given again (`isthmus … --plugin my_task.py`).
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput, unknown_name

FILE_SPEC = re.compile(r"(?P<path>.+\.py)(?::(?P<attribute>[A-Za-z_][\w.]*))?")
MODULE_SPEC = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.\w+)*):(?P<attribute>[A-Za-z_][\w.]*)")

_trusted: set[Path] = set()


def trust(spec: str) -> None:
    """Allow the file that a person typed, `my_task.py` or `my_task.py:Task`, to be imported in this process."""
    if found := FILE_SPEC.fullmatch(spec):
        _trusted.add(Path(found["path"]).resolve())


@dataclass(frozen=True)
class Registry:
    """One kind of part that can be chosen by name."""

    group: str
    """Plural noun: `robots`, `links`. Entry points are of the group `isthmus.` plus this."""
    built_in: Mapping[str, str] = field(default_factory=dict)
    """Name -> "module:attribute"."""

    @property
    def noun(self) -> str:
        return self.group.removesuffix("s")

    def names(self) -> dict[str, str]:
        """Every known name with the place of its code, built-in ones first. Imports nothing."""
        found = dict(self.built_in)
        for point in sorted(entry_points(group=f"isthmus.{self.group}"), key=lambda p: (p.name, p.value)):
            if point.name in found and found[point.name] != point.value:
                first = "Isthmus itself" if point.name in self.built_in else found[point.name]
                raise BadInput(
                    f"two packages offer the {self.noun} {point.name!r}: {first} and {point.value}; remove one of them."
                )
            found[point.name] = point.value
        return found

    def __contains__(self, name: str) -> bool:
        return name in self.names()

    def resolve(self, spec: str) -> Any:
        """The object that a name, `package.module:attribute` or `file.py:attribute` stands for."""
        if place := self.names().get(spec):
            return _load_module_spec(place, f"the {self.noun} {spec!r}")
        if FILE_SPEC.fullmatch(spec):
            return load_file_spec(spec, self.noun)
        if MODULE_SPEC.fullmatch(spec):
            return _load_module_spec(spec, f"the {self.noun} {spec!r}")
        raise unknown_name(self.noun, spec, self.names())

    def broken(self) -> dict[str, str]:
        """Names whose code cannot be imported, and why; for `isthmus doctor`. Imports all of them."""
        found = {}
        for name in self.names():
            try:
                self.resolve(name)
            except BadInput as error:
                found[name] = str(error)
        return found


def load_file_spec(spec: str, noun: str = "plugin") -> Any:
    """What `file.py:attribute` stands for; the module without an attribute. Only files that a person named (`trust`)."""
    found = FILE_SPEC.fullmatch(spec)
    if found is None:
        raise BadInput(f"{spec!r} is not FILE.py:NAME.")
    path = Path(found["path"]).resolve()
    if path not in _trusted:
        raise BadInput(f"the {noun} {spec!r} is Python code in a file; give --plugin {found['path']} to allow it to run.")
    if not path.is_file():
        raise BadInput(f"the {noun} {spec!r}: there is no file {path}.")
    name = f"isthmus_plugin_{path.stem}_{abs(hash(str(path))):x}"
    module = sys.modules.get(name)
    if module is None:
        plan = importlib.util.spec_from_file_location(name, path)
        assert plan is not None
        assert plan.loader is not None
        module = importlib.util.module_from_spec(plan)
        sys.modules[name] = module
        try:
            plan.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise BadInput(f"the {noun} {spec!r} cannot be imported: {type(error).__name__}: {error}.") from error
    return _attribute(module, found["attribute"], spec) if found["attribute"] else module


def _load_module_spec(spec: str, what: str) -> Any:
    module, _, attribute = spec.partition(":")
    try:
        return _attribute(importlib.import_module(module), attribute, spec)
    except ImportError as error:
        missing = (getattr(error, "name", None) or "").partition(".")[0]
        if missing and missing != module.partition(".")[0]:
            raise  # a package that is not installed: the command line says how to install it
        raise BadInput(f"{what} cannot be imported from {spec}: {error}.") from error


def _attribute(module: Any, path: str, spec: str) -> Any:
    found = module
    for part in path.split("."):
        if not hasattr(found, part):
            public = [n for n in vars(found) if not n.startswith("_")] if hasattr(found, "__dict__") else []
            raise unknown_name("name", part, public, spec)
        found = getattr(found, part)
    return found
