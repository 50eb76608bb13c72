"""Isthmus: train robots in simulation, run them in reality, find out why the two differ, and close the gap.

    import isthmus

    isthmus.train("pendulum/swingup", "runs/a")
    isthmus.export("runs/a", "a.controller")
    isthmus.run("a.controller", "sim:hidden:5", seconds=10, record="swing.mcap")
    isthmus.identify("pendulum", ["swing.mcap"], "desk.twin").parameters

This file is the table of contents. Every name is loaded when it is first used, so `import isthmus` costs milliseconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.core.errors import BadInput as BadInput
    from isthmus.core.errors import Interrupted as Interrupted
    from isthmus.core.statistics import Estimate as Estimate
    from isthmus.core.statistics import Rate as Rate
    from isthmus.data.contract import Contract as Contract
    from isthmus.data.contract import Signal as Signal
    from isthmus.data.episode import Episode as Episode
    from isthmus.data.store.store import Store as Store
    from isthmus.deploy.controller import Controller as Controller
    from isthmus.deploy.links.link import Link as Link
    from isthmus.deploy.links.registry import connect as connect
    from isthmus.deploy.run import run as run
    from isthmus.learn.evaluate.compare import compare as compare
    from isthmus.learn.evaluate.evaluate import evaluate as evaluate
    from isthmus.learn.evaluate.probe import probe as probe
    from isthmus.learn.policies.export import export as export
    from isthmus.learn.runs import Run as Run
    from isthmus.learn.train import train as train
    from isthmus.pipeline.loop import loop as loop
    from isthmus.real2sim.drift.drift import drift as drift
    from isthmus.real2sim.identify.excite import excite as excite
    from isthmus.real2sim.identify.fit_actuator import fit_actuator as fit_actuator
    from isthmus.real2sim.identify.identify import identify as identify
    from isthmus.real2sim.identify.learn_residual import learn_residual as learn_residual
    from isthmus.real2sim.identify.predict import predict as predict
    from isthmus.robots import get_robot as get_robot
    from isthmus.robots.twin import Twin as Twin
    from isthmus.sim.reality.reality_file import Reality as Reality
    from isthmus.sim.robot import Robot as Robot
    from isthmus.tasks.catalogue import get_task as get_task
    from isthmus.tasks.task import Task as Task
    from isthmus.validation.protocol import Protocol as Protocol
    from isthmus.validation.validate import validate as validate
    from isthmus.world.belief import Belief as Belief
    from isthmus.world.param import Param as Param
    from isthmus.world.space import Space as Space

__version__ = "0.1.0"

_HOME = {
    # what everything is about
    "Param": "isthmus.world.param",
    "Space": "isthmus.world.space",
    "Belief": "isthmus.world.belief",
    "Signal": "isthmus.data.contract",
    "Contract": "isthmus.data.contract",
    "Episode": "isthmus.data.episode",
    "Store": "isthmus.data.store.store",
    "Controller": "isthmus.deploy.controller",
    "Link": "isthmus.deploy.links.link",
    "Reality": "isthmus.sim.reality.reality_file",
    "Robot": "isthmus.sim.robot",
    "Twin": "isthmus.robots.twin",
    "Task": "isthmus.tasks.task",
    "Run": "isthmus.learn.runs",
    "Protocol": "isthmus.validation.protocol",
    "Rate": "isthmus.core.statistics",
    "Estimate": "isthmus.core.statistics",
    "BadInput": "isthmus.core.errors",
    "Interrupted": "isthmus.core.errors",
    # verbs
    "connect": "isthmus.deploy.links.registry",
    "run": "isthmus.deploy.run",
    "validate": "isthmus.validation.validate",
    # by name
    "get_robot": "isthmus.robots",
    "get_task": "isthmus.tasks.catalogue",
    # verbs
    "train": "isthmus.learn.train",
    "evaluate": "isthmus.learn.evaluate.evaluate",
    "compare": "isthmus.learn.evaluate.compare",
    "probe": "isthmus.learn.evaluate.probe",
    "export": "isthmus.learn.policies.export",
    "identify": "isthmus.real2sim.identify.identify",
    "predict": "isthmus.real2sim.identify.predict",
    "fit_actuator": "isthmus.real2sim.identify.fit_actuator",
    "learn_residual": "isthmus.real2sim.identify.learn_residual",
    "excite": "isthmus.real2sim.identify.excite",
    "drift": "isthmus.real2sim.drift.drift",
    "loop": "isthmus.pipeline.loop",
}
"""Public name -> module that defines it."""

__all__ = [  # noqa: RUF022 (in the order of the table)
    "Param", "Space", "Belief", "Signal", "Contract", "Episode", "Store", "Controller", "Link", "Reality", "Robot",
    "Twin", "Task", "Run", "Protocol", "Rate", "Estimate", "BadInput", "Interrupted", "connect", "run", "validate",
    "get_robot", "get_task", "train", "evaluate", "compare", "probe", "export", "identify", "predict", "fit_actuator",
    "learn_residual", "excite", "drift", "loop",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        import difflib

        near = difflib.get_close_matches(name, _HOME, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"isthmus has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
