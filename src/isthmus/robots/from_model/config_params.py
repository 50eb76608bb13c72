"""The config's own parameters: added to the default ones, or put in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from isthmus.core.errors import BadInput, unknown_name
from isthmus.robots.from_model.config import Config, excluded_names
from isthmus.robots.parameters import ParameterRange
from isthmus.world import Param


def apply_config(default_ranges: Iterable[ParameterRange], config: Config) -> list[ParameterRange]:
    """The default ranges without the excluded ones, with the config's own added or put in their place."""
    default_ranges = list(default_ranges)
    out = excluded_names([r.param.name for r in default_ranges], config.exclude, config.where)
    by_name = {r.param.name: r for r in default_ranges if r.param.name not in out}
    for name, row in config.params.items():
        by_name[name] = _edited_range(name, row, by_name.get(name), f"parameter {name!r} of {config.where}")
    return list(by_name.values())


def _edited_range(name: str, row: Mapping[str, Any], old: ParameterRange | None, where: str) -> ParameterRange:
    known = [f.name for f in fields(Param) if f.name != "name"]
    for key in row:
        if key not in (*known, "prior"):
            raise unknown_name("field", key, [*known, "prior"], where)
    values = {key: _parse_field(key, value, where) for key, value in row.items() if key != "prior"}
    prior = _parse_prior(row["prior"], where) if "prior" in row else old.prior if old else None
    if old:
        return ParameterRange(replace(old.param, **values), prior)
    for key in ("unit", "nominal", "low", "high", "targets"):
        if key not in values:
            raise BadInput(f"{where} is new and needs {key!r}.")
    return ParameterRange(Param(name=name, **values), prior)


def _parse_field(key: str, value: Any, where: str) -> Any:
    if key in ("nominal", "low", "high"):
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise BadInput(f"{where} needs a number for {key!r}, not {value!r}.")
        return float(value)
    if key == "targets":
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(t, str) for t in value):
            raise BadInput(f"{where} needs a text or a list of texts for 'targets'.")
        return tuple(value)
    if not isinstance(value, str):
        raise BadInput(f"{where} needs text for {key!r}, not {value!r}.")
    return value


def _parse_prior(value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(v, int | float) for v in value):
        raise BadInput(f"{where} needs prior = [low, high], not {value!r}.")
    return float(value[0]), float(value[1])
