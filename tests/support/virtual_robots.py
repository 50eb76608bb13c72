"""A virtual robot, and time that passes for it."""

from __future__ import annotations

import numpy as np

from isthmus.deploy.links.link import Command, Packet
from isthmus.robots import ROBOTS
from isthmus.sim.reality import Reality, VirtualRobot
from isthmus.sim.reality.simulation import PACKET_PERIOD

GO1, CRAZYFLIE, PENDULUM = ROBOTS["go1"](), ROBOTS["crazyflie"](), ROBOTS["pendulum"]()


def virtual(robot=GO1, timeout: float = 0.1, start=None, **tables) -> VirtualRobot:
    return VirtualRobot(robot, Reality.from_dict({"robot": robot.name} | tables), timeout, start)


def advance(robot: VirtualRobot, seconds: float, mode: str | None = None, target=None) -> list[Packet]:
    """Some time, with a command in every period if a mode is given."""
    packets = []
    for _ in range(round(seconds / PACKET_PERIOD)):
        if mode is not None:
            u = robot.robot.default if target is None else target
            robot.command(Command(round(robot.time / PACKET_PERIOD), robot.time, mode, np.array(u, dtype=float)))
        packets += robot.advance()
    return packets
