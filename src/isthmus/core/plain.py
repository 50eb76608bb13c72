"""Plain JSON values of anything that a result holds: dataclasses, arrays, paths; what is not a number becomes null."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any


def to_plain(value: Any) -> Any:
    """The same value as JSON can hold it: lists for arrays and tuples, tables for dataclasses, null for NaN and infinity."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
    if tolist := getattr(value, "tolist", None):  # NumPy arrays and scalars, torch tensors
        return to_plain(tolist())
    raise TypeError(f"{type(value).__name__} has no plain form.")
