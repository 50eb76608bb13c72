"""Automatic domain randomization: ranges that widen by themselves as far as the policy copes (OpenAI, 2019).

Each parameter that the belief lets vary has a low and a high side, which stand a whole number of steps away from the
belief's middle:

    u(side) = (1 - r) · u(middle) + r · u(hard bound),    r = reach / steps

Some worlds are tests: they hold a few parameters at one end of their present ranges and draw the rest. When all tests of a
side are back, it moves out if enough of them succeeded and in if too few did; until then it stands still. Deciding on the
first results to come back would be unfair: an episode that fails is over sooner than one that succeeds.

A run has few episodes per world, so a side can move a few times only. It therefore moves by twice as much as the last time
if it goes on in the same direction, and by half as much when it turns around.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.tasks.samplers.sampler import succeeded
from isthmus.world import Belief, Factor, LogUniform, Uniform

SUCCESS_WINDOW = 200
"""Tests over which the logged success is the mean."""
_CHECKPOINTED = ("range_steps", "last_move", "tests_started", "tests_finished", "tests_passed", "tests", "episode_ended")


@dataclass(frozen=True)
class ADRConfig:
    """When a side moves, and how far."""

    steps_to_bound: int = 20
    """From the middle to a hard bound, in the parameter's even scale."""
    initial_steps: int = 1
    """Steps that the ranges reach at first."""
    max_move: int = 4
    """Steps of the longest move; the shortest is 1."""
    tests_per_decision: int = 8
    """Tests per decision."""
    widen_above: float = 0.8
    """Share of tests that must succeed for a side to move out."""
    narrow_below: float = 0.5
    """Share of tests below which it moves in."""
    test_fraction: float = 0.5
    """Of the worlds, at most, that are tests."""
    tested_parameter_fraction: float = 0.1
    """Of the parameters that one test holds: one in forty hardly matters, and each world can answer for several."""


@dataclass(frozen=True)
class ParameterRangeReached:
    """How far the range of one parameter has come."""

    name: str
    unit: str
    middle: float
    """Where it began: nominal, or the middle of what was believed."""
    low: float
    high: float
    width: float
    """Fraction of what is physically possible, in the parameter's even scale."""


