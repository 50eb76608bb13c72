"""Laws of motors, of the delays between policy and robot, and of sensors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.data.contract import Contract, Signal
from isthmus.sim.engines.batch.engine import BatchEngines
from isthmus.sim.morphology import Morphology, Root
from isthmus.sim.physics.delays import read_late, signal_history_length, target_history_length, target_in_force
from isthmus.sim.physics.motor_law import MOTOR_LAW_FIELDS, MotorLaw, clip_to_torque_speed, friction_torque, lag_step, pd_torque
from isthmus.sim.robot import MotorParams, Robot
from isthmus.sim.simulation import Simulation
from isthmus.world import Belief, Param, Space

ONE = np.ones((1, 1))


def rows(motors: MotorParams, n: int = 1) -> tuple[MotorLaw, dict, dict]:
    """An actuator of one motor with its nominal figures and a state at rest, for n worlds."""
    law = MotorLaw(motors, 1, DT, frozenset())
    figures = {f: np.tile(law.nominal[f], (n, 1)) for f in MOTOR_LAW_FIELDS}
    return law, figures, {k: np.zeros((n, 1)) for k in ("lagged", "rotor", "rotor_speed", "touch")}


DT = 0.001


# Motors --------------------------------------------------------------------------------------------------------------


def test_pd_pulls_to_the_target_and_brakes():
    assert pd_torque(1.0, 0.4, 2.0, 20.0, 0.5) == pytest.approx(20 * 0.6 - 0.5 * 2)
    law, f, state = rows(MotorParams("position", kp=(20.0,), kd=(0.5,)))
    assert law.torque(f, state, ONE, 0.4 * ONE, 2 * ONE) == pytest.approx(11.0)


def test_an_effort_drive_gives_what_was_asked_up_to_its_limit():
    law, f, state = rows(MotorParams("effort", torque_limit=(3.0,)))
    for u, tau in ((1.0, 1.0), (-2.5, -2.5), (9.0, 3.0), (-9.0, -3.0)):
        assert law.torque(f, state, u * ONE, 0 * ONE, 100 * ONE) == tau


def test_strength_scales_what_was_asked_not_the_limit():
    law, f, state = rows(MotorParams("effort", torque_limit=(3.0,)))
    f["strength"][:] = 0.5
    assert law.torque(f, state, 2 * ONE, 0 * ONE, 0 * ONE) == 1.0
    assert law.torque(f, state, 99 * ONE, 0 * ONE, 0 * ONE) == 3.0


@pytest.mark.parametrize("sign", [1, -1])
def test_a_dc_motor_gives_all_at_standstill_and_nothing_at_no_load_speed(sign):
    limit, no_load, want = np.array(12.0), np.array(30.0), np.array(sign * 100.0)
    give = lambda qd: clip_to_torque_speed(want, np.array(qd), limit, no_load)
    assert give(0.0) == sign * 12
    assert give(sign * 30.0) == 0
    assert give(sign * 15.0) == pytest.approx(sign * 6)
    assert give(sign * 45.0) == pytest.approx(-sign * 6), "driven past its no-load speed a motor brakes"
    for against in (-1.0, -30.0, -90.0):
        assert give(sign * against) == sign * 12, "braking is limited by the current alone"


def test_the_motor_never_leaves_its_torque_speed_region():
    rng = np.random.default_rng(0)
    tau, qd = rng.uniform(-50, 50, 5000), rng.uniform(-60, 60, 5000)
    got = clip_to_torque_speed(tau, qd, np.array(12.0), np.array(30.0))
    assert (np.abs(got) <= 12).all()
    driving = got * qd > 0
    assert (np.abs(got[driving]) <= 12 * (1 - np.abs(qd[driving]) / 30) + 1e-12).all()
    inside = (np.abs(tau) < 12) & (np.abs(qd) < 30) & (tau * qd <= 0)
    assert np.array_equal(got[inside], tau[inside])


def test_without_a_speed_limit_torque_does_not_depend_on_speed():
    law, f, state = rows(MotorParams("effort", torque_limit=(3.0,)))
    varied = MotorLaw(MotorParams("effort", torque_limit=(3.0,)), 1, DT, frozenset({"speed_limit"}))
    for qd in (-50.0, 0.0, 50.0):
        assert law.torque(f, state, 9 * ONE, 0 * ONE, qd * ONE) == varied.torque(f, state, 9 * ONE, 0 * ONE, qd * ONE) == 3.0


def test_friction_opposes_motion_and_takes_energy():
    qd = np.linspace(-20, 20, 401)
    figures = {"coulomb": 0.4, "viscous": 0.02, "stribeck": 0.3, "stribeck_speed": 0.2, "load_friction": 0.1}
    figures = {name: np.array(x) for name, x in figures.items()}
    for rich, extra in ((False, 0.0), (True, 0.1 * 2.0)):
        loss = friction_torque(qd, np.array(-2.0), figures, rich)
        assert (loss * qd >= 0).all()
        assert (loss * qd)[qd != 0].min() > 0
        assert friction_torque(np.zeros(1), ONE, figures, rich) == 0
        assert np.allclose(loss, -friction_torque(-qd, np.array(2.0), figures, rich))
        fast = np.abs(qd) > 1.0
        assert np.allclose(loss[fast], ((0.4 + extra) * np.sign(qd) + 0.02 * qd)[fast])
    slow = friction_torque(np.array([0.06]), np.array(0.0), figures, True)
    assert slow == pytest.approx(0.4 + 0.3 * np.exp(-0.09) + 0.02 * 0.06)
    law, f, state = rows(MotorParams("effort", coulomb=(0.4,), viscous=(0.02,)))
    assert law.torque(f, state, ONE, 0 * ONE, 5 * ONE) == pytest.approx(1 - 0.4 - 0.1)


def test_a_spinning_wheel_comes_to_rest_and_never_turns_back():
    law, f, state = rows(MotorParams("effort", coulomb=(0.4,)))
    speed, speeds = 3 * ONE, []
    for _ in range(4000):
        speed = speed + DT * law.torque(f, state, 0 * ONE, 0 * ONE, speed) / 0.1
        speeds.append(speed.item())
    assert (np.diff(speeds) <= 0).all()
    assert 0 <= speeds[-1] < 1e-3


def test_inside_the_play_of_a_gear_the_link_feels_nothing():
    gap = 0.02
    law, f, state = rows(MotorParams("position", (20.0,), (0.5,), backlash=(gap,), rotor_inertia=(0.01,)))
    for target, felt in ((0.0, 0.0), (0.9 * gap, 0.0), (0.3, 20 * (0.3 - gap)), (-0.3, -20 * (0.3 - gap))):
        for _ in range(400):
            tau = law.torque(f, state, target * ONE, 0 * ONE, 0 * ONE)
        assert tau == pytest.approx(felt, abs=1e-6)


def test_a_gear_without_play_is_the_rigid_one():
    rigid, f, _ = rows(MotorParams("position", (20.0,), (0.5,)))
    _, g, state = rows(MotorParams("position", (20.0,), (0.5,), rotor_inertia=(0.01,)))
    none = MotorLaw(MotorParams("position", (20.0,), (0.5,)), 1, DT, frozenset({"backlash"}))
    for q, qd in ((0.4, 2.0), (0.4, -30.0), (1.7, -2.0), (1.7, 60.0)):
        state["touch"][:] = 1.0
        expected = rigid.torque(f, {}, ONE, (q + 0.5 * DT * qd) * ONE, qd * ONE)
        assert none.torque(g, state, ONE, q * ONE, qd * ONE) == pytest.approx(expected, rel=0.01)


def across(link: float, rotor: float, push, start: float = 0.0, steps: int = 600) -> np.ndarray:
    """Momentum of both, what the motor gave so far and energy, step by step, of a rotor in the play of a link's gear."""
    law, f, state = rows(MotorParams("effort", backlash=(0.03,), rotor_inertia=(rotor,)))
    law.rotor_inertia_from_armature = True
    state["rotor_speed"][:] = start
    q, qd, qdd, given, out = 0 * ONE, 0 * ONE, 0 * ONE, rotor * start, []
    for step in range(steps):
        qdd = law.torque(f, state, push(step) * ONE, q, qd, qdd) / (link + rotor)
        qd = qd + DT * qdd
        q = q + DT * qd
        given += push(step) * DT
        speed = law.rotor_state(f["backlash"], state, q, qd)[1].item()
        out.append((link * qd.item() + rotor * speed, given, 0.5 * (link * qd.item() ** 2 + rotor * speed**2)))
    return np.array(out)


