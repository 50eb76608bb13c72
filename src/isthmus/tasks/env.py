"""A task in n worlds at once.

    env = Env(task, n=1024, seed=0)
    signals = env.signals()                    what the robot senses and is asked to do, by name
    step = env.step(target)                    one control tick; finished worlds start anew

Each world draws its own e from the belief at every episode. Reward, termination and metrics read the true state;
the policy gets `signals`, the critic `critic()`, which also sees the true state and e; a privileged teacher also gets
`privileged()`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import mujoco
import numpy as np
import torch
from torch import Tensor

from isthmus.errors import BadInput
from isthmus.sim.blowup import Recorder
from isthmus.sim.disturb import Disturber
from isthmus.sim.engine import Engine
from isthmus.sim.reality import RealEngine, Reality
from isthmus.sim.sources import links
from isthmus.tasks.changes import Changes
from isthmus.tasks.curriculum import Curriculum
from isthmus.tasks.feet import Feet
from isthmus.tasks.sampler import Draws, Sampler
from isthmus.tasks.state import State, limits_of, rotate_inverse
from isthmus.tasks.task import Task, unseen_signals
from isthmus.world import Belief

AGAIN = 0xA6A1
"""Mixed into the seed for worlds that begin again in an evaluation, which nobody looks at any more."""


@dataclass
class Step:
    reward: Tensor
    """(n,)."""
    failed: Tensor
    """Episodes that ended badly in this tick, (n,)."""
    timed_out: Tensor
    """Episodes that reached their full length in this tick, (n,)."""
    last_critic: Tensor
    """What the critic saw at the end of the episodes that timed out, (timed_out.sum(), width)."""
    finished: dict[str, np.ndarray]
    """One row per episode that ended: score, failed, return, length, metrics and the mean of each reward term."""


class Env:
    def __init__(
        self,
        task: Task,
        n: int,
        seed: int = 0,
        belief: Belief | None = None,
        threads: int = 0,
        training: bool = True,
        dumps: Path | None = None,
        e: np.ndarray | None = None,
        reality: Reality | None = None,
        sampler: Sampler | None = None,
    ):
        """`belief` replaces the robot's prior; `e`, (n, d), fixes the worlds instead, one value each. With a `reality` all of
        them are that robot, missing physics, wiring and sensors included, and `e` gives them numbers of their own. A `sampler`
        chooses the worlds in its own way.

        In training, commands change within an episode, first episodes have random lengths and the curriculum moves;
        in evaluation every episode is full length at the last level. Then the first episode of each world depends on the
        seed and on what the policy does in that world, on nothing else: policies can be compared world by world.
        """
        self.task, self.n, self.training = task, n, training
        self.rng = np.random.default_rng(seed)
        self._rng_again = self.rng if training else np.random.default_rng([seed, AGAIN])
        robot = task.robot
        self.prior = belief if belief is not None else robot.prior
        self._fixed = e if e is not None or reality is None else np.tile(reality.e(robot), (n, 1))
        self.engine = _engine(task, n, threads, reality)
        self.recorder = Recorder(self.engine, dumps)
        self.curriculum = Curriculum(task.levels, start=0 if training else len(task.levels) - 1)
        model = self.engine.model
        self._base = base = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, robot.base) if robot.base else -1
        self.disturber = Disturber(n, float(model.body_subtreemass[max(base, 1)]), self.engine.tick, self.rng)
        self.feet = Feet(self.engine)
        self.horizon = round(task.episode / self.engine.tick)

        target = robot.contract.target
        m, feet = target.size, len(robot.feet)
        self.default = torch.tensor(robot.default, dtype=torch.float32)
        self.limits = limits_of(target)
        self.command = torch.zeros(n, task.command.signal.size if task.command else 0)
        self.hold = torch.zeros(n)
        self.age = torch.zeros(n, dtype=torch.long)
        """Ticks since the start of the episode."""
        self.skipped = torch.zeros(n, dtype=torch.long)
        """Ticks by which an episode was made shorter at its start."""
        self.changes = Changes(task.change if self._fixed is None else None, n, self.engine.tick)
        self.sampler: Sampler = sampler if sampler is not None else Draws()
        self.begun = torch.zeros(n, dtype=torch.long)
        """Level of the curriculum at which the episode began."""
        self.sent = torch.zeros(3, n, m)
        """Targets of this tick and the two before."""
        self.feet_pos = torch.zeros(n, feet, 3)
        self.feet_force = torch.zeros(n, feet)
        self.feet_air = torch.zeros(n, feet)
        self.links = links(robot)
        """Columns of qpos and qvel of the joints behind targets: what a task is about, whatever rotors behind a gear do."""
        self.joint_speed = torch.zeros(n, self.engine.qvel[:, self.links[1]].shape[1])
        self.terms = [t.name for t in task.rewards]
        self.columns = ["return", "score", *task.metrics, *(f"reward/{t}" for t in self.terms)]
        self.totals = torch.zeros(n, len(self.columns))
        self.unit_e = torch.zeros(n, len(robot.space))
        """e in unit coordinates, -1 to 1."""
        self.worlds_lost = 0
        """Worlds whose physics failed so far."""
        self.critic_told = True
        """Whether `critic()` has e in it."""
        self.at_end: Callable[[Tensor], None] | None = None
        """Called with the worlds whose episode just ended, while they still are where it ended."""
        self._level_changed()
        self.restart()

    # Episodes ---------------------------------------------------------------------------------------------------

    def restart(self, ids: np.ndarray | None = None) -> None:
        """Begin new episodes in worlds `ids`, by default in all."""
        ids = np.arange(self.n) if ids is None else ids
        self._start(ids, self.rng)
        self._settle(ids)
        if self.training:
            t = torch.from_numpy(ids)
            self.age[t] = self.skipped[t] = torch.from_numpy(self.rng.integers(0, self.horizon, len(ids)))

    def _level_changed(self) -> None:
        level = self.curriculum.level
        self.belief = self.prior if level.width == 1 else self.prior.scaled(level.width)
        self.disturber.config = self.task.disturbance.scaled(level.disturbance)

    def graduate(self) -> None:
        """Go to the last level of the curriculum and begin there."""
        self.curriculum.index = len(self.task.levels) - 1
        self._level_changed()
        self.restart()

    def _settle(self, ids: np.ndarray) -> None:
        """Draw what will happen in new episodes."""
        self.disturber.reset(ids)
        self.changes.reset(ids, self.rng)

    def change(self, e: np.ndarray, ids: np.ndarray) -> None:
        """Give worlds `ids` the values e, (k, d), at once: also in the middle of an episode."""
        self.engine.apply(e, ids)
        self.unit_e[ids] = torch.from_numpy(self.task.robot.space.unit(e) * 2 - 1).float()

    def _start(self, ids: np.ndarray, rng: np.random.Generator) -> None:
        """Put worlds `ids` where episodes start."""
        task, robot, level, k = self.task, self.task.robot, self.curriculum.level, len(ids)
        self.change(self._fixed[ids] if self._fixed is not None else self.sampler.draw(rng, ids, self.belief), ids)
        if task.start is not None:
            qpos, qvel = task.start(rng, k, robot, 1.0 if level.width >= 1 else max(level.width, 0.2))
        else:
            qpos, qvel = np.tile(np.array(robot.home), (k, 1)), np.zeros((k, robot.model.nv))
        if task.terrain is not None:
            qpos[:, :2] += task.terrain.spots(rng, k, level.roughness)
            at = torch.from_numpy(qpos[:, :2].astype(np.float32))
            qpos[:, 2] += task.terrain.height_at(at[:, 0], at[:, 1]).numpy()
        self.engine.reset(ids, qpos, qvel)
        self.recorder.clear(ids)
        t = torch.from_numpy(ids)
        self.age[t] = self.skipped[t] = 0
        self.begun[t] = self.curriculum.index
        self.totals[t] = 0.0
        self.sent[:, t] = self.default
        self._draw_command(t, rng)
        self.feet_air[t] = 0.0
        self.feet_pos[t], self.feet_force[t] = self.feet.read(ids)
        fresh = self.read(ids)
        self.joint_speed[t] = fresh.joint_speed_before = fresh.joint_vel
        self.state_now = fresh if k == self.n else self.state_now.patched(t, fresh)

    def _draw_command(self, ids: Tensor, rng: np.random.Generator) -> None:
        if self.task.command is None:
            return
        signal, k = self.task.command.signal, len(ids)
        low, high = np.array(signal.low), np.array(signal.high)
        middle = (low + high) / 2
        value = middle + self.curriculum.level.command * (rng.uniform(low, high, (k, signal.size)) - middle)
        value[rng.uniform(size=k) < self.task.command.still] = 0.0
        self.command[ids] = torch.from_numpy(value.astype(np.float32))
        hold = rng.uniform(*self.task.command.hold, k) if self.training else np.full(k, np.inf)
        self.hold[ids] = torch.from_numpy(hold.astype(np.float32))

    # Time -------------------------------------------------------------------------------------------------------

    def step(self, target: Tensor) -> Step:
        """One control tick under target, (n, m)."""
        target = torch.clamp(target, *self.limits)
        self.sent = torch.stack([target, self.sent[0], self.sent[1]])
        if self._base >= 0:
            self.engine.xfrc[:, self._base, :3] = self.disturber.advance(self.engine.qvel[:, :3])
        self.recorder.note(target.numpy())
        self.engine.step(target.numpy())
        blown = self.recorder.rescue()
        self.worlds_lost += int(blown.sum())

        self.age += 1
        s = self.read()
        values = [t.weight * self.engine.tick * t.value(s) for t in self.task.rewards]
        terms = torch.stack(values, dim=1)
        reward = terms.sum(1)
        if self.task.positive:
            reward = reward.clamp_min(0.0)
        failed = torch.from_numpy(blown)
        # A world that blew up was put back home before anyone looked: it earned nothing, and it failed.
        reward = torch.where(failed, 0.0, reward)
        for failure in self.task.failures:
            hit = failure.value(s) | torch.from_numpy(blown)
            reward = reward + failure.weight * hit
            failed = failed | hit
        timed_out = (self.age >= self.horizon) & ~failed
        kept = [reward, self.task.score(s), *(f(s) for f in self.task.metrics.values())]
        self.totals += torch.cat([torch.stack(kept, dim=1), terms], dim=1)
        self._remember(s)

        done = torch.nonzero(failed | timed_out)[:, 0]
        finished = self._finish(done, failed)
        late = torch.nonzero(timed_out)[:, 0]
        # The critic sees the memory of the next tick, as it does in a world that starts anew.
        self.state_now = replace(s, **self._memory())
        last_critic = self.critic(late) if len(late) else torch.zeros(0, self.critic_size)
        if self.at_end is not None and len(done):
            self.at_end(done)
        if self.training:
            self.hold -= self.engine.tick
            due = torch.nonzero(self.hold <= 0)[:, 0]
            if len(due):
                self._draw_command(due, self.rng)
        if len(done):
            ids = done.numpy()
            self.sampler.record(ids, finished)
            if self.training and self.curriculum.record(finished["score"], self.begun[done].numpy()):
                self._level_changed()
            self._start(ids, self._rng_again)
            if self.training:
                self._settle(ids)
        self._change_worlds()
        return Step(reward, failed, timed_out, last_critic, finished)

    def _change_worlds(self) -> None:
        """Draw the numbers that the task lets change anew, where their time has come."""
        due = self.changes.advance(self.rng)
        if len(due):
            columns = [self.task.robot.space.index(name) for name in self.changes.names]
            e = self.engine.e[due]
            e[:, columns] = self.sampler.redraw(self.rng, due, self.belief)[:, columns]
            self.change(e, due)

    def _remember(self, s: State) -> None:
        self.feet_air = torch.where(s.contact, 0.0, self.feet_air + self.engine.tick)
        self.feet_pos, self.feet_force = s.feet_pos, s.feet_force
        self.joint_speed = s.joint_vel

    def _memory(self) -> dict[str, Tensor]:
        """What a state keeps of the tick before."""
        return {
            "last_feet_pos": self.feet_pos,
            "last_feet_force": self.feet_force,
            "air_time": self.feet_air,
            "joint_speed_before": self.joint_speed,
        }

    def _finish(self, done: Tensor, failed: Tensor) -> dict[str, np.ndarray]:
        """Statistics of the episodes that just ended; a score counts the ticks lost to a failure as zero."""
        rows, ticks = self.totals[done], self.age[done] - self.skipped[done]
        means = (rows / ticks[:, None]).numpy()
        out = {name: means[:, i] for i, name in enumerate(self.columns)}
        out["return"] = rows[:, 0].numpy().copy()
        out["score"] = (rows[:, 1] / torch.where(failed[done], self.horizon - self.skipped[done], ticks)).numpy()
        out["length"] = ticks.numpy() * self.engine.tick
        out["failed"] = failed[done].numpy()
        out["e"] = self.engine.e[done.numpy()]
        return out

    # What can be seen -------------------------------------------------------------------------------------------

    def read(self, ids: np.ndarray | slice = slice(None), feet: tuple[Tensor, Tensor] | None = None) -> State:
        """The true state of worlds `ids` now; `feet` gives their positions and forces instead of reading them."""
        engine, terrain = self.engine, self.task.terrain
        qpos, qvel = torch.from_numpy(engine.qpos[ids]).float(), torch.from_numpy(engine.qvel[ids]).float()
        feet_pos, feet_force = feet or self.feet.read(ids)
        ground = terrain.height_at(qpos[:, 0], qpos[:, 1]) if terrain else torch.zeros(len(qpos))
        feet_ground = terrain.height_at(feet_pos[..., 0], feet_pos[..., 1]) if terrain else torch.zeros(feet_force.shape)
        return State(
            qpos=qpos,
            qvel=qvel,
            joint_pos=qpos[:, self.links[0]],
            joint_vel=qvel[:, self.links[1]],
            torque=torch.from_numpy(engine.efforts(ids)).float(),
            target=self.sent[0, ids],
            last_target=self.sent[1, ids],
            older_target=self.sent[2, ids],
            default=self.default,
            limits=self.limits,
            command=self.command[ids],
            tick=engine.tick,
            time=self.age[ids] * engine.tick,
            ground=ground,
            feet_pos=feet_pos,
            feet_ground=feet_ground,
            feet_force=feet_force,
            **{name: value[ids] for name, value in self._memory().items()},
        )

    def signals(self, rng: np.random.Generator | None = None) -> dict[str, Tensor]:
        """What the robot senses now, and its command, by name, float32; `rng` draws the noise instead of ours."""
        flat = torch.from_numpy(self.engine.measured(rng or self.rng))
        sizes = [s.size for s in self.task.robot.contract.signals]
        parts = torch.split(flat, sizes, dim=1)
        named = {s.name: part for s, part in zip(self.task.robot.contract.signals, parts, strict=True)}
        if self.task.command is not None:
            named[self.task.command.signal.name] = self.command
        return named

    @property
    def critic_size(self) -> int:
        return sum(len(labels) for labels, _ in self.critic_labels())

    def critic_labels(self) -> list[tuple[list[str], str]]:
        """Labels and name of each part of `critic()`, in order."""
        parts = [(list(p.labels), p.name) for p in self.task.critic]
        if self.task.command is not None:
            parts.append((list(self.task.command.signal.labels), self.task.command.signal.name))
        return parts + [(list(s.labels), s.name) for s in unseen_signals(self.task) if self.critic_told or s.name != "e"]

    def critic(self, ids: Tensor | slice = slice(None)) -> Tensor:
        """What only the simulator knows: true state, command, disturbance, and, if it is told, e, -1 to 1."""
        s = self.state_now if isinstance(ids, slice) else self.state_now.rows(ids)
        parts = [p.value(s) for p in self.task.critic]
        if self.task.command is not None:
            parts.append(s.command)
        unseen = self._unseen(s, ids)
        return torch.cat([*parts, *(v for name, v in unseen.items() if self.critic_told or name != "e")], dim=1)

    def _unseen(self, s: State, ids: Tensor | slice) -> dict[str, Tensor]:
        """What no sensor measures: the disturbance, in the body's frame, m/s², and e, -1 to 1."""
        parts: dict[str, Tensor] = {}
        if self._base >= 0:
            force = torch.from_numpy(self.disturber.force).float()[ids] / max(self.disturber.mass, 1e-6)
            parts["force"] = rotate_inverse(s.quat, force)
        return parts | {"e": self.unit_e[ids]}

    def privileged(self) -> dict[str, Tensor]:
        """What a teacher sees beside the robot's signals, by the names of `unseen_signals`."""
        told = {p.name: p.value(self.state_now) for p in self.task.critic if p.name in self.task.told}
        unseen = self._unseen(self.state_now, slice(None))
        return told | {name: value for name, value in unseen.items() if name in (*self.task.told, "e")}

    # Checkpoints ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        own = {name: getattr(self, name).numpy().copy() for name in _KEPT}
        for part in _PARTS:
            own |= {f"{part}.{k}": v for k, v in getattr(self, part).state().items()}
        return own | {"worlds_lost": np.array([self.worlds_lost])}

    def restore(self, state: dict[str, np.ndarray], rng: dict) -> None:
        """Continue exactly where `state` was taken; `rng` is the generator's state."""
        for part in _PARTS:
            own = {k.removeprefix(f"{part}."): v for k, v in state.items() if k.startswith(f"{part}.")}
            getattr(self, part).restore(own)
        self._level_changed()
        for name in _KEPT:
            saved, here = state[name].shape, tuple(getattr(self, name).shape)
            if saved != here:
                raise BadInput(f"the saved {name!r} has shape {saved}, not {here}: {self.task.name} has changed since.")
            setattr(self, name, torch.from_numpy(state[name].copy()))
        self.unit_e = torch.from_numpy(self.task.robot.space.unit(self.engine.e) * 2 - 1).float()
        self.worlds_lost = int(state["worlds_lost"][0])
        self.rng.bit_generator.state = rng
        self.state_now = self.read(feet=(self.feet_pos, self.feet_force))


_KEPT = ("command", "hold", "age", "skipped", "begun", "sent", "feet_pos", "feet_force", "feet_air", "joint_speed", "totals")
_PARTS = ("curriculum", "engine", "disturber", "sampler", "changes")


def _engine(task: Task, n: int, threads: int, reality: Reality | None) -> Engine:
    edit = task.terrain.edit if task.terrain else None
    if reality is None:
        return Engine(task.robot, n, threads, edit)
    return RealEngine(task.robot, reality, n, threads, tick=1.0 / task.robot.contract.rate, edit=edit)
