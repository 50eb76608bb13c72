"""Two estimators of states with one interface: what each leaves alone, and what a residual with another noise shares."""

from __future__ import annotations

import numpy as np
import pytest

from isthmus.real2sim.prepare.components import Components
from isthmus.real2sim.prepare.prepare import prepare
from isthmus.real2sim.prepare.segments import cut
from isthmus.real2sim.residual.estimators import FreeStarts, Observer, estimator_for, settle_ticks
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot
from isthmus.sim.simulate_recording import random_multisine, record_targets
from isthmus.sim.simulation import Simulation


@pytest.fixture(scope="module")
def pendulum() -> Robot:
    return get_robot("pendulum")


@pytest.fixture(scope="module")
def go1() -> Robot:
    return get_robot("go1")


@pytest.fixture(scope="module")
def residual(pendulum: Robot) -> ParameterResidual:
    episode = record_targets(pendulum, pendulum.prior.median(), random_multisine(pendulum, 2.0, 0, 0.2), 1)
    prepared = prepare(pendulum, [episode], findings=())
    return ParameterResidual(pendulum, cut(prepared.tracks, pendulum, 12), prepared.noise, ("payload",), threads=1)


def test_only_robots_on_feet_need_an_observer(pendulum: Robot, go1: Robot):
    assert isinstance(estimator_for(pendulum), FreeStarts)
    assert isinstance(estimator_for(go1), Observer)


def test_starts_are_free_or_there_are_none(pendulum: Robot, go1: Robot):
    for robot, size in ((pendulum, 2 * pendulum.model.nv), (go1, 0)):
        components = Components(robot.contract)
        scale, weight = estimator_for(robot).start_scale(components, np.full(len(components), 0.01))
        assert scale.shape == weight.shape == (size,)
        assert (scale > 0).all()


def test_an_observer_needs_time_to_settle(go1: Robot):
    assert settle_ticks(go1) == FreeStarts(go1).settle_ticks + round(0.6 * go1.contract.rate)


def test_free_starts_leave_a_simulation_as_it_is_and_an_observer_moves_it(go1: Robot):
    simulation, components = Simulation(go1, 1, 1), Components(go1.contract)
    simulation.apply(go1.prior.median()[None], simulation.all_ids)
    simulation.reset(simulation.all_ids)
    before = simulation.qpos.copy()
    FreeStarts(go1).correct(simulation, np.full((1, len(components)), 0.1))
    Observer(go1).correct(simulation, np.full((1, len(components)), np.nan))
    np.testing.assert_array_equal(simulation.qpos, before)
    Observer(go1).correct(simulation, np.full((1, len(components)), 0.1))
    assert np.abs(simulation.qpos - before).max() > 0.01


def test_another_noise_is_another_residual_that_compares_the_same_states(residual: ParameterResidual):
    noise, scale = residual.noise.copy(), residual.start_scale.copy()
    louder = residual.with_noise(4.0 * noise)
    e = residual.robot.prior.median()[None]
    xi = 0.1 * np.random.default_rng(0).standard_normal((1, len(residual.segments), len(scale)))
    again = louder(e, xi * scale / louder.start_scale)
    np.testing.assert_allclose(4.0 * again, residual(e, xi), atol=1e-6)
    np.testing.assert_array_equal(residual.noise, noise)
    np.testing.assert_array_equal(residual.start_scale, scale)
