"""Errors that a user can act on.

`BadInput` is the one exception the command line turns into a sentence and exit code 2. Its message says what
was wrong, where, and what would be right.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInput(ValueError):
    """Something the user gave us cannot be used as it is."""


class Interrupted(RuntimeError):
    """Work was stopped on request, after everything was saved (exit code 3)."""


def unknown(what: str, name: str, choices: Iterable[str], where: str = "") -> BadInput:
    """Return the error for a name that is not among `choices`, naming the nearest ones."""
    valid = sorted(set(choices))
    near = difflib.get_close_matches(name, valid, n=3, cutoff=0.5)
    place = f" in {where}" if where else ""
    if near:
        hint = f"did you mean {' or '.join(repr(n) for n in near)}?"
    elif valid:
        shown = ", ".join(valid[:12]) + (", …" if len(valid) > 12 else "")
        hint = f"valid: {shown}."
    else:
        hint = "there are none."
    return BadInput(f"unknown {what} {name!r}{place}: {hint}")
