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

from isthmus.core.errors import BadInput
from isthmus.core.geometry import rotate_inverse
from isthmus.sim.engines.engine import DEFAULT_ENGINE, EngineFactory
from isthmus.sim.indexing import Indexing, driven_link_columns
from isthmus.sim.physics.blow_up import BlowUpRecorder
from isthmus.sim.physics.disturbances import DisturbanceProcess
from isthmus.sim.reality import Reality, real_simulation
from isthmus.sim.simulation import Simulation
from isthmus.tasks.parameter_shifts import ParameterShiftSchedule
from isthmus.tasks.samplers.curriculum import Curriculum
from isthmus.tasks.samplers.sampler import BeliefSampler, Sampler
from isthmus.tasks.state import State, signal_limits
from isthmus.tasks.task import Task, unmeasured_signals
from isthmus.tasks.views import EndEffectorView, FeetView, add_missing_foot_sensors
from isthmus.world import Belief

LATER_EPISODES_SEED = 0xA6A1
"""Mixed into the seed for worlds that begin again in an evaluation, which nobody looks at any more."""


@dataclass
class Step:
    reward: Tensor
    """(n,)."""
    terminated: Tensor
    """Episodes that ended badly in this tick, (n,)."""
    timed_out: Tensor
    """Episodes that reached their full length in this tick, (n,)."""
    final_critic: Tensor
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
        dump_folder: Path | None = None,
        e: np.ndarray | None = None,
        reality: Reality | None = None,
        sampler: Sampler | None = None,
        engine: str | EngineFactory = DEFAULT_ENGINE,
    ):
        """`belief` replaces the robot's prior; `e`, (n, d), fixes the worlds instead, one value each. With a `reality` all of
        them are that robot, missing physics, wiring and sensors included, and `e` gives them numbers of their own. A `sampler`
        chooses the worlds in its own way. `engine` is the physics engine: see `sim/engines/engine.py`.

        In training, commands change within an episode, first episodes have random lengths and the curriculum moves;
        in evaluation every episode is full length at the last level. Then the first episode of each world depends on the
        seed and on what the policy does in that world, on nothing else: policies can be compared world by world.
        """
        self.task, self.n, self.training = task, n, training
        self.rng = np.random.default_rng(seed)
        self._later_episodes_rng = self.rng if training else np.random.default_rng([seed, LATER_EPISODES_SEED])
        robot = task.robot
        self.prior = belief if belief is not None else robot.prior
        self._fixed_e = e if e is not None or reality is None else np.tile(reality.e(robot), (n, 1))
        self.sim = _build_simulation(task, n, threads, reality, engine)
        self.blow_up_recorder = BlowUpRecorder(self.sim, dump_folder)
        self.curriculum = Curriculum(task.levels, start=0 if training else len(task.levels) - 1)
        model = self.sim.model
        self._base_body = base = model.body(robot.morphology.base).id if robot.morphology.floats else -1
        self.disturbances = DisturbanceProcess(n, float(model.body_subtreemass[max(base, 1)]), self.sim.tick, self.rng)
        self.feet, self.end_effectors, self.indexing = FeetView(self.sim), EndEffectorView(self.sim), Indexing.of(robot, model)
        self.horizon = round(task.episode / self.sim.tick)

        target = robot.contract.target
        m, feet = target.size, len(robot.morphology.feet)
        self.default = torch.tensor(robot.default, dtype=torch.float32)
        self.limits = signal_limits(target)
        self.command = torch.zeros(n, task.command.signal.size if task.command else 0)
        self.command_seconds_left = torch.zeros(n)
        self.episode_ticks = torch.zeros(n, dtype=torch.long)
        """Ticks since the start of the episode."""
        self.initial_ticks = torch.zeros(n, dtype=torch.long)
        """Ticks by which an episode was made shorter at its start."""
        self.parameter_shifts = ParameterShiftSchedule(
            task.parameter_shift if self._fixed_e is None else None, n, self.sim.tick
        )
        self.sampler: Sampler = sampler if sampler is not None else BeliefSampler()
        self.start_level = torch.zeros(n, dtype=torch.long)
        """Level of the curriculum at which the episode began."""
        self.target_history = torch.zeros(3, n, m)
        """Targets of this tick and the two before."""
        self.feet_pos = torch.zeros(n, feet, 3)
        self.feet_force = torch.zeros(n, feet)
        self.feet_air_time = torch.zeros(n, feet)
        self.joint_columns = driven_link_columns(robot)
        """Columns of qpos and qvel of the joints behind targets: what a task is about, whatever rotors behind a gear do."""
        self.last_joint_vel = torch.zeros(n, self.sim.qvel[:, self.joint_columns[1]].shape[1])
        self.reward_names = [t.name for t in task.rewards]
        self.statistic_names = ["return", "score", *task.metrics, *(f"reward/{t}" for t in self.reward_names)]
        self.episode_sums = torch.zeros(n, len(self.statistic_names))
        self.normalized_e = torch.zeros(n, len(robot.space))
        """e in unit coordinates, -1 to 1."""
        self.diverged_worlds = 0
        """Worlds whose physics failed so far."""
        self.critic_sees_e = True
        """Whether `critic()` has e in it."""
        self.on_episode_end: Callable[[Tensor], None] | None = None
        """Called with the worlds whose episode just ended, while they still are where it ended."""
        self._apply_level()
        self.reset()

    # Episodes ---------------------------------------------------------------------------------------------------

    def reset(self, ids: np.ndarray | None = None) -> None:
        """Begin new episodes in worlds `ids`, by default in all."""
        ids = np.arange(self.n) if ids is None else ids
        self._start_episodes(ids, self.rng)
        self._draw_disturbances_and_shifts(ids)
        if self.training:
            t = torch.from_numpy(ids)
            self.episode_ticks[t] = self.initial_ticks[t] = torch.from_numpy(self.rng.integers(0, self.horizon, len(ids)))

    def _apply_level(self) -> None:
        level = self.curriculum.level
        self.belief = self.prior if level.width == 1 else self.prior.scaled(level.width)
        self.disturbances.config = self.task.disturbance.scaled(level.disturbance)

    def to_last_level(self) -> None:
        """Go to the last level of the curriculum and begin there."""
        self.curriculum.index = len(self.task.levels) - 1
        self._apply_level()
        self.reset()

    def _draw_disturbances_and_shifts(self, ids: np.ndarray) -> None:
        """Draw what will happen in new episodes."""
        self.disturbances.reset(ids)
        self.parameter_shifts.reset(ids, self.rng)

    def set_parameters(self, e: np.ndarray, ids: np.ndarray) -> None:
        """Give worlds `ids` the values e, (k, d), at once: also in the middle of an episode."""
        self.sim.apply(e, ids)
        self.normalized_e[ids] = torch.from_numpy(self.task.robot.space.unit(e) * 2 - 1).float()

    def _start_episodes(self, ids: np.ndarray, rng: np.random.Generator) -> None:
        """Put worlds `ids` where episodes start."""
        task, robot, level, k = self.task, self.task.robot, self.curriculum.level, len(ids)
        self.set_parameters(self._fixed_e[ids] if self._fixed_e is not None else self.sampler.draw(rng, ids, self.belief), ids)
        if task.start is not None:
            qpos, qvel = task.start(rng, k, robot, 1.0 if level.width >= 1 else max(level.width, 0.2))
        else:
            qpos, qvel = np.tile(np.array(robot.home), (k, 1)), np.zeros((k, robot.model.nv))
        if task.terrain is not None:
            place = qpos[:, self.indexing.root.qpos][:, :3]
            place[:, :2] += task.terrain.sample_tile_centres(rng, k, level.roughness)
            at = torch.from_numpy(place[:, :2].astype(np.float32))
            place[:, 2] += task.terrain.height_at(at[:, 0], at[:, 1]).numpy()
        self.sim.reset(ids, qpos, qvel)
        self.blow_up_recorder.clear(ids)
        t = torch.from_numpy(ids)
        self.episode_ticks[t] = self.initial_ticks[t] = 0
        self.start_level[t] = self.curriculum.index
        self.episode_sums[t] = 0.0
        self.target_history[:, t] = self.default
        self._draw_command(t, rng)
        self.feet_air_time[t] = 0.0
        self.feet_pos[t], self.feet_force[t] = self.feet.read(ids)
        fresh = self.read_state(ids)
        self.last_joint_vel[t] = fresh.last_joint_vel = fresh.joint_vel
        self.true_state = fresh if k == self.n else self.true_state.with_rows(t, fresh)

    def _draw_command(self, ids: Tensor, rng: np.random.Generator) -> None:
        if self.task.command is None:
            return
        signal, k = self.task.command.signal, len(ids)
        low, high = np.array(signal.low), np.array(signal.high)
        middle = (low + high) / 2
        value = middle + self.curriculum.level.command * (rng.uniform(low, high, (k, signal.size)) - middle)
        value[rng.uniform(size=k) < self.task.command.zero_fraction] = 0.0
        self.command[ids] = torch.from_numpy(value.astype(np.float32))
        hold = rng.uniform(*self.task.command.resample_interval, k) if self.training else np.full(k, np.inf)
        self.command_seconds_left[ids] = torch.from_numpy(hold.astype(np.float32))

    # Time -------------------------------------------------------------------------------------------------------

    def step(self, target: Tensor) -> Step:
        """One control tick under target, (n, m)."""
        target = torch.clamp(target, *self.limits)
        self.target_history = torch.stack([target, self.target_history[0], self.target_history[1]])
        if self._base_body >= 0:
            self.sim.xfrc_applied[:, self._base_body, :3] = self.disturbances.advance(
                self.sim.qvel[:, self.indexing.root.qvel][:, :3]
            )
        self.blow_up_recorder.note(target.numpy())
        self.sim.step(target.numpy())
        blown = self.blow_up_recorder.rescue()
        self.diverged_worlds += int(blown.sum())

        self.episode_ticks += 1
        s = self.read_state()
        values = [t.weight * self.sim.tick * t.value(s) for t in self.task.rewards]
        terms = torch.stack(values, dim=1)
        reward = terms.sum(1)
        if self.task.only_positive_rewards:
            reward = reward.clamp_min(0.0)
        failed = torch.from_numpy(blown)
        # A world that blew up was put back home before anyone looked: it earned nothing, and it failed.
        reward = torch.where(failed, 0.0, reward)
        for failure in self.task.terminations:
            hit = failure.value(s) | torch.from_numpy(blown)
            reward = reward + failure.weight * hit
            failed = failed | hit
        timed_out = (self.episode_ticks >= self.horizon) & ~failed
        kept = [reward, self.task.score(s), *(f(s) for f in self.task.metrics.values())]
        self.episode_sums += torch.cat([torch.stack(kept, dim=1), terms], dim=1)
        self._update_last_tick(s)

        done = torch.nonzero(failed | timed_out)[:, 0]
        finished = self._episode_statistics(done, failed)
        late = torch.nonzero(timed_out)[:, 0]
        # The critic sees the memory of the next tick, as it does in a world that starts anew.
        self.true_state = replace(s, **self._last_tick_fields())
        last_critic = self.critic(late) if len(late) else torch.zeros(0, self.critic_size)
        if self.on_episode_end is not None and len(done):
            self.on_episode_end(done)
        if self.training:
            self.command_seconds_left -= self.sim.tick
            due = torch.nonzero(self.command_seconds_left <= 0)[:, 0]
            if len(due):
                self._draw_command(due, self.rng)
        if len(done):
            ids = done.numpy()
            self.sampler.record(ids, finished)
            if self.training and self.curriculum.record(finished["score"], self.start_level[done].numpy()):
                self._apply_level()
            self._start_episodes(ids, self._later_episodes_rng)
            if self.training:
                self._draw_disturbances_and_shifts(ids)
        self._apply_due_shifts()
        return Step(reward, failed, timed_out, last_critic, finished)

    def _apply_due_shifts(self) -> None:
        """Draw the numbers that the task lets change anew, where their time has come."""
        due = self.parameter_shifts.advance(self.rng)
        if len(due):
            columns = [self.task.robot.space.index(name) for name in self.parameter_shifts.names]
            e = self.sim.e[due]
            e[:, columns] = self.sampler.redraw(self.rng, due, self.belief)[:, columns]
            self.set_parameters(e, due)

    def _update_last_tick(self, s: State) -> None:
        self.feet_air_time = torch.where(s.contact, 0.0, self.feet_air_time + self.sim.tick)
        self.feet_pos, self.feet_force = s.feet_pos, s.feet_force
        self.last_joint_vel = s.joint_vel

    def _last_tick_fields(self) -> dict[str, Tensor]:
        """What a state keeps of the tick before."""
        return {
            "last_feet_pos": self.feet_pos,
            "last_feet_force": self.feet_force,
            "air_time": self.feet_air_time,
            "last_joint_vel": self.last_joint_vel,
        }

    def _episode_statistics(self, done: Tensor, failed: Tensor) -> dict[str, np.ndarray]:
        """Statistics of the episodes that just ended; a score counts the ticks lost to a failure as zero."""
        rows, ticks = self.episode_sums[done], self.episode_ticks[done] - self.initial_ticks[done]
        means = (rows / ticks[:, None]).numpy()
        out = {name: means[:, i] for i, name in enumerate(self.statistic_names)}
        out["return"] = rows[:, 0].numpy().copy()
        out["score"] = (rows[:, 1] / torch.where(failed[done], self.horizon - self.initial_ticks[done], ticks)).numpy()
        out["length"] = ticks.numpy() * self.sim.tick
        out["failed"] = failed[done].numpy()
        out["e"] = self.sim.e[done.numpy()]
        return out

    # What can be seen -------------------------------------------------------------------------------------------

    def read_state(self, ids: np.ndarray | slice = slice(None), feet: tuple[Tensor, Tensor] | None = None) -> State:
        """The true state of worlds `ids` now; `feet` gives their positions and forces instead of reading them."""
        engine, terrain = self.sim, self.task.terrain
        qpos, qvel = torch.from_numpy(engine.qpos[ids]).float(), torch.from_numpy(engine.qvel[ids]).float()
        feet_pos, feet_force = feet or self.feet.read(ids)
        place = qpos[:, self.indexing.root.qpos] if terrain else qpos
        ground = terrain.height_at(place[:, 0], place[:, 1]) if terrain else torch.zeros(len(qpos))
        feet_ground = terrain.height_at(feet_pos[..., 0], feet_pos[..., 1]) if terrain else torch.zeros(feet_force.shape)
        return State(
            qpos=qpos,
            qvel=qvel,
            joint_pos=qpos[:, self.joint_columns[0]],
            joint_vel=qvel[:, self.joint_columns[1]],
            torque=torch.from_numpy(engine.motor_torque(ids)).float(),
            target=self.target_history[0, ids],
            last_target=self.target_history[1, ids],
            older_target=self.target_history[2, ids],
            default=self.default,
            limits=self.limits,
            command=self.command[ids],
            tick=engine.tick,
            time=self.episode_ticks[ids] * engine.tick,
            ground=ground,
            feet_pos=feet_pos,
            feet_ground=feet_ground,
            feet_force=feet_force,
            end_effector_pos=self.end_effectors.read(ids),
            at=self.indexing,
            **{name: value[ids] for name, value in self._last_tick_fields().items()},
        )

    def signals(self, rng: np.random.Generator | None = None) -> dict[str, Tensor]:
        """What the robot senses now, and its command, by name, float32; `rng` draws the noise instead of ours."""
        flat = torch.from_numpy(self.sim.signals(rng or self.rng))
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
        return parts + [(list(s.labels), s.name) for s in unmeasured_signals(self.task) if self.critic_sees_e or s.name != "e"]

    def critic(self, ids: Tensor | slice = slice(None)) -> Tensor:
        """What only the simulator knows: true state, command, disturbance, and, if it is told, e, -1 to 1."""
        s = self.true_state if isinstance(ids, slice) else self.true_state.select(ids)
        parts = [p.value(s) for p in self.task.critic]
        if self.task.command is not None:
            parts.append(s.command)
        unseen = self._unmeasured(s, ids)
        return torch.cat([*parts, *(v for name, v in unseen.items() if self.critic_sees_e or name != "e")], dim=1)

    def _unmeasured(self, s: State, ids: Tensor | slice) -> dict[str, Tensor]:
        """What no sensor measures: the disturbance, in the body's frame, m/s², and e, -1 to 1."""
        parts: dict[str, Tensor] = {}
        if self._base_body >= 0:
            force = torch.from_numpy(self.disturbances.force).float()[ids] / max(self.disturbances.mass, 1e-6)
            parts["force"] = rotate_inverse(s.quat, force)
        return parts | {"e": self.normalized_e[ids]}

    def privileged(self) -> dict[str, Tensor]:
        """What a teacher sees beside the robot's signals, by the names of `unseen_signals`."""
        told = {p.name: p.value(self.true_state) for p in self.task.critic if p.name in self.task.privileged}
        unseen = self._unmeasured(self.true_state, slice(None))
        return told | {name: value for name, value in unseen.items() if name in (*self.task.privileged, "e")}

    # Checkpoints ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        own = {name: getattr(self, name).numpy().copy() for name in _CHECKPOINTED_TENSORS}
        for part in _CHECKPOINTED_PARTS:
            own |= {f"{part}.{k}": v for k, v in getattr(self, part).state().items()}
        return own | {"diverged_worlds": np.array([self.diverged_worlds])}

    def restore(self, state: dict[str, np.ndarray], rng: dict) -> None:
        """Continue exactly where `state` was taken; `rng` is the generator's state."""
        for part in _CHECKPOINTED_PARTS:
            own = {k.removeprefix(f"{part}."): v for k, v in state.items() if k.startswith(f"{part}.")}
            getattr(self, part).restore(own)
        self._apply_level()
        for name in _CHECKPOINTED_TENSORS:
            saved, here = state[name].shape, tuple(getattr(self, name).shape)
            if saved != here:
                raise BadInput(f"the saved {name!r} has shape {saved}, not {here}: {self.task.name} has changed since.")
            setattr(self, name, torch.from_numpy(state[name].copy()))
        self.normalized_e = torch.from_numpy(self.task.robot.space.unit(self.sim.e) * 2 - 1).float()
        self.diverged_worlds = int(state["diverged_worlds"][0])
        self.rng.bit_generator.state = rng
        self.true_state = self.read_state(feet=(self.feet_pos, self.feet_force))


_CHECKPOINTED_TENSORS = (
    "command",
    "command_seconds_left",
    "episode_ticks",
    "initial_ticks",
    "start_level",
    "target_history",
    "feet_pos",
    "feet_force",
    "feet_air_time",
    "last_joint_vel",
    "episode_sums",
)
_CHECKPOINTED_PARTS = ("curriculum", "sim", "disturbances", "sampler", "parameter_shifts")


def _build_simulation(task: Task, n: int, threads: int, reality: Reality | None, engine: str | EngineFactory) -> Simulation:

    def edit(spec: mujoco.MjSpec) -> None:
        add_missing_foot_sensors(spec, task.robot.morphology.feet)
        if task.terrain:
            task.terrain.edit(spec)

    if reality is None:
        return Simulation(task.robot, n, threads, edit, engine)
    return real_simulation(task.robot, reality, n, threads, tick=1.0 / task.robot.contract.rate, edit=edit, engine=engine)
