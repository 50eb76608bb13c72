"""A library whose calls answer at once with real result types, for tests of what a loop does next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput, Interrupted
from isthmus.core.progress import Progress
from isthmus.core.results import Result
from isthmus.core.statistics import Estimate, Rate
from isthmus.deploy.run_result import RunResult
from isthmus.learn.evaluate.evaluate import Evaluation
from isthmus.learn.policies.export import ExportResult
from isthmus.learn.train import TrainResult
from isthmus.pipeline.evidence import LoopHistory
from isthmus.pipeline.journal import Call, CallRecord, Journal, run_calls
from isthmus.pipeline.library import (
    RESULT_TYPES,
    Diagnosis,
    GapResult,
    Hypothesis,
    result_status,
)
from isthmus.pipeline.settings import LoopSettings
from isthmus.pipeline.stages import loop_stages
from isthmus.real2sim.identify.excite import ExcitationResult
from isthmus.real2sim.identify.fit_actuator import ActuatorResult, LawCandidate
from isthmus.real2sim.identify.identify import IdentifyResult, ParameterEstimate, PosteriorRecord
from isthmus.real2sim.identify.learn_residual import GroundRecord, ResidualResult
from isthmus.real2sim.result_parts import ErrorChange, ErrorPair, SegmentCounts
from isthmus.tasks.catalogue import get_task
from isthmus.validation.certificate import Certificate
from isthmus.validation.stage_result import StageResult

PAYLOAD = ParameterEstimate(value=0.2, low=0.1, high=0.3, before=(0.0, 0.05), unit="kg")
"""Outside its prior."""


class Killed(BaseException):
    """The process ends at once, as by kill -9."""


def rate(value: float, n: int = 64) -> Rate:
    return Rate(value, max(value - 0.1, 0.0), min(value + 0.02, 1.0), n)


def evaluation(success: float) -> Evaluation:
    return Evaluation("pendulum/swingup", rate(success), rate(0.0), 0.5, {}, {}, 10.0, {})


def train_result(success: float, run: str = "run") -> TrainResult:
    return TrainResult(run, "hash", "hash", "pendulum/swingup", "ppo", 1000, 1.0, "last", evaluation(success))


def certificate(passed: bool) -> Certificate:
    stage = StageResult(
        "nominal", "as it is", "pass" if passed else "fail", "twin", rate(0.9), 0.8, 0.95, 0.05, 0.1, 64, 200, 100, 0
    )
    return Certificate(
        passed, "a.controller", "pendulum/swingup", "pendulum", "a.twin", "twin", "", "bench", "", (stage,), (), {}, 0, 0.0
    )


def residual_result(
    kept: bool,
    error: ErrorChange,
    ground: GroundRecord | None = None,
    candidates: Mapping[str, ErrorPair] | None = None,
) -> ResidualResult:
    """What `learn_residual` returns, with little in it."""
    learned = (("ground",) if ground else ("force",)) if kept else ()
    counts = SegmentCounts(8, 2)
    return ResidualResult(
        "pendulum", None, "a" * 64, (), (), error, kept, learned, ground, candidates or {}, None, {}, (), 0.5, counts, 1.0
    )


class FakeLibrary:
    """Makes the outputs of calls and returns results of their types, without doing the work."""

    def __init__(
        self,
        cause: str | None = "outside",
        success: float | None = 0.0,
        left: float = 1.0,
        kept: bool = True,
        trained: float = 0.95,
    ):
        self.cause, self.success, self.left, self.kept, self.trained = cause, success, left, kept, trained
        self.virtual_success = 0.5
        self.status_of_runs = "completed"
        self.calls: list[Call] = []
        self.stop_at, self.kill_at, self.kill_with_outputs = -1, -1, False

    def __call__(self, call: Call, progress: Progress) -> Result:
        at = len(self.calls)
        if at == self.stop_at:
            raise Interrupted("stopped")
        if at == self.kill_at:
            if self.kill_with_outputs:
                self._write_outputs(call, "half")
            raise Killed
        self.calls.append(call)
        result = getattr(self, call.verb)(call.arguments)
        if result_status(result) == "done":
            self._write_outputs(call, f"{call.verb} {at}")
        return result

    def _write_outputs(self, call: Call, text: str) -> None:
        for path in call.outputs:
            if call.verb == "train":
                (path / "checkpoints").mkdir(parents=True, exist_ok=True)
                (path / "checkpoints" / "1.safetensors").write_text(text)
            else:
                path.write_text(text)

    def status(self, result: Result):
        return result_status(result)

    def read_result(self, verb: str, table: Mapping[str, Any], where: str) -> Result:
        return RESULT_TYPES[verb].from_dict(table, where)

    def train(self, arguments) -> TrainResult:
        return train_result(self.trained, str(arguments["out"]))

    def export(self, arguments) -> ExportResult:
        return ExportResult(str(arguments["out"]), "hash", str(arguments["run"]), "hash", {}, 100, 1000)

    def run(self, arguments) -> RunResult:
        if self.status_of_runs == "refused":
            return RunResult("refused", "rate: no packets")
        return RunResult(self.status_of_runs, "", 20.0)

    def evaluate(self, arguments) -> Evaluation:
        return evaluation(self.virtual_success)

    def measure(self, arguments) -> GapResult:
        rows = [] if self.success is None else [{"name": "success", "recorded": self.success}]
        prediction = {"horizons": [0.1, 0.2], "signals": {"joint_pos": [{"value": 2.0}, {"value": None}]}}
        return GapResult(Estimate(3.0, float("nan"), float("nan"), "noise"), prediction, {"measures": rows})

    def diagnose(self, arguments) -> Diagnosis:
        hypothesis = Hypothesis(self.cause or "outside", 0.9, None, "so it is", "do it", "")
        return Diagnosis("So it is.", self.cause, (hypothesis,), self.measure(arguments))

    def identify(self, arguments) -> IdentifyResult:
        error = ErrorChange(ErrorPair(3.0, 3.0), ErrorPair(1.0, self.left))
        return IdentifyResult(
            robot=str(arguments["robot"]),
            recordings=tuple(map(str, arguments["recordings"])),
            inputs=(),
            twin=str(arguments["out"]),
            twin_hash="hash",
            level=0.9,
            parameters=self.parameters(),
            correlations=(),
            undetermined=(),
            at_bounds=(),
            signals=(),
            error=error,
            findings=(),
            horizon=0.5,
            uses_observer=False,
            segments=SegmentCounts(8, 2),
            steps=5,
            search=None,
            posterior=PosteriorRecord("gauss"),
            seconds=1.0,
            expected={},
        )

    def parameters(self) -> dict[str, ParameterEstimate]:
        return {"payload": PAYLOAD}

    def fit_actuator(self, arguments) -> ActuatorResult:
        candidate = LawCandidate("stribeck", {"strength": 1.0, "motor_stribeck": 0.4}, 1.0, 1.1)
        return ActuatorResult(None, (), "pendulum", ("hinge",), "stribeck", 50.0, 0.0, "noise", (candidate,), None, (), 1.0)

    def learn_residual(self, arguments) -> ResidualResult:
        error = ErrorChange(ErrorPair(2.0, 2.0), ErrorPair(1.0, 1.0 if self.kept else 3.0))
        return residual_result(self.kept, error)

    def excite(self, arguments) -> ExcitationResult:
        return ExcitationResult("pendulum", (), None, 10.0, 0.9, 2.0, 1.0, {}, ("x=0.1",), 1.0)

    def validate(self, arguments) -> Certificate:
        return certificate(True)


def refuses(sentence: str) -> Callable[[Any], Result]:
    """A verb that raises BadInput."""

    def verb(arguments: Any) -> Result:
        raise BadInput(sentence)

    return verb


def run_loop(
    folder: Path, library: FakeLibrary, task: str = "pendulum/swingup", link: str = "sim:somewhere", **settings: Any
) -> tuple[LoopHistory, list[CallRecord]]:
    """The stages of a loop on a fake library."""
    stages = loop_stages(LoopSettings(task, link, **settings), get_task(task), folder)
    return run_calls(stages, Journal(folder), library)


def verbs(library: FakeLibrary) -> list[str]:
    return [call.verb for call in library.calls]


def trainings(library: FakeLibrary) -> list[Mapping[str, Any]]:
    return [call.arguments for call in library.calls if call.verb == "train"]