@pytest.mark.parametrize("link", [0.005, 0.05])
@pytest.mark.parametrize("start", [0.0, 2.0, 7.3])
@pytest.mark.parametrize("size", [0.0, 0.02, 2.0])
def test_rotor_and_link_keep_their_momentum_across_the_play(link, start, size):
    """Coasting, braking or pushing to and fro through the play: what both have is what the motor gave."""
    both, given, energy = across(link, 0.01, lambda step: -size if step % 200 < 100 else size, start).T
    assert np.abs(both - given).max() < 0.02 * max(np.abs(given).max(), 1e-6)
    if size == 0.0:
        assert energy.max() <= 0.5 * 0.01 * start**2 * (1 + 1e-9), "a hit takes energy, it gives none"


@pytest.mark.parametrize("steps", [1, 7, 100])
def test_the_lag_is_exact_whatever_the_step(steps):
    tau = 0.03
    y = np.zeros(1)
    for _ in range(steps):
        y = lag_step(y, np.ones(1), np.array([tau]), tau / steps)
    assert y == pytest.approx(1 - np.exp(-1), rel=1e-12)


def test_no_lag_passes_the_target_through():
    assert lag_step(np.array([5.0]), np.array([2.0]), np.array([0.0]), DT) == 2.0
    law, f, state = rows(MotorParams("native", lag=(0.01,)))
    seen = [law.torque(f, state, ONE, None, None).item() for _ in range(10)]
    assert seen == pytest.approx(1 - np.exp(-np.arange(1, 11) * DT / 0.01))


