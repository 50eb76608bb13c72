"""Failure-driven training: worlds in which the policy failed come back until it masters them.

With probability `revisit` a new episode takes place in a stored failure, moved a little; otherwise in a world of the belief,
as always, so that nothing is forgotten. A stored world in which the policy succeeds leaves the store.

The store can begin with failures from elsewhere: the worlds that `isthmus evaluate --failures` wrote, a belief that was
identified from a robot, or recordings whose origin says in which world they were made:

    origin["e"] = {"payload": 2.5, "ground_friction": 0.3}       name -> value; what is left out is nominal
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Real
from pathlib import Path

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.mcap.writer import is_recording, read_episode
from isthmus.sim.robot import Robot
from isthmus.tasks.samplers.sampler import succeeded
from isthmus.world import Belief, Fixed, Particles, belief_on_space

DEFAULT_REVISIT_FRACTION = 0.3
"""Share of episodes in stored failures, where nothing else is said."""
MAX_STORED = 512
"""Failures that are stored; the oldest give way, but not those that were known at the start."""
MAX_KNOWN = 256
"""Failures that can be known at the start."""
REVISIT_JITTER = 0.02
"""By how much a stored world moves when it is revisited: standard deviation, as a fraction of the hard range."""
SAMPLES_PER_BELIEF = 64
"""Worlds that stand for a belief which is not a list of worlds."""
_CHECKPOINTED = ("stored_e", "serials", "visited_serial", "visited_e", "episode_ended", "counts_as_test")


class FailureSampler:
    """A sampler that mixes draws from the belief with stored failures.

    Only whole episodes under this very belief are stored, revisited and mastered: not those that began out of turn, which have
    random lengths, and none while the curriculum still has a narrower belief.
    """

    def __init__(
        self,
        belief: Belief,
        worlds: int,
        success_threshold: float,
        revisit_fraction: float = DEFAULT_REVISIT_FRACTION,
        known_failures: np.ndarray | None = None,
    ):
        """`success` is the task's mark for an episode that succeeded; `known`, (k, d), are the failures to begin with."""
        self.belief, self.success_threshold, self.revisit_fraction = belief, success_threshold, revisit_fraction
        self._free = np.array([belief.space.index(name) for name in belief.free().names], dtype=int)
        self.stored_e = np.zeros((0, len(belief.space)))
        """e of failures, (k, d), oldest first."""
        self.serials = np.zeros(0, dtype=np.int64)
        """One number per stored failure, never used twice."""
        self._next_serial = self._known_count = 0
        self.visited_serial = np.full(worlds, -1)
        """Serial of the failure that each world revisits; -1 for none."""
        self.visited_e = np.zeros((worlds, len(belief.space)))
        """Where they are revisited, (worlds, d): a world that is put to the test does not change on the way."""
        self.episode_ended = np.zeros(worlds, dtype=bool)
        """Worlds whose last episode is over."""
        self.counts_as_test = np.zeros(worlds, dtype=bool)
        """Worlds whose episode is a whole one, under the belief."""
        if known_failures is not None:
            self._known_count = len(known_failures)
            self._add(known_failures)

    def draw(self, rng: np.random.Generator, ids: np.ndarray, belief: Belief) -> np.ndarray:
        e = belief.sample(rng, len(ids))
        self.counts_as_test[ids] = self.episode_ended[ids] & (belief == self.belief)
        self.episode_ended[ids] = False
        self.visited_serial[ids] = -1
        back = np.nonzero((rng.uniform(size=len(ids)) < self.revisit_fraction) & self.counts_as_test[ids])[0]
        if len(self.stored_e) and len(back):
            picked = rng.integers(len(self.stored_e), size=len(back))
            e[back] = self.visited_e[ids[back]] = self._perturb(rng, self.stored_e[picked])
            self.visited_serial[ids[back]] = self.serials[picked]
        return e

    def redraw(self, rng: np.random.Generator, ids: np.ndarray, belief: Belief) -> np.ndarray:
        return np.where(self.visited_serial[ids, None] >= 0, self.visited_e[ids], belief.sample(rng, len(ids)))

    def _perturb(self, rng: np.random.Generator, e: np.ndarray) -> np.ndarray:
        """Values close to e, (k, d), inside the hard bounds; what the belief holds fixed does not move."""
        u = self.belief.space.unit(e)
        u[:, self._free] += REVISIT_JITTER * rng.standard_normal((len(e), len(self._free)))
        near = e.copy()
        near[:, self._free] = self.belief.space.from_unit(u)[:, self._free]
        return near

    def record(self, ids: np.ndarray, finished: dict[str, np.ndarray]) -> None:
        good, visited, counts = succeeded(finished, self.success_threshold), self.visited_serial[ids], self.counts_as_test[ids]
        stays = ~np.isin(self.serials, visited[good & counts])
        self.stored_e, self.serials = self.stored_e[stays], self.serials[stays]
        self._add(finished["e"][~good & counts & ~np.isin(visited, self.serials)])
        self.visited_serial[ids] = -1
        self.episode_ended[ids] = True

    def _add(self, e: np.ndarray) -> None:
        store = np.concatenate([self.stored_e, e])
        serials = np.concatenate([self.serials, self._next_serial + np.arange(len(e))])
        gone = np.nonzero(serials >= self._known_count)[0][: max(0, len(store) - MAX_STORED)]
        self.stored_e, self.serials = np.delete(store, gone, axis=0), np.delete(serials, gone)
        self._next_serial += len(e)

    def metrics(self) -> dict[str, float]:
        return {"failures/stored": float(len(self.stored_e))}

    def state(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name).copy() for name in _CHECKPOINTED} | {"next": np.array([self._next_serial])}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        if state["visited_serial"].shape != self.visited_serial.shape or state["stored_e"].shape[1:] != self.stored_e.shape[1:]:
            raise BadInput("the saved failures are of another number of worlds or parameters.")
        for name in _CHECKPOINTED:
            setattr(self, name, state[name].copy())
        self._next_serial = int(state["next"][0])


