"""Trials over a link: preflight, run and judge, once per trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from isthmus.core.errors import BadInput, Interrupted
from isthmus.data.mcap.layout import Layout
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.controller import Controller
from isthmus.deploy.guard.guard import GUARD_STATES
from isthmus.deploy.links.link import Link
from isthmus.deploy.links.registry import connect
from isthmus.deploy.preflight import PreparedRobot, preflight
from isthmus.deploy.recorder import STATUS_COLUMNS, Recorder
from isthmus.deploy.runtime import ControlLoop
from isthmus.robots import virtual_link
from isthmus.sim.reality import Reality
from isthmus.validation.measured_success import success_and_score, success_is_measurable
from isthmus.validation.robot_trials import Operator, TrialConditions, TrialOutcome
from isthmus.validation.stage import StageSetup


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
    """A `TrialRunner` over a link: preflight, run and judge, once per trial."""

    stage_setup: StageSetup
    controller: Controller
    connect: Callable[[TrialConditions], Link]
    """A link for the next trial."""
    operator: Operator
    stopping: Callable[[], str] = lambda: ""
    make_recorder: Callable[[PreparedRobot, TrialConditions], Recorder | None] = lambda prepared, conditions: None
    unit: str = ""

    def __call__(self, conditions: TrialConditions) -> TrialOutcome | None:
        if not self.operator.confirm_trial(
            f"{self.stage_setup.stage.name}, trial {conditions.trial + 1}: {conditions.describe(self.stage_setup)}"
        ):
            return None
        task = self.stage_setup.task
        link = self.connect(conditions)
        try:
            labels = task.command.signal.labels if task.command else ()
            entries = tuple(f"{label}={value:g}" for label, value in zip(labels, conditions.command, strict=True))
            schedule = CommandSchedule(self.controller.manifest.operator, entries)
            checks, prepared = preflight(self.controller, link, schedule.values_at(0.0))
            if prepared is None:
                why = "; ".join(f"{c.name}: {c.text}" for c in checks if not c.ok)
                raise BadInput(f"trial {conditions.trial + 1} of stage {self.stage_setup.stage.name!r} was not started: {why}")
            self.unit = prepared.identity.unit
            capturing = CapturingRecorder(self.make_recorder(prepared, conditions))
            outcome = ControlLoop(self.controller, link, prepared, schedule, capturing).run(task.episode, self.stopping)
        finally:
            link.close()
        if outcome.status == "interrupted":
            raise Interrupted(
                f"interrupted in trial {conditions.trial + 1} of stage {self.stage_setup.stage.name!r}; it does not count."
            )
        if outcome.status == "guard":
            return TrialOutcome(False, "measured", f"ended by the guard: {outcome.reason}")
        if success_is_measurable(task):
            return self._measured_outcome(prepared, conditions, capturing.captured_rows)
        return TrialOutcome(self.operator.succeeded(), "operator")

    def _measured_outcome(
        self, prepared: PreparedRobot, conditions: TrialConditions, captured_rows: list[np.ndarray]
    ) -> TrialOutcome:
        contract, task = prepared.identity.contract, self.stage_setup.task
        columns = Layout(contract, self.controller.manifest.operator, STATUS_COLUMNS).columns
        rows = np.array(captured_rows)
        rows = rows[rows[:, columns["status"]][:, STATUS_COLUMNS.index("state")] == GUARD_STATES.index("run")]
        order = [contract.target.component_index(label) for label in task.robot.contract.target.labels]
        signals, target = rows[:, 1 : 1 + contract.width], rows[:, columns["target"]][:, order]
        success, score = success_and_score(task, contract, signals, target, conditions.command)
        return TrialOutcome(success, "measured", f"score {score:.2f}")


def recording_path(folder: Path, stage: str, conditions: TrialConditions) -> Path:
    return folder / f"{stage}-{conditions.trial + 1:03d}.mcap"


def link_for_trial(link: str, speed: float, controller: Controller, conditions: TrialConditions) -> Link:
    """The link of one trial. A virtual robot in this process takes on the trial's setup, as an operator would set it up."""
    contract = controller.manifest.robot
    kind, _, address = link.partition(":")
    if kind != "sim":
        return connect(link, speed=speed, contract=contract)

    def adjust(reality: Reality) -> Reality:
        seed = (reality.seed + 7919 * (conditions.trial + 1)) % 2**31
        return replace(reality, seed=seed, params={**reality.params, **conditions.setup})

    return virtual_link.open_link(address, speed=speed, contract=contract, adjust=adjust)
