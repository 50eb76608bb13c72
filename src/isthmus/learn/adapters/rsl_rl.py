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

from isthmus.learn.adapters import Bridge
from isthmus.tasks.task import Task
from isthmus.world import Belief


class VecEnv(Base):
    def __init__(
        self, task: Task, num_envs: int, seed: int = 0, belief: Belief | None = None, threads: int = 0, training: bool = True
    ):
        """The arguments are those of `Env`."""
        self.bridge = Bridge(task, num_envs, seed, belief, threads, training)
        self.num_envs, self.num_actions = num_envs, self.bridge.actions
        self.max_episode_length = self.bridge.env.horizon
        self.device = "cpu"
        self.cfg = {
            "task": task.name,
            "robot": task.robot.name,
            "space": task.robot.space.hash,
            "seed": seed,
            "num_envs": num_envs,
        }
        self._observation = self._groups(self.bridge.observation.clone(), self.bridge.env.critic())

    def _groups(self, observation: Tensor, critic: Tensor) -> TensorDict:
        return TensorDict({"policy": observation, "critic": critic}, batch_size=[self.num_envs])

    @property
    def episode_length_buf(self) -> Tensor:
        """Ticks since the start of each world's episode, (n,)."""
        return self.bridge.env.age

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        env = self.bridge.env
        value = value.clone().long()
        env.skipped += value - env.age
        env.age = value

    def get_observations(self) -> TensorDict:
        return self._observation

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """One tick. `extras["final"]` has the observations at the end of the episodes `extras["ended"]`."""
        moment = self.bridge.step(actions)
        self._observation = self._groups(moment.observation, moment.critic)
        extras: dict[str, Any] = {"time_outs": moment.timed_out, "ended": moment.ended, "final": moment.last}
        if len(moment.ended):
            extras["log"] = {
                f"/episode/{k}": torch.from_numpy(moment.finished[k]).float() for k in ("score", "length", "return", "failed")
            }
        return self._observation, moment.reward, (moment.failed | moment.timed_out).long(), extras
