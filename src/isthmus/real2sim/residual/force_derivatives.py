"""What a force in one tick does to all that is measured after it: dr/dforce, by pushed copies of the robot side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.sim.simulation import Simulation

PUSHED_WORLDS = 1024
"""Copies that are stepped side by side, about: those that are pushed one after the other."""


def force_jacobian(
    residual: ParameterResidual, e: np.ndarray, xi: np.ndarray, dofs: Sequence[int], force_size: np.ndarray
) -> np.ndarray:
    """dr/dforce, (S, ticks + 1, components, ticks, dofs), of forces at single ticks, by pushes of `size`, (dofs,).

    A copy begins with its push, in the state of the robot that nobody pushes. A robot that is followed remembers a push for
    long: no signal measures how fast its base goes.
    """
    segments, D = residual.segments, len(dofs)
    S, T = len(segments), segments.ticks
    states: list[dict[str, np.ndarray]] = []

    def note(engine: Simulation, tick: int) -> np.ndarray:
        states.append(engine.state())
        return np.zeros((S, engine.model.nv))

    alone = residual.simulate(np.repeat(e[None], S, axis=0), xi, note)
    base = residual.error(alone, segments.measured, residual.seen)
    past = {name: np.stack([state.pop(name) for state in states]) for name in list(states[0])}
    out = np.zeros((*base.shape, T, D), dtype=np.float32)
    some = max(1, PUSHED_WORLDS // S)
    for first in range(0, T * D, some):
        pushes = np.arange(first, min(first + some, T * D))
        tick, dof = (np.repeat(a, S) for a in np.divmod(pushes, D))
        which = np.tile(np.arange(S), len(pushes))
        engine = residual.engine(len(which))
        engine.restore({name: values[tick, which] for name, values in past.items()})
        engine.diverged[:] = False
        force = np.zeros((engine.n, engine.model.nv))
        force[engine.all_ids, np.array(dofs)[dof]] = force_size[dof]
        y = alone[which, tick]
        for after in range(T - tick[0]):
            now = np.minimum(tick + after, T - 1)
            engine.apply_force(force if after == 0 else np.zeros_like(force), engine.all_ids)
            residual.correct_state(engine, y, now, which)
            engine.replay(segments.target[which, now])
            y = engine.noiseless_signals()
            y[engine.diverged] = np.nan
            r = residual.error(y, segments.measured[which, now + 1], residual.seen[which, now + 1])
            there = tick + after < T
            at = which[there], now[there] + 1
            out[(*at, slice(None), tick[there], dof[there])] = (r - base[which, now + 1])[there] / force_size[dof[there], None]
    out[np.isnan(alone).all((1, 2))] = 0.0  # what fails by itself says nothing about a push
    return out
