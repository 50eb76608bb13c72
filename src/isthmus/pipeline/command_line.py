"""The `isthmus` command that is equivalent to a call: printed before the call and stored in its record."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CommandForm:
    """How the arguments of a library function are written on the command line."""

    verb: str
    positional: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    """Argument -> option, where that is not --argument."""
    flags: tuple[str, ...] = ()
    """Options that the function stands for."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Argument -> field of the verb's Args, where that has another name."""


COMMAND_FORMS = {
    "train": CommandForm("train", ("task",)),
    "evaluate": CommandForm("evaluate", ("policy",)),
    "export": CommandForm("export", ("run",)),
    "run": CommandForm("run", ("controller",)),
    "measure": CommandForm("diagnose", ("controller", "recordings"), {"dynamics": "twin"}, ("--no-why",), {"dynamics": "twin"}),
    "diagnose": CommandForm("diagnose", ("controller", "recordings"), {"dynamics": "twin"}, fields={"dynamics": "twin"}),
    "identify": CommandForm("identify", ("robot", "recordings"), {"dynamics": "belief"}),
    "fit_actuator": CommandForm("actuator", ("robot", "files")),
    "learn_residual": CommandForm("residual", ("twin", "recordings")),
    "excite": CommandForm("excite", ("robot",)),
    "validate": CommandForm("validate", ("controller",)),
}


def command_line(verb: str, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Words of the equivalent command, without `isthmus`."""
    form = COMMAND_FORMS[verb]
    words = [form.verb, *(w for name in form.positional for w in _words(arguments[name]))]
    for name, value in arguments.items():
        if name in form.positional:
            continue
        option = "--" + form.options.get(name, name).replace("_", "-")
        if isinstance(value, bool):
            words.append(option if value else option.replace("--", "--no-", 1))
        elif value is not None and value != ():
            words += [option, *_words(value)]
    return (*words, *form.flags)


def _words(value: Any) -> list[str]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [w for v in value for w in _words(v)]
    return [repr(value) if isinstance(value, float) else str(value)]


def shell_text(words: Sequence[str | Path]) -> str:
    """Words as one types them into a shell."""
    return " ".join(shlex.quote(str(w)) for w in words)
