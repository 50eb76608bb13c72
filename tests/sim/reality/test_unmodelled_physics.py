"""Laws of the physics that training lacks, each against its closed form, and of the engine without any of it."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.robots import ROBOTS
from isthmus.sim.engines.batch.engine import BatchEngines
from isthmus.sim.reality import Reality, equations, real_simulation
from isthmus.sim.reality.external_forces import ExternalForces
from isthmus.sim.reality.ground_truth import GroundTruth
from isthmus.sim.reality.simulation import PACKET_PERIOD
from isthmus.sim.reality.stiction import AttachedStiction
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation
from support.rotor_rig import LINK, ROTOR, real, run, wheel

CRAZYFLIE, GO1, PENDULUM = ROBOTS["crazyflie"](), ROBOTS["go1"](), ROBOTS["pendulum"]()
MASS = 0.027


# Nothing unmodelled --------------------------------------------------------------------------------------------------


def training(robot: Robot, step: float, solver: bool = False) -> Simulation:
    """The engine that policies train in, with steps of `step` s, and with the reality's contact solver if so wanted."""

    def edit(spec: mujoco.MjSpec) -> None:
        spec.option.timestep = step
        if solver:
            spec.option.solver, spec.option.cone = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtCone.mjCONE_ELLIPTIC
            spec.option.iterations, spec.option.ls_iterations, spec.option.impratio = 50, 50, 10.0

    return Simulation(dataclasses.replace(robot, substeps=round(0.02 / step)), 1, threads=1, edit=edit)


@pytest.mark.parametrize("name", sorted(ROBOTS))
def test_an_empty_reality_is_training_with_finer_steps_and_another_solver(name, targets):
    robot = ROBOTS[name]()
    u = [targets(robot, np.random.default_rng(k), 1, size=0.1)[0] for k in range(15)]
    engines = {
        "real": real_simulation(robot, Reality(name), 1, threads=1, tick=0.02),
        "same": training(robot, 0.001, solver=True),
        "fine": training(robot, 0.001),
        "coarse": training(robot, 0.005),
    }
    paths = {key: np.concatenate([run(e, row, 0.02) for row in u])[:, : robot.model.nq] for key, e in engines.items()}
    same, fine, coarse = (np.abs(paths["real"] - paths[k]).max() for k in ("same", "fine", "coarse"))
    assert same < 1e-9
    assert fine < coarse
    assert coarse > 1e-6, "the test can tell"
    assert fine < (0.03 if robot.morphology.feet else 1e-9)


@pytest.mark.parametrize("name", ["go1", "crazyflie"])
def test_the_motor_law_in_numpy_gives_the_same(name, targets):
    robot = ROBOTS[name]()
    law = {"battery_sag": 0.3, "heating": 3.0, "drag": 0.1}
    law |= {"backlash": 0.02, "flex": 500.0} if name == "go1" else {"rotor_drag": 0.02, "thrust_asymmetry": {"m2": 0.9}}
    u = targets(robot, np.random.default_rng(0), 1, size=0.1)[0]
    fast, slow = (run(real(robot, engine=BatchEngines(native_motor_law=c), **law), u, 0.3) for c in (True, False))
    assert np.allclose(fast, slow, rtol=1e-6, atol=1e-7)


def test_several_worlds_are_the_same_world(targets):
    law = {"backlash": 0.02, "drag": 2.0, "battery_sag": 0.3, "ground_softness": 0.01}
    law |= {"stribeck": {"static": 1.0, "coulomb": 0.5, "velocity": 0.2}}
    one, three = real(GO1, {"payload": 1.0}, **law), real(GO1, {"payload": 1.0}, 3, **law)
    run(one, GO1.default, 0.1), run(three, GO1.default, 0.1)
    for row in three.qpos:
        assert np.array_equal(row, one.qpos[0])


def test_a_restored_reality_goes_on_bit_for_bit():
    law = {"heating": 5.0, "battery_sag": 0.3, "cable": {"force": 3.0}, "flex": 600.0}
    engine = real(GO1, **law)
    run(engine, GO1.default, 0.1)
    saved = engine.state()
    straight = run(engine, GO1.default, 0.1)
    other = real(GO1, **law)
    other.restore(saved)
    assert np.array_equal(run(other, GO1.default, 0.1), straight)


def test_a_tick_is_a_multiple_of_the_physics_step():
    with pytest.raises(BadInput, match="multiple"):
        real_simulation(PENDULUM, Reality("pendulum"), tick=0.0015)


# Friction ------------------------------------------------------------------------------------------------------------

STRIBECK = {"static": 1.0, "coulomb": 0.4, "velocity": 0.2}


