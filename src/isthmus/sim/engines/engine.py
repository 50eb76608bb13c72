"""What a physics engine is: n worlds of one compiled model. It knows nothing of robots, motors or sensors.

    factory = get_engine("batch")              by name, entry point `isthmus.engines`, or a factory of your own
    engine = factory(model, n, threads)
    engine.array("qpos")                       live (n, nq): reading is the state, writing sets it
    engine.field("body_mass")                  live (n, nbody): a model field with a value per world
    failed = engine.step(4)                    (n,) bool

`Simulation` puts a robot into an engine.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Protocol

import mujoco
import numpy as np

from isthmus.core.errors import unknown_name

ENTRY_POINT_GROUP = "isthmus.engines"
DEFAULT_ENGINE = "batch"
STATE_ARRAYS = ("time", "qpos", "qvel", "act", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied", "userdata")
"""State of a world: what its next step depends on, besides the model. Writable; all other arrays are outputs."""


class Engine(Protocol):
    """n worlds of one model, float64. Arrays are live: the same object shows the state after every call."""

    n: int
    model: mujoco.MjModel
    """Nominal model, shared by all worlds but for their fields."""

    def array(self, name: str) -> np.ndarray:
        """(n, …) of one MjData field. Outputs (sensordata, xpos, …) are those of the last physics step, as after mj_step;

        they show values from the first step or forward pass after they were asked for.
        """
        ...

    def field(self, name: str) -> np.ndarray:
        """(n, …) per-world values of one MjModel field, or of one option as "opt.gravity"; nominal until written."""
        ...

    def set_const(self, ids: np.ndarray) -> None:
        """Recompute the constants that MuJoCo derives from model fields (mj_setConst) in worlds `ids`."""
        ...

    def reset(self, ids: np.ndarray) -> None:
        """State of worlds `ids` to the model's default and zeros, time included, without a forward pass."""
        ...

    def forward(self, ids: np.ndarray) -> None:
        """Compute the outputs of worlds `ids` at their present state (mj_forward)."""
        ...

    def step(self, count: int) -> np.ndarray:
        """Advance all worlds by `count` physics steps; (n,) bool, the worlds in which MuJoCo failed. Never raises for one."""
        ...

    def get_model(self, world: int) -> mujoco.MjModel:
        """Copy of one world's model."""
        ...

    def get_data(self, world: int, data: mujoco.MjData | None = None) -> mujoco.MjData:
        """State of one world in `data` or in a new MjData, without derived quantities: call mj_forward for those."""
        ...


class EngineFactory(Protocol):
    """Makes engines of one kind."""

    @property
    def runs_motor_law(self) -> bool:
        """Whether the engine runs the motor law within its step, from the model's table; else Motors runs it between steps."""
        ...

    def __call__(self, model: mujoco.MjModel, n: int, threads: int) -> Engine:
        """An engine of n worlds on `threads` CPU threads (0: all), where that applies."""
        ...


def _batch() -> EngineFactory:
    from isthmus.sim.engines.batch.engine import BatchEngines

    return BatchEngines()


def _reference() -> EngineFactory:
    from isthmus.sim.engines.reference.engine import ReferenceEngines

    return ReferenceEngines()


_BUILT_IN: dict[str, Callable[[], EngineFactory]] = {"batch": _batch, "reference": _reference}


def engine_names() -> list[str]:
    """Names that `get_engine` knows, of this package and of installed plug-ins."""
    return sorted({*_BUILT_IN, *(e.name for e in entry_points(group=ENTRY_POINT_GROUP))})


def get_engine(engine: str | EngineFactory) -> EngineFactory:
    """The factory of that name; a factory is returned as it is.

    An entry point of the group `isthmus.engines` is a callable without arguments that makes a factory.
    """
    if not isinstance(engine, str):
        return engine
    if engine in _BUILT_IN:
        return _BUILT_IN[engine]()
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == engine:
            make: Any = entry.load()
            return make()
    raise unknown_name("engine", engine, engine_names())