class ADR:
    """A sampler that begins close to the belief's middle; how wide the belief is does not matter."""

    def __init__(self, belief: Belief, worlds: int, success_threshold: float, config: ADRConfig | None = None):
        """`success` is the task's mark for an episode that succeeded."""
        self.initial_belief, self.success_threshold, self.config = belief, success_threshold, config or ADRConfig()
        self.space = belief.free()
        p = len(self.space)
        self._columns = np.array([belief.space.index(name) for name in self.space.names])
        self._middle = belief.scaled(0.0).median()[self._columns]
        self._middle_unit = self.space.unit(self._middle)
        self._movable = np.stack([self._middle_unit > 0, self._middle_unit < 1], axis=1)
        """Sides with room to move, (p, 2)."""
        self.range_steps = np.where(self._movable, self.config.initial_steps, 0)
        """Steps from the middle to the low and high sides, (p, 2)."""
        self.last_move = np.zeros((p, 2), dtype=np.int64)
        """Latest moves, outwards above zero, (p, 2)."""
        self.tests_started, self.tests_finished, self.tests_passed = (np.zeros((p, 2), dtype=np.int64) for _ in range(3))
        """Tests of each side for its next decision: all, those that ended, those that succeeded, (p, 2)."""
        self.tests = np.full((worlds, math.ceil(self.config.tested_parameter_fraction * p)), -1)
        """Sides that each world tests now, as 2 · parameter + side; -1 for none."""
        self.episode_ended = np.zeros(worlds, dtype=bool)
        """Worlds whose last episode is over. Those that begin out of turn have random lengths and test nothing."""
        self.recent = np.zeros(0)
        """1 for each of the latest tests that succeeded, oldest first."""
        self._update_ranges()

    # Worlds -----------------------------------------------------------------------------------------------------

    def draw(self, rng: np.random.Generator, ids: np.ndarray, belief: Belief) -> np.ndarray:
        self._cancel_tests(ids)
        chosen = (rng.uniform(size=len(ids)) < self.config.test_fraction) & self.episode_ended[ids]
        for world in ids[chosen]:
            self._assign_tests(rng, world)
        self.episode_ended[ids] = False
        return self.redraw(rng, ids, belief)

    def redraw(self, rng: np.random.Generator, ids: np.ndarray, belief: Belief) -> np.ndarray:
        e = self._belief.sample(rng, len(ids))
        rows, param, side = self._active_tests(ids)
        e[rows, self._columns[param]] = self._ranges[param, side]
        return e

    def _assign_tests(self, rng: np.random.Generator, world: int) -> None:
        """Let a world test sides that still lack tests, each of another parameter."""
        lacking = self._movable & (self.tests_started < self.config.tests_per_decision)
        params = rng.permutation(np.nonzero(lacking.any(1))[0])[: self.tests.shape[1]]
        for slot, param in enumerate(params):
            side = rng.choice(np.nonzero(lacking[param])[0])
            self.tests_started[param, side] += 1
            self.tests[world, slot] = 2 * param + side

    def _cancel_tests(self, ids: np.ndarray) -> None:
        """Forget the tests of worlds that begin anew before their episode ended."""
        _, param, side = self._active_tests(ids)
        np.subtract.at(self.tests_started, (param, side), 1)
        self.tests[ids] = -1

    def _active_tests(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Every test of worlds `ids`: the row in ids, the parameter and the side."""
        tests = self.tests[ids]
        rows, slots = np.nonzero(tests >= 0)
        return rows, *np.divmod(tests[rows, slots], 2)

    # Ranges -----------------------------------------------------------------------------------------------------

    def record(self, ids: np.ndarray, finished: dict[str, np.ndarray]) -> None:
        good = succeeded(finished, self.success_threshold)
        rows, param, side = self._active_tests(ids)
        np.add.at(self.tests_finished, (param, side), 1)
        np.add.at(self.tests_passed, (param, side), good[rows])
        self.recent = np.concatenate([self.recent, good[np.unique(rows)]])[-SUCCESS_WINDOW:]
        self.tests[ids] = -1
        self.episode_ended[ids] = True
        full = self.tests_finished == self.config.tests_per_decision
        if full.any():
            rate = self.tests_passed / self.config.tests_per_decision
            self._move_sides(full & (rate >= self.config.widen_above), 1)
            self._move_sides(full & (rate < self.config.narrow_below), -1)
            for counts in (self.tests_started, self.tests_finished, self.tests_passed):
                counts[full] = 0
            self._update_ranges()

    def _move_sides(self, sides: np.ndarray, way: int) -> None:
        """Move sides, (p, 2) bool, out (1) or in (-1)."""
        last, reach = self.last_move[sides], self.range_steps[sides]
        stride = np.clip(np.where(last * way > 0, 2 * abs(last), abs(last) // 2), 1, self.config.max_move)
        self.range_steps[sides] = np.clip(reach + way * stride, 0, self.config.steps_to_bound)
        # A side that is at its end already starts again with the shortest move.
        self.last_move[sides] = np.where(self.range_steps[sides] == reach, way, way * stride)

    def _update_ranges(self) -> None:
        r = self.range_steps / self.config.steps_to_bound
        u = (1 - r) * self._middle_unit[:, None] + r * np.array([0.0, 1.0])
        low, high = (self.space.from_unit(u[:, side]) for side in (0, 1))
        ends = np.stack([np.minimum(low, self._middle), np.maximum(high, self._middle)], axis=1)
        self._ranges = np.where(self.range_steps == 0, self._middle[:, None], ends)
        """Present ranges, (p, 2)."""
        self._belief = self.as_belief()

    def as_belief(self) -> Belief:
        """The present ranges; what the belief holds fixed stays so."""
        factors: list[Factor] = []
        for p, (low, high) in zip(self.space.params, self._ranges.tolist(), strict=True):
            factors.append((LogUniform if p.scale == "log" else Uniform)(p.name, low, high))
        return self.initial_belief.replace(*factors)

    def reached_ranges(self) -> list[ParameterRangeReached]:
        """The present ranges, widest first."""
        rows = zip(self.space.params, self._middle.tolist(), self._ranges.tolist(), self._widths().tolist(), strict=True)
        found = [ParameterRangeReached(p.name, p.unit, middle, low, high, width) for p, middle, (low, high), width in rows]
        return sorted(found, key=lambda row: -row.width)

    def _widths(self) -> np.ndarray:
        return self.space.unit(self._ranges[:, 1]) - self.space.unit(self._ranges[:, 0])

    def metrics(self) -> dict[str, float]:
        tested = {"adr/success": float(self.recent.mean())} if len(self.recent) else {}
        return {"adr/width": float(self._widths().mean())} | tested

    # Checkpoints ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name).copy() for name in (*_CHECKPOINTED, "recent")}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        for name in _CHECKPOINTED:
            if state[name].shape != getattr(self, name).shape:
                raise BadInput(f"the saved {name!r} does not have the shape that this run's belief and worlds ask for.")
            setattr(self, name, state[name].copy())
        self.recent = state["recent"].copy()
        self._update_ranges()
