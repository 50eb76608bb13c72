"""Messages of ROS 2: CDR bytes to dicts and lists, by the definition of their type.

rosbags makes Python code from definitions, and executes it. What comes from a file is checked here first: names are plain
words, constants plain values, and the code cannot become long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from isthmus.core.errors import BadInput

MAX_DEFINITION = 2**18
"""Characters of a definition with all that it refers to; the longest that ROS 2 ships has some 20,000."""
MAX_UNROLLED = 4096
"""Entries of all arrays of texts or messages in a definition: rosbags writes some lines of code for each."""
MAX_ARRAY = 2**26
"""Entries of an array of numbers, and characters of a text."""
MAX_NESTING = 4
"""Of `sequence<…>` in itself; the time to parse it grows exponentially."""
MAX_NAME = 255
IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(/[A-Za-z][A-Za-z0-9_]*){1,2}", re.ASCII)
BASE_TYPE = re.compile(r"bool|byte|char|octet|wchar|u?int(8|16|32|64)|float(32|64|128)|w?string", re.ASCII)
TEXT_OR_COMMENT = re.compile(r'"(?:\\"|[^"])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""Texts and comments of an IDL file, as the parser of rosbags sees them."""
ANNOTATION = re.compile(r"@[\w:]+\s*\(")


def cdr_decoder(name: str, encoding: str, definition: str) -> Callable[[bytes], Any]:
    """A decoder of CDR messages of type `name`, from its definition, or without one from what ROS 2 ships."""
    if not TYPE_NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise BadInput(f"{name[:60]!r} is not the name of a ROS 2 message type.")
    try:
        from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
        from rosbags.typesys.msg import normalize_msgtype
    except ImportError:
        raise BadInput("ROS 2 messages need rosbags: pip install 'isthmus[lab]'.") from None
    kind = normalize_msgtype(name)
    if definition:
        _check_definition_text(name, encoding, definition)
        # Its own definition, in a store of its own: two bags may mean different things by one name.
        store = get_typestore(Stores.EMPTY)
        found = get_types_from_idl(definition) if encoding == "ros2idl" else get_types_from_msg(definition, name)
        check_types(name, found)
        shipped = _ros2_typestore()
        store.register({**{k: v for k, v in shipped.fielddefs.items() if k not in found}, **found})
    else:
        store = _ros2_typestore()
    if kind not in store.fielddefs:
        raise ValueError(f"unknown message type {name}")
    return lambda data: _to_plain(store.deserialize_cdr(data, kind))


def _check_definition_text(name: str, encoding: str, definition: str) -> None:
    """Refuse what would keep the parser busy for ever; parsing executes nothing."""
    if len(definition) > MAX_DEFINITION:
        raise BadInput(f"the definition of {name} is longer than {MAX_DEFINITION} characters and is not read.")
    if encoding != "ros2idl":
        return
    rest, depth = ANNOTATION.sub(" ", TEXT_OR_COMMENT.sub(" ", definition)), 0
    if any(sign in rest for sign in ("<<", "*", "(")):
        raise BadInput(f"the definition of {name} computes its constants, and is not read.")
    for bracket in re.findall("[<>]", rest):
        depth += 1 if bracket == "<" else -1
        if depth > MAX_NESTING:
            raise BadInput(f"the definition of {name} has sequences within sequences, and is not read.")


def check_types(name: str, types: Mapping[str, Any]) -> None:
    """Refuse definitions, as rosbags parsed them, that could become anything but plain fields in its code."""
    unrolled = 0
    for kind, (constants, members) in types.items():
        wrong = [w for w in _invalid_parts(kind, constants, members) if w is not None]
        if wrong:
            raise BadInput(f"the definition of {name} has {str(wrong[0])[:60]!r}, which ROS 2 does not allow; it is not read.")
        unrolled += sum(_unrolled_entries(desc) for _, desc in members)
    if unrolled > MAX_UNROLLED:
        raise BadInput(f"the definition of {name} has arrays of more than {MAX_UNROLLED} texts or messages, and is not read.")


def _invalid_parts(kind: str, constants: Any, members: Any) -> Iterator[Any]:
    """What is not a name, a type, a plain value or a size."""
    yield None if TYPE_NAME.fullmatch(kind) and len(kind) <= MAX_NAME else kind
    for word, base, value in constants:
        yield None if _is_identifier(word) else word
        yield None if BASE_TYPE.fullmatch(base) else base
        yield None if type(value) in (bool, int, float, str) else value
    for word, desc in members:
        yield None if _is_identifier(word) else word
        yield from _invalid_type_parts(desc)


def _invalid_type_parts(desc: Any) -> Iterator[Any]:
    node, about = int(desc[0]), desc[1]
    if node == 1:
        base, limit = about
        yield None if BASE_TYPE.fullmatch(base) else base
        yield None if _is_size(limit) else limit
    elif node == 2:
        yield None if TYPE_NAME.fullmatch(about) and len(about) <= MAX_NAME else about
    elif node in (3, 4) and int(about[0][0]) in (1, 2):
        yield from _invalid_type_parts(about[0])
        yield None if _is_size(about[1]) else about[1]
    else:
        yield str(desc)


def _is_identifier(word: Any) -> bool:
    return isinstance(word, str) and IDENTIFIER.fullmatch(word) is not None and len(word) <= MAX_NAME


def _is_size(size: Any) -> bool:
    return type(size) is int and 0 <= size <= MAX_ARRAY


def _unrolled_entries(desc: Any) -> int:
    """Entries of a fixed array that are not numbers."""
    if int(desc[0]) != 3:
        return 0
    inner, size = desc[1]
    return 0 if int(inner[0]) == 1 and "string" not in inner[1][0] else size


@cache
def _ros2_typestore() -> Any:
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_HUMBLE)


def _to_plain(message: Any) -> Any:
    """A message as dicts and lists."""
    if is_dataclass(message):
        return {f.name: _to_plain(getattr(message, f.name)) for f in fields(message) if f.name != "__msgtype__"}
    if isinstance(message, list):
        return [_to_plain(m) for m in message]
    return message
