"""Everything that a Task says, as plain values: its settings, and what its terms make of random states."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from isthmus.tasks.state import State, state_from_recording
from isthmus.tasks.task import Task

SETTINGS = (
    "name",
    "doc",
    "episode",
    "success_threshold",
    "only_positive_rewards",
    "privileged",
    "policy",
    "command",
    "disturbance",
    "parameter_shift",
    "levels",
)


def task_settings(task: Task) -> dict[str, Any]:
    """Fields of a task without functions, with the hashes of its Space, prior, model and contract."""
    plain = {name: getattr(task, name) for name in SETTINGS}
    plain = {name: asdict(v) if hasattr(v, "__dataclass_fields__") else v for name, v in plain.items()}
    plain["levels"] = [asdict(level) for level in task.levels]
    plain["terrain"] = asdict(task.terrain) if task.terrain else None
    for kind in ("rewards", "terminations"):
        plain[kind] = [[term.name, term.weight] for term in getattr(task, kind)]
    plain["critic"] = [[term.name, list(term.labels)] for term in task.critic]
    plain["metrics"] = list(task.metrics)
    robot = task.robot
    plain["robot"] = [robot.name, robot.model_hash, robot.space.hash, robot.prior.hash]
    plain["contract"] = asdict(robot.contract)
    return plain


def random_states(task: Task, n: int = 32, seed: int = 0) -> State:
    """n states of a task's robot about its home, feet on and off the ground."""
    robot, rng = task.robot, np.random.default_rng(seed)
    qpos = np.array(robot.home) + 0.3 * rng.normal(size=(n, robot.model.nq))
    if robot.model.njnt and robot.model.jnt_type[0] == 0:
        qpos[:, 3:7] /= np.linalg.norm(qpos[:, 3:7], axis=1, keepdims=True)
    qvel = rng.normal(size=(n, robot.model.nv))
    m, feet = robot.contract.target.size, 4 if robot.name == "go1" else 0
    targets = [np.array(robot.default) * (1 + 0.2 * rng.normal(size=(n, m))) + 0.01 * rng.normal(size=(n, m)) for _ in range(3)]
    command = rng.normal(size=(n, task.command.signal.size if task.command else 0))
    command[::5] = 0.0
    draw = lambda *shape: torch.from_numpy(rng.normal(size=(n, *shape))).float()
    more = {
        "torque": draw(m),
        "feet_pos": draw(feet, 3),
        "last_feet_pos": draw(feet, 3),
        "feet_ground": draw(feet),
        "feet_force": (100 * draw(feet)).clamp_min(0),
        "last_feet_force": (100 * draw(feet)).clamp_min(0),
        "air_time": draw(feet).abs(),
        "last_joint_vel": draw(m if robot.name != "crazyflie" else 0),
        "ground": 0.1 * draw(),
    }
    return state_from_recording(robot, qpos, qvel, targets, command, rng.uniform(0, 5, n), **more)


def term_values(task: Task) -> dict[str, np.ndarray]:
    """Values of every term on random states, and starts of episodes, by name."""
    s = random_states(task)
    found = {f"reward/{t.name}": t.value(s) for t in task.rewards}
    found |= {f"termination/{t.name}": t.value(s) for t in task.terminations}
    found |= {f"metric/{name}": f(s) for name, f in task.metrics.items()}
    found |= {f"critic/{t.name}": t.value(s) for t in task.critic}
    values = {name: x.numpy() for name, x in (found | {"score": task.score(s)}).items()}
    for width in (0.5, 1.0):
        assert task.start is not None
        values[f"start/{width}/qpos"], values[f"start/{width}/qvel"] = task.start(
            np.random.default_rng(1), 8, task.robot, width
        )
    return values
