"""Trials over a link: preflight, run, and judge, as `isthmus run` does it, once per trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isthmus.core.errors import BadInput, Interrupted
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.controller import Controller
from isthmus.deploy.guard.guard import GUARD_STATES
from isthmus.deploy.links.link import Link
from isthmus.deploy.preflight import PreparedRobot, preflight
from isthmus.deploy.recorder import STATUS_COLUMNS, Recorder
from isthmus.deploy.runtime import ControlLoop
from isthmus.validation.measured_success import success_and_score, success_is_measurable
from isthmus.validation.robot_trials import TrialConditions, TrialOutcome
from isthmus.validation.stage import StageSetup

RUN_STATE_INDEX = GUARD_STATES.index("run")
STATE_COLUMN = STATUS_COLUMNS.index("state")


class CapturingRecorder(Recorder):
    """Keeps the rows of a run, and hands them on to a recording if there is one."""

    def __init__(self, downstream: Recorder | None):
        self.downstream, self.captured_rows = downstream, []
        self.rows, self.lost, self.problem = 0, 0, ""

    def put(self, row, events=()) -> None:
        self.captured_rows.append(row)
        if self.downstream is not None:
            self.downstream.put(row, events)

    def put_events(self, events) -> None:
        if self.downstream is not None:
            self.downstream.put_events(events)

    def close(self) -> None:
        if self.downstream is not None:
            self.downstream.close()
            self.rows, self.lost, self.problem = self.downstream.rows, self.downstream.lost, self.downstream.problem


@dataclass
class LinkTrialRunner:
    """An `Attempt` on one stage of a robot."""

    stage_setup: StageSetup
    controller: Controller
    connect: Callable[[TrialConditions], Link]
    """A link for the next trial."""
    confirm_ready: Callable[[str], bool]
    """Asks the operator whether these conditions are set up; no ends the stage."""
    ask_operator: Callable[[str], bool]
    """Asks the operator a question."""
    stopping: Callable[[], str] = lambda: ""
    make_recorder: Callable[[PreparedRobot, TrialConditions], Recorder | None] = lambda flight, asked: None
    unit: str = ""

    def __call__(self, conditions: TrialConditions) -> TrialOutcome | None:
        if not self.confirm_ready(
            f"{self.stage_setup.stage.name}, trial {conditions.trial + 1}: {conditions.describe(self.stage_setup)}"
        ):
            return None
        task = self.stage_setup.task
        link = self.connect(conditions)
        try:
            labels = task.command.signal.labels if task.command else ()
            entries = tuple(f"{label}={value:g}" for label, value in zip(labels, conditions.command, strict=True))
            operator = CommandSchedule(self.controller.manifest.operator, entries)
            checks, flight = preflight(self.controller, link, operator.values_at(0.0))
            if flight is None:
                why = "; ".join(f"{c.name}: {c.text}" for c in checks if not c.ok)
                raise BadInput(f"trial {conditions.trial + 1} of stage {self.stage_setup.stage.name!r} was not started: {why}")
            self.unit = flight.identity.unit
            watching = CapturingRecorder(self.make_recorder(flight, conditions))
            outcome = ControlLoop(self.controller, link, flight, operator, watching).run(task.episode, self.stopping)
        finally:
            link.close()
        if outcome.status == "interrupted":
            raise Interrupted(
                f"interrupted in trial {conditions.trial + 1} of stage {self.stage_setup.stage.name!r}; it does not count."
            )
        if outcome.status == "guard":
            return TrialOutcome(False, "measured", f"ended by the guard: {outcome.reason}")
        if success_is_measurable(task):
            return self._measured_outcome(flight, conditions, watching.captured_rows)
        return TrialOutcome(self.ask_operator("did it succeed?"), "operator")

    def _measured_outcome(
        self, prepared: PreparedRobot, conditions: TrialConditions, captured_rows: list[np.ndarray]
    ) -> TrialOutcome:
        contract, m = prepared.identity.contract, prepared.identity.contract.target.size
        rows = np.array(captured_rows)
        rows = rows[rows[:, -len(STATUS_COLUMNS) + STATE_COLUMN] == RUN_STATE_INDEX]
        signals = rows[:, 1 : 1 + contract.width]
        start = 1 + contract.width + sum(s.size for s in self.controller.manifest.operator)
        back = [contract.target.component_index(label) for label in self.stage_setup.task.robot.contract.target.labels]
        success, score = success_and_score(
            self.stage_setup.task, contract, signals, rows[:, start : start + m][:, back], conditions.command
        )
        return TrialOutcome(success, "measured", f"score {score:.2f}")


def recording_path(folder: Path, stage: str, conditions: TrialConditions) -> Path:
    return folder / f"{stage}-{conditions.trial + 1:03d}.mcap"
