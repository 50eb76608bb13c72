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

from isthmus.learn.adapters import Bridge
from isthmus.learn.adapters.gymnasium import spaces
from isthmus.tasks.task import Task
from isthmus.world import Belief


class VecEnv(Base):
    def __init__(
        self, task: Task, num_envs: int, seed: int = 0, belief: Belief | None = None, threads: int = 0, training: bool = True
    ):
        """The arguments are those of `Env`."""
        self.bridge = Bridge(task, num_envs, seed, belief, threads, training)
        self._action = torch.zeros(num_envs, self.bridge.actions)
        self._fresh = True
        super().__init__(num_envs, *spaces(self.bridge))

    def reset(self) -> np.ndarray:
        """Start all worlds; after `seed(s)`, exactly as a new environment with the seed s does."""
        seed, fresh = self._seeds[0], self._fresh
        self._fresh = False
        self._reset_seeds()
        self._reset_options()
        if seed is None and fresh:
            return self.bridge.observation.numpy().copy()
        return self.bridge.reset(seed).numpy()

    def step_async(self, actions: np.ndarray) -> None:
        self._action = torch.as_tensor(np.asarray(actions, dtype=np.float32))

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        moment = self.bridge.step(self._action)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        tick = self.bridge.env.engine.tick
        for k, i in enumerate(moment.ended.tolist()):
            row = moment.finished
            infos[i] = {
                "terminal_observation": moment.last[k].numpy(),
                "TimeLimit.truncated": bool(moment.timed_out[i]),
                "episode": {
                    "r": float(row["return"][k]),
                    "l": round(float(row["length"][k]) / tick),
                    "t": float(row["length"][k]),
                },
                "score": float(row["score"][k]),
            }
        done = (moment.failed | moment.timed_out).numpy()
        return moment.observation.numpy(), moment.reward.numpy().copy(), done, infos

    def close(self) -> None:
        """Nothing to release: the worlds live in this process."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        if attr_name == "render_mode":
            return [None for _ in self._get_indices(indices)]
        return [getattr(self.bridge.env, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        raise AttributeError(f"{attr_name!r} cannot be set: all worlds share one environment; give it to the constructor.")

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        raise AttributeError(f"{method_name!r} cannot be called on single worlds: all of them share one environment.")

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]
