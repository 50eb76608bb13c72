"""The plainest engine: one MjModel and one MjData per world, `mj_step` in a Python loop, no code in C of ours.

Slow, and easy to trust: the contract tests hold the batch engine against it. It also shows what a new engine has to provide.
"""

from __future__ import annotations

import copy

import mujoco
import numpy as np

from isthmus.sim.engines.engine import STATE_ARRAYS


class ReferenceEngine:
    def __init__(self, model: mujoco.MjModel, n: int):
        self.model, self.n = model, n
        self._models = [copy.copy(model) for _ in range(n)]
        self._data = [mujoco.MjData(m) for m in self._models]
        self._arrays: dict[str, np.ndarray] = {}
        self._fields: dict[str, np.ndarray] = {}
        for name in STATE_ARRAYS:
            self.array(name)

    def array(self, name: str) -> np.ndarray:
        if name not in self._arrays:
            self._arrays[name] = np.array([getattr(d, name) for d in self._data])
        return self._arrays[name]

    def field(self, name: str) -> np.ndarray:
        if name not in self._fields:
            self._fields[name] = np.array([np.array(_model_field(m, name)) for m in self._models])
        return self._fields[name]

    def set_const(self, ids: np.ndarray) -> None:
        for i in map(int, ids):
            self._write_fields(i)
            mujoco.mj_setConst(self._models[i], mujoco.MjData(self._models[i]))
            for name, rows in self._fields.items():
                rows[i] = _model_field(self._models[i], name)

    def reset(self, ids: np.ndarray) -> None:
        for i in map(int, ids):
            mujoco.mj_resetData(self._models[i], self._data[i])
            for name in STATE_ARRAYS:
                self._arrays[name][i] = getattr(self._data[i], name)

    def forward(self, ids: np.ndarray) -> None:
        for i in map(int, ids):
            self._write(i)
            mujoco.mj_forward(self._models[i], self._data[i])
            self._read(i)

    def step(self, count: int) -> np.ndarray:
        failed = np.zeros(self.n, dtype=bool)
        for i in range(self.n):
            self._write(i)
            try:
                mujoco.mj_step(self._models[i], self._data[i], count)
            except mujoco.FatalError:
                failed[i] = True  # the world keeps the state that it had
                continue
            self._read(i)
        return failed

    def get_model(self, world: int) -> mujoco.MjModel:
        self._write_fields(world)
        return copy.copy(self._models[world])

    def get_data(self, world: int, data: mujoco.MjData | None = None) -> mujoco.MjData:
        data = mujoco.MjData(self.model) if data is None else data
        for name in STATE_ARRAYS:
            _write_state(data, name, self._arrays[name][world])
        return data

    def _write(self, i: int) -> None:
        """State and fields of world i, from the arrays to MuJoCo."""
        self._write_fields(i)
        for name in STATE_ARRAYS:
            _write_state(self._data[i], name, self._arrays[name][i])

    def _read(self, i: int) -> None:
        """State and outputs of world i, from MuJoCo to the arrays."""
        for name, rows in self._arrays.items():
            rows[i] = getattr(self._data[i], name)

    def _write_fields(self, i: int) -> None:
        for name, rows in self._fields.items():
            value = _model_field(self._models[i], name)
            if isinstance(value, np.ndarray):
                value[...] = rows[i]
            else:
                setattr(self._models[i].opt, name.removeprefix("opt."), rows[i].item())


def _model_field(model: mujoco.MjModel, name: str) -> np.ndarray | float:
    return getattr(model.opt, name.removeprefix("opt.")) if name.startswith("opt.") else getattr(model, name)


def _write_state(data: mujoco.MjData, name: str, row: np.ndarray) -> None:
    if name == "time":
        data.time = float(row)
    else:
        getattr(data, name)[...] = row


class ReferenceEngines:
    """Factory; the number of threads is ignored."""

    runs_motor_law = False

    def __call__(self, model: mujoco.MjModel, n: int, threads: int = 0) -> ReferenceEngine:
        del threads
        return ReferenceEngine(model, n)
