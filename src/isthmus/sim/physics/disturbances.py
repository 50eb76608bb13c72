"""What happens to a robot within an episode: pushes, steady and gusty forces, wind. Not e, which holds still.

Forces act on the robot's base, in the world frame, N. All arrays are (n, 3), horizontal unless said otherwise.

    gust   dF = -F / T dt + σ √(2 / T) dW        an Ornstein-Uhlenbeck process with standard deviation σ
    wind   F = c (v_wind - v)                    drag on a body that moves through moving air
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Disturbance:
    push_speed: float = 0.0
    """m/s: a push is a force pulse that would change the robot's speed by up to this much."""
    push_every: tuple[float, float] = (3.0, 6.0)
    """s between pushes, drawn uniformly."""
    push_time: float = 0.1
    """s that a push lasts."""
    steady_force: float = 0.0
    """N: a constant horizontal force, drawn per episode up to this size."""
    gust_force: float = 0.0
    """N: standard deviation of a gusty horizontal force."""
    gust_time: float = 0.5
    """s: how quickly gusts change."""
    wind_speed: float = 0.0
    """m/s: mean wind, drawn per episode up to this size."""
    wind_gust: float = 0.0
    """m/s: standard deviation of the wind's gusts."""
    drag: float = 0.0
    """N·s/m: drag coefficient of the body in the wind."""

    def scaled(self, strength: float) -> Disturbance:
        """The same kinds of disturbance, `strength` times as strong."""
        strengths = ("push_speed", "steady_force", "gust_force", "wind_speed", "wind_gust")
        return replace(self, **{name: strength * getattr(self, name) for name in strengths})


class DisturbanceProcess:
    """Draws the disturbances of n worlds and gives their forces, tick by tick."""

    def __init__(self, n: int, mass: float, tick: float, rng: np.random.Generator):
        self.n, self.mass, self.tick, self.rng = n, mass, tick, rng
        self.config = Disturbance()
        self.steady = np.zeros((n, 3))
        self.gust = np.zeros((n, 3))
        self.wind = np.zeros((n, 3))
        self.wind_gust = np.zeros((n, 3))
        self.push = np.zeros((n, 3))
        self.push_left = np.zeros(n)
        """Seconds left of the push in progress."""
        self.until_push = np.zeros(n)
        self.force = np.zeros((n, 3))

    def reset(self, ids: np.ndarray) -> None:
        c, k = self.config, len(ids)
        self.steady[ids] = self._random_horizontal(k, c.steady_force)
        self.wind[ids] = self._random_horizontal(k, c.wind_speed)
        self.gust[ids] = self.wind_gust[ids] = self.push[ids] = 0.0
        self.push_left[ids] = 0.0
        self.until_push[ids] = self.rng.uniform(0.0, c.push_every[1], k)
        self.force[ids] = self.steady[ids] + c.drag * self.wind[ids]

    def _random_horizontal(self, k: int, max_length: float) -> np.ndarray:
        angle, length = self.rng.uniform(0, 2 * np.pi, k), self.rng.uniform(0, max_length, k)
        return np.stack([length * np.cos(angle), length * np.sin(angle), np.zeros(k)], axis=1)

    def start_push(self, ids: np.ndarray, velocity_change: np.ndarray) -> None:
        """Start a push that changes the velocity of worlds `ids` by `speed`, m/s, (k, 3)."""
        self.push[ids] = self.mass * velocity_change / self.config.push_time
        self.push_left[ids] = self.config.push_time

    def advance(self, velocity: np.ndarray) -> np.ndarray:
        """Forces for the next tick, (n, 3), given the base's world velocity, (n, 3)."""
        c = self.config
        force = self.steady.copy()
        if c.push_speed > 0:
            self.until_push -= self.tick
            due = np.nonzero(self.until_push <= 0)[0]
            if len(due):
                self.start_push(due, self._random_horizontal(len(due), c.push_speed))
                self.until_push[due] = self.rng.uniform(*c.push_every, len(due))
        if (self.push_left > 0).any():
            force += self.push * (np.minimum(self.push_left, self.tick) / self.tick)[:, None].clip(0.0)
            self.push_left = np.maximum(self.push_left - self.tick, 0.0)
        if c.gust_force > 0:
            self.gust = self._step_gust(self.gust, c.gust_force)
            force += self.gust
        if c.drag > 0:
            if c.wind_gust > 0:
                self.wind_gust = self._step_gust(self.wind_gust, c.wind_gust)
            force += c.drag * (self.wind + self.wind_gust - velocity)
        self.force = force
        return force

    def _step_gust(self, value: np.ndarray, std: float) -> np.ndarray:
        keep = np.exp(-self.tick / self.config.gust_time)
        noise = self.rng.standard_normal((self.n, 3)) * [1.0, 1.0, 0.0]
        return keep * value + std * np.sqrt(1 - keep**2) * noise

    def state(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name).copy() for name in _STATE_FIELDS}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        for name in _STATE_FIELDS:
            setattr(self, name, state[name].copy())


_STATE_FIELDS = ("steady", "gust", "wind", "wind_gust", "push", "push_left", "until_push", "force")
