"""Plant a fault into the samples of a healthy recording: exactly it is found, with its place. Healthy ones give nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.data.mcap.writer import write_episode
from isthmus.deploy.links.link import MODES
from isthmus.real2sim.identify.identification import fit_recordings
from isthmus.real2sim.prepare.checks.recording_checks import check, clean_episodes
from isthmus.real2sim.prepare.checks.samples import resolution
from support.corruptions import DEG, RNG, found, healthy, label, robot_of, with_signals

# Healthy recordings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pendulum", "cartpole", "crazyflie", "go1"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_healthy_recording_gives_nothing(name, seed):
    assert check(robot_of(name), [healthy(name, seed)]) == ()
    assert check(robot_of(name), [healthy(name, seed).time_slice(2.0, 5.0)]) == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pendulum", "cartpole", "crazyflie", "go1"])
@pytest.mark.parametrize("seed", range(10, 20))
@pytest.mark.parametrize("size", [0.0, 0.2, 1.0])
def test_a_healthy_recording_gives_nothing_in_any_world(name, seed, size):
    assert check(robot_of(name), [healthy(name, seed, 10.0, size)]) == ()


@pytest.mark.parametrize("name", ["pendulum", "go1"])
def test_a_robot_that_stands_still_is_not_judged(name):
    assert check(robot_of(name), [healthy(name, 4, 4.0, 0.0)]) == ()


# Samples ----------------------------------------------------------------------------------------------------------------


def test_what_is_not_a_number_is_not_compared():
    def gone(v):
        v[100:110], v[300] = np.nan, np.inf
        return v

    episode = with_signals(healthy("go1", 1), joint_pos=label("go1", gone, "joint_pos", "FL_calf"))
    (f,) = check(robot_of("go1"), [episode], ["walk.mcap"])
    assert (f.name, f.signal, f.label, f.kind, f.refused) == ("walk.mcap", "joint_pos", "FL_calf", "missing", False)
    assert (f.start, f.ticks, f.spans) == (2.0, 11, ((100, 110), (300, 301)))
    assert "11 ticks, first at 2.00 s" in f.text
    left = clean_episodes([episode], [f])[0].signals["joint_pos"]
    assert np.isnan(left).sum() == 11


def test_without_a_target_it_is_cut_and_without_any_refused():
    whole = healthy("pendulum", 1)
    target = whole.target.copy()
    target[50:60] = np.nan
    assert found("pendulum", replace(whole, target=target)) == [("missing", "joint_torque", "hinge", False)]
    assert found("pendulum", replace(whole, target=target * np.nan)) == [("missing", "joint_torque", "", True)]


def test_a_signal_that_was_not_recorded_is_said_once():
    episode = with_signals(healthy("go1", 1), accel=lambda v: v * np.nan, quat=lambda v: v * np.nan)
    assert found("go1", episode) == [("missing", "quat", "", False), ("missing", "accel", "", False)]


def test_a_hole_in_time_has_its_place():
    whole = healthy("cartpole", 1)
    (f,) = check(robot_of("cartpole"), [replace(whole, time=whole.time + np.where(np.arange(len(whole)) > 60, 0.4, 0.0))])
    assert (f.kind, f.start, f.ticks, f.refused) == ("hole", pytest.approx(1.2), 1, False)
    assert "0.42 s" in f.text


@pytest.mark.parametrize("step", [0.0, -0.5])
def test_time_that_stands_still_or_goes_back_is_refused_with_its_place(step):
    whole = healthy("pendulum", 1)
    time = whole.time.copy()
    time[57] = time[56] + step
    with pytest.raises(BadInput, match=r"tick 57 is at .* s after 1\.12 s"):
        replace(whole, time=time)


def test_a_robot_that_did_not_follow_is_cut():
    whole = healthy("go1", 1)
    mode = np.full(len(whole), float(MODES.index("track")))
    mode[0], mode[200:260] = MODES.index("idle"), MODES.index("damp")
    episode = replace(whole, status={"mode": mode})
    (f,) = check(robot_of("go1"), [episode])
    assert (f.kind, f.start, f.ticks, f.refused) == ("mode", 4.0, 60, False)
    assert np.isnan(clean_episodes([episode], [f])[0].target).all(1).sum() == 60


def test_packets_that_were_held_are_not_compared():
    whole, ticks = healthy("go1", 1), np.arange(400)
    late = np.where(ticks % 50 >= 46, ticks // 50 * 50 + 45, ticks)
    episode = replace(whole, signals={n: v[late] for n, v in whole.signals.items()})
    (f,) = check(robot_of("go1"), [episode])
    assert (f.kind, f.ticks, f.start) == ("held", 8 * 4, pytest.approx(0.92))
    assert np.isnan(clean_episodes([episode], [f])[0].signals["gyro"]).all(1).sum() == 32


def test_a_signal_that_never_changes_is_not_compared():
    whole = healthy("go1", 1)
    episode = with_signals(whole, joint_pos=label("go1", lambda v: 0 * v + 0.3, "joint_pos", "FL_hip"))
    assert found("go1", episode) == [("constant", "joint_pos", "FL_hip", False)]
    assert found("go1", with_signals(whole, joint_vel=np.zeros_like)) == [("constant", "joint_vel", "", False)]
    assert found("go1", with_signals(whole, quat=lambda v: 0 * v + [1, 0, 0, 0])) == [("constant", "quat", "", False)]


@pytest.mark.parametrize("step", [0.0, 0.0015])
def test_an_encoder_that_is_stuck_for_a_while(step):
    """Of fine resolution, and of the steps that a real encoder has."""

    def stop(v):
        v = np.round(v / step) * step if step else v
        v[150:200] = v[150]
        return v

    episode = with_signals(healthy("go1", 1), joint_pos=label("go1", stop, "joint_pos", "RR_thigh"))
    (f,) = check(robot_of("go1"), [episode])
    assert (f.kind, f.label, f.refused) == ("stuck", "RR_thigh", False)
    assert f.start == pytest.approx(3.02, abs=0.03)
    assert f.ticks == pytest.approx(49, abs=2)


def test_a_sensor_that_is_slower_than_the_ticks_is_compared_when_it_is_new():
    whole = healthy("go1", 1)
    episode = with_signals(whole, quat=lambda v: v[np.arange(len(v)) // 4 * 4])
    (f,) = check(robot_of("go1"), [episode])
    assert (f.kind, f.signal, f.label, f.ticks) == ("stuck", "quat", "", 300)
    assert np.isfinite(clean_episodes([episode], [f])[0].signals["quat"][::4]).all()


def test_a_velocity_of_exactly_zero_at_rest_is_fine():
    whole = healthy("pendulum", 2)
    rest = np.r_[np.full(60, whole.signals["joint_pos"][0, 0]), whole.signals["joint_pos"][:-60, 0]]
    moved = np.r_[np.zeros(60), whole.signals["joint_vel"][:-60, 0]]
    target = np.r_[np.zeros((60, 1)), whole.target[:-60]]
    noise = 1e-4 * RNG(0).standard_normal(len(rest))
    episode = replace(whole, signals={"joint_pos": (rest + noise)[:, None], "joint_vel": moved[:, None]}, target=target)
    assert found("pendulum", episode) == []


@pytest.mark.parametrize("step", [0.0, 0.002])
def test_a_gyroscope_that_is_clipped(step):
    top = 1.0

    def clip(v):
        v = np.round(v / step) * step if step else v
        return np.clip(v, -top, top)

    whole = healthy("crazyflie", 1, size=1.0)
    smooth = lambda v: np.stack([np.convolve(c, np.ones(5) / 5, "same") for c in v.T], axis=1)
    whole = with_signals(whole, gyro=lambda v: smooth(v) * 4.0 / np.abs(smooth(v)).max(0))
    whole = with_signals(whole, gyro=label("crazyflie", clip, "gyro", "y"), quat=lambda v: v * np.nan)
    f = next(f for f in check(robot_of("crazyflie"), [whole]) if f.kind == "saturated")
    clipped = np.abs(whole.signals["gyro"][:, 1]) >= top
    assert (f.signal, f.label, f.refused) == ("gyro", "y", False)
    left = np.isnan(clean_episodes([whole], [f])[0].signals["gyro"][:, 1])
    assert not (left & ~clipped).any()
    assert left.sum() > 0.7 * clipped.sum()


def test_an_angle_that_is_wrapped_is_unwrapped():
    whole = healthy("pendulum", 1)
    wrapped = with_signals(whole, joint_pos=lambda v: (v - v.mean()) % (2 * np.pi) + v.mean())
    (f,) = check(robot_of("pendulum"), [wrapped])
    assert (f.kind, f.refused) == ("wrapped", False)
    turned = clean_episodes([wrapped], [f])[0].signals["joint_pos"] - whole.signals["joint_pos"]
    assert np.ptp(turned) < 1e-6


def test_a_target_beyond_its_limits_is_replayed_as_it_was_sent():
    whole = healthy("go1", 1)
    target = whole.target.copy()
    target[100:105, 2] = -0.5
    (f,) = check(robot_of("go1"), [replace(whole, target=target)])
    assert (f.kind, f.signal, f.label, f.start, f.ticks, f.refused) == ("limit", "joint_target", "FR_calf", 2.0, 5, False)


def test_resolution():
    rng = RNG(0)
    assert resolution(np.unique(rng.standard_normal(500).astype(np.float32))) == 0.0
    assert resolution(np.unique((np.round(rng.standard_normal(500) / 0.01) * 0.01 + 0.3).astype(np.float32))) == pytest.approx(
        0.01, rel=1e-3
    )


# On the way to a fit ----------------------------------------------------------------------------------------------------


def test_a_study_refuses_what_is_wrong_unless_it_is_trusted():
    robot = robot_of("pendulum")
    bad = with_signals(healthy("pendulum", 1).time_slice(0.0, 4.0), joint_vel=lambda v: v * DEG)
    with pytest.raises(BadInput, match="looks like deg/s"):
        fit_recordings(robot, [bad], robot.prior, ["joint_damping"], threads=1)
    trusted = fit_recordings(
        robot, [bad], robot.prior, ["joint_damping"], horizon_seconds=0.2, threads=1, trust=True, search="never"
    )
    assert [f.kind for f in trusted.findings] == ["unit"]


def test_by_the_command_line(tmp_path, capsys):
    whole, path = healthy("pendulum", 1).time_slice(0.0, 4.0), tmp_path / "swing.mcap"
    command = ["identify", "pendulum", str(path), "--only", "joint_damping", "--horizon", "0.2", "--search", "never"]
    write_episode(path, with_signals(whole, joint_vel=lambda v: v * DEG))
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "swing.mcap: joint_vel of hinge looks like deg/s" in error
    assert "--trust" in error
    assert main([*command, "--trust"]) == 0
    assert "suspect: " in capsys.readouterr().out

    def gone(v):
        v[20:30] = np.nan
        return v

    write_episode(path, with_signals(whole, joint_vel=gone))
    assert main([*command, "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)["findings"]
    assert (said["kind"], said["signal"], said["start"], said["ticks"]) == ("missing", "joint_vel", pytest.approx(0.4), 10)


def test_a_target_that_goes_against_a_loaded_joint_is_a_correction():
    """A foot that gives way while the policy corrects it: the changes oppose each other, the levels agree."""
    whole, hip = healthy("go1", 1), 3
    sway = 0.1 * np.sin(np.linspace(0.0, 40.0, len(whole)))
    q, v, target = whole.signals["joint_pos"].copy(), whole.signals["joint_vel"].copy(), whole.target.copy()
    q[:, hip], v[:, hip], target[:, hip] = 0.1 + sway, np.gradient(sway, whole.time), 0.12 - 1.5 * sway
    correcting = replace(whole, signals={**whole.signals, "joint_pos": q, "joint_vel": v}, target=target)
    assert not [f for f in found("go1", correcting) if f[0] == "sign"]
    flipped = target.copy()
    flipped[:, hip] = -0.1 - 1.5 * sway
    assert ("sign", "joint_target", "FL_hip", True) in found("go1", replace(correcting, target=flipped))
