"""Whether a trial on a robot succeeded, from what the robot measured: the task's own score, where its sensors show all of it.

A pendulum, a cart and a vehicle under motion capture measure their whole state. A walking robot does not measure its
velocity: there the operator judges.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from isthmus.data.contract import Contract
from isthmus.sim.indexing import signal_sources
from isthmus.tasks.state import State, state_from_recording
from isthmus.tasks.task import Task


def success_is_measurable(task: Task) -> bool:
    """Whether the signals hold every number of the state, and nothing but the state decides."""
    model = task.robot.model
    seen = {"qpos": set(), "qvel": set()}
    for array, columns in signal_sources(task.robot, model):
        seen.get(array, set()).update(columns)
    return not task.robot.morphology.feet and len(seen["qpos"]) == model.nq and len(seen["qvel"]) == model.nv


@torch.no_grad()
def success_and_score(
    task: Task, contract: Contract, signals: np.ndarray, target: np.ndarray, command: np.ndarray
) -> tuple[bool, float]:
    """Success and score of the signals of an episode, (ticks, width), in the order of the robot's `contract`.

    `target` is (ticks, m) in the task's order, `command` (k,). Ticks that are missing at the end count as zero.
    """
    robot, model, ticks = task.robot, task.robot.model, len(signals)
    horizon = round(task.episode * contract.rate)
    state = {"qpos": np.tile(np.array(robot.home), (ticks, 1)), "qvel": np.zeros((ticks, model.nv))}
    at = contract.slices()
    for signal, (array, columns) in zip(robot.contract.signals, signal_sources(robot, model), strict=True):
        if array in state:
            own = [at[signal.name].start + contract[signal.name].component_index(label) for label in signal.labels]
            state[array][:, columns] = signals[:, own]
    if not ticks:
        return False, 0.0
    s = _state_from_signals(task, state["qpos"], state["qvel"], target, command, 1.0 / contract.rate)
    failed = any(bool(term.value(s).any()) for term in task.terminations)
    score = float(task.score(s)[:horizon].sum()) / horizon
    return not failed and score >= task.success_threshold, score


def _state_from_signals(
    task: Task, qpos: np.ndarray, qvel: np.ndarray, target: np.ndarray, command: np.ndarray, tick: float
) -> State:
    """Each tick as a world of its own; torques and feet are not known, and count as none."""
    n, before = len(qpos), lambda x: np.concatenate([x[:1], x[:-1]])
    none, nowhere = torch.zeros(n, 0), torch.zeros(n, 0, 3)
    targets = target, before(target), before(before(target))
    s = state_from_recording(task.robot, qpos, qvel, targets, np.tile(command, (n, 1)), np.arange(n) * tick)
    return replace(
        s,
        tick=tick,
        torque=torch.zeros_like(s.target),
        feet_pos=nowhere,
        last_feet_pos=nowhere,
        feet_ground=none,
        feet_force=none,
        last_feet_force=none,
        air_time=none,
        last_joint_vel=torch.cat([s.joint_vel[:1], s.joint_vel[:-1]]),
    )
