"""Laws of pendulum, cartpole and Crazyflie, and of their tasks: textbook mechanics on one side, the engine on the other."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch
from scipy.special import ellipk

from isthmus.learn.policies.actor import Actor, ActorSpec
from isthmus.learn.policies.symmetry import reflection
from isthmus.robots import ROBOTS, get_robot
from isthmus.robots.cartpole import CART_MASS, HINGE_DAMPING, POLE_HALF_LENGTH, POLE_MASS
from isthmus.robots.crazyflie import (
    ARM_XY,
    DRAG_COEFFICIENT,
    HOVER_THRUST,
    INERTIA,
    MASS,
    MOTORS,
    ROTOR_POSITION_SIGNS,
    YAW_MOMENT_PER_THRUST,
    YAW_MOMENT_SIGNS,
)
from isthmus.robots.pendulum import GRAVITY_TORQUE, TORQUE_LIMIT
from isthmus.robots.pendulum import INERTIA as SWUNG
from isthmus.sim.physics.disturbances import Disturbance
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.env import Env
from isthmus.tasks.presets import CRAZYFLIE_HOVER
from isthmus.tasks.skills import balance as balance_task
from isthmus.tasks.skills import hover as hover_task
from isthmus.tasks.skills import swing_up as swingup_task

SMALL = ("pendulum", "cartpole", "crazyflie")
TASK_OF = {"pendulum": "pendulum/swingup", "cartpole": "cartpole/balance", "crazyflie": "crazyflie/hover"}
IDEAL = {
    "pendulum": {"joint_damping": 0.0, "joint_friction": 0.0},
    "cartpole": {"cart_friction": 0.0, "pole_damping": 0.0},
    "crazyflie": {"drag": 0.05, "action_delay": 0.0, "sensor_delay": 0.0},
}
"""No losses, as the textbook has it."""


def worlds(robot: Robot | str, values: list[dict[str, float]], qpos=None, qvel=None) -> Simulation:
    """An engine with one world per value of e, started at (qpos, qvel)."""
    robot = get_robot(robot) if isinstance(robot, str) else robot
    engine = Simulation(robot, len(values), threads=1)
    engine.apply(np.stack([robot.space.vector(v) for v in values]), engine.all_ids)
    engine.reset(engine.all_ids, qpos, qvel)
    return engine


def run(engine: Simulation, ticks: int, target) -> tuple[np.ndarray, np.ndarray]:
    """States after each tick, (ticks, n, nq) and (ticks, n, nv), under a constant target."""
    target = np.tile(np.array(target, dtype=float), (engine.n, 1))
    q, v = [], []
    for _ in range(ticks):
        engine.step(target)
        q.append(engine.qpos.copy())
        v.append(engine.qvel.copy())
    return np.array(q), np.array(v)


# Pendulum ------------------------------------------------------------------------------------------------------------


def pendulum_energy(q, qd):
    return 0.5 * SWUNG * qd**2 - GRAVITY_TORQUE * np.cos(q)


def test_an_undamped_pendulum_keeps_its_energy():
    engine = worlds("pendulum", [IDEAL["pendulum"]], qpos=[[2.5]])
    q, v = run(engine, 1500, [0.0])
    energy = pendulum_energy(q, v)[:, 0, 0] - pendulum_energy(0.0, 0.0)
    start = pendulum_energy(2.5, 0.0) - pendulum_energy(0.0, 0.0)
    assert np.abs(energy / start - 1).max() < 0.05
    assert abs(energy[-300:].mean() / energy[:300].mean() - 1) < 2e-3


@pytest.mark.parametrize("amplitude", [0.05, 1.0, 2.5])
def test_the_period_of_the_pendulum_is_the_elliptic_integral(amplitude):
    engine = worlds("pendulum", [IDEAL["pendulum"]], qpos=[[amplitude]])
    q, _ = run(engine, 500, [0.0])
    q = np.concatenate([[amplitude], q[:, 0, 0]])
    down = np.nonzero((q[:-1] > 0) & (q[1:] <= 0))[0]
    crossings = (down + q[down] / (q[down] - q[down + 1])) * engine.tick
    theory = 4 * ellipk(np.sin(amplitude / 2) ** 2) * np.sqrt(SWUNG / GRAVITY_TORQUE)
    assert np.diff(crossings).mean() == pytest.approx(theory, rel=3e-3)


def test_the_model_has_the_inertia_and_the_weight_that_its_figures_say():
    model = get_robot("pendulum").model
    data = mujoco.MjData(model)
    data.qpos[:] = np.pi / 2
    mujoco.mj_forward(model, data)
    assert data.qfrc_bias[0] == pytest.approx(GRAVITY_TORQUE, rel=1e-9)
    data.ctrl[:] = GRAVITY_TORQUE + 1.0
    mujoco.mj_forward(model, data)
    assert 1.0 / data.qacc[0] == pytest.approx(SWUNG, rel=1e-9)


def test_the_motor_cannot_lift_the_pendulum_but_can_pump_it_up():
    assert TORQUE_LIMIT < 0.6 * GRAVITY_TORQUE
    pushed, _ = run(worlds("pendulum", [{}, IDEAL["pendulum"]]), 500, [TORQUE_LIMIT])
    assert np.cos(pushed).min() > -0.8, "a steady push must not get it over the top, even without friction"
    pumped = worlds("pendulum", [{}], qpos=[[0.2]])
    highest = 0.0
    for _ in range(500):
        pumped.step(TORQUE_LIMIT * np.sign(pumped.qvel))
        highest = max(highest, float(-np.cos(pumped.qpos).min()))
    assert highest > 0.99


# Cart and pole -------------------------------------------------------------------------------------------------------


def barto(theta, rate, force):
    """Accelerations of cart and pole, Barto, Sutton and Anderson 1983, without friction of the cart."""
    m, total, half, g = POLE_MASS, CART_MASS + POLE_MASS, POLE_HALF_LENGTH, 9.81
    sin, cos = np.sin(theta), np.cos(theta)
    pull = (-force - m * half * rate**2 * sin) / total
    friction = HINGE_DAMPING * rate / (m * half)
    turn = (g * sin + cos * pull - friction) / (half * (4 / 3 - m * cos**2 / total))
    return (force + m * half * (rate**2 * sin - turn * cos)) / total, turn


def test_the_cartpole_obeys_the_published_equations():
    model = get_robot("cartpole").model
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    for _ in range(50):
        theta, rate, force = rng.uniform(-1, 1, 3) * [3.0, 4.0, 10.0]
        data.qpos[:], data.qvel[:], data.ctrl[:] = [0.3, theta], [0.7, rate], force
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(data.qacc, barto(theta, rate, force), rtol=1e-5, atol=1e-7)


def test_the_upright_pole_falls_the_way_it_leans_at_the_rate_of_the_linear_model():
    lean = 1e-4
    engine = worlds("cartpole", [IDEAL["cartpole"]] * 2, qpos=[[0.0, lean], [0.0, -lean]])
    q, _ = run(engine, 25, [0.0])
    rate = np.sqrt(9.81 / (POLE_HALF_LENGTH * (4 / 3 - POLE_MASS / (CART_MASS + POLE_MASS))))
    wanted = lean * np.cosh(rate * 25 * engine.tick)
    np.testing.assert_allclose(q[-1, :, 1], [wanted, -wanted], rtol=0.03)
    assert q[-1, 0, 0] < 0 < q[-1, 1, 0], "the cart recoils"


def test_a_push_to_the_right_leans_the_pole_to_the_left():
    q, _ = run(worlds("cartpole", [{}]), 10, [5.0])
    assert q[-1, 0, 0] > 0 > q[-1, 0, 1]


# Crazyflie -----------------------------------------------------------------------------------------------------------


def turning(thrust) -> np.ndarray:
    """Angular acceleration at rest under four thrusts, from moments and inertia, (3,)."""
    xx, yy, zz, xy, xz, yz = INERTIA
    moment = np.zeros(3)
    for name, f in zip(MOTORS, thrust, strict=True):
        (x, y), turn = ROTOR_POSITION_SIGNS[name], YAW_MOMENT_SIGNS[name]
        moment += f * np.array([ARM_XY * y, -ARM_XY * x, YAW_MOMENT_PER_THRUST * turn])
    return np.linalg.solve([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], moment)


def test_hover_thrust_carries_the_weight():
    q, v = run(worlds("crazyflie", [{}]), 100, [HOVER_THRUST] * 4)
    assert np.abs(v).max() < 1e-6
    np.testing.assert_allclose(q[-1, 0], get_robot("crazyflie").home, atol=1e-6)


def test_more_thrust_lifts_by_newtons_law():
    engine = worlds("crazyflie", [IDEAL["crazyflie"] | {"motor_lag": 1e-3}])
    _, v = run(engine, 20, [1.1 * HOVER_THRUST] * 4)
    ticks = np.arange(2, 20)
    assert np.polyfit(ticks * engine.tick, v[2:, 0, 2], 1)[0] == pytest.approx(0.1 * 9.81, rel=0.01)


@pytest.mark.parametrize(
    ("raised", "axis", "sign"),
    [(("m1", "m3"), 2, -1), (("m2", "m4"), 2, 1), (("m3", "m4"), 0, 1), (("m1", "m4"), 1, -1)],
    ids=["anticlockwise rotors turn it clockwise", "and the others anticlockwise", "left up rolls right", "front up"],
)
def test_pairs_of_rotors_turn_the_body_the_right_way(raised, axis, sign):
    thrust = np.array([HOVER_THRUST * (1.1 if m in raised else 0.9) for m in MOTORS])
    engine = worlds("crazyflie", [IDEAL["crazyflie"] | {"motor_lag": 1e-3}])
    _, v = run(engine, 2, thrust)
    first, second = v[:, 0, 3:]
    assert np.sign(second[axis]) == sign
    np.testing.assert_allclose(
        (second - first) / engine.tick, turning(thrust), rtol=0.03, atol=0.02 * abs(turning(thrust)[axis])
    )


@pytest.mark.parametrize("lag", [0.02, 0.0375, 0.075])
def test_the_time_constant_of_a_motor_is_recovered_from_a_step(lag):
    engine = worlds("crazyflie", [{"motor_lag": lag, "action_delay": 0.0}])
    target = np.full((1, 4), 1.3 * HOVER_THRUST)
    missing = []
    for _ in range(6):
        engine.step(target)
        missing.append(float(np.log((target - engine.ctrl)[0, 0])))
    assert -engine.tick / np.polyfit(np.arange(6), missing, 1)[0] == pytest.approx(lag, rel=1e-6)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_drag_slows_the_crazyflie_at_the_published_rate(factor):
    engine = worlds("crazyflie", [{"drag": factor}], qvel=[[1.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    _, v = run(engine, 50, [HOVER_THRUST] * 4)
    wanted = np.exp(-factor * DRAG_COEFFICIENT / MASS * 50 * engine.tick)
    assert v[-1, 0, 0] == pytest.approx(wanted, rel=1e-3)


# All three -----------------------------------------------------------------------------------------------------------


class SameNoise:
    """Gives every world the same noise, so that worlds differ by their e alone."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def standard_normal(self, shape, dtype=float):
        return np.tile(self.rng.standard_normal(shape[1], dtype=dtype), (shape[0], 1))


