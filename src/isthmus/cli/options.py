"""The options of a command: read by tyro; what cannot be read is told in one sentence, with what would be right."""

from __future__ import annotations

import contextlib
import difflib
import io
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import takewhile
from typing import Any

import tyro

from isthmus.core.errors import BadInput, unknown_name

OPTION_PATTERN = re.compile(r"--?[A-Za-z][\w-]*")
NUMBER_WORDS = {"int": "a whole number", "float": "a number"}


def parse_options(kind: Any, prog: str, about: str, rest: Sequence[str]) -> Any:
    """Options as a `kind`, a dataclass or a union of them as subcommands. `--help` is printed, and leaves by SystemExit."""
    printed, complaint = _CapturedOutput(sys.stdout), io.StringIO()
    try:
        with _parse_errors_as_sentences(kind, prog, about, rest), redirect_stdout(printed), redirect_stderr(complaint):
            return tyro.cli(kind, prog=prog, description=about, args=list(rest))
    except SystemExit as stop:
        if stop.code:
            raise BadInput(_unframed(complaint.getvalue())) from None
        with contextlib.suppress(BrokenPipeError):
            print(wrap_prose(printed.getvalue(), shutil.get_terminal_size().columns), end="")
        raise


class _CapturedOutput(io.StringIO):
    """Takes what is printed, with the frames and colours that `to` would have got."""

    def __init__(self, to: Any = None):
        super().__init__()
        self._to = to

    def isatty(self) -> bool:
        return self._to is not None and self._to.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8" if self._to is None else getattr(self._to, "encoding", None) or "ascii"


def wrap_prose(text: str, width: int) -> str:
    """With long lines of prose broken between words; frames are as wide as they should be, and a command is one line."""
    lines = []
    for line in text.splitlines():
        prose = len(line) > width and line[:1].isalpha() and not line.startswith(("example:", "usage:"))
        lines += textwrap.wrap(line, width, break_on_hyphens=False) if prose else [line]
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def _parse_errors_as_sentences(kind: Any, prog: str, about: str, rest: Sequence[str]):
    """Turns what tyro could not read into a sentence of ours."""
    try:
        from tyro._errors import on_parse_error
    except ImportError:  # not a promise of tyro; its own words are squeezed then
        yield
        return

    def tell(event: Any) -> None:
        with contextlib.suppress(AttributeError):  # of an event that has other fields by now
            if (error := _usage_error(event, kind, prog, about, rest)) is not None:
                raise error

    with on_parse_error(tell):
        yield


def _usage_error(event: Any, kind: Any, prog: str, about: str, rest: Sequence[str]) -> BadInput | None:
    """None for what tyro says as well as we do."""
    page, subcommands = _help_page(kind, prog, about), ()
    if getattr(kind, "__args__", ()):
        subcommands = re.findall(r"^│ +• (\S+)", page, re.MULTILINE)
        if rest and rest[0] in subcommands:
            prog, page, subcommands = f"{prog} {rest[0]}", _help_page(kind, prog, about, rest[0]), ()
    if subcommands and rest and not rest[0].startswith("-"):
        return unknown_name("subcommand", rest[0], subcommands, f"`{prog}`")
    if subcommands:
        return BadInput(f"`{prog}` needs a subcommand: {', '.join(subcommands)}; see `{prog} --help`.")
    options = [o for line in re.findall(r"^│ (-.*)", page, re.MULTILINE) for o in OPTION_PATTERN.findall(line)]
    for word in takewhile(lambda word: word != "--", rest):
        name = word.split("=")[0]
        if OPTION_PATTERN.fullmatch(name) and name.replace("_", "-") not in options:
            return unknown_name("option", name, _similar_options(name, options), f"`{prog}`")
    example = next(iter(re.findall(r"^example: (.*)", page, re.MULTILINE)), f"{prog} --help")
    match type(event).__name__:
        case "MissingArgs":
            missing = [f"{_argument_name(a.arg)} is missing{_argument_help(a.arg)}" for a in event.missing_arguments]
            return BadInput(f"{', and '.join(missing)}; example: {example}")
        case "BadValue" if event.reason == "too_few_values":
            what = "is missing" if event.argument.is_positional() else "needs a value"
            return BadInput(f"{_argument_name(event.argument)} {what}{_argument_help(event.argument)}; example: {example}")
        case "InvalidChoice":
            near = difflib.get_close_matches(event.value, event.choices, n=1)
            hint = f": did you mean {near[0]!r}?" if near else "."
            choices = ", ".join(filter(None, event.choices))
            return BadInput(f"{_argument_name(event.argument)} takes {choices}, not {event.value!r}{hint}")
        case "InstantiationFailure" if event.argument is not None:
            return BadInput(_bad_value_message(event))
        case "UnrecognizedArgs":
            return BadInput(f"`{prog}` does not know what to do with {event.tokens[0]!r}; example: {example}")
    return None


def _similar_options(name: str, options: Sequence[str]) -> list[str]:
    """Options that may have been meant, compared without their dashes; all if none is like it."""
    long = {o.lstrip("-"): o for o in options if o.startswith("--")}
    if not name.startswith("--no-"):
        long = {word: o for word, o in long.items() if not o.startswith("--no-")}
    near = difflib.get_close_matches(name.strip("-_"), long, n=2)
    return [long[word] for word in near] or list(long.values())


def _help_page(kind: Any, prog: str, about: str, *subcommand: str) -> str:
    """The page as in a window in which no option is cut."""
    printed, before = _CapturedOutput(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "200"
    try:
        with redirect_stdout(printed), contextlib.suppress(SystemExit):
            tyro.cli(kind, prog=prog, description=about, args=[*subcommand, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        os.environ.update({} if before is None else {"COLUMNS": before})
    return printed.getvalue()


def _argument_name(argument: Any) -> str:
    return argument.field.intern_name.upper() if argument.is_positional() else argument.lowered.name_or_flags[-1]


def _argument_help(argument: Any) -> str:
    text = argument.field.helptext
    text = (text() if callable(text) else text) or ""
    return f" ({' '.join(text.split()).rstrip('.')})" if text else ""


def _bad_value_message(event: Any) -> str:
    given = re.search(r"""(['"])(.*)\1$""", event.message)
    wanted = next((NUMBER_WORDS[word] for word in NUMBER_WORDS if word.upper() in str(event.argument.lowered.metavar)), "")
    if given is None or not wanted:
        return f"{_argument_name(event.argument)}: {event.message.rstrip('.')}{_argument_help(event.argument)}."
    hint = ""
    with contextlib.suppress(ValueError, OverflowError):
        whole = int(float(given[2]))
        hint = f": write {whole}" if whole == float(given[2]) else ""
    return f"{_argument_name(event.argument)} takes {wanted}, not {given[2]!r}{hint}."


def _unframed(box: str) -> str:
    """The words of a framed message, in one line."""
    words = re.sub(r"[─-╿]+|-{4,}|[|+]", " ", box).split()
    return " ".join(words) or "the options could not be read."


def parse_assignments(option: str, texts: tuple[str, ...]) -> dict[str, float]:
    """Values by name of an option NAME=VALUE that is given several times, each name once."""
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


def check_not_negative(args: Any, *names: str) -> None:
    """Raise BadInput unless these options are finite numbers, none negative."""
    for name in names:
        if not 0 <= getattr(args, name) < math.inf:
            raise BadInput(f"--{name.replace('_', '-')} must be a finite number, not negative.")
