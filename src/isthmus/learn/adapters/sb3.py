"""A task for Stable-Baselines3.

envs = VecEnv(get_task("pendulum/swingup"), num_envs=64)
PPO("MlpPolicy", envs).learn(100_000)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv as Base
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices

from isthmus.learn.adapters.gymnasium import spaces
from isthmus.learn.adapters.vector_env import RLVecEnv
from isthmus.tasks.task import Task
from isthmus.world import Belief


class VecEnv(Base):
    def __init__(
        self, task: Task, num_envs: int, seed: int = 0, belief: Belief | None = None, threads: int = 0, training: bool = True
    ):
        """The arguments are those of `Env`."""
        self.rl_env = RLVecEnv(task, num_envs, seed, belief, threads, training)
        self._action = torch.zeros(num_envs, self.rl_env.action_size)
        self._never_reset = True
        super().__init__(num_envs, *spaces(self.rl_env))

    def reset(self) -> np.ndarray:
        """Start all worlds; after `seed(s)`, exactly as a new environment with the seed s does."""
        seed, fresh = self._seeds[0], self._never_reset
        self._never_reset = False
        self._reset_seeds()
        self._reset_options()
        if seed is None and fresh:
            return self.rl_env.observation.numpy().copy()
        return self.rl_env.reset(seed).numpy()

    def step_async(self, actions: np.ndarray) -> None:
        self._action = torch.as_tensor(np.asarray(actions, dtype=np.float32))

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        moment = self.rl_env.step(self._action)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        tick = self.rl_env.env.sim.tick
        for k, i in enumerate(moment.ended_ids.tolist()):
            row = moment.finished
            infos[i] = {
                "terminal_observation": moment.final_observation[k].numpy(),
                "TimeLimit.truncated": bool(moment.timed_out[i]),
                "episode": {
                    "r": float(row["return"][k]),
                    "l": round(float(row["length"][k]) / tick),
                    "t": float(row["length"][k]),
                },
                "score": float(row["score"][k]),
            }
        done = (moment.terminated | moment.timed_out).numpy()
        return moment.observation.numpy(), moment.reward.numpy().copy(), done, infos

    def close(self) -> None:
        """Nothing to release: the worlds live in this process."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        if attr_name == "render_mode":
            return [None for _ in self._get_indices(indices)]
        return [getattr(self.rl_env.env, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        raise AttributeError(f"{attr_name!r} cannot be set: all worlds share one environment; give it to the constructor.")

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        raise AttributeError(f"{method_name!r} cannot be called on single worlds: all of them share one environment.")

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]
