"""How the loop calls the library: a verb is a function by name, and its result has a type.

Until a verb is a typed function of its room, its command is run and its JSON is read into the type.
"""

from __future__ import annotations

import importlib
import io
import json
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from threading import current_thread, main_thread
from typing import Any

import isthmus
from isthmus.core.errors import BadInput, Interrupted
from isthmus.core.progress import Progress
from isthmus.core.results import Result
from isthmus.core.statistics import Estimate
from isthmus.deploy.run import never, stop_on_signals
from isthmus.deploy.run_result import RunResult
from isthmus.learn.evaluate.evaluate import Evaluation
from isthmus.learn.policies.export import ExportResult
from isthmus.learn.train import TrainResult
from isthmus.pipeline.command_line import command_line
from isthmus.pipeline.journal import Call, Status
from isthmus.real2sim.identify.excite import ExcitationResult
from isthmus.real2sim.identify.fit_actuator import ActuatorResult
from isthmus.real2sim.identify.identify import IdentifyResult
from isthmus.real2sim.identify.learn_residual import ResidualResult
from isthmus.validation.certificate import Certificate


@dataclass(frozen=True)
class GapResult(Result, kind="gap"):
    score: Estimate | None
    prediction: Mapping[str, Any] | None
    behaviour: Mapping[str, Any] | None


@dataclass(frozen=True)
class Hypothesis:
    cause: str
    probability: float
    clue: Mapping[str, Any] | None
    sentence: str
    action: str
    gain: str


@dataclass(frozen=True)
class Diagnosis(Result, kind="diagnosis"):
    headline: str
    cause: str | None
    hypotheses: tuple[Hypothesis, ...]
    gap: GapResult


RESULT_TYPES: dict[str, type[Result]] = {
    "train": TrainResult,
    "evaluate": Evaluation,
    "export": ExportResult,
    "run": RunResult,
    "measure": GapResult,
    "diagnose": Diagnosis,
    "identify": IdentifyResult,
    "fit_actuator": ActuatorResult,
    "learn_residual": ResidualResult,
    "excite": ExcitationResult,
    "validate": Certificate,
}


class IsthmusLibrary:
    """The functions of this package."""

    def __call__(self, call: Call, progress: Progress) -> Result:
        if call.verb in _READERS:
            return _run_command(call)
        function = getattr(isthmus, call.verb)
        if call.verb != "run":
            return function(**call.arguments, progress=progress)
        with stop_on_signals() if current_thread() is main_thread() else nullcontext(never) as stopping:
            result = function(**call.arguments, progress=progress, stopping=stopping)
        if result.status == "interrupted":
            raise Interrupted(result.reason)
        return result

    def status(self, result: Result) -> Status:
        return result_status(result)

    def read_result(self, verb: str, table: Mapping[str, Any], where: str) -> Result:
        return RESULT_TYPES[verb].from_dict(table, where)


def result_status(result: Result) -> Status:
    """Whether the answer of a verb is positive; a robot that refused to start is asked again."""
    match result:
        case RunResult(status="refused"):
            return "retry"
        case RunResult(status="guard") | Certificate(passed=False) | ResidualResult(kept=False):
            return "no"
    return "done"


isthmus_library = IsthmusLibrary()


# Until the verbs are typed functions: their commands, and their JSON ----------------------------------------------


def _run_command(call: Call) -> Result:
    main = importlib.import_module("isthmus.cli.main").main
    printed = io.StringIO()
    with redirect_stdout(printed):
        code = main([*command_line(call.verb, call.arguments), "--json"])
    lines = [line for line in printed.getvalue().splitlines() if line.startswith("{")]
    found = json.loads(lines[-1]) if lines else {}
    if code == 3:
        raise Interrupted(str(found.get("error")))
    if code == 2:
        raise BadInput(str(found.get("error")))
    return _READERS[call.verb](found)


def _number(x: float | None) -> float:
    return math.nan if x is None else float(x)


def _gap(found: dict[str, Any]) -> GapResult:
    s = found.get("score")
    score = Estimate(_number(s["value"]), _number(s["low"]), _number(s["high"]), "noise") if s else None
    return GapResult(score, found.get("prediction"), found.get("behaviour"))


def _diagnosis(found: dict[str, Any]) -> Diagnosis:
    why = found["why"]
    rows = tuple(
        Hypothesis(h["cause"], h["p"], h["clue"], h.get("sentence", ""), h.get("action", ""), h.get("gain", ""))
        for h in why["hypotheses"]
    )
    return Diagnosis(why["headline"], why["cause"], rows, _gap(found))


_READERS: dict[str, Callable[[dict[str, Any]], Result]] = {
    "measure": _gap,
    "diagnose": _diagnosis,
}
