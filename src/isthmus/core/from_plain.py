"""From the plain data of a JSON or TOML file to frozen dataclasses, strictly: names, types and sizes are checked.

    contract = build(Contract, json.loads(text), "contract.json")

A field's annotation says what it takes: str, bool, int, float (finite), a Literal, another dataclass, `T | None`,
`tuple[T, ...]`, `tuple[A, B]` or `Mapping[str, T]`. A name that no field has is an error with the nearest ones that exist.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from isthmus.core.errors import BadInput, unknown_name

T = TypeVar("T")

MAX_ITEMS = 10_000
"""Longest list or table."""
MAX_TEXT_LENGTH = 100_000
"""Longest text."""


def from_plain(cls: type[T], data: Any, where: str, null_is_nan: bool = False) -> T:
    """An instance of the dataclass `cls` from a table; `where` names the place in errors.

    With `null_is_nan`, null is NaN where a float is due: JSON has no other way to write it.
    """
    if not isinstance(data, Mapping):
        raise BadInput(f"{where} must be a table, not {_short_repr(data)}.")
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    for name in data:
        if name not in known:
            raise unknown_name("entry", str(name), known, where)
    hints = _type_hints(cls)
    values = {name: _parse_value(hints[name], data[name], f"{where}: {name}", null_is_nan) for name in data}
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise BadInput(f"{where} lacks {name!r}.")
    try:
        return cls(**values)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


@cache
def _type_hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _parse_value(kind: Any, data: Any, where: str, null_is_nan: bool) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return data
    if is_dataclass(kind):
        return from_plain(kind, data, where, null_is_nan)  # type: ignore[arg-type]
    if origin in (Union, types.UnionType):
        return _parse_union(args, data, where, null_is_nan)
    if origin is Literal:
        if data not in args:
            raise unknown_name("value", data if isinstance(data, str) else _short_repr(data), map(str, args), where)
        return data
    if origin is tuple:
        return _parse_tuple(args, data, where, null_is_nan)
    if origin is not None and issubclass(origin, Mapping):
        if (
            not isinstance(data, Mapping)
            or len(data) > MAX_ITEMS
            or not all(isinstance(k, str) and is_encodable(k) for k in data)
        ):
            raise BadInput(f"{where} must be a table of at most {MAX_ITEMS} entries, not {_short_repr(data)}.")
        return {k: _parse_value(args[1], v, f"{where}.{k}", null_is_nan) for k, v in data.items()}
    if kind is float and data is None and null_is_nan:
        return math.nan
    return _parse_scalar(kind, data, where)


def _parse_scalar(kind: type, data: Any, where: str) -> Any:
    if kind is float and isinstance(data, int | float) and not isinstance(data, bool):
        try:
            number = float(data)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise BadInput(f"{where} must be a finite number, not {_short_repr(data)}.")
        return number
    right = type(data) is kind and (not isinstance(data, str) or (len(data) <= MAX_TEXT_LENGTH and is_encodable(data)))
    if not right:
        names = {
            float: "a number",
            int: "a whole number",
            str: f"a text of at most {MAX_TEXT_LENGTH} characters",
            bool: "true or false",
        }
        raise BadInput(f"{where} must be {names.get(kind, kind.__name__)}, not {_short_repr(data)}.")
    return data


def _parse_tuple(args: tuple[Any, ...], data: Any, where: str, null_is_nan: bool) -> tuple[Any, ...]:
    if not isinstance(data, list | tuple) or len(data) > MAX_ITEMS:
        raise BadInput(f"{where} must be a list of at most {MAX_ITEMS} entries, not {_short_repr(data)}.")
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_parse_value(args[0], v, f"{where}[{i}]", null_is_nan) for i, v in enumerate(data))
    if len(data) != len(args):
        raise BadInput(f"{where} must have {len(args)} entries, not {len(data)}.")
    return tuple(_parse_value(a, v, f"{where}[{i}]", null_is_nan) for i, (a, v) in enumerate(zip(args, data, strict=True)))


def _parse_union(choices: tuple[Any, ...], data: Any, where: str, null_is_nan: bool) -> Any:
    if data is None and type(None) in choices:
        return None
    rest = [c for c in choices if c is not type(None)]
    problems = []
    for choice in rest:
        try:
            return _parse_value(choice, data, where, null_is_nan)
        except BadInput as error:
            problems.append(error)
    # The last choice is the most elaborate one by convention, and its complaint the most telling.
    raise problems[-1]


def is_encodable(text: str) -> bool:
    """JSON can spell halves of characters, which nobody can print or hash."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short_repr(data: Any) -> str:
    try:
        text = repr(data)
    except (ValueError, RecursionError):  # an enormous number, or too many lists in lists
        text = f"something of type {type(data).__name__}"
    return text if len(text) <= 40 else text[:39] + "…"
