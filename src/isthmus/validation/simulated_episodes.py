"""Trials in simulation: the exported graph itself, one episode in each of n worlds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from isthmus.deploy.batch_controller import BatchController
from isthmus.deploy.controller import Controller
from isthmus.deploy.signal_map import SignalMap
from isthmus.tasks.env import Env
from isthmus.tasks.samplers.sampler import succeeded
from isthmus.validation.stage import StageSetup

FADE_INTERVAL = 0.5
"""s between changes of what fades."""
POSE_INTERVAL = 0.1
"""s between poses that are kept."""


@dataclass(frozen=True)
class TrialTable:
    """One row per world."""

    e: np.ndarray
    """(n, d) at the start."""
    success: np.ndarray
    failed: np.ndarray
    score: np.ndarray
    length: np.ndarray
    """s until the end of the episode."""
    poses: np.ndarray
    """qpos every FRAME s, (frames, n, nq) float32; after the end of its episode a world's pose stays."""
    pose_interval: float
    """s between poses."""
    diverged_worlds: int
    """Worlds whose physics failed."""


@torch.no_grad()
def simulate_trials(
    stage_setup: StageSetup,
    controller: Controller,
    e: np.ndarray,
    seed: int,
    command: np.ndarray | None = None,
    report: Callable[[float], None] = lambda fraction: None,
) -> TrialTable:
    """One episode in each world of e, (n, d). `command`, (n, k), is what each is asked; otherwise it is drawn."""
    task, n = stage_setup.task, len(e)
    env = Env(task, n, seed=seed, training=False, e=e, reality=stage_setup.reality)
    if command is not None:
        env.command[:] = torch.from_numpy(np.asarray(command, dtype=np.float32))
    crowd = BatchController(controller, SignalMap.from_contracts(controller.manifest, task.robot.contract), n)
    every, frame = (max(1, round(s / env.sim.tick)) for s in (FADE_INTERVAL, POSE_INTERVAL))
    waiting = np.ones(n, dtype=bool)
    target = np.tile(np.array(task.robot.default, dtype=np.float32), (n, 1))
    rows: dict[str, np.ndarray] = {}
    poses = [env.sim.qpos[:, : task.robot.model.nq].astype(np.float32)]
    for tick in range(env.horizon):
        signals = env.signals()
        flat = np.concatenate([signals[s.name].numpy() for s in task.robot.contract.signals], axis=1)
        asked = dict.fromkeys((s.name for s in controller.manifest.operator), env.command.numpy())
        crowd(flat, asked, target, np.flatnonzero(waiting))
        step = env.step(torch.from_numpy(target.copy()))
        ids = torch.nonzero(step.terminated | step.timed_out)[:, 0].numpy()
        first = waiting[ids]
        for name in ("score", "failed", "length") if len(ids) else ():
            store = rows.setdefault(name, np.zeros(n, dtype=step.finished[name].dtype))
            store[ids[first]] = step.finished[name][first]
        waiting[ids] = False
        if not waiting.any():
            break
        if stage_setup.parameter_fades and (tick + 1) % every == 0:
            left = np.flatnonzero(waiting)
            env.set_parameters(stage_setup.faded_parameters(e[left], (tick + 1) / env.horizon), left)
        if (tick + 1) % frame == 0:
            poses.append(np.where(waiting[:, None], env.sim.qpos[:, : task.robot.model.nq], poses[-1]).astype(np.float32))
            report(tick / env.horizon)
    report(1.0)
    good = succeeded(rows, task.success_threshold)
    return TrialTable(
        *(e, good, rows["failed"], rows["score"], rows["length"], np.stack(poses), frame * env.sim.tick, env.diverged_worlds)
    )
