"""All coordinates in which a robot may differ from its model, side by side: numbers, errors of sensors, missing forces.

    θ = [ numbers | biases | gains | tilt | forces ]      (D,) in one segment; all but the numbers are 0 if all is well

A number is in unconstrained coordinates. A bias is in its signal's unit, a gain is a logarithm, a tilt in rad about x and y of
how the inertial sensor is mounted; forces are by the laws of `laws`. θ may differ from segment to segment: what drifts does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from isthmus.real2sim.diagnose.missing_forces import ForceLaw, force_laws
from isthmus.real2sim.prepare.kinematics import body_signals
from isthmus.real2sim.residual.residual import MAX_WORLDS_PER_BATCH, ParameterResidual
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation

SENSOR_BIAS_STD = {"rad": 0.1, "rad/s": 0.3, "m": 0.1, "m/s": 0.25, "1": 0.05, "m/s²": 1.0}
"""How large a bias may well be, by unit; of other units this part of how much the signal moves:"""
BIAS_STD_OF_SPREAD = 0.3
LOG_GAIN_STD, TILT_STD = 0.2, 0.1


@dataclass(frozen=True)
class ExtendedParameters:
    """Of one robot and the numbers that are in doubt."""

    robot: Robot
    names: tuple[str, ...]
    signal_spread: np.ndarray
    """(width,) how much each signal moves."""

    @cached_property
    def force_laws(self) -> list[ForceLaw]:
        return force_laws(self.robot)

    @cached_property
    def gain_signals(self) -> list[str]:
        """Signals whose gain may be wrong: all but attitudes."""
        return [s.name for s in self.robot.contract.signals if s.name != "quat"]

    @cached_property
    def tilt_signals(self) -> list[str]:
        """What an inertial sensor measures; nothing where it measures no attitude."""
        found = body_signals(self.robot)
        return [found[k] for k in ("quat", "angvel", "accel") if k in found] if "quat" in found else []

    @property
    def part_sizes(self) -> tuple[int, ...]:
        """Of the parts of θ."""
        return (
            len(self.names),
            self.robot.contract.width,
            len(self.gain_signals),
            2 * bool(self.tilt_signals),
            len(self.force_laws),
        )

    @cached_property
    def slices(self) -> tuple[slice, slice, slice, slice, slice]:
        """numbers, biases, gains, tilt, forces"""
        ends = np.cumsum((0, *self.part_sizes)).tolist()
        a, b, c, d, e = (slice(i, j) for i, j in pairwise(ends))
        return a, b, c, d, e

    def __len__(self) -> int:
        return sum(self.part_sizes)

    @cached_property
    def std(self) -> np.ndarray:
        """(D,) how far each may well be off; of numbers 0, for that is what a belief says."""
        units = [u for s in self.robot.contract.signals for u in s.units]
        known = np.array([SENSOR_BIAS_STD.get(u, np.nan) for u in units])
        biases = np.where(np.isfinite(known), known, BIAS_STD_OF_SPREAD * self.signal_spread)
        forces = [law.spread for law in self.force_laws]
        return np.array(
            [
                *np.zeros(len(self.names)),
                *biases,
                *[LOG_GAIN_STD] * len(self.gain_signals),
                *[TILT_STD] * self.part_sizes[3],
                *forces,
            ]
        )

    def distort(self, theta: np.ndarray):
        """What sensors with the errors of θ, (n, D), make of signals, as `Residual.live` takes it; None without errors."""
        _, bias, gain, tilt, _ = self.slices
        if not theta[:, bias.start : tilt.stop].any():
            return None
        at = self.robot.contract.slices()
        factor = np.ones((len(theta), self.robot.contract.width))
        for name, column in zip(self.gain_signals, range(gain.start, gain.stop), strict=True):
            factor[:, at[name]] = np.exp(theta[:, column : column + 1])
        turn = theta[:, tilt] if self.tilt_signals and theta[:, tilt].any() else None

        def sense(y: np.ndarray) -> np.ndarray:
            out = y.copy()
            if turn is not None:
                self._apply_tilt(out, turn)
            out = factor * out + theta[:, bias]
            if self.tilt_signals:
                quat = out[:, at[self.tilt_signals[0]]]
                quat /= np.maximum(np.linalg.norm(quat, axis=-1, keepdims=True), 1e-9)
            return out

        return sense

    def _apply_tilt(self, out: np.ndarray, tilt: np.ndarray) -> None:
        """What a sensor says that is mounted with a small rotation by (a, b, 0), in place."""
        at = self.robot.contract.slices()
        half = 0.5 * np.concatenate([tilt, np.zeros_like(tilt[:, :1])], axis=1)
        for name in self.tilt_signals:
            value = out[:, at[name]]
            if value.shape[1] == 4:
                w, v = value[:, :1].copy(), value[:, 1:].copy()
                value[:, :1] = w - (v * half).sum(-1, keepdims=True)
                value[:, 1:] = v + w * half + np.cross(v, half)
            else:
                value += np.cross(value, 2.0 * half)

    def forces(self, theta: np.ndarray):
        """The forces of θ, (n, D), as `Residual.live` takes them; None if there are none."""
        amounts = theta[:, self.slices[4]]
        active = np.flatnonzero(amounts.any(axis=0))
        if not len(active):
            return None

        @np.errstate(over="ignore", invalid="ignore")
        def push(engine: Simulation, tick: int) -> np.ndarray:
            # Worlds that blow up are counted as such, not warned of.
            return np.sum([amounts[:, i, None] * self.force_laws[i].force(engine) for i in active], axis=0)

        return push


FINER_STEP_FACTOR = 2
"""Physics steps in place of one, to see what the length of a step does."""


class ExtendedResidual:
    """Segments of recordings, replayed under any θ."""

    def __init__(self, parameters: ExtendedParameters, residual: ParameterResidual, e: np.ndarray):
        """`e`, (all,), gives the numbers that are not in doubt."""
        self.parameters, self.residual, self.e = parameters, residual, e

    def __call__(self, theta: np.ndarray, xi: np.ndarray) -> np.ndarray:
        """r, (k, S, ticks + 1, components), of k copies under θ, (k, S, D), from starts moved by ξ, (k, S, 2 nv)."""
        most = max(1, MAX_WORLDS_PER_BATCH // theta.shape[1])
        return np.concatenate([self._simulate_batch(theta[i : i + most], xi[i : i + most]) for i in range(0, len(theta), most)])

    def error_with_finer_steps(self, theta: np.ndarray, xi: np.ndarray) -> np.ndarray:
        """The same with shorter physics steps."""
        r = self.residual
        fine = ParameterResidual(with_finer_steps(r.robot), r.segments, r.noise, r.space.names, r.threads)
        return ExtendedResidual(self.parameters, fine, self.e)(theta, xi)

    def _simulate_batch(self, theta: np.ndarray, xi: np.ndarray) -> np.ndarray:
        residual, doubts = self.residual, self.parameters
        k, S, D = theta.shape
        flat, measured = theta.reshape(k * S, D), residual.segments.measured
        e = residual.parameter_values(flat[:, doubts.slices[0]], self.e)
        y = residual.simulate(e, xi, doubts.forces(flat), distort=doubts.distort(flat))
        return residual.error(y.reshape(k, S, *y.shape[1:]), measured, residual.seen)


def with_finer_steps(robot: Robot) -> Robot:
    """The same robot with shorter physics steps."""
    step = float(robot.model.opt.timestep) / FINER_STEP_FACTOR
    return replace(robot, timestep=step, substeps=FINER_STEP_FACTOR * robot.substeps)