@pytest.mark.parametrize("gear", [{}, {"flex": 300.0}])
def test_a_joint_at_rest_breaks_away_at_the_static_torque(gear):
    for torque, moves in ((0.97, False), (-0.97, False), (1.03, True), (-1.03, True)):
        engine = real(wheel(), stribeck=STRIBECK, **gear)
        run(engine, [torque], 0.6)
        rotor = engine.qvel[0, -1]
        if moves:
            assert np.sign(torque) * rotor > 1.0
        else:
            assert abs(rotor) < 1e-3


def test_a_joint_that_turns_fast_loses_the_coulomb_torque():
    engine = real(wheel(), stribeck=STRIBECK)
    engine.qvel[:] = 10.0
    path = run(engine, [0.0], 0.5)
    assert path[-1, 1] == pytest.approx(10.0 - 0.4 / (LINK + ROTOR) * 0.5, rel=1e-3)
    assert abs(run(engine, [0.0], 2.0)[-1, 1]) < 1e-4, "and stops for good"


def test_stribeck_falls_from_static_to_coulomb():
    law = real(wheel(), stribeck=STRIBECK).part(AttachedStiction).law
    v = np.linspace(0, 3, 200)
    loss = equations.stribeck_friction(v, law)
    assert loss[0] == 1.0
    assert loss[-1] == pytest.approx(0.4)
    assert (np.diff(loss) <= 0).all()
    assert np.array_equal(loss, equations.stribeck_friction(-v, law))


# Motors --------------------------------------------------------------------------------------------------------------


def test_a_battery_takes_the_ceiling_and_the_no_load_speed_down_evenly():
    motors = {"torque_limit": (3.0,), "speed_limit": (30.0,)}
    engine = real(wheel(spring=1e4, **motors), battery_sag={"loss": 0.4, "seconds": 2.0})
    for half in (1, 2, 3, 4, 5):
        run(engine, [50.0], 0.5)
        left = 1 - 0.4 * min(half * 0.25, 1.0)
        assert engine.ctrl[0, 0] == pytest.approx(3.0 * left, rel=5e-3)
        assert engine.userdata["motor.speed_limit"][0, 0] == pytest.approx(30.0 * left, rel=1e-3)
    engine.reset(engine.all_ids)
    run(engine, [50.0], PACKET_PERIOD)
    assert engine.ctrl[0, 0] == pytest.approx(3.0, rel=1e-2), "a new episode has a full battery"


def test_a_rotor_on_a_weak_battery_gives_less_of_what_is_asked():
    engine = real(CRAZYFLIE, {"drag": 0.05}, battery_sag={"loss": 0.3, "seconds": 0.2})
    path = run(engine, CRAZYFLIE.default, 0.3)
    fall = (path[-1, 9] - path[-26, 9]) / (25 * PACKET_PERIOD)
    assert fall == pytest.approx(-0.3 * 9.81, rel=0.01)


def test_a_motor_at_full_load_loses_torque_as_it_heats():
    """h' = (1 - L h)² / minute from h = 0: after t minutes 1 - L h = 1 / (1 + L t)."""
    engine = real(wheel(spring=1e4, torque_limit=(3.0,)), heating=2.0, tick=0.02)
    for seconds in (6.0, 12.0):
        run(engine, [50.0], 6.0)
        assert engine.ctrl[0, 0] == pytest.approx(3.0 / (1 + 2.0 * seconds / 60), rel=2e-3)
    assert equations.thermal_torque_fraction(
        equations.full_load_minutes(np.array([3.0]), np.array([3.0]), 60.0), 0.3
    ) == pytest.approx(0.7)
    half = equations.full_load_minutes(np.array([1.5]), np.array([3.0]), 60.0)
    assert equations.thermal_torque_fraction(half, 0.3) == pytest.approx(1 - 0.3 / 4), "heat goes with the square of the load"


# Ground --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "law", [{"ground_softness": 0.02}, {"ground_softness": 0.004}, {"ground_softness": 0.012, "flex": 900.0}]
)
def test_feet_sink_in_by_the_softness(law):
    engine = real(GO1, **law)
    run(engine, GO1.default, 2.0)
    contacts = GroundTruth(engine).read()["contacts"]
    assert len(contacts) == 4
    assert np.mean([c["depth"] for c in contacts]) == pytest.approx(law["ground_softness"], rel=0.03)
    engine.apply(engine.e, engine.all_ids)
    run(engine, GO1.default, 0.2)
    again = GroundTruth(engine).read()["contacts"]
    assert np.mean([c["depth"] for c in again]) == pytest.approx(law["ground_softness"], rel=0.03), "apply keeps it"


def test_feet_on_soft_ground_do_not_creep():
    engine = real(GO1, ground_softness=0.01)
    run(engine, GO1.default, 1.5)
    before = engine.qpos[0, :2].copy()
    run(engine, GO1.default, 1.0)
    assert np.abs(engine.qpos[0, :2] - before).max() < 0.004


