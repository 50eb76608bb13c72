"""How much of the bare engine's speed is left, and what a world costs in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch
from mujoco.batch import Batch

from isthmus.learn.algorithms.ppo import Collector, Critic, PPOUpdate
from isthmus.learn.policies.actor import Actor, ActorSpec, reset_memory
from isthmus.learn.recipes import recipe
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.env import Env

WORLDS = 1024
TASK = "go1/walk"


@dataclass(frozen=True)
class Row:
    what: str
    asked: str
    measured: str


def measure() -> list[Row]:
    memory = memory_per_world()
    step, train, bare = ratios()
    return [
        Row("environment step / bare Batch.step, go1, 1,024 worlds", "≥ 0.85", f"{step:.2f}"),
        Row("training end to end / bare Batch.step, same", "≥ 0.60", f"{train:.2f}"),
        Row("bare engine, thousand physics steps per second (varies with the machine)", "", f"{bare / 1e3:.0f}"),
        Row("memory per go1 world, kB", "< 200", f"{memory / 1e3:.0f}"),
    ]


def table(rows: list[Row]) -> list[str]:
    return ["| what | asked | measured |", "|---|---|---|", *(f"| {r.what} | {r.asked} | {r.measured} |" for r in rows)]


def ratios(rounds: int = 8) -> tuple[float, float, float]:
    """Environment and training throughput over the bare engine's, and the bare engine's physics steps per second.

    They take turns: a rollout with learning, then as many ticks in which the policy walks on, each preceded by a bare
    engine's tick from the same states. Only the environment's own work is timed in those, with torch on one thread, as
    in training.
    """
    task = get_task(TASK)
    config = replace(recipe(TASK), worlds=WORLDS)
    torch.manual_seed(0)
    env = Env(task, WORLDS, seed=0, dump_folder=Path(tempfile.mkdtemp()))
    shape = ActorSpec.for_task(task, config.hidden, config.symmetry)
    actor, critic = Actor(shape, config.init_std), Critic(env.critic_size, config.critic_hidden)
    generator = torch.Generator().manual_seed(0)
    collector = Collector(env, actor, critic, config, generator)
    learner = PPOUpdate(actor, critic, config, generator)
    bare = Batch(task.robot.model, WORLDS)
    step_ratios, train_ratios, speeds = [], [], []
    for _ in range(rounds):
        start = time.perf_counter()
        batch, _ = collector.collect()
        learner.update(batch)
        training = time.perf_counter() - start
        stepping, bare_time = _side_by_side(env, actor, collector, bare, config.rollout_ticks)
        step_ratios.append(bare_time / stepping)
        train_ratios.append(bare_time / training)
        speeds.append(WORLDS * task.robot.substeps * config.rollout_ticks / bare_time)
    return median(step_ratios), median(train_ratios), median(speeds)


def _side_by_side(env: Env, actor: Actor, collector: Collector, bare: Batch, ticks: int) -> tuple[float, float]:
    """Seconds that the environment and the bare engine take for the same ticks."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    qpos, qvel, ctrl = (bare.bind(name) for name in ("qpos", "qvel", "ctrl"))
    stepping = bare_time = 0.0
    observation, memory = collector.observation, collector.memory
    with torch.no_grad():
        for _ in range(ticks):
            action = actor.act(observation)
            target, memory = actor.target(action, memory), actor.remember(memory, action)
            qpos[:], qvel[:], ctrl[:] = env.sim.qpos, env.sim.qvel, env.sim.ctrl
            start = time.perf_counter()
            bare.step(nstep=env.task.robot.substeps)
            bare_time += time.perf_counter() - start
            start = time.perf_counter()
            step = env.step(target)
            signals = env.signals()
            stepping += time.perf_counter() - start
            reset_memory(memory, step.terminated | step.timed_out)
            observation, memory = actor.observe(signals, memory)
    collector.observation, collector.memory, collector.critic_input = observation, memory, env.critic()
    torch.set_num_threads(threads)
    return stepping, bare_time


def memory_per_world() -> float:
    """Bytes that a go1 world adds to a process with a training environment: the slope between two sizes."""
    small, large = 512, 4096
    used = []
    for n in (small, large):
        script = f"from bench.speed import resident_with; print(resident_with({n}))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        used.append(int(done.stdout.split()[-1]))
    return (used[1] - used[0]) / (large - small)


def resident_with(n: int) -> int:
    """Memory of this process, bytes, once n worlds have been stepped."""
    env = Env(get_task(TASK), n, seed=0, dump_folder=Path(tempfile.mkdtemp()))
    for _ in range(3):
        env.step(env.default.expand(n, -1))
        env.signals(), env.critic()
    return _resident()


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
