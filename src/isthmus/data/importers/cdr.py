"""Messages of ROS 2: CDR bytes to dicts and lists, by the definition of their type."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from isthmus.errors import BadInput


def cdr(name: str, encoding: str, definition: str) -> Callable[[bytes], Any]:
    """A decoder of CDR messages of type `name`, from its definition, or without one from what ROS 2 ships."""
    if not re.fullmatch(r"\w+(/\w+){1,2}", name, re.ASCII):
        raise BadInput(f"{name[:60]!r} is not the name of a ROS 2 message type.")
    try:
        from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
        from rosbags.typesys.msg import normalize_msgtype
    except ImportError:
        raise BadInput("ROS 2 messages need rosbags: pip install 'isthmus[lab]'.") from None
    kind = normalize_msgtype(name)
    if definition:
        # Its own definition, in a store of its own: two bags may mean different things by one name.
        store = get_typestore(Stores.EMPTY)
        found = get_types_from_idl(definition) if encoding == "ros2idl" else get_types_from_msg(definition, name)
        shipped = _shipped()
        store.register({**{k: v for k, v in shipped.fielddefs.items() if k not in found}, **found})
    else:
        store = _shipped()
    if kind not in store.fielddefs:
        raise ValueError(f"unknown message type {name}")
    return lambda data: _plain(store.deserialize_cdr(data, kind))


@cache
def _shipped() -> Any:
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_HUMBLE)


def _plain(message: Any) -> Any:
    """A message as dicts and lists."""
    if is_dataclass(message):
        return {f.name: _plain(getattr(message, f.name)) for f in fields(message) if f.name != "__msgtype__"}
    if isinstance(message, list):
        return [_plain(m) for m in message]
    return message
