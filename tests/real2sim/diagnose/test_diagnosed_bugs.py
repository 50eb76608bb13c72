"""Deployment bugs that nobody can see before the robot moves, committed on purpose and found in the recording.

docs/guides/deployment-bugs.md is the table; its other tests are in test_deployment_bugs.py,
test_export_bugs.py and test_timing_bugs.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from isthmus.data.contract import AffineFeedback, Signal
from isthmus.data.episode import Episode
from isthmus.deploy.controller import Controller
from isthmus.real2sim.diagnose.diagnose import Diagnosis, diagnose
from isthmus.real2sim.diagnose.sensor_noise import quiet_noise, signal_noises
from isthmus.real2sim.diagnose.wiring_evidence import remapping_evidence
from isthmus.real2sim.measure.closed_loop import controlled_stretches
from isthmus.real2sim.measure.command_response import command_responses, dead_zone_sentences
from isthmus.real2sim.prepare.tracks import to_tracks
from isthmus.robots import get_robot
from isthmus.robots.parameters import factor
from isthmus.sim.reality import Reality
from isthmus.sim.reality.simulation import real_simulation
from isthmus.sim.robot import MotorParams, Robot
from isthmus.sim.simulate_recording import random_multisine, record_engine, record_targets
from isthmus.sim.simulation import Simulation
from isthmus.world import Belief, Space
from support.recordings import commanded, following

PENDULUM, CRAZYFLIE = get_robot("pendulum"), get_robot("crazyflie")
SECONDS = 8.0


def driver(robot: Robot, controller: Controller) -> Callable[[int, np.ndarray], np.ndarray]:
    slices = robot.contract.slices()
    controller.reset()
    return lambda tick, y: controller.tick({n: y[0, slices[n]] for n in controller.manifest.inputs})[None].astype(float)


def recorded(robot: Robot, controller: Controller, seconds: float = SECONDS, **tables) -> Episode:
    """What a robot that differs from its model as the tables say records."""
    tick = 1.0 / robot.contract.rate
    engine = real_simulation(robot, Reality.from_dict({"robot": robot.name, **tables}), 1, threads=1, tick=tick)
    return record_engine(engine, driver(robot, controller), round(seconds / tick), np.random.default_rng(1))


def explained(robot: Robot, controller: Controller, episode: Episode) -> Diagnosis:
    return diagnose(robot, controller, [episode], robot.prior, threads=1)


@pytest.fixture(scope="module")
def swing(tmp_path_factory) -> Controller:
    """Waves on a pendulum."""
    law = AffineFeedback((0.0,), {"joint_pos": ((0.0,),), "joint_vel": ((0.0,),)})
    return following(
        PENDULUM, random_multisine(PENDULUM, SECONDS, 3, 0.4), law, tmp_path_factory.mktemp("swing") / "a.controller"
    )


@pytest.fixture(scope="module")
def hover(tmp_path_factory) -> Controller:
    """Waves on a drone that keeps itself level and at its height."""
    level = CRAZYFLIE.contract.safety.level
    assert level is not None
    down = ((0.0, 0.0, -0.02),) * 4
    law = AffineFeedback(tuple(c + 0.02 * 1.5 for c in level.constant), {**level.gains, "position": down, "velocity": down})
    wave = 0.1 * (random_multisine(CRAZYFLIE, SECONDS, 3, 0.4) - np.array(CRAZYFLIE.default))
    return following(CRAZYFLIE, wave, law, tmp_path_factory.mktemp("hover") / "a.controller")


# 9: frames ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_gyroscope_in_another_frame_is_what_explains_a_flight_best(hover):
    episode = recorded(CRAZYFLIE, hover, faults={"frames": {"gyro": "world"}})
    found = to_tracks([episode], CRAZYFLIE.contract, 1.0 / CRAZYFLIE.contract.rate)
    best = remapping_evidence(CRAZYFLIE, found, CRAZYFLIE.prior.median(), threads=1)[0]
    assert best.remapping.text == "gyro is in the frame of the world instead of the body"


@pytest.mark.slow
def test_a_gyroscope_in_another_frame_is_diagnosed(hover):
    why = explained(CRAZYFLIE, hover, recorded(CRAZYFLIE, hover, faults={"frames": {"gyro": "world"}}))
    assert "wiring or a setting is wrong: gyro is in the frame of the world instead of the body" in why.headline


@pytest.mark.slow
def test_an_inertial_sensor_on_a_tilted_plate_is_diagnosed(hover):
    why = explained(CRAZYFLIE, hover, recorded(CRAZYFLIE, hover, 5.0, sensors={"imu_tilt": [0.1, 0.0]}))
    assert "a sensor is wrong: imu tilt" in why.headline.lower()


# 15: delay ---------------------------------------------------------------------------------------------------------------


def test_a_delay_that_training_never_saw_is_diagnosed_with_its_length(swing):
    """Under targets that do not hang on signals, nobody can tell the way there from the way back: their sum is what shows."""
    planted = 0.05
    why = explained(PENDULUM, swing, recorded(PENDULUM, swing, params={"action_delay": planted}))
    assert why.verdict is not None
    assert why.verdict.cause == "outside"
    clue = why.verdict.ranked_causes[0].explanation
    assert clue is not None
    assert clue.name in ("action_delay", "sensor_delay")
    assert clue.value is not None
    nominal = {name: PENDULUM.space[name].nominal for name in ("action_delay", "sensor_delay")}
    other = sum(nominal.values()) - nominal[clue.name]
    assert clue.value + other == pytest.approx(planted + nominal["sensor_delay"], abs=0.02)
    assert f"{clue.name} is outside of what was believed" in why.headline


# 18: implicit against explicit -----------------------------------------------------------------------------------------------

KP, KD = 20.0, 1.0
STEP = 0.02
"""s, of the engine with implicit servos: long, as in engines that are fast."""


def servo() -> Robot:
    """The pendulum with a position drive."""
    ranges = (
        factor("kp", "motor:hinge/kp", (0.3, 3.0), (0.85, 1.15)),
        factor("kd", "motor:hinge/kd", (0.3, 3.0), (0.75, 1.3)),
    )
    kept = [
        p
        for p in PENDULUM.space.params
        if p.name not in ("strength", "com_x", "com_z", "rod_mass", "payload", "encoder_offset")
    ]
    space = Space((*kept, *(r.param for r in ranges)))
    known = {p.name: PENDULUM.prior.interval(p.name, 1.0) for p in kept}
    prior = Belief.from_ranges(space, known | {r.param.name: r.prior for r in ranges if r.prior})
    target = Signal("joint_target", "rad", ("hinge",), low=(-1.5,), high=(1.5,))
    contract = replace(PENDULUM.contract, target=target, gains={"kp": (KP,), "kd": (KD,)})
    motors = replace(PENDULUM.motors, drive="position", kp=(KP,), kd=(KD,))
    return replace(PENDULUM, contract=contract, motors=motors, space=space, prior=prior)


def implicit(robot: Robot, step: float) -> Simulation:
    """The same robot in an engine that integrates its servo implicitly."""
    own = f'<position name="hinge" joint="hinge" kp="{KP}" kv="{KD}"/>'
    viscous = PENDULUM.motors.viscous[0]
    xml = robot.xml.replace('<motor name="hinge" joint="hinge"/>', own).replace(
        'axis="0 -1 0"', f'axis="0 -1 0" damping="{viscous}"'
    )
    space = Space(tuple(p for p in robot.space.params if p.name.endswith(("noise", "delay"))))
    other = replace(
        robot, xml=xml, motors=MotorParams("native"), space=space, prior=Belief.from_ranges(space, {}), timestep=step,
        substeps=round(1.0 / (robot.contract.rate * step)),
    )  # fmt: skip
    return Simulation(other, 1, threads=1)


@pytest.mark.slow
@pytest.mark.parametrize(("step", "cause"), [(STEP, "outside"), (0.001, "nothing")])
def test_a_drive_that_is_integrated_implicitly_is_diagnosed_as_inertia(step, cause, tmp_path):
    """(I + h kd) v' = I v + h (kp (u - q) - kd v): an implicit servo turns as if h kd were added to its rotor's inertia."""
    robot = servo()
    law = AffineFeedback((0.0,), {"joint_pos": ((0.0,),)})
    controller = following(robot, random_multisine(robot, SECONDS, 3, 0.3), law, tmp_path / "a.controller")
    episode = record_engine(implicit(robot, step), driver(robot, controller), 400, np.random.default_rng(1))
    why = explained(robot, controller, replace(episode, contract=robot.contract))
    assert why.verdict is not None
    assert why.verdict.cause == cause, why.headline
    if cause == "outside":
        clue = why.verdict.ranked_causes[0].explanation
        assert clue is not None
        assert clue.name == "armature"
        assert clue.value == pytest.approx(robot.space["armature"].nominal + STEP * KD, rel=0.3)


# 20: noise ---------------------------------------------------------------------------------------------------------------


def test_noise_beyond_that_of_training_is_diagnosed(swing):
    why = explained(PENDULUM, swing, recorded(PENDULUM, swing, params={"joint_vel_noise": 1.5}))
    assert why.headline.startswith("A sensor is wrong: joint_vel noise of at least 1.")
    assert why.advice[0][1].action.startswith("filter")


@pytest.mark.parametrize("size", [0.0, 0.9])
def test_noise_of_training_is_no_cause_however_much_the_robot_moves(size):
    e = PENDULUM.space.nominal.copy()
    e[PENDULUM.space.index("joint_vel_noise")] = 0.3
    found = to_tracks([record_targets(PENDULUM, e, random_multisine(PENDULUM, SECONDS, 1, size), 2)], PENDULUM.contract, 0.02)
    assert all(n.evidence < 1.0 for n in signal_noises(PENDULUM, found, PENDULUM.prior))


def test_the_noise_of_a_signal_is_that_of_its_quiet_moments():
    rng = np.random.default_rng(0)
    y = 0.2 * rng.standard_normal((500, 3))
    assert quiet_noise([y]) == pytest.approx(0.2, rel=0.25)
    y[200:300] += 5.0 * rng.standard_normal((100, 3))
    assert quiet_noise([y]) == pytest.approx(0.2, rel=0.25)
    assert quiet_noise([7.0 * y]) == pytest.approx(7.0 * quiet_noise([y]))
    assert np.isnan(quiet_noise([y[:10]]))


# 27: encoders ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_encoder_with_a_calibration_offset_is_diagnosed(swing):
    why = explained(PENDULUM, swing, recorded(PENDULUM, swing, sensors={"encoder_offset": {"hinge": 0.15}}))
    assert "A sensor is wrong: joint_pos bias" in why.headline


# 29: commands ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "dead", "notes"), [(0.2, 0.3, 1), (0.9, 0.3, 0), (0.2, 0.0, 0)])
def test_a_small_command_that_does_nothing_is_the_policys_own_dead_zone(asked, dead, notes, tmp_path):
    """The robot is as its model, the policy ignores small commands: nothing is wrong, and the report says of what."""
    controller, command = commanded(PENDULUM, random_multisine(PENDULUM, SECONDS, 3, 0.4), dead, tmp_path / "a.controller")
    engine = real_simulation(PENDULUM, Reality("pendulum"), 1, threads=1, tick=1.0 / PENDULUM.contract.rate)
    controller.reset()
    drive = lambda tick, y: controller.tick({"joint_pos": y[0, :1], command.name: np.array([asked])})[None].astype(float)
    episode = record_engine(engine, drive, 400, np.random.default_rng(1))
    signals = {**episode.signals, command.name: np.full((400, 1), asked)}
    episode = replace(episode, signals=signals, operator=(command,))
    if notes:
        assert explained(PENDULUM, controller, episode).headline.startswith("Nothing is wrong")
    found = to_tracks([episode], PENDULUM.contract, 1.0 / PENDULUM.contract.rate)
    (part,) = controlled_stretches(PENDULUM, controller, [episode], found)
    heard = command_responses(PENDULUM, controller, [part], PENDULUM.prior.median(), threads=1)
    assert [(a.label, np.sign(a.asked[-1])) for a in heard] == [("push", -1.0), ("push", 1.0)]
    up = heard[1]
    assert up.dead <= dead
    assert up.dead >= 0.4 * dead
    assert np.diff(up.answered)[np.array(up.asked[:-1]) > dead].min() > 0
    assert len(dead_zone_sentences(heard)) == notes
    if notes:
        assert "does not answer push=0.2 in the simulator either" in dead_zone_sentences(heard)[0]


# More than one cause -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_numbers_outside_are_not_taken_for_anything_else(swing):
    why = explained(PENDULUM, swing, recorded(PENDULUM, swing, params={"action_delay": 0.06, "joint_friction": 0.4}))
    assert why.verdict.cause == "outside"
    assert why.verdict.ranked_causes[0].explanation.name in ("action_delay", "joint_friction")


@pytest.mark.slow
def test_a_number_outside_does_not_hide_the_physics_that_is_missing(swing):
    """Numbers anywhere leave more than noise, and a law explains it."""
    reality = {"params": {"joint_friction": 0.3}, "unmodelled": {"battery_sag": 0.4}}
    why = explained(PENDULUM, swing, recorded(PENDULUM, swing, **reality))
    assert why.verdict.cause in ("physics", "outside")
    assert why.verdict.probability("physics") + why.verdict.probability("outside") > 0.9
