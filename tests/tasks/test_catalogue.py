"""Robot × skill: what fits a robot, settings derived from it, overrides, and tasks of strangers."""

from __future__ import annotations

import re
from dataclasses import fields

import numpy as np
import pytest
import torch

from isthmus.core import plugins
from isthmus.core.errors import BadInput
from isthmus.robots import ROBOTS, get_robot
from isthmus.tasks.catalogue import TASKS, get_task, skills_of
from isthmus.tasks.env import Env
from isthmus.tasks.presets import PRESETS
from support.menagerie import ROOT, needs_menagerie
from support.models import ARM, biped_xml


def test_what_fits_our_robots():
    fits = {name: [skill for skill, why in skills_of(make()).items() if why is None] for name, make in ROBOTS.items()}
    assert fits == {"cartpole": ["balance"], "crazyflie": ["hover"], "go1": ["walk"], "pendulum": ["swingup"]}


@pytest.mark.parametrize("name", ["cartpole/balance", "crazyflie/hover", "go1/walk", "pendulum/swingup"])
def test_settings_derived_from_our_robots_are_near_the_measured_ones(name):
    preset = PRESETS[name]
    derived = preset.skill.settings(preset.robot())
    for field in fields(derived):
        found, measured = getattr(derived, field.name), getattr(preset.settings, field.name)
        if field.name == "lift":
            np.testing.assert_allclose(found, measured, atol=0.06)
        elif isinstance(measured, float):
            assert found == pytest.approx(measured, rel=0.05), field.name
        else:
            assert found == measured, field.name


def test_overrides_are_in_the_name_and_found_again():
    task = get_task("go1/walk", {"forward": 0.8})
    assert task.command is not None
    assert task.command.signal.high == (0.8, 0.5, 1.0)
    assert task.name == "go1/walk:forward=0.8"
    again = get_task(task.name)
    assert again.command == task.command
    assert again.name == task.name


def test_harder_variants_take_overrides_too():
    task = get_task("go1/terrain:forward=0.7")
    assert task.terrain is not None
    assert task.command is not None
    assert task.command.signal.high[0] == 0.7


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("go1/wlak", "did you mean 'go1/walk'"),
        ("go1/hover", "go1 cannot hover: it has no rotors. It can: walk."),
        ("pendulum/walk", "no root that moves freely"),
        ("go1/walk:forwrad=1", "did you mean 'forward'"),
        ("go1/walk:forward=fast", "forward is a number"),
        ("go1/walk:forward", "ROBOT/SKILL:setting=number"),
        ("go1/juggle", "walk"),
        ("nothing", "task"),
    ],
)
def test_a_name_that_makes_no_task_says_why(name, words):
    with pytest.raises(BadInput, match=re.escape(words)):
        get_task(name)


def test_a_task_in_a_file_is_run_only_if_a_person_named_it(tmp_path, monkeypatch):
    path = tmp_path / "mine.py"
    path.write_text("from isthmus.tasks.catalogue import get_task\ndef make():\n    return get_task('pendulum/swingup')\n")
    monkeypatch.setattr(plugins, "_trusted", set())
    with pytest.raises(BadInput, match="--plugin"):
        get_task(f"{path}:make")
    plugins.trust(str(path))
    task = get_task(f"{path}:make")
    assert task.name == f"{path}:make"
    assert task.robot.name == "pendulum"


def rollout(name: str, ticks: int = 50) -> tuple[Env, float]:
    """Share of worlds whose episode failed while the robot held its default."""
    task = get_task(name)
    env, failed = Env(task, 8, seed=0, threads=1, training=False), 0
    for _ in range(ticks):
        failed += int(env.step(torch.tensor(task.robot.default).expand(8, -1)).terminated.sum())
    assert env.diverged_worlds == 0
    assert torch.isfinite(env.critic()).all()
    return env, failed / 8


def test_an_arm_of_a_stranger_reaches_without_python(tmp_path):
    (tmp_path / "arm.xml").write_text(ARM)
    (tmp_path / "arm.toml").write_text('model = "arm.xml"\nend_effector = "tip"\n')
    env, _ = rollout(f"{tmp_path}/arm.toml/reach")
    s, command = env.read_state(), env.task.command
    assert s.end_effector_pos is not None
    assert command is not None
    low, high = np.array(command.signal.low), np.array(command.signal.high)
    # Commands are inside what two links of 0.55 m about (0, 0, 0.5) reach.
    for corner in (low, high):
        assert np.linalg.norm(corner - [0, 0, 0.5]) < 0.58
    expected = env.sim.engine.array("site_xpos")[:, env.sim.model.site("tip").id]
    np.testing.assert_allclose(s.end_effector_pos[:, 0], expected, atol=1e-6)


def test_a_biped_of_a_stranger_steps(tmp_path):
    (tmp_path / "biped.xml").write_text(biped_xml())
    env, _ = rollout(f"{tmp_path}/biped.xml/walk", ticks=5)
    clock = env.task.policy.gait_clock
    assert clock is not None
    assert clock.offset == (0.5, 0.5, 0.0, 0.0)
    force = env.read_state().feet_force.sum(1)
    assert (force > 1.0).any()


@needs_menagerie
@pytest.mark.parametrize("name", ["unitree_go2/walk", "robotstudio_so101/reach"])
def test_robots_of_menagerie_hold_their_default_pose(name, monkeypatch):
    monkeypatch.setenv("MENAGERIE_ROOT", str(ROOT))
    assert rollout(f"menagerie:{name}")[1] < 0.3


@needs_menagerie
def test_legs_with_torque_motors_stand_behind_position_controllers(monkeypatch):
    monkeypatch.setenv("MENAGERIE_ROOT", str(ROOT))
    robot = get_robot("servo:menagerie:unitree_go2")
    plain = get_robot("menagerie:unitree_go2")
    assert robot.model_hash == plain.model_hash
    assert robot.contract.target.name == "joint_target"
    assert robot.motors.drive == "position"
    assert set(robot.space.names) - set(plain.space.names) == {"kp", "kd"}
    assert get_task("menagerie:unitree_go2/walk").robot.contract == robot.contract


def test_every_catalogue_task_is_its_preset():
    assert set(TASKS) == set(PRESETS)
    assert {make().name for make in TASKS.values()} == set(TASKS)
