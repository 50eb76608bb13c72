"""One controller for many worlds: it ticks for each in turn, with that world's memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from isthmus.deploy.controller import Controller
from isthmus.deploy.signal_map import SignalMap


class BatchController:
    def __init__(self, controller: Controller, signal_map: SignalMap, n: int):
        """n worlds of the robot that the controller was fitted to, each with a fresh memory."""
        self.controller, self.signal_map = controller, signal_map
        self.memory = [{k: np.zeros_like(v) for k, v in controller.memory.items()} for _ in range(n)]

    def broadcast_memory(self, world: int = 0) -> None:
        """Give every world the memory of the i-th."""
        self.memory = [{k: v.copy() for k, v in self.memory[world].items()} for _ in self.memory]

    def __call__(self, signals: np.ndarray, operator: Mapping[str, np.ndarray], target: np.ndarray, worlds: np.ndarray) -> None:
        """Write the targets of these worlds into `target`, (n, m), for all signals side by side, (n, width).

        `operator` is what each is asked, (n, k) per signal.
        """
        controller = self.controller
        for i in worlds.tolist():
            memory = self.memory[i]
            for name, value in controller.memory.items():
                value[:] = memory[name]
            row = {name: signals[i, columns] for name, columns in self.signal_map.signal_columns.items()}
            row |= {name: values[i] for name, values in operator.items()}
            target[i] = controller.tick(row)[self.signal_map.target_order]
            # A tick puts what it remembers in another place.
            for name, value in controller.memory.items():
                memory[name][:] = value
