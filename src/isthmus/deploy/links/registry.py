"""Links by name. A link is written NAME or NAME:ADDRESS; each name stands for a function that opens it.

    link = connect("zenoh:tcp/192.168.1.5:7447")

The functions are named by "module:attribute" strings, so that this room knows links of the rooms above it without importing
them, and a robot's computer needs only the packages of the link that it uses.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from isthmus.core.errors import BadInput, unknown_name
from isthmus.data.contract import Contract
from isthmus.deploy.links.link import Link


class OpenLink(Protocol):
    def __call__(self, address: str, *, speed: float, contract: Contract | None) -> Link:
        """The link to `address` (empty for the default one), with a clock of `speed` times real time.

        `contract` is that of the robot that the controller was made for, if one is known.
        """
        ...


@dataclass(frozen=True)
class LinkEntry:
    opener: str
    """MODULE:ATTRIBUTE of an `OpenLink`."""
    about: str


REGISTRY: Mapping[str, LinkEntry] = {
    "zenoh": LinkEntry(
        "isthmus.deploy.links.zenoh:open_link",
        "a robot's process on this machine; zenoh:tcp/HOST:PORT for one elsewhere",
    ),
    "sim": LinkEntry(
        "isthmus.robots.virtual_link:open_link",
        "a virtual robot in this process, in lock-step, as fast as it goes; sim:FILE or sim:hidden:SEED with a reality",
    ),
}

LINKS: Mapping[str, str] = {name: entry.about for name, entry in REGISTRY.items()}
"""Name of each link, and one line about it."""


def check_link(link: str) -> None:
    """Raise BadInput unless the name of the link is known; opens nothing."""
    if link.partition(":")[0] not in REGISTRY:
        raise unknown_name("link", link, REGISTRY)


def connect(link: Link | str, *, speed: float = 1.0, contract: Contract | None = None) -> Link:
    """The link that a text NAME or NAME:ADDRESS stands for; an open link is handed back as it is."""
    if not isinstance(link, str):
        return link
    if not 0 < speed < math.inf:
        raise BadInput(f"the speed must be a positive, finite number, not {speed:g}.")
    check_link(link)
    name, _, address = link.partition(":")
    module, _, attribute = REGISTRY[name].opener.partition(":")
    opener: OpenLink = getattr(importlib.import_module(module), attribute)
    return opener(address, speed=speed, contract=contract)
