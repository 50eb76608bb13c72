"""A world whose physics fails is reset alone, counted, and written down for replay.

The last ticks of every world are kept. When a world blows up its history goes to a file that `isthmus play` can
show and that anyone can load with NumPy: qpos, qvel and target of the last ticks, its e and the model.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from isthmus.files import atomic_write
from isthmus.sim.engine import Engine

KEPT = 32
"""Ticks remembered."""
MAX_DUMPS = 20


class Recorder:
    def __init__(self, engine: Engine, folder: Path | None):
        self.engine, self.folder = engine, folder
        self.dumps: list[Path] = []
        n = engine.n
        if folder is not None:
            self._qpos = np.zeros((KEPT, n, engine.model.nq), dtype=np.float32)
            self._qvel = np.zeros((KEPT, n, engine.model.nv), dtype=np.float32)
            self._target = np.zeros((KEPT, n, engine.robot.contract.target.size), dtype=np.float32)
            self._length = np.zeros(n, dtype=int)
        self._head = 0

    def clear(self, ids: np.ndarray) -> None:
        if self.folder is not None:
            self._length[ids] = 0

    def note(self, target: np.ndarray) -> None:
        """Remember the state before a tick, and its target, (n, m)."""
        if self.folder is None:
            return
        self._head = (self._head + 1) % KEPT
        self._qpos[self._head], self._qvel[self._head] = self.engine.qpos, self.engine.qvel
        self._target[self._head] = target
        self._length += 1

    def rescue(self) -> np.ndarray:
        """Put blown-up worlds back to rest so that nothing downstream sees them; return which, (n,)."""
        blown = self.engine.blown.copy()
        ids = np.nonzero(blown)[0]
        if len(ids):
            if self.folder is not None:
                for i in ids[: MAX_DUMPS - len(self.dumps)]:
                    self._dump(int(i))
            self.engine.reset(ids)
        return blown

    def _dump(self, world: int) -> None:
        assert self.folder is not None
        ticks = min(int(self._length[world]), KEPT)
        order = [(self._head - k) % KEPT for k in reversed(range(ticks))]
        data = io.BytesIO()
        np.savez(
            data,
            robot=np.array(self.engine.robot.name),
            model_hash=np.array(self.engine.robot.model_hash),
            tick=np.array(self.engine.tick),
            e=self.engine.e[world],
            names=np.array(self.engine.robot.space.names),
            qpos=self._qpos[order, world],
            qvel=self._qvel[order, world],
            target=self._target[order, world],
        )
        path = self.folder / f"blowup-{len(list(self.folder.glob('blowup-*.npz'))):03d}.npz"
        atomic_write(path, data.getvalue())
        self.dumps.append(path)
