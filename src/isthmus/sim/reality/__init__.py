"""Reality, when there is no robot at hand: robots that differ from their models in ways that a file says."""

from isthmus.sim.reality.engine import RealEngine
from isthmus.sim.reality.reality import Reality
from isthmus.sim.reality.virtual import VirtualRobot

__all__ = ["RealEngine", "Reality", "VirtualRobot"]
