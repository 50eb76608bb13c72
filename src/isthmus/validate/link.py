"""Trials over a link: preflight, run, and judge, as `isthmus run` does it, once per trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isthmus.deploy.controller import Controller
from isthmus.deploy.guard import STATES
from isthmus.deploy.link import Link
from isthmus.deploy.operator import Operator
from isthmus.deploy.preflight import Flight, preflight
from isthmus.deploy.recorder import Recorder
from isthmus.deploy.runtime import STATUS, Loop
from isthmus.errors import BadInput, Interrupted
from isthmus.validate.judge import can_judge, judge
from isthmus.validate.real import Conditions, Outcome
from isthmus.validate.worlds import Family

RUN = STATES.index("run")
STATE = STATUS.index("state")


class Watching(Recorder):
    """Keeps the rows of a run, and hands them on to a recording if there is one."""

    def __init__(self, onward: Recorder | None):
        self.onward, self.kept = onward, []
        self.rows, self.lost, self.problem = 0, 0, ""

    def put(self, row, events=()) -> None:
        self.kept.append(row)
        if self.onward is not None:
            self.onward.put(row, events)

    def note(self, events) -> None:
        if self.onward is not None:
            self.onward.note(events)

    def close(self) -> None:
        if self.onward is not None:
            self.onward.close()
            self.rows, self.lost, self.problem = self.onward.rows, self.onward.lost, self.onward.problem


@dataclass
class OverLink:
    """An `Attempt` on one stage of a robot."""

    own: Family
    controller: Controller
    connect: Callable[[Conditions], Link]
    """A link for the next trial."""
    ready: Callable[[str], bool]
    """Asks the operator whether these conditions are set up; no ends the stage."""
    ask: Callable[[str], bool]
    """Asks the operator a question."""
    stopping: Callable[[], str] = lambda: ""
    record: Callable[[Flight, Conditions], Recorder | None] = lambda flight, asked: None
    unit: str = ""

    def __call__(self, asked: Conditions) -> Outcome | None:
        if not self.ready(f"{self.own.stage.name}, trial {asked.trial + 1}: {asked.words(self.own)}"):
            return None
        task = self.own.task
        link = self.connect(asked)
        try:
            labels = task.command.signal.labels if task.command else ()
            entries = tuple(f"{label}={value:g}" for label, value in zip(labels, asked.command, strict=True))
            operator = Operator(self.controller.manifest.operator, entries)
            checks, flight = preflight(self.controller, link, operator.at(0.0))
            if flight is None:
                why = "; ".join(f"{c.name}: {c.text}" for c in checks if not c.ok)
                raise BadInput(f"trial {asked.trial + 1} of stage {self.own.stage.name!r} was not started: {why}")
            self.unit = flight.identity.unit
            watching = Watching(self.record(flight, asked))
            outcome = Loop(self.controller, link, flight, operator, watching).run(task.episode, self.stopping)
        finally:
            link.close()
        if outcome.ended == "interrupted":
            raise Interrupted(f"interrupted in trial {asked.trial + 1} of stage {self.own.stage.name!r}; it does not count.")
        if outcome.ended == "guard":
            return Outcome(False, "measured", f"ended by the guard: {outcome.why}")
        if can_judge(task):
            return self._measured(flight, asked, watching.kept)
        return Outcome(self.ask("did it succeed?"), "operator")

    def _measured(self, flight: Flight, asked: Conditions, kept: list[np.ndarray]) -> Outcome:
        contract, m = flight.identity.contract, flight.identity.contract.target.size
        rows = np.array(kept)
        rows = rows[rows[:, -len(STATUS) + STATE] == RUN]
        signals = rows[:, 1 : 1 + contract.width]
        start = 1 + contract.width + sum(s.size for s in self.controller.manifest.operator)
        back = [contract.target.component(label) for label in self.own.task.robot.contract.target.labels]
        success, score = judge(self.own.task, contract, signals, rows[:, start : start + m][:, back], asked.command)
        return Outcome(success, "measured", f"score {score:.2f}")


def recording_path(folder: Path, stage: str, asked: Conditions) -> Path:
    return folder / f"{stage}-{asked.trial + 1:03d}.mcap"
