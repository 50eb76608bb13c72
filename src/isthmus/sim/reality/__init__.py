"""Reality, when there is no robot at hand: robots that differ from their models in ways that a file says."""

from isthmus.sim.reality.reality_file import Reality
from isthmus.sim.reality.simulation import real_simulation
from isthmus.sim.reality.virtual_robot import VirtualRobot

__all__ = ["Reality", "VirtualRobot", "real_simulation"]
