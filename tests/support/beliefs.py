"""A space of four parameters, and beliefs of every kind over it."""

from __future__ import annotations

from isthmus.world import Belief, Fixed, LogUniform, Normal, Param, Particles, Space, Uniform

A = Param("a", "m", 0.3, -1.0, 2.0, ("geom:floor/friction[0]",), doc="plain")
B = Param("b", "kg", 2.0, 0.1, 7.3, ("body:.*/mass",), scale="log", how="scale")
C = Param("c", "1", 0.0, -0.7, 0.7, ("link:/action_delay", "link:/sensor_delay"), how="add")
D = Param("d", "s", 0.02, 0.001, 0.9, ("opt:/timestep",), scale="log")
SPACE = Space((A, B, C, D))
NORMAL = Normal(("a", "d"), (0.4, -1.1), ((0.5, 0.2), (0.2, 0.3)))
PARTICLES = Particles(("b", "c"), ((0.5, 0.1), (2.0, -0.3), (7.3, 0.7)), (0.2, 0.5, 0.3))
BELIEFS = {
    "fixed": Belief(SPACE, (Fixed("a", 1.9),)),
    "uniform": Belief(SPACE, (Uniform("a", -0.5, 0.1 + 0.2),)),
    "log_uniform": Belief(SPACE, (LogUniform("b", 0.1, 1 / 3),)),
    "normal": Belief(SPACE, (NORMAL,)),
    "particles": Belief(SPACE, (PARTICLES,)),
    "all": Belief(SPACE, (Uniform("a", 0.0, 1.0), PARTICLES, LogUniform("d", 0.01, 0.1))),
}
