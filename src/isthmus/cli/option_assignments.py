"""Options that give numbers to names."""

from __future__ import annotations

from isthmus.core.errors import BadInput


def parse_assignments(option: str, texts: tuple[str, ...]) -> dict[str, float]:
    """NAME=VALUE, several times, each name once."""
    values: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        name = name.strip()
        if name in values:
            raise BadInput(f"--{option} gives {name!r} more than once.")
        try:
            values[name] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise BadInput(f"--{option} takes NAME=VALUE with a number, not {text!r}.")
    return values