# Air and cables ------------------------------------------------------------------------------------------------------


def test_drag_gives_the_terminal_speed_and_takes_its_power():
    engine = real(CRAZYFLIE, {"drag": 0.05}, drag=0.5)
    path = run(engine, (0.0,) * 4, 1.2)
    assert path[-1, 9] == pytest.approx(-MASS * 9.81 / 0.5, rel=0.005)
    engine.reset(engine.all_ids, qvel=np.array([[2.0, 0, 0, 0, 0, 0]]))
    path = run(engine, CRAZYFLIE.default, 0.05)
    energy = 0.5 * MASS * path[:, 7] ** 2
    rate = np.diff(energy) / PACKET_PERIOD
    middle = (path[1:, 7] + path[:-1, 7]) / 2
    assert rate == pytest.approx(-0.5 * middle**2, rel=0.03)


def test_a_cable_pulls_back_to_the_start_once_it_is_taut():
    engine = real(CRAZYFLIE, {"drag": 0.05}, cable={"force": 0.02, "slack": 0.5})
    for x, pull in ((0.4, 0.0), (0.8, 0.02), (-3.0, 0.02)):
        engine.reset(engine.all_ids)
        engine.qpos[0, 0] = x
        path = run(engine, CRAZYFLIE.default, 0.02)
        assert path[-1, 7] == pytest.approx(-np.sign(x) * pull / MASS * 0.02, rel=0.01, abs=1e-9)
    law = engine.part(ExternalForces).law.cable
    far = equations.cable_force(np.array([[3.0, 4.0, 0.0]]), law)
    assert far == pytest.approx(-0.02 * np.array([[0.6, 0.8, 0.0]]))
    assert np.isfinite(equations.cable_force(np.zeros((1, 3)), law)).all()


def test_rotor_drag_acts_in_the_plane_of_the_rotors_with_the_root_of_thrust():
    c, speed = 0.03, np.array([[1.0, 0, 1.0, 0, 0, 0]])
    ends = []
    for law in ({}, {"rotor_drag": c}):
        engine = real(CRAZYFLIE, **law)
        engine.reset(engine.all_ids, qvel=speed)
        ends.append(run(engine, CRAZYFLIE.default, 0.1)[-1, 7:10])
    assert ends[1][0] / ends[0][0] == pytest.approx(np.exp(-c / MASS * 0.1), rel=2e-3)
    assert ends[1][2] == pytest.approx(ends[0][2], rel=1e-3)
    level, hover = np.array([[1.0, 0, 0, 0]]), np.array([0.1] * 4)
    v = np.array([[1.0, -2.0, 3.0]])
    full = equations.rotor_drag(v, level, np.full((1, 4), 0.1), hover, c)
    assert full == pytest.approx(-c * np.array([[1.0, -2.0, 0.0]]))
    assert equations.rotor_drag(v, level, np.full((1, 4), 0.4), hover, c) == pytest.approx(2 * full)
    side = np.array([[np.sqrt(0.5), np.sqrt(0.5), 0, 0]])
    assert equations.rotor_drag(v, side, np.full((1, 4), 0.1), hover, c) == pytest.approx(-c * np.array([[1.0, 0.0, 3.0]]))


def test_ground_effect_follows_cheeseman_and_bennett():
    radius = 0.1
    engine = real(CRAZYFLIE, ground_effect=radius)
    for z in (0.07, 0.12, 0.3, 1.5):
        engine.reset(engine.all_ids, np.array([[0, 0, z, 1.0, 0, 0, 0]]))
        lift = run(engine, CRAZYFLIE.default, 0.006)[-1, 9] / 0.006
        height = z + 0.01
        assert lift == pytest.approx(9.81 * (1 / (1 - (radius / 4 / height) ** 2) - 1), rel=0.02, abs=1e-3)
    assert equations.ground_effect(np.array([-1.0, 0.0, 0.05]), radius) == pytest.approx([4 / 3] * 3), "no more than close by"


def test_a_damaged_propeller_gives_less_thrust_at_the_same_yaw_moment():
    rates = {}
    for key, params, law in (
        ("damaged", {}, {"thrust_asymmetry": {"m1": 0.6}}),
        ("weak", {"strength_m1": 0.6}, {}),
    ):
        path = run(real(CRAZYFLIE, params, **law), CRAZYFLIE.default, 0.004)
        assert path[-1, 9] / 0.004 == pytest.approx(-0.1 * 9.81, rel=0.02)
        rates[key] = path[-1, 10:]
    assert rates["damaged"][:2] == pytest.approx(rates["weak"][:2], rel=0.05)
    assert abs(rates["damaged"][2] - rates["weak"][2]) / 0.004 == pytest.approx(
        0.4 * CRAZYFLIE.default[0] * 5.964552e-3 / 29.26e-6, rel=0.02
    )