def test_a_spring_holds_a_load_with_the_deflection_torque_over_stiffness():
    law, f, state = rows(MotorParams("effort", spring=(150.0,), rotor_inertia=(0.01,), viscous=(2.0,)))
    for _ in range(1500):
        out = law.torque(f, state, 3 * ONE, 0.2 * ONE, 0 * ONE)
    assert out == pytest.approx(3.0, rel=1e-6)
    assert state["rotor"] - 0.2 == pytest.approx(3.0 / 150.0, rel=1e-6)
    assert abs(state["rotor_speed"]) < 1e-6


def test_a_stiff_spring_is_a_rigid_motor():
    """A motor of inertia J on a spring moves a link of inertia I as a rigid motor moves I + J."""
    link, rotor = 0.05, 0.01
    rigid = MotorParams("position", (20.0,), (0.8,), (5.0,), (30.0,), (0.1,), (0.02,), rotor_inertia=(rotor,))
    ends = []
    for spring in ((), (2e3,), (2e4,)):
        law, f, state = rows(dataclasses.replace(rigid, spring=spring))
        q, qd, path = 0 * ONE, 0 * ONE, []
        for k in range(1500):
            tau = law.torque(f, state, (0.5 if k < 700 else -0.3) * ONE, q, qd)
            qd = qd + DT * tau / (link if spring else link + rotor)
            q = q + DT * qd
            path.append(q.item())
        ends.append(np.array(path))
    without, soft, stiff = ends
    assert np.abs(stiff - without).max() < 0.01 < np.ptp(without) / 20
    assert np.abs(stiff - without).max() < np.abs(soft - without).max()


def test_motor_figures_that_do_not_fit_are_refused():
    with pytest.raises(BadInput, match="kp"):
        MotorLaw(MotorParams("position", kp=(1.0, 2.0)), 3, DT, frozenset())
    with pytest.raises(BadInput, match="not both"):
        MotorLaw(MotorParams("position", spring=(100.0,), backlash=(0.1,)), 1, DT, frozenset())
    with pytest.raises(BadInput, match="of ours"):
        MotorLaw(MotorParams("native", spring=(100.0,)), 1, DT, frozenset())
    with pytest.raises(BadInput, match="torque_limit"):
        MotorLaw(MotorParams("effort", speed_limit=(30.0,)), 1, DT, frozenset())


