"""Stages on a real robot: trials under drawn conditions, each with what the simulator predicts for the same ones.

Where conditions differ from trial to trial (commands, loads), predictions and outcomes go together, and the simulator's
trials stand in for a part of the real ones. Where every trial is like the other they cannot, and the plain gate is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.data.rate import Rate
from isthmus.deploy.controller import Controller
from isthmus.validate.assisted import AssistedGate, Simulated
from isthmus.validate.campaign import BATCH, Result, seed_of
from isthmus.validate.gate import Gate, fixed_size
from isthmus.validate.trials import fly
from isthmus.validate.worlds import Family

PAIRED = 24
"""Worlds that predict one trial."""
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


def predict(own: Family, controller: Controller, asked: Conditions, seed: int, worlds: int = PAIRED) -> float:
    """Part of the worlds under these conditions in which it succeeds."""
    rng = np.random.default_rng([seed, WORLDS, asked.trial])
    e = own.draw(rng, worlds, asked.setup)
    command = np.tile(asked.command, (worlds, 1)) if asked.command.size else None
    return float(fly(own, controller, e, int(rng.integers(2**31)), command).success.mean())


def alone(
    own: Family, controller: Controller, seed: int, worlds: int, report: Callable[[float], None] = lambda fraction: None
) -> Simulated:
    """The simulator's own success, over conditions drawn as those of the trials are, one world for each."""
    hits = done = 0
    while done < worlds:
        size = min(4 * BATCH, worlds - done)
        rng = np.random.default_rng([seed, ALONE, done])
        e, command = own.draw(rng, size), None
        if own.task.command is not None:
            command = np.stack([own.conditions(rng)[1] for _ in range(size)])
        at = lambda f, done=done, size=size: report((done + f * size) / worlds)  # noqa: E731
        hits += int(fly(own, controller, e, int(rng.integers(2**31)), command, at).success.sum())
        done += size
    return Simulated(hits, done)


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
    sim = alone(own, controller, seed, worlds, report) if worlds else None
    helped = sim is not None and varies(own)
    gate = AssistedGate(stage.goal, sim, stage.most) if sim is not None and helped else Gate(stage.goal, stage.most)
    record: list[dict[str, Any]] = []
    while gate.decision == "open":
        asked = conditions(own, seed, gate.n)
        outcome = attempt(asked)
        if outcome is None:
            break
        row = asked.to_dict(own) | {"success": outcome.success, "how": outcome.how, "note": outcome.note}
        if isinstance(gate, AssistedGate):
            row["predicted"] = predict(own, controller, asked, seed)
            gate.add(outcome.success, row["predicted"])
        else:
            gate.add(outcome.success)
        record.append(row)
    return Result(
        *(stage, gate.decision, Rate(gate.rate, gate.low, gate.high, gate.n), gate.most, seed, "real", own.left_out),
        flown=worlds,
        fixed=fixed_size(stage.goal)[0],
        predicted=Rate.of(sim.hits, sim.n) if sim is not None else None,
        assisted=_assisted(gate) if isinstance(gate, AssistedGate) else {},
        trials=tuple(record),
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
