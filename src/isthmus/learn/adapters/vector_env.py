"""Our environments for other people's learners.

`Bridge` is an `Env` behind the actor's own observations and actions: the same code that training and the robot run
builds the observation, the history and the target. The adapters only translate it into a library's interface:

    isthmus.learn.adapters.gymnasium.VectorEnv       gymnasium.vector.VectorEnv
    isthmus.learn.adapters.sb3.VecEnv                Stable-Baselines3
    isthmus.learn.adapters.rsl_rl.VecEnv             rsl-rl-lib
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import BadInput
from isthmus.learn.policies.actor import Actor, ActorSpec, Memory, reset_memory
from isthmus.tasks.env import Env
from isthmus.tasks.task import Task
from isthmus.world import Belief

FINAL_OBSERVATION_SEED = 0x1A57
"""Mixed into the seed of the noise in last observations, which must not shift that of all others."""


@dataclass
class RLStep:
    """What one tick gives a learner, n worlds at once. Worlds whose episode ended are already in their next one."""

    observation: Tensor
    """(n, inputs)."""
    critic: Tensor
    """(n, critic_size): true state and e, for learners with a privileged critic."""
    reward: Tensor
    """(n,)."""
    terminated: Tensor
    """Episodes that ended badly, (n,)."""
    timed_out: Tensor
    """Episodes that reached their full length, (n,)."""
    ended_ids: Tensor
    """Indices of both, (k,)."""
    final_observation: Tensor
    """Observations at the end of those episodes, (k, inputs)."""
    finished: dict[str, np.ndarray]
    """Their statistics, k rows each, as of `Env.step`."""


class RLVecEnv:
    def __init__(
        self, task: Task, n: int, seed: int = 0, belief: Belief | None = None, threads: int = 0, training: bool = True
    ):
        """The arguments are those of `Env`."""
        self.task, self.n, self._settings = task, n, (belief, threads, training)
        with torch.random.fork_rng(devices=[]):
            self.actor = Actor(ActorSpec.for_task(task, (1,)))
            """Observations and targets; its network is not used."""
        self.observation = self._make_env(seed)

    @property
    def observation_size(self) -> int:
        return self.actor.observation_size

    @property
    def action_size(self) -> int:
        return self.actor.spec.target.size

    @property
    def action_clip(self) -> float:
        return self.actor.spec.policy.action_clip

    def observation_limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest observation, (inputs,): certain for the last action, which is clipped, open elsewhere."""
        frame = np.full((self.actor.spec.policy.history, self.actor.frame_size), np.inf, dtype=np.float32)
        frame[:, -self.action_size :] = self.action_clip
        return -frame.ravel(), frame.ravel()

    def _make_env(self, seed: int) -> Tensor:
        belief, threads, training = self._settings
        self.env = Env(self.task, self.n, seed=seed, belief=belief, threads=threads, training=training)
        self.env.on_episode_end = self._record_final_observation
        self._final_observation_rng = np.random.default_rng([seed, FINAL_OBSERVATION_SEED])
        self._memory: Memory = self.actor.memory(self.n)
        return self._observe()

    def reset(self, seed: int | None = None, ids: np.ndarray | None = None) -> Tensor:
        """Begin new episodes and return the observation; with a seed, exactly as a new bridge with that seed does."""
        with torch.inference_mode(False), torch.no_grad():
            if seed is not None:
                self.observation = self._make_env(seed)
            else:
                ids = np.arange(self.n) if ids is None else ids
                self.env.reset(ids)
                reset_memory(self._memory, torch.from_numpy(ids))
                kept = np.setdiff1d(np.arange(self.n), ids)
                before, memory = self.observation, {k: v.clone() for k, v in self._memory.items()}
                self.observation = self._observe()
                # Worlds that go on have already been observed in this tick.
                self.observation[kept] = before[kept]
                for key, value in memory.items():
                    self._memory[key][kept] = value[kept]
            return self.observation

    def step(self, action: Tensor) -> RLStep:
        """One tick under action, (n, m), which is clipped."""
        if action.shape != (self.n, self.action_size):
            raise BadInput(f"an action of {self.task.name} has shape {(self.n, self.action_size)}, not {tuple(action.shape)}.")
        # A learner may call us in inference mode, whose tensors could never be written to again outside of it.
        with torch.inference_mode(False), torch.no_grad():
            action = action.detach().clone().float().clamp(-self.action_clip, self.action_clip)
            target = self.actor.target(action, self._memory)
            self._memory = self.actor.remember(self._memory, action)
            self._final_observation = torch.zeros(0, self.observation_size)
            step = self.env.step(target)
            ended = torch.nonzero(step.terminated | step.timed_out)[:, 0]
            if len(ended):
                reset_memory(self._memory, ended)
            self.observation = self._observe()
            return RLStep(
                self.observation,
                self.env.critic(),
                step.reward,
                step.terminated,
                step.timed_out,
                ended,
                self._final_observation,
                step.finished,
            )

    def _observe(self) -> Tensor:
        """The observation now; a copy, for the memory that it views is cleared when an episode ends."""
        observation, self._memory = self.actor.observe(self.env.signals(), self._memory)
        return observation.clone()

    def _record_final_observation(self, ids: Tensor) -> None:
        observation, _ = self.actor.observe(self.env.signals(self._final_observation_rng), self._memory)
        self._final_observation = observation[ids].clone()
