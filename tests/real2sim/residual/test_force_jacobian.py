"""What a push does to all that is measured after it, whoever is pushed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.data.contract import Signal
from isthmus.real2sim.residual import force_derivatives
from isthmus.real2sim.residual.force_derivatives import force_jacobian
from isthmus.real2sim.residual.residual import ParameterResidual
from isthmus.robots import get_robot
from isthmus.sim.engines.batch.engine import BatchEngines
from isthmus.sim.physics.ground import ground_from_sink_depth
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.robot import Robot
from isthmus.sim.simulate_recording import random_multisine, record_targets
from isthmus.sim.simulation import Simulation
from isthmus.world import Belief, Space
from support.recordings import residual_of

PUSH = 0.05


def plain() -> Robot:
    return get_robot("pendulum")


def prompt(robot: Robot) -> Robot:
    """The same with sensors that are late by a step at most."""
    params = [replace(p, high=0.005, nominal=0.005) if p.name == "sensor_delay" else p for p in robot.space.params]
    space = Space(tuple(params))
    return replace(robot, space=space, prior=Belief(space))


def feeling() -> Robot:
    """A pendulum with an accelerometer of its model's own, on its weight."""
    robot = plain()
    xml = robot.xml.replace('<body name="weight" pos="0 0 -0.5">', '<body name="weight" pos="0 0 -0.5"><site name="weight"/>')
    xml = xml.replace("</mujoco>", '<sensor><accelerometer name="felt" site="weight"/></sensor></mujoco>')
    signals = (*robot.contract.signals, Signal("felt", "m/s²", ("x", "y", "z")))
    return replace(
        robot, xml=xml, contract=replace(robot.contract, signals=signals), sources={**robot.sources, "felt": "sensor:felt"}
    )


def followed() -> Robot:
    robot = get_robot("go1")
    return replace(robot, unit=UnitPhysics(ground=ground_from_sink_depth(robot, 0.01)))


def made(robot: Robot, delay: float = 0.0) -> tuple[ParameterResidual, np.ndarray]:
    """Of two pieces of a recording, and the world it was made in."""
    e = robot.space.nominal.copy()
    if delay:
        e[robot.space.index("sensor_delay")] = delay
    size, ticks = (0.03, 40) if robot.morphology.feet else (0.1, 20)
    residual = residual_of(robot, record_targets(robot, e, random_multisine(robot, 3.0, size=size)), ticks=ticks, noise=0.01)
    return ParameterResidual(robot, residual.segments.take(np.arange(2)), residual.noise, (), threads=1), e


def starts(residual: ParameterResidual) -> np.ndarray:
    return np.zeros((2, len(residual.start_scale)))


@pytest.mark.parametrize("compiled", [True, False])
def test_what_a_sensor_of_the_model_felt_is_that_of_its_own_world_however_late_it_is_read(compiled):
    robot = feeling()
    e = robot.space.nominal.copy()
    e[robot.space.index("sensor_delay")] = 0.02
    engines = [Simulation(robot, n, threads=1, engine=BatchEngines(native_motor_law=compiled)) for n in (1, 3)]
    for engine in engines:
        engine.apply(np.tile(e, (engine.n, 1)), engine.all_ids)
        engine.reset(engine.all_ids, np.linspace(0.3, 2.0, engine.n)[:, None], np.zeros((engine.n, 1)))
    for t in range(8):
        for engine in engines:
            engine.step(np.full((engine.n, 1), 0.3 * np.sin(t)))
        alone, beside = (engine.noiseless_signals()[0] for engine in engines)
        assert np.array_equal(alone, beside)


CASES = [
    (plain, 0.0, [0]),
    (feeling, 0.02, [0]),
    (followed, 0.02, [2, 9]),
    (lambda: prompt(plain()), 0.005, [0]),
    (lambda: prompt(feeling()), 0.005, [0]),
]


@pytest.mark.parametrize("worlds", [8, 1024])
@pytest.mark.parametrize(("robot", "delay", "dofs"), CASES)
def test_a_copy_that_begins_with_its_push_is_one_that_was_pushed_on_the_way(robot, delay, dofs, worlds, monkeypatch):
    monkeypatch.setattr(force_derivatives, "PUSHED_WORLDS", worlds)
    residual, e = made(robot(), delay)
    segments, xi = residual.segments, starts(residual)
    found = force_jacobian(residual, e, xi, dofs, np.full(len(dofs), PUSH))
    alone = residual(e[None], xi[None])[0]
    for tick in (0, 3, residual.settle_ticks, segments.ticks - 3, segments.ticks - 1):
        for i, dof in enumerate(dofs):
            row = PUSH * (np.arange(residual.robot.model.nv) == dof)
            push = lambda engine, t, at=tick, row=row: np.tile(row * (t == at), (2, 1))
            there = residual.simulate(np.tile(e, (2, 1)), xi, push)
            whole = (residual.error(there, segments.measured, residual.seen) - alone) / PUSH
            assert not residual.settle_ticks <= tick < segments.ticks - 1 or np.abs(whole).max() > 1e-3
            assert np.allclose(found[..., tick, i], whole, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(whole).max()))


def test_the_effect_of_a_push_is_linear_and_starts_with_it():
    residual, e = made(plain())
    small, large = (force_jacobian(residual, e, starts(residual), [0], np.array([h])) for h in (0.02, 0.06))
    assert np.allclose(small, large, rtol=0.1, atol=0.05 * np.abs(small).max())
    for t in range(residual.segments.ticks):
        assert (small[:, : t + 1, :, t] == 0).all()


def test_a_piece_that_fails_by_itself_says_nothing_about_a_push():
    residual, e = made(plain())
    qvel = residual.segments.qvel.copy()
    qvel[0] = 600.0
    wild = ParameterResidual(residual.robot, replace(residual.segments, qvel=qvel), residual.noise, (), threads=1)
    found = force_jacobian(wild, e, starts(wild), [0], np.array([PUSH]))
    assert (found[0] == 0).all()
    assert np.array_equal(found[1], force_jacobian(residual, e, starts(residual), [0], np.array([PUSH]))[1])


@pytest.mark.parametrize("compiled", [True, False])
def test_what_a_sensor_of_the_model_felt_survives_a_checkpoint(compiled):
    robot = feeling()
    e = robot.space.nominal.copy()
    e[robot.space.index("sensor_delay")] = 0.02
    one, other = (Simulation(robot, 3, threads=1, engine=BatchEngines(native_motor_law=compiled)) for _ in range(2))
    one.apply(np.tile(e, (3, 1)), one.all_ids)
    one.reset(one.all_ids, np.linspace(0.3, 2.0, 3)[:, None], np.zeros((3, 1)))
    for _ in range(5):
        one.step(np.full((3, 1), 0.3))
    kept = one.state()
    other.restore(kept)
    with pytest.raises(BadInput, match="the saved state lacks sensordata"):
        other.restore({name: values for name, values in kept.items() if name != "sensordata"})
    for _ in range(5):
        assert np.array_equal(one.noiseless_signals(), other.noiseless_signals())
        for engine in (one, other):
            engine.step(np.full((3, 1), -0.2))