# Delay, as functions -------------------------------------------------------------------------------------------------


def force_over_time(delay: float, substeps: int = 4, dt: float = 0.005, ticks: int = 10) -> np.ndarray:
    """Targets in force in each physics step when the target jumps from 0 to 1 at tick 3."""
    sent, seen = np.zeros((1, target_history_length(0.06, substeps, dt), 1)), []
    for tick in range(ticks):
        sent[:, 1:] = sent[:, :-1].copy()
        sent[:, 0] = float(tick >= 3)
        seen += [target_in_force(sent, np.array([delay]), s, substeps, dt).item() for s in range(substeps)]
    return np.array(seen)


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.005, 0.0125, 0.02, 0.0333, 0.06])
def test_a_target_arrives_after_the_delay(delay):
    seen = force_over_time(delay)
    missing = (1 - seen).sum() * 0.005 - 3 * 0.02
    assert missing == pytest.approx(delay, abs=1e-12)
    assert (np.diff(seen) >= 0).all()
    assert ((seen > 0) & (seen < 1)).sum() <= 1


def test_what_arrives_is_continuous_in_the_delay():
    delays = np.linspace(0, 0.06, 241)
    seen = np.array([force_over_time(d) for d in delays])
    assert np.abs(np.diff(seen, axis=0)).max() <= (delays[1] - delays[0]) / 0.005 + 1e-9


def test_a_late_signal_is_interpolated_between_steps():
    dt, kept = 0.005, signal_history_length(0.04, 0.005)
    for now in (20, 23, 31):
        ring = np.zeros((1, kept, 1))
        for k in range(now - kept + 1, now + 1):
            ring[0, k % kept, 0] = k * dt
        for delay in (0.0, 0.0024, 0.005, 0.0171, 0.04):
            seen = read_late(ring, np.array([now % kept]), np.array([delay]), dt)
            assert seen == pytest.approx(now * dt - delay, abs=1e-12)


# Delay and sensors, in the engine ----------------------------------------------------------------------------------


def slider(params: tuple[Param, ...], **motors) -> Robot:
    """A mass of 1 kg on a rail without friction."""
    xml = """<mujoco><option timestep="0.005" gravity="0 0 0"/><worldbody><body name="mass">
      <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/><joint name="x" type="slide" axis="1 0 0"/></body></worldbody>
      <actuator><motor name="x" joint="x"/></actuator></mujoco>"""
    signals = (Signal("pos", "m", ("x",)), Signal("vel", "m/s", ("x",)))
    space = Space(params)
    return Robot(
        name="slider", xml=xml, contract=Contract("slider", 50.0, signals, Signal("force", "N", ("x",))),
        sources={"pos": "qpos", "vel": "qvel"}, motors=MotorParams("effort", **motors), space=space, prior=Belief(space),
        morphology=Morphology((Root("mass"),)),
        home=(0.0,), default=(0.0,), substeps=4,
    )  # fmt: skip


DELAYS = (
    Param("action_delay", "s", 0.0, 0.0, 0.06, ("link:/action_delay",)),
    Param("sensor_delay", "s", 0.0, 0.0, 0.04, ("link:/sensor_delay",)),
)
SENSORS = (
    Param("offset", "m", 0.0, -1.0, 1.0, ("signal:pos/bias[x]",), how="add"),
    Param("gain", "1", 1.0, 0.5, 2.0, ("signal:vel/gain",), how="scale"),
    Param("noise", "m", 0.0, 0.0, 1.0, ("signal:pos/noise",)),
)
QUIET = np.random.default_rng(0)


@pytest.mark.parametrize("compiled", [True, False])
def test_impulse_is_lost_in_proportion_to_the_action_delay(compiled):
    """Under a constant force from rest the speed is force · (time - delay)."""
    delays = np.array([0.0, 0.0013, 0.005, 0.017, 0.02, 0.041, 0.06])
    engine = Simulation(slider(DELAYS), len(delays), engine=BatchEngines(native_motor_law=compiled))
    engine.apply(np.stack([delays, 0 * delays], axis=1), engine.all_ids)
    engine.reset(engine.all_ids)
    for _ in range(5):
        engine.step(np.full((len(delays), 1), 2.0))
    assert engine.qvel[:, 0] == pytest.approx(2.0 * (5 * 0.02 - delays), abs=1e-12)


