"""Laws of a gear that bends or has play, in reality and as the motors' law that a twin has of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from isthmus.robots import get_robot
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.reality import Reality, real_simulation
from isthmus.sim.reality.gearbox import Gearbox
from isthmus.sim.reality.simulation import PACKET_PERIOD
from isthmus.sim.reality.tables import Unmodelled
from isthmus.sim.simulation import Simulation
from support.rotor_rig import LINK, ROTOR, SPRING, real, run, wheel


def test_a_flexible_drive_bends_by_torque_over_stiffness():
    engine = real(wheel(spring=SPRING, viscous=(0.4,)), flex=200.0)
    run(engine, [1.5], 4.0)
    link, rotor = engine.qpos[0]
    assert link == pytest.approx(1.5 / SPRING, rel=1e-3)
    assert rotor - link == pytest.approx(1.5 / 200.0, rel=1e-3)
    assert engine.signals(np.random.default_rng(0))[0, 0] == pytest.approx(rotor, rel=1e-6), "the encoder is on the rotor"


def test_the_play_has_its_width_and_within_it_nothing_moves_the_link():
    play = 0.08
    engine = real(wheel(), backlash=play)
    pushed = [run(engine, [u], 0.4) for u in (0.2, -0.4, 0.4)]
    gap = np.concatenate(pushed)[:, 1] - np.concatenate(pushed)[:, 0]
    assert np.ptp(gap) == pytest.approx(play, rel=0.02)
    engine.reset(engine.all_ids)
    free = run(engine, [0.02], 0.1)
    inside = (free[:, 1] - free[:, 0]) < play / 2
    assert inside.sum() > 10
    assert np.abs(free[inside, 0]).max() < 1e-9
    assert free[inside][-1, 1] == pytest.approx(0.5 * 0.02 / ROTOR * (inside.sum() * PACKET_PERIOD) ** 2, rel=0.1)


def test_both_ends_of_the_gear_have_their_inertia():
    """Held together, rotor and link accelerate as one; total momentum is that of both."""
    for law in ({"backlash": 1e-4}, {"flex": 500.0}):
        engine = real(wheel(), **law)
        path = run(engine, [0.6], 0.5)
        link, rotor = path[-1, 2:]
        assert LINK * link + ROTOR * rotor == pytest.approx(0.6 * 0.5, rel=1e-3)
        assert path[:, 2].mean() == pytest.approx(0.6 / (LINK + ROTOR) * 0.25, rel=0.02)


@pytest.mark.parametrize(("name", "law", "field", "value", "size", "part"), [
    ("held:go1", {"backlash": 0.06}, "backlash", 0.03, 0.15, 0.75),
    ("pendulum", {"backlash": 0.06}, "backlash", 0.03, 1.2, 0.2),
    ("pendulum", {"flex": 30.0}, "spring", 30.0, 1.2, 0.2),
])  # fmt: skip
def test_the_motors_law_of_a_gear_is_what_the_reality_does(name, law, field, value, size, part):
    """Encoders on the rotor: the law foretells them to a part of what the gear changes, and with other figures does worse."""
    robot = get_robot(name)
    m = len(robot.default)
    units = [UnitPhysics(), *(UnitPhysics({field: (x * value,) * m}) for x in (1.0, 0.5, 2.0))]
    truth = real_simulation(robot, Reality.from_dict({"robot": robot.name, "unmodelled": law}), 1, tick=0.02)
    engines = [truth, *(Simulation(dataclasses.replace(robot, unit=unit), 1) for unit in units)]
    where, seen = robot.contract.slices()["joint_vel"], []
    for tick in range(100):
        swing = size * np.sin(0.02 * tick * np.linspace(9.0, 16.0, m) + np.arange(m))
        for engine in engines:
            engine.step(np.array(robot.default)[None] + swing)
        seen.append([engine.noiseless_signals()[0, where] for engine in engines])
    late = np.array(seen[10:])
    rigid, right, half, double = (np.sqrt(np.mean((late[:, i] - late[:, 0]) ** 2)) for i in range(1, 5))
    assert right < part * rigid
    assert right < min(half, double)


@pytest.mark.parametrize("unit", [UnitPhysics({"backlash": (0.03,) * 12}), UnitPhysics()])
def test_motors_give_no_more_than_they_can_whatever_their_gear_does(unit):
    robot = get_robot("held:go1")
    engine, rng = Simulation(dataclasses.replace(robot, unit=unit), 4), np.random.default_rng(0)
    most = np.array(robot.motors.torque_limit)
    for _ in range(60):
        engine.step(np.array(robot.default) + rng.uniform(-0.8, 0.8, (4, 12)))
        assert (np.abs(engine.motor_torque()) <= most + 0.5).all(), "of which friction is a part where there is no gear"
    if unit.motors:
        q, v = engine.encoder_state()
        engine.reset(engine.all_ids, q, v, engine.userdata["targets"].copy())
        assert np.allclose(engine.encoder_state()[0], q), "where encoders show it"


def test_a_spring_gains_no_energy():
    """A wheel on a spring behind its motor, without friction: the link's armature is the rotor's inertia, and once only."""
    robot = wheel(spring=0.0)
    engine = Simulation(dataclasses.replace(robot, unit=UnitPhysics({"spring": (3.0,)})), 1)
    engine.reset(engine.all_ids, qvel=np.array([[2.0]]))
    energy = []
    for _ in range(200):
        engine.step(np.zeros((1, 1)))
        theta, speed = (engine.userdata[f"state.{name}"].item() for name in ("rotor", "rotor_speed"))
        q, qd = engine.qpos.item(), engine.qvel.item()
        energy.append(0.5 * (LINK * qd**2 + ROTOR * speed**2 + 3.0 * (theta - q) ** 2))
    assert np.max(energy) < 1.1 * 0.5 * (LINK + ROTOR) * 4
    assert np.min(energy) > 0.7 * 0.5 * (LINK + ROTOR) * 4


def test_a_gear_gains_no_energy_at_the_stiffest():
    robot = wheel()
    gear = Gearbox.for_robot(robot, Unmodelled(), robot.space.nominal)
    assert gear.mobility[0] == pytest.approx(1 / LINK + 1 / ROTOR)
    engine = real(robot, flex=0.999 * gear.max_stiffness(0.001))
    engine.qvel[:] = [[2.0, -1.0]]
    path = run(engine, [0.0], 2.0)
    moving = 0.5 * LINK * path[:, 2] ** 2 + 0.5 * ROTOR * path[:, 3] ** 2
    start = 0.5 * LINK * 4 + 0.5 * ROTOR
    assert moving.max() <= start * 1.001
    assert path[-1, 2] == pytest.approx(path[-1, 3], abs=1e-3), "what is left is the common motion"
    assert path[-1, 2] == pytest.approx((2 * LINK - ROTOR) / (LINK + ROTOR), rel=1e-6)


def test_the_armature_of_e_is_the_rotors():
    engine = real(get_robot("pendulum"), {"armature": 0.004}, flex=50.0)
    assert engine.engine.field("dof_armature")[0] == pytest.approx([0.0, 0.004])
    engine.apply(engine.e, engine.all_ids)
    assert engine.engine.field("dof_armature")[0] == pytest.approx([0.0, 0.004]), "applying twice is applying once"
