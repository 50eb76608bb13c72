"""Stages on a real robot: trials under drawn conditions, each with what the simulator predicts for the same ones.

Where conditions differ from trial to trial (commands, loads), predictions and outcomes go together, and the simulator's
trials stand in for a part of the real ones. Where every trial is like the other they cannot, and the plain gate is used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput, Interrupted
from isthmus.core.statistics import Rate
from isthmus.deploy.controller import Controller
from isthmus.validation.assisted_test import AssistedTest, SimulatedRate
from isthmus.validation.sequential_test import SequentialTest, fixed_size_test
from isthmus.validation.simulated_episodes import simulate_trials
from isthmus.validation.simulated_trials import BATCH_WORLDS, StageResult, derive_seed
from isthmus.validation.stage import StageSetup

WORLDS_PER_PREDICTION = 24
"""Worlds that predict one trial, where conditions are not finitely many."""
MAX_TABULATED_CONDITIONS = 64
"""Conditions that are predicted once and for all."""
CONDITIONS_STREAM, WORLDS_STREAM, SIMULATOR_MEAN_STREAM = 2, 3, 4
"""Streams of random numbers."""


@dataclass(frozen=True)
class TrialConditions:
    trial: int
    setup: Mapping[str, float]
    command: np.ndarray
    """(k,), empty for a task without commands."""

    def describe(self, stage_setup: StageSetup) -> str:
        """What the operator is told."""
        space, signal = stage_setup.belief.space, stage_setup.task.command.signal if stage_setup.task.command else None
        parts = [f"{name} {value:g} {space[name].unit}" for name, value in self.setup.items()]
        if signal is not None:
            parts += [f"{label} {value:g}" for label, value in zip(signal.labels, self.command, strict=True)]
        return ", ".join(parts) or "as it is"

    def to_dict(self, stage_setup: StageSetup) -> dict[str, Any]:
        labels = stage_setup.task.command.signal.labels if stage_setup.task.command else ()
        asked = dict(zip(labels, self.command.tolist(), strict=True))
        return {"trial": self.trial, "setup": dict(self.setup), "command": asked}


@dataclass(frozen=True)
class TrialOutcome:
    success: bool
    judged_by: str
    """`measured`, `operator` or `file`."""
    note: str = ""


TrialRunner = Callable[[TrialConditions], TrialOutcome | None]
"""Carries a trial out; None where there are no more of them."""


def draw_conditions(stage_setup: StageSetup, seed: int, trial: int) -> TrialConditions:
    """Of one trial, always the same for a seed."""
    return TrialConditions(trial, *stage_setup.sample_conditions(np.random.default_rng([seed, CONDITIONS_STREAM, trial])))


def conditions_vary(stage_setup: StageSetup) -> bool:
    """Whether trials differ in anything that the simulator knows."""
    return stage_setup.task.command is not None or any(len(set(values)) > 1 for values in stage_setup.setup_values.values())


class SimulatorPredictions:
    """What the simulator says of each trial, and of all of them.

    Finitely many conditions are predicted once and for all. Others, such as commands, are predicted when they come, each from
    worlds of its own, and the mean over all of them is measured with one world for each of many conditions.
    """

    def __init__(
        self,
        stage_setup: StageSetup,
        controller: Controller,
        seed: int,
        worlds: int,
        report: Callable[[float], None] = lambda fraction: None,
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
            report((k + 1) / len(cases))
        while done < worlds and not finite:
            size = min(4 * BATCH_WORLDS, worlds - done)
            rng = np.random.default_rng([seed, SIMULATOR_MEAN_STREAM, done])
            asked = [stage_setup.sample_conditions(rng) for _ in range(size)]
            at = lambda f, done=done, size=size: report((done + f * size) / worlds)  # noqa: E731
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

    def _count_successes(
        self, rng, worlds: int, setup, command: np.ndarray | None, report: Callable[[float], None] = lambda f: None
    ) -> int:
        """Successes in so many worlds, under one setup or one for each."""
        own = self.stage_setup
        if isinstance(setup, list):
            e = own.sample_worlds(rng, worlds, {name: np.array([row[name] for row in setup]) for name in own.setup_values})
        else:
            e = own.sample_worlds(rng, worlds, setup)
        asked = command if command is not None and command.size else None
        return int(simulate_trials(own, self.controller, e, int(rng.integers(2**31)), asked, report).success.sum())


def run_stage(
    stage_setup: StageSetup,
    controller: Controller,
    run_trial: TrialRunner,
    seed: int,
    worlds: int,
    report: Callable[[float], None] = lambda fraction: None,
) -> StageResult:
    """One stage on a robot. `worlds` trials of the simulator alone; 0 for real trials only."""
    stage = stage_setup.stage
    known = SimulatorPredictions(stage_setup, controller, seed, worlds, report) if worlds else None
    sim = known.sim if known is not None else None
    gate = (
        AssistedTest(stage.goal, sim, stage.most)
        if sim is not None and conditions_vary(stage_setup)
        else SequentialTest(stage.goal, stage.most)
    )
    record: list[dict[str, Any]] = []
    stopped = ""
    while gate.decision == "open":
        asked = draw_conditions(stage_setup, seed, gate.n)
        try:
            outcome = run_trial(asked)
        except (BadInput, Interrupted) as error:
            # Trials that were made are not lost with the one that was not.
            if not record:
                raise
            stopped, outcome = str(error), None
        if outcome is None:
            break
        row = asked.to_dict(stage_setup) | {"success": outcome.success, "how": outcome.judged_by, "note": outcome.note}
        if isinstance(gate, AssistedTest):
            assert known is not None
            row["predicted"] = known.success_probability(asked)
            gate.add(outcome.success, row["predicted"])
        else:
            gate.add(outcome.success)
        record.append(row)
    return StageResult(
        *(
            stage,
            gate.decision,
            Rate(gate.rate, gate.low, gate.high, gate.n),
            gate.max_trials,
            seed,
            "real",
            stage_setup.skipped_parts,
        ),
        fixed_size_trials=fixed_size_test(stage.goal)[0],
        predicted=Rate.from_counts(sim.hits, sim.n) if sim is not None else None,
        assisted=_assistance_record(gate) if isinstance(gate, AssistedTest) else {},
        trials=tuple(record),
        stop_reason=stopped,
    )


def _assistance_record(gate: AssistedTest) -> dict[str, Any]:
    """How the simulator helped, and where the trials alone would have stood."""
    plain = SequentialTest(gate.goal, gate.max_trials)
    for x, _ in gate.trials:
        if plain.decision == "open":
            plain.add(bool(x))
    return {
        "estimate": gate.estimate,
        "correlation": gate.correlation,
        "simulated": gate.sim.n,
        "alone": {"decision": plain.decision, "low": plain.low, "high": plain.high, "trials": plain.n},
    }


def stage_seed(seed: int, stage: int) -> int:
    return derive_seed(seed, 1, stage)