def signals_under(engine: Simulation, targets: np.ndarray) -> np.ndarray:
    """What the sensors say at the start and after each tick, (ticks + 1, n, width); targets are (ticks, n, m)."""
    noise = SameNoise(1)
    seen = [engine.signals(noise)]  # pyright: ignore[reportArgumentType]
    for target in targets:
        engine.step(target)
        seen.append(engine.signals(noise))  # pyright: ignore[reportArgumentType]
    return np.array(seen)


def moving(name: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    task = get_task(TASK_OF[name])
    assert task.start is not None
    qpos, qvel = task.start(rng, 1, task.robot, 1.0)
    return np.tile(qpos, (n, 1)), np.tile(qvel + 0.3, (n, 1))


def shaken(name: str, ticks: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Random targets in the middle of their range, the same in all worlds, (ticks, n, m)."""
    target = ROBOTS[name]().contract.target
    low, high = np.array(target.low), np.array(target.high)
    u = (low + high) / 2 + 0.3 * (high - low) * rng.uniform(-1, 1, (ticks, 1, target.size))
    return np.tile(u, (1, n, 1))


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_changes_the_signals(name):
    robot = get_robot(name)
    changed = []
    for param in robot.space.names:
        ends = robot.prior.interval(param, 0.9)
        assert ends[0] < ends[1], f"{param} does not vary in the prior"
        changed.append({param: max(ends, key=lambda v: abs(v - robot.space[param].nominal))})
    qpos, qvel = moving(name, len(changed) + 1, np.random.default_rng(2))
    engine = worlds(name, [{}, *changed], qpos, qvel)
    seen = signals_under(engine, shaken(name, 25, engine.n, np.random.default_rng(3)))
    scale = seen[:, :1].std(axis=0) + 1e-6
    effect = (np.abs(seen[:, 1:] - seen[:, :1]) / scale).max(axis=(0, 2))
    silent = {p: float(x) for p, x in zip(robot.space.names, effect, strict=True) if x < 1e-4}
    assert not silent, "these parameters leave the signals as they were"


@pytest.mark.parametrize("name", SMALL)
def test_the_mirror_image_of_a_motion_is_a_motion(name):
    """The Crazyflie without its products of inertia: they alone are not symmetric."""
    robot = get_robot(name)
    if name == "crazyflie":
        whole, symmetric = (" ".join(map(str, x)) for x in (INERTIA, (*INERTIA[:3], 0, INERTIA[4], 0)))
        assert whole in robot.xml
        robot = replace(robot, xml=robot.xml.replace(whole, symmetric))
    assert robot.morphology.mirror is not None
    raw = reflection([(list(s.labels), _raw_name(s.name)) for s in robot.contract.signals], robot.morphology.mirror)
    act = reflection([(list(robot.contract.target.labels), "target")], robot.morphology.mirror)
    quiet = {p: 0.0 for p in robot.space.names if p.endswith("_noise")}
    engine = worlds(robot, [quiet, quiet], *_mirrored_start(name))
    targets = shaken(name, 25, 2, np.random.default_rng(5))
    targets[:, 1] = targets[:, 0][:, list(act.order)] * act.signs
    seen = signals_under(engine, targets)
    image = seen[:, 0][:, list(raw.order)] * raw.signs
    assert np.abs(seen[:, 0] - image).max() > 0.1
    np.testing.assert_allclose(image, seen[:, 1], atol=1e-5)


def _raw_name(signal: str) -> str:
    """The joint angle itself changes sign as its sine does."""
    return {"joint_pos": "joint_vel"}.get(signal, signal)


def _mirrored_start(name: str) -> tuple[np.ndarray, np.ndarray]:
    qpos, qvel = moving(name, 2, np.random.default_rng(4))
    if name == "crazyflie":
        qpos[1] *= [1, -1, 1, 1, -1, 1, -1]
        qvel[1] *= [1, -1, 1, -1, 1, -1]
    else:
        qpos[1], qvel[1] = -qpos[0], -qvel[0]
    return qpos, qvel


# Tasks ---------------------------------------------------------------------------------------------------------------


def state_of(name: str, qpos, qvel=None):
    """The state that reward terms see, at a given place."""
    qpos = np.array(qpos, dtype=float)
    env = Env(get_task(TASK_OF[name]), len(qpos), threads=1, training=False)
    env.sim.qpos[:] = qpos
    env.sim.qvel[:] = 0.0 if qvel is None else qvel
    return env, env.read_state()


def turned(angle: float, axis: tuple[float, float, float]) -> list[float]:
    return [np.cos(angle / 2), *(np.sin(angle / 2) * np.array(axis))]


def test_swinging_up_is_the_same_on_both_sides_and_after_any_number_of_turns():
    _, s = state_of("pendulum", [[np.pi], [-np.pi], [5 * np.pi], [0.0], [np.pi + 0.3], [-np.pi - 0.3]])
    np.testing.assert_allclose(swingup_task.upright_error(s), [0, 0, 0, np.pi, 0.3, 0.3], atol=1e-5)
    np.testing.assert_allclose(swingup_task.height_fraction(s)[:4], [1, 1, 1, 0], atol=1e-6)


def test_the_pendulum_has_the_energy_to_stand_when_it_passes_the_bottom_fast_enough():
    speed = np.sqrt(4 * GRAVITY_TORQUE / SWUNG)
    _, s = state_of("pendulum", [[0.0], [0.0], [np.pi]], [[speed], [0.0], [0.0]])
    np.testing.assert_allclose(swingup_task.energy_error(s, SWUNG, GRAVITY_TORQUE), [0.0, 1.0, 0.0], atol=1e-5)


def test_a_dropped_pole_and_a_cart_off_the_track_end_the_episode():
    _, s = state_of("cartpole", [[0.0, 0.9], [0.0, -1.1], [2.5, 0.0], [-2.3, 0.1]])
    assert balance_task.fell_or_left_track(s).tolist() == [False, True, True, False]


def test_heading_counts_turns_about_the_vertical_only():
    z, y = (0.0, 0.0, 1.0), (0.0, 1.0, 0.0)
    quats = [turned(0.0, z), turned(np.pi / 2, z), turned(np.pi, z), turned(0.8, y)]
    _, s = state_of("crazyflie", [[0.0, 0.0, 1.5, *q] for q in quats])
    np.testing.assert_allclose(hover_task.heading_error(s), [0.0, 1.0, 2.0, 0.0], atol=1e-6)


def test_closeness_is_1_at_the_place_and_half_at_its_width():
    env, _ = state_of("crazyflie", [[0.0, 0.0, 1.5, 1.0, 0.0, 0.0, 0.0]] * 3)
    env.command[:] = torch.tensor([[0.0, 0.0, 1.5], [0.4, 0.0, 1.5], [0.0, 4.0, 1.5]])
    np.testing.assert_allclose(hover_task.position_reward(env.read_state()), [1.0, 0.5, 1 / 101], atol=1e-6)


def test_reflexes_level_out_a_tilted_drone():
    """With no action at all, the nominal drone is level and slow two seconds after a tilt of 60 degrees."""
    task = get_task("crazyflie/hover")
    env = Env(task, 64, seed=0, threads=1, training=False, e=np.tile(task.robot.space.nominal, (64, 1)))
    env.disturbances.config = Disturbance()
    env.disturbances.reset(np.arange(64))
    actor = Actor(ActorSpec.for_task(task, (4,)))
    with torch.no_grad():
        actor.log_std.zero_()
        actor.act = lambda observation: torch.zeros(len(observation), 4)
        memory = actor.memory(64)
        for _ in range(round(2.0 / env.sim.tick)):
            target, memory = actor(env.signals(), memory)
            env.step(target)
    s = env.true_state
    alive = s.time > 1.9
    assert alive.float().mean() > 0.9
    assert (-s.projected_gravity[alive, 2]).min() > np.cos(np.deg2rad(15))
    assert s.qvel[alive, :3].norm(dim=1).max() < 1.0


def test_hover_starts_within_60_degrees_and_about_a_metre_from_the_command():
    env = Env(get_task("crazyflie/hover"), 400, seed=3, threads=1, training=False)
    s = env.read_state()
    tilt = np.rad2deg(np.arccos(-s.projected_gravity[:, 2].numpy()))
    apart = (s.qpos[:, :3] - s.command).abs()
    assert 50 < tilt.max() <= 60.01
    assert 0.8 < float(apart.max()) <= 2 * CRAZYFLIE_HOVER.room_half_size + 1e-6
    assert not hover_task.out_of_bounds(s).any()


@pytest.mark.parametrize("name", SMALL)
def test_scores_lie_between_0_and_1_and_are_best_where_the_task_says(name):
    task = get_task(TASK_OF[name])
    assert task.start is not None
    qpos, qvel = task.start(np.random.default_rng(0), 200, task.robot, 1.0)
    env, s = state_of(name, qpos, qvel)
    score = task.score(s)
    assert float(score.min()) >= 0.0
    assert float(score.max()) <= 1.0
    best = {"pendulum": [[np.pi]], "cartpole": [[0.0, 0.0]], "crazyflie": [task.robot.home]}[name]
    env, _ = state_of(name, best)
    if name == "crazyflie":
        env.command[:] = torch.tensor(task.robot.home[:3])
    assert float(task.score(env.read_state())) == pytest.approx(1.0, abs=1e-5)
