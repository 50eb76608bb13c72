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

from isthmus.data.rate import Rate
from isthmus.deploy.controller import Controller
from isthmus.errors import BadInput, Interrupted
from isthmus.validate.assisted import AssistedGate, Simulated
from isthmus.validate.campaign import BATCH, Result, seed_of
from isthmus.validate.gate import Gate, fixed_size
from isthmus.validate.trials import fly
from isthmus.validate.worlds import Family

PAIRED = 24
"""Worlds that predict one trial, where conditions are not finitely many."""
MOST_CASES = 64
"""Conditions that are predicted once and for all."""
CONDITIONS, WORLDS, ALONE = 2, 3, 4
"""Streams of random numbers."""


@dataclass(frozen=True)
class Conditions:
    trial: int
    setup: Mapping[str, float]
    command: np.ndarray
    """(k,), empty for a task without commands."""

    def words(self, own: Family) -> str:
        """What the operator is told."""
        space, signal = own.belief.space, own.task.command.signal if own.task.command else None
        parts = [f"{name} {value:g} {space[name].unit}" for name, value in self.setup.items()]
        if signal is not None:
            parts += [f"{label} {value:g}" for label, value in zip(signal.labels, self.command, strict=True)]
        return ", ".join(parts) or "as it is"

    def to_dict(self, own: Family) -> dict[str, Any]:
        labels = own.task.command.signal.labels if own.task.command else ()
        asked = dict(zip(labels, self.command.tolist(), strict=True))
        return {"trial": self.trial, "setup": dict(self.setup), "command": asked}


@dataclass(frozen=True)
class Outcome:
    success: bool
    how: str
    """`measured`, `operator` or `file`."""
    note: str = ""


Attempt = Callable[[Conditions], Outcome | None]
"""Carries a trial out; None where there are no more of them."""


def conditions(own: Family, seed: int, trial: int) -> Conditions:
    """Of one trial, always the same for a seed."""
    return Conditions(trial, *own.conditions(np.random.default_rng([seed, CONDITIONS, trial])))


def varies(own: Family) -> bool:
    """Whether trials differ in anything that the simulator knows."""
    return own.task.command is not None or any(len(set(values)) > 1 for values in own.setup.values())


class Predictions:
    """What the simulator says of each trial, and of all of them.

    Finitely many conditions are predicted once and for all. Others, such as commands, are predicted when they come, each from
    worlds of its own, and the mean over all of them is measured with one world for each of many conditions.
    """

    def __init__(
        self,
        own: Family,
        controller: Controller,
        seed: int,
        worlds: int,
        report: Callable[[float], None] = lambda fraction: None,
    ):
        self.own, self.controller, self.seed = own, controller, seed
        self._table: dict[tuple[float, ...], float] = {}
        cases = list(itertools.product(*own.setup.values()))
        finite = own.task.command is None and len(cases) <= MOST_CASES
        hits = done = 0
        for k, case in enumerate(cases if finite else ()):
            size, rng = max(1, worlds // len(cases)), np.random.default_rng([seed, WORLDS, k])
            good = self._fly(rng, size, dict(zip(own.setup, case, strict=True)), None)
            self._table[case] = good / size
            hits, done = hits + good, done + size
            report((k + 1) / len(cases))
        while done < worlds and not finite:
            size = min(4 * BATCH, worlds - done)
            rng = np.random.default_rng([seed, ALONE, done])
            asked = [own.conditions(rng) for _ in range(size)]
            at = lambda f, done=done, size=size: report((done + f * size) / worlds)  # noqa: E731
            hits += self._fly(rng, size, [setup for setup, _ in asked], np.stack([command for _, command in asked]), at)
            done += size
        mean = float(np.mean([self._table[case] for case in cases])) if finite else None
        self.sim = Simulated(hits, done, mean)

    def of(self, asked: Conditions) -> float:
        """The predicted probability of success of one trial."""
        case = tuple(asked.setup[name] for name in self.own.setup)
        if case in self._table:
            return self._table[case]
        rng = np.random.default_rng([self.seed, WORLDS, asked.trial])
        return self._fly(rng, PAIRED, asked.setup, np.tile(asked.command, (PAIRED, 1))) / PAIRED

    def _fly(
        self, rng, worlds: int, setup, command: np.ndarray | None, report: Callable[[float], None] = lambda f: None
    ) -> int:
        """Successes in so many worlds, under one setup or one for each."""
        own = self.own
        if isinstance(setup, list):
            e = own.draw(rng, worlds, {name: np.array([row[name] for row in setup]) for name in own.setup})
        else:
            e = own.draw(rng, worlds, setup)
        asked = command if command is not None and command.size else None
        return int(fly(own, self.controller, e, int(rng.integers(2**31)), asked, report).success.sum())


def try_out(
    own: Family,
    controller: Controller,
    attempt: Attempt,
    seed: int,
    worlds: int,
    report: Callable[[float], None] = lambda fraction: None,
) -> Result:
    """One stage on a robot. `worlds` trials of the simulator alone; 0 for real trials only."""
    stage = own.stage
    known = Predictions(own, controller, seed, worlds, report) if worlds else None
    sim = known.sim if known is not None else None
    gate = AssistedGate(stage.goal, sim, stage.most) if sim is not None and varies(own) else Gate(stage.goal, stage.most)
    record: list[dict[str, Any]] = []
    stopped = ""
    while gate.decision == "open":
        asked = conditions(own, seed, gate.n)
        try:
            outcome = attempt(asked)
        except (BadInput, Interrupted) as error:
            # Trials that were made are not lost with the one that was not.
            if not record:
                raise
            stopped, outcome = str(error), None
        if outcome is None:
            break
        row = asked.to_dict(own) | {"success": outcome.success, "how": outcome.how, "note": outcome.note}
        if isinstance(gate, AssistedGate):
            assert known is not None
            row["predicted"] = known.of(asked)
            gate.add(outcome.success, row["predicted"])
        else:
            gate.add(outcome.success)
        record.append(row)
    return Result(
        *(stage, gate.decision, Rate(gate.rate, gate.low, gate.high, gate.n), gate.most, seed, "real", own.left_out),
        fixed=fixed_size(stage.goal)[0],
        predicted=Rate.of(sim.hits, sim.n) if sim is not None else None,
        assisted=_assisted(gate) if isinstance(gate, AssistedGate) else {},
        trials=tuple(record),
        stopped=stopped,
    )


def _assisted(gate: AssistedGate) -> dict[str, Any]:
    """How the simulator helped, and where the trials alone would have stood."""
    plain = Gate(gate.goal, gate.most)
    for x, _ in gate.trials:
        if plain.decision == "open":
            plain.add(bool(x))
    return {
        "estimate": gate.estimate,
        "correlation": gate.correlation,
        "simulated": gate.sim.n,
        "alone": {"decision": plain.decision, "low": plain.low, "high": plain.high, "trials": plain.n},
    }


def seed_for(seed: int, stage: int) -> int:
    return seed_of(seed, 1, stage)
