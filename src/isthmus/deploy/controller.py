"""What the control loop, the guard's preflight and the simulated trials need of a policy.

`OnnxController` (onnx_controller.py) is the implementation that runs exported policies and played trajectories.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from isthmus.deploy.manifest import Manifest


class Controller(Protocol):
    """A policy with memory, from named signals to targets at a fixed rate."""

    @property
    def manifest(self) -> Manifest:
        """Signals, targets, rate and limits, and hashes of where it came from."""
        ...

    @property
    def hash(self) -> str:
        """SHA-256 of its file; empty if it was made in memory."""
        ...

    @property
    def memory(self) -> Mapping[str, np.ndarray]:
        """State after the last tick by the manifest's names, (1, …) each; writing into the arrays changes it."""
        ...

    def reset(self) -> None:
        """Set the memory to its value before the first tick."""
        ...

    def tick(self, signals: Mapping[str, np.ndarray]) -> np.ndarray:
        """Targets for these signals, (m,) float32 in the manifest's order; advances the memory."""
        ...
