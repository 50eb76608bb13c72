"""Errors that a user can act on.

`BadInput` is the one exception the command line turns into a sentence and exit code 2. Its message says what
was wrong, where, and what would be right.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

MIN_NAME_SIMILARITY = 0.6
"""How much of the name of a file must be like that of another, without their endings, to be taken for it."""


class BadInput(ValueError):
    """Something the user gave us cannot be used as it is."""


class Interrupted(RuntimeError):
    """Work was stopped on request, after everything was saved (exit code 3)."""


def unknown_name(what: str, name: str, choices: Iterable[str], where: str = "") -> BadInput:
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


def unreadable_file(path: Path | str, error: OSError, what: str = "") -> BadInput:
    """Return the error for a file that cannot be read; of one that is not there, with names beside it that are like its own.

    `what` it should be, if that is known: a run.
    """
    path = Path(path)
    said = f"{path} is not {what}" if what else f"cannot read {path}"
    why = "it is a folder" if isinstance(error, IsADirectoryError) else error.strerror or str(error)
    if not isinstance(error, FileNotFoundError):
        return BadInput(f"{said}: {why}.")
    try:
        like = lambda p: difflib.SequenceMatcher(None, path.stem, p.stem).ratio()  # noqa: E731
        others = (p for p in path.parent.iterdir() if p.name != path.name)
        beside = sorted((p for p in others if like(p) >= MIN_NAME_SIMILARITY), key=like, reverse=True)
    except PermissionError:
        beside = []
    except OSError:
        return BadInput(f"{said}: there is no folder {path.parent}.")
    near = difflib.get_close_matches(path.name, [p.name for p in beside], n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(repr(str(path.parent / n)) for n in near)}?" if near else "."
    return BadInput(f"{said}: there is no such file or folder{hint}")
