"""A task for rsl-rl-lib.

    env = VecEnv(get_task("go1/walk"), num_envs=512)
    OnPolicyRunner(env, config, log_dir).learn(200)

Observations come in two groups: `policy`, what the robot can sense, and `critic`, the true state and e.
`obs_groups = {"actor": ["policy"], "critic": ["critic"]}` uses both.
"""

from __future__ import annotations

from typing import Any

import torch
from rsl_rl.env import VecEnv as Base
from tensordict import TensorDict
from torch import Tensor

from isthmus.learn.adapters.vector_env import RLVecEnv
from isthmus.tasks.task import Task
from isthmus.world import Belief


class VecEnv(Base):
    def __init__(
        self, task: Task, num_envs: int, seed: int = 0, belief: Belief | None = None, threads: int = 0, training: bool = True
    ):
        """The arguments are those of `Env`."""
        self.rl_env = RLVecEnv(task, num_envs, seed, belief, threads, training)
        self.num_envs, self.num_actions = num_envs, self.rl_env.action_size
        self.max_episode_length = self.rl_env.env.horizon
        self.device = "cpu"
        self.cfg = {
            "task": task.name,
            "robot": task.robot.name,
            "space": task.robot.space.hash,
            "seed": seed,
            "num_envs": num_envs,
        }
        self._observation = self._observation_groups(self.rl_env.observation.clone(), self.rl_env.env.critic())

    def _observation_groups(self, observation: Tensor, critic: Tensor) -> TensorDict:
        return TensorDict({"policy": observation, "critic": critic}, batch_size=[self.num_envs])

    @property
    def episode_length_buf(self) -> Tensor:
        """Ticks since the start of each world's episode, (n,)."""
        return self.rl_env.env.episode_ticks

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        env = self.rl_env.env
        value = value.clone().long()
        env.initial_ticks += value - env.episode_ticks
        env.episode_ticks = value

    def get_observations(self) -> TensorDict:
        return self._observation

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """One tick. `extras["final"]` has the observations at the end of the episodes `extras["ended"]`."""
        moment = self.rl_env.step(actions)
        self._observation = self._observation_groups(moment.observation, moment.critic)
        extras: dict[str, Any] = {"time_outs": moment.timed_out, "ended": moment.ended_ids, "final": moment.final_observation}
        if len(moment.ended_ids):
            extras["log"] = {
                f"/episode/{k}": torch.from_numpy(moment.finished[k]).float() for k in ("score", "length", "return", "failed")
            }
        return self._observation, moment.reward, (moment.terminated | moment.timed_out).long(), extras