# Files ----------------------------------------------------------------------------------------------------------


def failing_worlds(episodes: dict[str, np.ndarray], success_threshold: float, belief: Belief) -> Belief | None:
    """The worlds of an evaluation in which the policy failed, as a belief: a list of joint values of what varies."""
    names = belief.free().names
    bad = ~succeeded(episodes, success_threshold)
    if not bad.any():
        return None
    rows = episodes["e"][bad][:, [belief.space.index(name) for name in names]]
    return belief.replace(Particles(names, tuple(map(tuple, rows.tolist()))))


def collect_failures(paths: Iterable[Path], robot: Robot, read_belief: Callable[[Path], Belief] | None = None) -> Belief:
    """Failures from beliefs and recordings, as one list of worlds; of too many, some from everywhere.

    `believed` reads the belief in a file that is no recording.
    """
    read_belief = read_belief or (lambda path: belief_on_space(Belief.load(path), robot.space, str(path)))
    recorded = lambda path: path.suffix == ".mcap" or is_recording(path)  # noqa: E731
    rows = np.concatenate([_from_recording(p, robot) if recorded(p) else _worlds_from_belief(read_belief(p)) for p in paths])
    if len(rows) > MAX_KNOWN:
        rows = rows[np.linspace(0, len(rows) - 1, MAX_KNOWN).round().astype(int)]
    return Belief(robot.space, (Particles(robot.space.names, tuple(map(tuple, rows.tolist()))),))


def particle_values(belief: Belief) -> np.ndarray | None:
    """All worlds of a belief that is a list of them, (k, d); None if it is something else."""
    varying = [f for f in belief.factors if not isinstance(f, Fixed)]
    if len(varying) != 1 or not isinstance(varying[0], Particles):
        return None
    values, weights = np.array(varying[0].values), np.array(varying[0].weights)
    rows = values[weights > 0] if len(weights) else values
    e = np.tile(belief.median(), (len(rows), 1))
    e[:, [belief.space.index(name) for name in varying[0].names]] = rows
    return e


def _worlds_from_belief(belief: Belief) -> np.ndarray:
    """All worlds of a list, or some of any other belief, (k, d)."""
    rows = particle_values(belief)
    return belief.sample(np.random.default_rng(0), SAMPLES_PER_BELIEF) if rows is None else rows


def _from_recording(path: Path, robot: Robot) -> np.ndarray:
    episode = read_episode(path)
    if episode.contract.robot != robot.name:
        raise BadInput(f"{path} is a recording of {episode.contract.robot}, not of {robot.name}.")
    e = episode.origin.get("e")
    if not isinstance(e, dict):
        raise BadInput(f"{path} does not know in which world it was made: `isthmus identify` it first, and give the twin.")
    if not all(isinstance(v, Real) and not isinstance(v, bool) for v in e.values()):
        raise BadInput(f"{path}: `e` in its origin must map names of parameters to numbers.")
    try:
        return robot.space.vector(e)[None]
    except (BadInput, OverflowError) as error:
        raise BadInput(f"{path}: {error}") from None