@pytest.mark.parametrize("compiled", [True, False])
def test_measured_is_the_true_signal_from_the_past(compiled):
    delays = np.array([0.0, 0.005, 0.0075, 0.02, 0.0331, 0.04])
    engine = Simulation(slider(DELAYS), len(delays), engine=BatchEngines(native_motor_law=compiled))
    engine.apply(np.stack([0 * delays, delays], axis=1), engine.all_ids)
    engine.reset(engine.all_ids)
    truth, t, rng = [(0.0, 0.0)], [0.0], np.random.default_rng(1)
    for _ in range(9):
        u = rng.uniform(-3, 3)
        for _ in range(4):
            x, v = truth[-1]
            v = v + 0.005 * u
            truth.append((x + 0.005 * v, v))
            t.append(t[-1] + 0.005)
        engine.step(np.full((len(delays), 1), u))
        past = np.maximum(t[-1] - delays, 0)
        want = np.stack([np.interp(past, t, [row[k] for row in truth]) for k in (0, 1)], axis=1)
        assert engine.signals(QUIET) == pytest.approx(want, abs=1e-6)


def test_before_the_start_a_late_sensor_shows_the_start():
    engine = Simulation(slider(DELAYS), 1)
    engine.apply(np.array([[0.0, 0.04]]), engine.all_ids)
    engine.reset(engine.all_ids, np.array([[0.7]]), np.array([[0.0]]))
    engine.step(np.array([[5.0]]))
    assert engine.signals(QUIET) == pytest.approx(np.array([[0.7, 0.0]]), abs=1e-7)


def test_offset_is_added_gain_multiplies_and_noise_has_its_spread():
    n = 4000
    engine = Simulation(slider(SENSORS), n)
    engine.apply(np.tile([0.3, 1.5, 0.2], (n, 1)), engine.all_ids)
    engine.reset(engine.all_ids, np.full((n, 1), 0.4), np.full((n, 1), 2.0))
    seen = engine.signals(np.random.default_rng(2))
    assert seen[:, 1] == pytest.approx(np.full(n, 3.0))
    assert seen[:, 0].mean() == pytest.approx(0.7, abs=4 * 0.2 / n**0.5)
    assert seen[:, 0].std() == pytest.approx(0.2, rel=0.05)
    again = engine.signals(np.random.default_rng(3))
    assert abs(np.corrcoef(seen[:, 0], again[:, 0])[0, 1]) < 4 / n**0.5, "noise is fresh at every reading"


def test_an_encoder_offset_shows_in_the_signal_and_not_in_the_physics():
    from isthmus.robots.go1 import go1

    robot = go1()
    engine = Simulation(robot, 2)
    quiet = {p.name: 0.0 for p in robot.space.params if p.name.endswith("_noise")}
    e = np.stack([robot.space.vector(quiet), robot.space.vector(quiet | {"encoder_offset_FL_calf": 0.05})])
    engine.apply(e, engine.all_ids)
    engine.reset(engine.all_ids)
    for _ in range(5):
        engine.step(np.tile(robot.default, (2, 1)))
    assert np.array_equal(engine.qpos[0], engine.qpos[1])
    seen = engine.signals(QUIET)
    want = np.zeros(seen.shape[1])
    want[robot.contract["joint_pos"].component_index("FL_calf")] = 0.05
    assert seen[1] - seen[0] == pytest.approx(want, abs=1e-6)


def test_targets_are_held_inside_the_contracts_limits():
    robot = slider(DELAYS)
    target = dataclasses.replace(robot.contract.target, low=(-1.0,), high=(2.0,))
    engine = Simulation(dataclasses.replace(robot, contract=dataclasses.replace(robot.contract, target=target)), 2)
    engine.step(np.array([[-50.0], [50.0]]))
    assert engine.qvel[:, 0] == pytest.approx([-0.02, 0.04])
