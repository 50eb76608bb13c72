"""Import of recordings of real hardware, made by others: what comes out must obey physics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isthmus.data.contract import Contract, Signal
from isthmus.data.mapping import import_file
from support.foreign_files import mapped
from support.paths import REAL_DATA as REAL


def real(name: str) -> Path:
    if not (REAL / name).exists():
        pytest.skip(f"the recordings of {name} are not here")
    return REAL / name


def agreement(time: np.ndarray, position: np.ndarray, velocity: np.ndarray) -> tuple[float, float]:
    """Correlation and slope of a velocity against the derivative of a position, smoothed over five ticks."""
    smooth = lambda x: np.convolve(x, np.ones(5) / 5, "valid")
    d, v = smooth(np.gradient(position, time)), smooth(velocity)
    return float(np.corrcoef(d, v)[0, 1]), float(d @ v / (d @ d))


def test_a_real_pendulum(tmp_path):
    from isthmus.robots import get_robot

    folder, contract = real("dfki_simple_pendulum"), get_robot("pendulum").contract
    mapping = mapped(
        tmp_path,
        """
[time]
column = "t_s"
[signals.joint_pos]
columns = ["q_rad"]
unit = "rad"
[signals.joint_vel]
columns = ["qd_rad_s"]
unit = "rad/s"
[target]
columns = "tau_des_Nm"
unit = "Nm"
[status]
tau_measured = "tau_meas_Nm"
[origin]
unit = "AK80-6"
""",
    )
    for name in ("energy_shaping", "ddp_pd"):
        found, warnings = import_file(folder / f"{name}.csv", mapping, contract)
        correlation, slope = agreement(found.time, found.signals["joint_pos"][:, 0], found.signals["joint_vel"][:, 0])
        assert correlation > 0.98
        assert 0.9 < slope < 1.1
        assert any("ticks per second" in w for w in warnings)
    # Torque mode: what was measured follows what was asked for.
    found, _ = import_file(folder / "energy_shaping.csv", mapping, contract)
    assert np.corrcoef(found.target[:, 0], found.status["tau_measured"])[0, 1] > 0.8


def test_a_real_quadruped_in_the_air(tmp_path):
    """A Go2's log fits a Go1's contract by name; its joints are in another order there."""
    from isthmus.robots import get_robot

    contract = get_robot("go1").contract
    text = 'absent = ["gyro", "quat", "accel"]\n[time]\ncolumn = "t_s"\n'
    for section, pattern, unit in (
        ("signals.joint_pos", "q_", "rad"),
        ("signals.joint_vel", "qd_", "rad/s"),
        ("target", "qcmd_", "rad"),
    ):
        text += f'[{section}]\ncolumns = "{pattern}{{label}}"\nunit = "{unit}"\n'
    found, _ = import_file(real("go2_motor_response") / "go2_air_public.csv", mapped(tmp_path, text), contract)
    assert found.rate == pytest.approx(200)
    assert len(found) == 8000
    slopes, own = [], 0
    for i in range(12):
        q, qd, cmd = found.signals["joint_pos"][:, i], found.signals["joint_vel"][:, i], found.target[:, i]
        correlation, slope = agreement(found.time, q, qd)
        assert correlation > 0.99
        slopes.append(slope)
        # Most joints follow their own command better than any other's; legs of a pair trot alike.
        own += int(np.argmax([np.corrcoef(q[10:], found.target[6:-4, j])[0, 1] for j in range(12)])) == i
        assert abs(np.mean(q - cmd)) < 0.2
    assert own >= 9
    # The file's time is nominal. All joints agree that a step took some 14 % longer than it says … which shows that
    # position and velocity are in the same unit, and joint by joint.
    assert 1.05 < np.mean(slopes) < 1.25
    assert np.std(slopes) < 0.03


def test_a_real_double_pendulum_and_a_wrong_unit(tmp_path):
    joints = ("shoulder", "elbow")
    robot = Contract(
        "double", 500.0,
        (Signal("joint_pos", "rad", joints), Signal("joint_vel", "rad/s", joints, low=(-40.0,) * 2, high=(40.0,) * 2)),
        Signal("torque", "N·m", joints),
    )  # fmt: skip
    text = """
[time]
column = "t_s"
[signals.joint_pos]
columns = ["q1_rad", "q2_rad"]
unit = "rad"
[signals.joint_vel]
columns = ["qd1_rad_s", "qd2_rad_s"]
unit = "rad/s"
[target]
columns = { shoulder = "tau_cmd1_Nm", elbow = "tau_cmd2_Nm" }
unit = "Nm"
"""
    path = real("dfki_double_pendulum") / "C1_torque_excitation_143339.csv"
    found, _ = import_file(path, mapped(tmp_path, text), robot)
    for i in range(2):
        correlation, slope = agreement(found.time, found.signals["joint_pos"][:, i], found.signals["joint_vel"][:, i])
        assert correlation > 0.97
        assert 0.9 < slope < 1.1
    # Taken for revolutions per second, the velocities are beyond the motor.
    _, warnings = import_file(path, mapped(tmp_path, text.replace('"rad/s"', '"rev/s"')), robot)
    assert any("joint_vel.elbow is above the contract's limit" in w for w in warnings)
