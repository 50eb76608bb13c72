"""A task as a Gymnasium vector environment.

    envs = VectorEnv(get_task("go1/walk"), num_envs=64)
    observation, info = envs.reset(seed=0)
    observation, reward, terminated, truncated, info = envs.step(envs.action_space.sample())

A world whose episode ends starts the next one in the same step; `info["final_obs"]` has the observation at its end.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from isthmus.core.errors import BadInput, unknown_name
from isthmus.learn.adapters.vector_env import RLStep, RLVecEnv
from isthmus.tasks.task import Task
from isthmus.world import Belief


def spaces(rl_env: RLVecEnv) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    """Observation and action space of one world."""
    low, high = rl_env.observation_limits()
    action = gymnasium.spaces.Box(-rl_env.action_clip, rl_env.action_clip, (rl_env.action_size,), np.float32)
    return gymnasium.spaces.Box(low, high, (rl_env.observation_size,), np.float32), action


class VectorEnv(gymnasium.vector.VectorEnv):
    def __init__(
        self, task: Task, num_envs: int, seed: int = 0, belief: Belief | None = None, threads: int = 0, training: bool = True
    ):
        """`seed` rules until `reset` gives another; the other arguments are those of `Env`."""
        self.rl_env = RLVecEnv(task, num_envs, seed, belief, threads, training)
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = spaces(self.rl_env)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._never_reset = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start all worlds anew, or those of `options={"reset_mask": ...}`, (num_envs,) bool."""
        super().reset(seed=seed)
        ids = self._reset_ids(options or {})
        fresh, self._never_reset = self._never_reset, False
        if seed is None and ids is None and fresh:
            return self.rl_env.observation.numpy().copy(), {}
        if seed is not None and ids is not None:
            raise BadInput("a seed starts all worlds; it cannot go together with a reset_mask.")
        return self.rl_env.reset(seed, ids).numpy(), {}

    def _reset_ids(self, options: dict[str, Any]) -> np.ndarray | None:
        for key in options:
            if key != "reset_mask":
                raise unknown_name("reset option", key, ["reset_mask"])
        if "reset_mask" not in options:
            return None
        mask = np.asarray(options["reset_mask"])
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise BadInput(f"reset_mask must be {self.num_envs} booleans with at least one true.")
        return np.nonzero(mask)[0]

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        moment = self.rl_env.step(torch.as_tensor(np.asarray(actions, dtype=np.float32)))
        flags = moment.terminated.numpy().copy(), moment.timed_out.numpy().copy()
        return moment.observation.numpy(), moment.reward.numpy().astype(np.float64), *flags, self._info(moment)

    def _info(self, step: RLStep) -> dict[str, Any]:
        """Gymnasium's form: one array over all worlds per key, and a mask beside it."""
        if not len(step.ended_ids):
            return {}
        ids = step.ended_ids.numpy()
        mask = np.zeros(self.num_envs, dtype=bool)
        mask[ids] = True
        last = np.full(self.num_envs, None, dtype=object)
        for i, row in zip(ids, step.final_observation.numpy(), strict=True):
            last[i] = row
        stats: dict[str, Any] = {}
        for name in ("score", "length", "return"):
            stats[name] = np.zeros(self.num_envs)
            stats[name][ids] = step.finished[name]
            stats[f"_{name}"] = mask.copy()
        return {"final_obs": last, "_final_obs": mask, "final_info": stats, "_final_info": mask.copy()}
