"""e: the numbers in which one world differs from another, as one typed value."""

from isthmus.world.belief import Belief, belief_on_space
from isthmus.world.factors import Factor, Fixed, LogUniform, Normal, Particles, Uniform
from isthmus.world.param import Param, Target
from isthmus.world.space import Space

__all__ = [
    "Belief",
    "Factor",
    "Fixed",
    "LogUniform",
    "Normal",
    "Param",
    "Particles",
    "Space",
    "Target",
    "Uniform",
    "belief_on_space",
]
