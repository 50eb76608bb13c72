"""Isthmus: the land bridge between a simulated robot and the real one."""

__version__ = "0.1.0"
