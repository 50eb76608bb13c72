"""Results of the library's verbs: frozen dataclasses that hold only what JSON holds.

    @dataclass(frozen=True)
    class PredictionResult(Result, kind="prediction"):
        score: float
        inputs: Mapping[str, str]

    result.to_dict()                          {"kind": "prediction", "score": …}: exactly what --json prints
    PredictionResult.from_dict(table)         strict: names, types and sizes are checked; null is NaN where a float is due

Arrays stay in artifacts; a result names those by path and hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

from isthmus.core.errors import BadInput
from isthmus.core.from_plain import from_plain
from isthmus.core.plain import to_plain


class Result:
    """Base of every result type. Subclasses are frozen dataclasses."""

    kind: ClassVar[str] = ""
    """Which result this is, in its JSON and in a journal."""

    def __init_subclass__(cls, kind: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.kind = kind or cls.kind

    def to_dict(self) -> dict[str, Any]:
        """This result as plain JSON values, `kind` first."""
        return {"kind": self.kind} | {f.name: to_plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], where: str = "") -> Self:
        """The result that `to_dict` wrote; raises BadInput for anything else."""
        where = where or cls.__name__
        if table.get("kind") != cls.kind:
            raise BadInput(f"{where} is a {table.get('kind')!r} result, not {cls.kind!r}.")
        return from_plain(cls, {k: v for k, v in table.items() if k != "kind"}, where, null_is_nan=True)
