"""A world whose physics fails is reset alone, counted, and written down for replay.

The last ticks of every world are kept. When a world blows up its history goes to a file that `isthmus play` can
show and that anyone can load with NumPy: qpos, qvel and target of the last ticks, its e and the model.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from isthmus.core.files import atomic_write
from isthmus.sim.simulation import Simulation

HISTORY_TICKS = 32
"""Ticks remembered."""
MAX_DUMPS = 20


class BlowUpRecorder:
    def __init__(self, sim: Simulation, folder: Path | None):
        self.sim, self.folder = sim, folder
        self.dumps: list[Path] = []
        n = sim.n
        if folder is not None:
            self._qpos = np.zeros((HISTORY_TICKS, n, sim.model.nq), dtype=np.float32)
            self._qvel = np.zeros((HISTORY_TICKS, n, sim.model.nv), dtype=np.float32)
            self._target = np.zeros((HISTORY_TICKS, n, sim.robot.contract.target.size), dtype=np.float32)
            self._recorded_ticks = np.zeros(n, dtype=int)
        self._head = 0

    def clear(self, ids: np.ndarray) -> None:
        if self.folder is not None:
            self._recorded_ticks[ids] = 0

    def note(self, target: np.ndarray) -> None:
        """Remember the state before a tick, and its target, (n, m)."""
        if self.folder is None:
            return
        self._head = (self._head + 1) % HISTORY_TICKS
        self._qpos[self._head], self._qvel[self._head] = self.sim.qpos, self.sim.qvel
        self._target[self._head] = target
        self._recorded_ticks += 1

    def rescue(self) -> np.ndarray:
        """Put blown-up worlds back to rest so that nothing downstream sees them; return which, (n,)."""
        blown = self.sim.diverged.copy()
        ids = np.nonzero(blown)[0]
        if len(ids):
            if self.folder is not None:
                for i in ids[: MAX_DUMPS - len(self.dumps)]:
                    self._dump(int(i))
            self.sim.reset(ids)
        return blown

    def _dump(self, world: int) -> None:
        assert self.folder is not None
        ticks = min(int(self._recorded_ticks[world]), HISTORY_TICKS)
        order = [(self._head - k) % HISTORY_TICKS for k in reversed(range(ticks))]
        data = io.BytesIO()
        np.savez(
            data,
            robot=np.array(self.sim.robot.name),
            model_hash=np.array(self.sim.robot.model_hash),
            tick=np.array(self.sim.tick),
            e=self.sim.e[world],
            names=np.array(self.sim.robot.space.names),
            qpos=self._qpos[order, world],
            qvel=self._qvel[order, world],
            target=self._target[order, world],
        )
        path = self.folder / f"blowup-{len(list(self.folder.glob('blowup-*.npz'))):03d}.npz"
        atomic_write(path, data.getvalue())
        self.dumps.append(path)
