"""What a force in one tick does to all that is measured after it: dr/dforce, by pushed copies of the robot side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.gap.residual import Residual
from isthmus.sim.engine import Engine

WORLDS = 1024
"""Copies that are stepped side by side, about: those that are pushed one after the other."""


def by_force(residual: Residual, e: np.ndarray, xi: np.ndarray, dofs: Sequence[int], size: np.ndarray) -> np.ndarray:
    """dr/dforce, (S, ticks + 1, components, ticks, dofs), of forces at single ticks, by pushes of `size`, (dofs,).

    A copy begins with its push, in the state of the robot that nobody pushes. A robot that is followed remembers a push for
    long: no signal measures how fast its base goes.
    """
    segments, D = residual.segments, len(dofs)
    S, T = len(segments), segments.ticks
    states: list[dict[str, np.ndarray]] = []

    def note(engine: Engine, tick: int) -> np.ndarray:
        states.append(engine.state())
        return np.zeros((S, engine.model.nv))

    alone = residual.live(np.repeat(e[None], S, axis=0), xi, segments.measured, note)
    base = residual.off(alone, segments.measured, residual.seen)
    past = {name: np.stack([state.pop(name) for state in states]) for name in list(states[0])}
    out = np.zeros((*base.shape, T, D), dtype=np.float32)
    some = max(1, WORLDS // S)
    for first in range(0, T * D, some):
        pushes = np.arange(first, min(first + some, T * D))
        tick, dof = (np.repeat(a, S) for a in np.divmod(pushes, D))
        which = np.tile(np.arange(S), len(pushes))
        engine = residual.engine(len(which))
        engine.restore({name: values[tick, which] for name, values in past.items()})
        engine.blown[:] = False
        force = np.zeros((engine.n, engine.model.nv))
        force[engine.all, np.array(dofs)[dof]] = size[dof]
        y = alone[which, tick]
        for after in range(T - tick[0]):
            now = np.minimum(tick + after, T - 1)
            engine.push(force if after == 0 else np.zeros_like(force), engine.all)
            residual.follow(engine, y, now, which)
            engine.replay(segments.target[which, now])
            y = engine.noiseless()
            y[engine.blown] = np.nan
            r = residual.off(y, segments.measured[which, now + 1], residual.seen[which, now + 1])
            there = tick + after < T
            at = which[there], now[there] + 1
            out[(*at, slice(None), tick[there], dof[there])] = (r - base[which, now + 1])[there] / size[dof[there], None]
    out[np.isnan(alone).all((1, 2))] = 0.0  # what fails by itself says nothing about a push
    return out
