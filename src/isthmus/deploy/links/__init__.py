"""Links to a robot by name.

zenoh                      a robot's process on this machine
zenoh:tcp/10.0.0.7:7447    one elsewhere
sim, sim:REALITY.toml      a virtual robot inside this process, in lock-step, as fast as it goes; needs the extra `lab`
"""

from __future__ import annotations

from isthmus.deploy.link import Link
from isthmus.errors import BadInput, unknown

LINKS = {
    "zenoh": "a robot's process on this machine; zenoh:tcp/HOST:PORT for one elsewhere",
    "sim": "a virtual robot inside this process, in lock-step; sim:FILE with a reality",
}


def open_link(name: str, speed: float = 1.0) -> Link:
    """The link of that name, between processes."""
    kind, _, rest = name.partition(":")
    if kind == "zenoh":
        from isthmus.deploy.links.zenoh_link import DEFAULT, ZenohLink

        return ZenohLink(rest or DEFAULT, speed)
    if kind == "sim":
        raise BadInput("the link 'sim' simulates the robot here and needs `pip install 'isthmus[lab]'`.")
    raise unknown("link", name, LINKS)
