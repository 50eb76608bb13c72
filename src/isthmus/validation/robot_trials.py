"""Stages on a robot: trials under drawn conditions, over a link or from a trial sheet, each with the simulator's prediction.

Where conditions differ from trial to trial (commands, loads), predictions and outcomes are correlated, and simulated outcomes
serve as control variates. Where all trials are alike they cannot, and the plain sequential test is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from isthmus.core.errors import BadInput, Interrupted
from isthmus.core.progress import Progress, silent
from isthmus.core.statistics import Rate
from isthmus.deploy.controller import Controller
from isthmus.validation.assisted_test import AssistedTest, SimulatedRate
from isthmus.validation.protocol import Stage
from isthmus.validation.sequential_test import SequentialTest, fixed_size_test
from isthmus.validation.simulated_trials import BATCH_WORLDS, derive_seed, simulate_trials
from isthmus.validation.stage import StageSetup
from isthmus.validation.stage_result import Assistance, StageResult, TrialRecord, UnassistedTest

WORLDS_PER_PREDICTION = 24
"""Worlds that predict one trial, where conditions are not finitely many."""
MAX_TABULATED_CONDITIONS = 64
"""Conditions that are predicted once and for all."""
CONDITIONS_STREAM = 2
WORLDS_STREAM = 3
SIMULATOR_MEAN_STREAM = 4
"""Independent streams of random numbers of one seed."""


@dataclass(frozen=True)
class TrialConditions:
    trial: int
    setup: Mapping[str, float]
    command: np.ndarray
    """(k,), empty for a task without commands."""

    def describe(self, stage_setup: StageSetup) -> str:
        """Conditions as the operator reads them."""
        space, signal = stage_setup.belief.space, stage_setup.task.command.signal if stage_setup.task.command else None
        parts = [f"{name} {value:g} {space[name].unit}" for name, value in self.setup.items()]
        if signal is not None:
            parts += [f"{label} {value:g}" for label, value in zip(signal.labels, self.command, strict=True)]
        return ", ".join(parts) or "as it is"

    def record(self, stage_setup: StageSetup, outcome: TrialOutcome) -> TrialRecord:
        labels = stage_setup.task.command.signal.labels if stage_setup.task.command else ()
        command = dict(zip(labels, self.command.tolist(), strict=True))
        return TrialRecord(self.trial, dict(self.setup), command, outcome.success, outcome.judged_by, outcome.note)


@dataclass(frozen=True)
class TrialOutcome:
    success: bool
    judged_by: Literal["measured", "operator", "file"]
    note: str = ""


class Operator(Protocol):
    """The person beside the robot."""

    def confirm_stage(self, stage: Stage) -> bool:
        """Whether the stage is set up; no ends the validation."""
        ...

    def confirm_trial(self, conditions: str) -> bool:
        """Whether these conditions are set up; no ends the stage."""
        ...

    def succeeded(self) -> bool:
        """Whether the trial that just ended was a success."""
        ...


class AskNobody:
    """Confirms everything: for virtual robots, and tasks whose success is measured."""

    def confirm_stage(self, stage: Stage) -> bool:
        return True

    def confirm_trial(self, conditions: str) -> bool:
        return True

    def succeeded(self) -> bool:
        raise BadInput(
            "success of this task cannot be judged from the robot's signals; leave out --yes, so that the operator is asked."
        )


TrialRunner = Callable[[TrialConditions], TrialOutcome | None]
"""Carries a trial out; None if there are no more."""


def draw_conditions(stage_setup: StageSetup, seed: int, trial: int) -> TrialConditions:
    """Of one trial, always the same for a seed."""
    return TrialConditions(trial, *stage_setup.sample_conditions(np.random.default_rng([seed, CONDITIONS_STREAM, trial])))


def conditions_vary(stage_setup: StageSetup) -> bool:
    """Whether trials differ in anything that the simulator knows."""
    return stage_setup.task.command is not None or any(len(set(values)) > 1 for values in stage_setup.setup_values.values())


class SimulatorPredictions:
    """Success probabilities in simulation: of each trial, and their mean over all conditions.

    Finitely many conditions are tabulated. Others, such as commands, are predicted one by one, each from worlds of its own,
    and their mean is measured with one world for each of many conditions.
    """

    def __init__(
        self,
        stage_setup: StageSetup,
        controller: Controller,
        seed: int,
        worlds: int,
        progress: Progress = silent,
    ):
        self.stage_setup, self.controller, self.seed = stage_setup, controller, seed
        self._probability_by_case: dict[tuple[float, ...], float] = {}
        cases = list(itertools.product(*stage_setup.setup_values.values()))
        finite = stage_setup.task.command is None and len(cases) <= MAX_TABULATED_CONDITIONS
        hits = done = 0
        for k, case in enumerate(cases if finite else ()):
            size, rng = max(1, worlds // len(cases)), np.random.default_rng([seed, WORLDS_STREAM, k])
            good = self._count_successes(rng, size, dict(zip(stage_setup.setup_values, case, strict=True)), None)
            self._probability_by_case[case] = good / size
            hits, done = hits + good, done + size
            progress((k + 1) / len(cases))
        while done < worlds and not finite:
            size = min(4 * BATCH_WORLDS, worlds - done)
            rng = np.random.default_rng([seed, SIMULATOR_MEAN_STREAM, done])
            asked = [stage_setup.sample_conditions(rng) for _ in range(size)]
            at = lambda f, note="", done=done, size=size: progress((done + f * size) / worlds)  # noqa: E731
            hits += self._count_successes(
                rng, size, [setup for setup, _ in asked], np.stack([command for _, command in asked]), at
            )
            done += size
        mean = float(np.mean([self._probability_by_case[case] for case in cases])) if finite else None
        self.sim = SimulatedRate(hits, done, mean)

    def success_probability(self, conditions: TrialConditions) -> float:
        """The predicted probability of success of one trial."""
        case = tuple(conditions.setup[name] for name in self.stage_setup.setup_values)
        if case in self._probability_by_case:
            return self._probability_by_case[case]
        rng = np.random.default_rng([self.seed, WORLDS_STREAM, conditions.trial])
        return (
            self._count_successes(
                rng, WORLDS_PER_PREDICTION, conditions.setup, np.tile(conditions.command, (WORLDS_PER_PREDICTION, 1))
            )
            / WORLDS_PER_PREDICTION
        )

    def _count_successes(self, rng, worlds: int, setup, command: np.ndarray | None, progress: Progress = silent) -> int:
        """Successes in so many worlds, under one setup or one for each."""
        own = self.stage_setup
        if isinstance(setup, list):
            e = own.sample_worlds(rng, worlds, {name: np.array([row[name] for row in setup]) for name in own.setup_values})
        else:
            e = own.sample_worlds(rng, worlds, setup)
        asked = command if command is not None and command.size else None
        return int(simulate_trials(own, self.controller, e, int(rng.integers(2**31)), asked, progress).success.sum())


def run_stage(
    stage_setup: StageSetup,
    controller: Controller,
    run_trial: TrialRunner,
    seed: int,
    worlds: int,
    progress: Progress = silent,
) -> StageResult:
    """One stage on a robot. `worlds` trials of the simulator alone; 0 for real trials only."""
    stage = stage_setup.stage
    known = SimulatorPredictions(stage_setup, controller, seed, worlds, progress) if worlds else None
    sim = known.sim if known is not None else None
    gate = (
        AssistedTest(stage.goal, sim, stage.most)
        if sim is not None and conditions_vary(stage_setup)
        else SequentialTest(stage.goal, stage.most)
    )
    records: list[TrialRecord] = []
    stop_reason = ""
    while gate.decision == "open":
        conditions = draw_conditions(stage_setup, seed, gate.n)
        try:
            outcome = run_trial(conditions)
        except (BadInput, Interrupted) as error:
            # Trials that were made are not lost with the one that was not.
            if not records:
                raise
            stop_reason, outcome = str(error), None
        if outcome is None:
            break
        record = conditions.record(stage_setup, outcome)
        if isinstance(gate, AssistedTest):
            assert known is not None
            record = replace(record, predicted=known.success_probability(conditions))
            gate.add(outcome.success, record.predicted)
        else:
            gate.add(outcome.success)
        records.append(record)
    return StageResult(
        name=stage.name,
        description=stage.doc,
        decision=gate.decision,
        environment="real",
        success=Rate(gate.rate, gate.low, gate.high, gate.n),
        required=stage.required,
        expected=stage.expected,
        false_pass=stage.false_pass,
        false_fail=stage.false_fail,
        trials=gate.n,
        max_trials=gate.max_trials,
        fixed_size_trials=fixed_size_test(stage.goal)[0],
        seed=seed,
        omitted=stage_setup.skipped_parts,
        predicted=Rate.from_counts(sim.hits, sim.n) if sim is not None else None,
        stop_reason=stop_reason,
        assisted=_assistance(gate) if isinstance(gate, AssistedTest) else None,
        records=tuple(records),
    )


def _assistance(gate: AssistedTest) -> Assistance:
    plain = SequentialTest(gate.goal, gate.max_trials)
    for x, _ in gate.trials:
        if plain.decision == "open":
            plain.add(bool(x))
    alone = UnassistedTest(plain.decision, plain.low, plain.high, plain.n)
    return Assistance(gate.estimate, gate.correlation, gate.sim.n, alone)


def stage_seed(seed: int, stage: int) -> int:
    return derive_seed(seed, 1, stage)
