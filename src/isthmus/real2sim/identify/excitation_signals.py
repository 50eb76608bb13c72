"""What an experiment does, from a few coefficients: waves of the motors' targets, or commands to a policy that walks.

    waves       a Fourier series for each motor about the robot's default
    walks       a command that holds for a second, then another

A course turns coefficients into orders, (c, T, k), one row per tick, and a driver turns orders into targets as the robot
moves: waves are their own targets, a policy makes targets of commands and of what it senses.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from isthmus.core.errors import BadInput
from isthmus.data.contract import Signal
from isthmus.learn.policies.actor import Actor
from isthmus.sim.robot import Robot
from isthmus.sim.simulate_recording import Driver
from isthmus.tasks.task import Task

HARMONICS = (1, 2, 3, 5, 8, 13)
MAX_PERIOD = 5.0
"""s of the slowest wave, or the length of the experiment if that is shorter."""
RAMP_SECONDS = 0.5
"""s in which the waves grow from nothing, and fade to it."""
COMMAND_HOLD_SECONDS = 1.0
"""s for which a command holds."""
COMMAND_DIGITS = 2
"""Of a command, so that it can be written down."""


class ExcitationSignal(Protocol):
    coefficient_count: int
    """Coefficients."""
    ticks: int
    """Of an experiment."""
    limits_torque: bool
    """Whether torques count against the limits; those of a policy are its own."""

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Orders (c, T, k) of coefficients (c, size)."""
        ...

    def baseline(self) -> np.ndarray:
        """What one would try without thinking about it, (T, k)."""
        ...

    def drive(self, command_rows: np.ndarray) -> Driver:
        """How orders (n, T, k) become targets."""
        ...


class Multisine:
    """Coefficients to targets."""

    limits_torque = True

    def __init__(self, robot: Robot, seconds: float):
        target, rate = robot.contract.target, robot.contract.rate
        self.seconds, self.default = seconds, np.array(robot.default)
        low = np.array(target.low or self.default - 1.0)
        high = np.array(target.high or self.default + 1.0)
        self.amplitude = np.minimum(high - self.default, self.default - low)
        # A default at the end of its range leaves room to one side only.
        self.amplitude = np.where(self.amplitude > 0.05 * (high - low), self.amplitude, 0.25 * (high - low))
        self.limits = (low, high)
        self.ticks = round(seconds * rate)
        self.time = np.arange(self.ticks) / rate
        omega = 2 * np.pi * np.array(HARMONICS) / min(MAX_PERIOD, seconds)
        omega = omega[omega < np.pi * rate / 4]
        self.ramp = np.clip(np.minimum(self.time, seconds - self.time) / RAMP_SECONDS, 0.0, 1.0)[:, None]
        angle = np.outer(self.time, omega)
        self.basis = self.ramp * np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
        self.coefficient_count = self.basis.shape[1] * target.size

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """(c, size) -> (c, T, m); a unit of a coefficient fills the room that there is with about one wave."""
        raw = self.basis @ x.reshape(len(x), self.basis.shape[1], len(self.default))
        return np.clip(self.default + self.amplitude * np.tanh(0.7 * raw), *self.limits)

    def baseline(self) -> np.ndarray:
        return self.chirp()

    def chirp(self, low: float = 0.2, high: float = 4.0, amplitude_share: float = 0.5) -> np.ndarray:
        """Each motor sweeps from `low` to `high` Hz over `part` of its room, (T, m)."""
        t, pace = self.time, high / low
        phase = 2 * np.pi * low * self.seconds / np.log(pace) * (pace ** (t / self.seconds) - 1.0)
        shift = np.linspace(0, np.pi, len(self.default), endpoint=False)
        wave = np.sin(phase[:, None] + shift)
        return np.clip(self.default + amplitude_share * self.amplitude * self.ramp * wave, *self.limits)

    def drive(self, command_rows: np.ndarray) -> Driver:
        return lambda tick, y: command_rows[:, tick]


class CommandSteps:
    """Coefficients to commands, and commands to the targets of a policy."""

    limits_torque = False

    def __init__(self, actor: Actor, task: Task, seconds: float):
        if task.command is None or task.command.signal not in actor.spec.signals:
            raise BadInput(f"a policy of {task.name} takes no command; an experiment needs one that does.")
        if actor.spec.privileged:
            raise BadInput("a teacher is told e, which no robot can tell it: give a policy that runs on the robot.")
        self.actor, self.contract = actor.eval(), task.robot.contract
        self.signal: Signal = task.command.signal
        one = np.ones(self.signal.size)
        self.low, self.high = np.array(self.signal.low or -one), np.array(self.signal.high or one)
        self.ticks, rate = round(seconds * self.contract.rate), self.contract.rate
        self.block_index = np.arange(self.ticks) // max(1, round(COMMAND_HOLD_SECONDS * rate))
        self.coefficient_count = (int(self.block_index[-1]) + 1) * self.signal.size

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """(c, size) -> (c, T, k)."""
        middle, half = 0.5 * (self.low + self.high), 0.5 * (self.high - self.low)
        steps = np.round(middle + half * np.tanh(x.reshape(len(x), -1, self.signal.size)), COMMAND_DIGITS)
        return np.clip(steps, self.low, self.high)[:, self.block_index]

    def baseline(self) -> np.ndarray:
        """Half of what can be asked, forth and back, one direction after the other, (T, k)."""
        steps = np.zeros((int(self.block_index[-1]) + 1, self.signal.size))
        for i in range(len(steps)):
            which, back = (i // 2) % self.signal.size, i % 2
            steps[i, which] = 0.5 * (self.low if back else self.high)[which]
        return steps[self.block_index]

    def drive(self, command_rows: np.ndarray) -> Driver:
        memory, slices = self.actor.memory(len(command_rows)), self.contract.slices()
        commands = torch.from_numpy(command_rows).float()

        @torch.no_grad()
        def targets(tick: int, y: np.ndarray) -> np.ndarray:
            nonlocal memory
            signals = {name: torch.from_numpy(y[:, where]).float() for name, where in slices.items()}
            out, memory = self.actor(signals | {self.signal.name: commands[:, tick]}, memory)
            return out.double().numpy()

        return targets

    def command_entries(self, command_rows: np.ndarray) -> list[str]:
        """The commands (T, k) as an operator writes them: `3:forward=0.5`, from the third second on."""
        out, before = [], np.zeros(self.signal.size)
        for first in np.flatnonzero(np.diff(self.block_index, prepend=-1)):
            for i in np.flatnonzero(command_rows[first] != before):
                out.append(f"{first / self.contract.rate:g}:{self.signal.labels[i]}={command_rows[first, i]:g}")
            before = command_rows[first]
        return out
