"""A planted problem as `mujoco.sysid` is given it: the same model, segments, starts, noise, loss, bounds and first guess.

Its own route is followed where it has one: `Parameter`s with a modifier of the model's specification, a `ModelSequences` with
one sequence per segment, `build_residual_fn`, and `optimize` with its default optimiser, "mujoco". Its hooks are used for
what has to be equal: `modify_residual` compares the signals at the recording's ticks in units of their noise, and `norm`
counts large residuals as ours does. Starts that are to be found as well go through `custom_rollout`.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from unittest import mock

import mujoco
import numpy as np
from absl import logging
from mujoco import minimize, sysid

from bench.planted import Problem, Work
from isthmus.core.errors import BadInput
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.normal_equations import pseudo_huber_loss, robust_weights
from isthmus.sim.engines.mujoco.tangent import integrate
from isthmus.sim.indexing import signal_sources
from isthmus.world import Param, Target


def installed() -> bool:
    """Whether `mujoco.sysid` has what it needs: it is an extra of mujoco and imports as an empty module without."""
    return hasattr(sysid, "optimize")


FD_STEP = float(np.finfo(float).eps ** 0.5)
"""Of the optimiser's finite differences, by default."""


class Soft(minimize.Norm):
    """The loss that Isthmus minimises."""

    def value(self, r: np.ndarray) -> float:
        return float(pseudo_huber_loss(r).sum())

    def grad_hess(self, r: np.ndarray, proj: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        w = robust_weights(r)
        return proj.T @ (w * r), proj.T @ (w * proj)


def modifier(param: Param, model: mujoco.MjModel) -> Callable:
    """Writes a parameter of a Space into a specification, from the nominal model on."""
    target = Target.parse(param.targets[0])

    def write(spec: mujoco.MjSpec, found: sysid.Parameter) -> None:
        value = float(found.value[0])
        for thing in spec.bodies if target.kind == "body" else spec.joints:
            if not re.fullmatch(target.pattern, thing.name):
                continue
            if target.kind == "joint":
                # Damping is a polynomial of the speed here; its first coefficient is the one that everybody means.
                old = getattr(thing, target.field)
                setattr(thing, target.field, value if np.ndim(old) == 0 else [value, *old[1:]])
                continue
            body = model.body(thing.name)
            thing.fullinertia = np.full((6, 1), np.nan)
            thing.iquat = body.iquat
            if target.field == "mass":
                thing.mass, thing.inertia = value * body.mass[0], value * body.inertia
            elif target.field == "com":
                axis = int(target.index or 0)
                thing.ipos[axis] = body.ipos[axis] + value
            else:
                raise BadInput(f"the bench cannot write {param.targets[0]!r} into a specification.")

    return write


class Other:
    """mujoco.sysid on one problem."""

    def __init__(self, problem: Problem, known: bool, threads: int, keep: bool = False):
        """With starts that are `known`, or else to be found too; `keep` compiles a model once for all segments."""
        self.problem, self.known, self.keep, self.work = problem, known, keep, Work()
        self.segments: Segments = problem.known if known else problem.guessed
        robot = problem.robot
        self.model = robot.model
        logging.set_verbosity("error")
        self.params = sysid.ParameterDict()
        for p, start in zip(robot.space.params, problem.start, strict=True):
            self.params.add(sysid.Parameter(p.name, start, p.low, p.high, modifier=modifier(p, self.model)))
        S, nv = len(self.segments), self.model.nv
        if not known:
            self.params.add(sysid.Parameter("starts", np.zeros((S, 2 * nv)), -np.ones((S, 2 * nv)), np.ones((S, 2 * nv))))
        self._columns = self._state_columns()
        self._checkpoint_arrays: dict[bytes, mujoco.MjModel] = {}
        times = np.arange(self.segments.ticks + 1) / robot.contract.rate
        fine = np.arange(self.segments.ticks * robot.substeps + 1) * self.model.opt.timestep
        held = np.repeat(self.segments.target, robot.substeps, axis=1)
        held = np.concatenate([held, held[:, -1:]], axis=1)
        names = [(label, 1, sysid.SignalType.CustomObs) for label in map(str, range(self.segments.measured.shape[2]))]
        states = [
            sysid.create_initial_state(self.model, q, v) for q, v in zip(self.segments.qpos, self.segments.qvel, strict=True)
        ]
        for i, state in enumerate(states):
            state[0] = i
        sequences = sysid.ModelSequences(
            robot.name,
            robot.spec(),
            [str(i) for i in range(S)],
            states,
            [sysid.TimeSeries(fine, u) for u in held],
            [sysid.TimeSeries.from_custom_map(times, y, names) for y in self.segments.measured],
            allow_missing_sensors=True,
        )
        self.residual = sysid.build_residual_fn(
            models_sequences=[sequences],
            build_model=self._build,
            modify_residual=self._compare,
            custom_rollout=None if known else self._roll,
            n_threads=threads,
            resample_true=False,
        )

    def _state_columns(self) -> list[int]:
        """Columns of time, qpos and qvel side by side that the signals are."""
        first = {"qpos": 1, "qvel": 1 + self.model.nq}
        return [first[array] + c for array, columns in signal_sources(self.problem.robot, self.model) for c in columns]

    def _build(self, params: sysid.ParameterDict, spec: mujoco.MjSpec) -> mujoco.MjModel:
        key = params.as_vector().tobytes()
        if key not in self._checkpoint_arrays or not self.keep:
            began = time.perf_counter()
            self._checkpoint_arrays[key] = sysid.apply_param_modifiers(params, spec)
            self.work.compiling += time.perf_counter() - began
        return self._checkpoint_arrays[key]

    def _roll(self, *, param_dicts, initial_states, **given):
        moved = [self._update_ranges(s, p["starts"].value) for s, p in zip(initial_states, param_dicts, strict=True)]
        return sysid.sysid_rollout(initial_states=moved, **given)

    def _moved(self, state: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """A segment's state, whose time tells its number, moved by what is searched for."""
        nq, nv, step = self.model.nq, self.model.nv, starts[round(state[0])]
        out = state.copy()
        out[1 : 1 + nq] = integrate(self.model, state[None, 1 : 1 + nq], step[None, :nv])[0]
        out[1 + nq : 1 + nq + nv] += step[nv:]
        return out

    def _compare(self, params, predicted, measured, model, return_all, state):
        at = state[self.problem.robot.substeps - 1 :: self.problem.robot.substeps, self._columns]
        r = (at - measured.data[1:]) / self.problem.noise
        return r.ravel(), measured, measured

    def at(self, e: np.ndarray) -> np.ndarray:
        """r, (S, ticks, width), in the world e, (d,)."""
        x = self.params.as_vector()
        x[: len(e)] = e
        rows, _, _ = self.residual(x, self.params.copy())
        return np.stack(rows).reshape(len(self.segments), self.segments.ticks, -1)

    def counted(self, x: np.ndarray, params: sysid.ParameterDict) -> tuple:
        """The residual at the columns of x, noted in `work`."""
        self._checkpoint_arrays = {}
        out = self.residual(x, params)
        columns = x.shape[1] if x.ndim > 1 else 1
        self.work.replays += columns
        if columns == 1:
            self.work.note(float(pseudo_huber_loss(np.concatenate(out[0])).sum()))
        return out

    def fit(self, **options) -> np.ndarray:
        """The optimum, (d,); the options are those of `sysid.optimize`."""
        self.work = Work()
        with mock.patch("mujoco.rollout.rollout", self.work.timed(mujoco.rollout.rollout)):
            found, _ = sysid.optimize(self.params, self.counted, verbose=False, norm=Soft(), output=io.StringIO(), **options)
        self.work.stop()
        return found.as_vector()[: len(self.problem.truth)]

    def derivative(self, columns: int) -> int:
        """That many columns of one Jacobian, as every step of the fit needs a whole one; returns how many it has."""
        self.work = Work()
        x = self.params.as_vector()[:, None]
        with mock.patch("mujoco.rollout.rollout", self.work.timed(mujoco.rollout.rollout)):
            self.counted(x + FD_STEP * np.eye(len(x))[:, :columns], self.params)
        self.work.stop()
        return len(x)
