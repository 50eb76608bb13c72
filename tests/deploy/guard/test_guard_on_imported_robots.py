"""Robots from elsewhere under the guard: preflight, limits, a fall and a dead link, with physics, in lock-step."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.links.in_process import InProcessLink
from isthmus.deploy.links.link import Command, Packet
from isthmus.deploy.run_result import RunResult
from isthmus.deploy.runtime import ControlLoop
from isthmus.robots import get_robot
from isthmus.sim.reality import Reality, VirtualRobot
from isthmus.sim.robot import Robot
from support.controllers import counting
from support.lockstep import ready
from support.menagerie import ROOT, needs_menagerie

pytestmark = needs_menagerie

GO2 = """model = "menagerie:unitree_go2"
name = "go2"
kp = 40
kd = 1
feet = ["FL", "FR", "RL", "RR"]
[safety]
speed = 20
rest = { ".*_hip_joint" = 0.0, ".*_thigh_joint" = 1.3, ".*_calf_joint" = -2.6 }
"""
NAMES = ("go2", "unitree_go2", "robotstudio_so101", "unitree_g1", "skydio_x2")
"""With a position drive by a config, and as Menagerie has them: motors, servos of an arm and of a humanoid, rotors."""
HUMANOID = pytest.param("unitree_g1", marks=pytest.mark.slow)
EACH = [HUMANOID if name == "unitree_g1" else name for name in NAMES]
POSES = ("go2", "robotstudio_so101", "unitree_g1")


@pytest.fixture(scope="module")
def robots(tmp_path_factory) -> Callable[[str], Robot]:
    @cache
    def made(name: str) -> Robot:
        path = tmp_path_factory.mktemp("robots") / "go2.toml"
        path.write_text(GO2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MENAGERIE_ROOT", str(ROOT))
            return get_robot(str(path) if name == "go2" else f"menagerie:{name}")

    return made


class Wire(InProcessLink):
    """A link that can be cut."""

    dead = False

    def read(self) -> list[Packet]:
        found = super().read()
        return [] if self.dead else found

    def write(self, command: Command) -> None:
        if not self.dead:
            super().write(command)


class Run:
    """A robot that passed preflight, and a policy that wants the default target or what it is told to want."""

    def __init__(self, robot: Robot):
        self.body = VirtualRobot(robot, Reality(robot.name))
        self.link = Wire(self.body)
        self.controller = counting(robot.contract, np.array(robot.default), gain=0.0, model_hash=robot.model_hash)
        self.sent: list[np.ndarray] = []
        flight, self.checks = ready(self.controller, self.link)
        self.loop = ControlLoop(self.controller, self.link, flight, CommandSchedule(self.controller.manifest.operator))

    def want(self, target: np.ndarray) -> None:
        self.controller.tick = lambda signals: target  # type: ignore[method-assign]

    def fly(self, seconds: float, each: Callable[[], None] = lambda: None) -> RunResult:
        """`each` is called after every tick in which the policy was in charge."""

        def tick() -> str:
            if self.loop.guard.state == "run":
                self.sent.append(self.loop.guard.last_target.copy())
                each()
            return ""

        return self.loop.run(seconds, tick)


@pytest.mark.parametrize("name", EACH)
def test_a_policy_that_wants_the_default_gets_it_to_the_end(robots, name):
    run = Run(robots(name))
    assert all(c.ok for c in run.checks)
    outcome = run.fly(0.4)
    assert (outcome.status, outcome.reason) == ("completed", "")
    assert outcome.seconds >= 0.38
    assert run.body.truth()["events"] == []
    assert robots(name).contract.has_joint_targets == (name in POSES)
    if name != "go2":
        assert run.sent[-1] == pytest.approx(run.loop.guard.default), "nothing is clipped"
        assert not set(outcome.rules) & {"limit", "jump", "torque"}
    run.link.sleep_until(run.link.now() + 0.2)
    assert run.body.mode == "damp", "a run leaves its robot damped"


@pytest.mark.parametrize("name", EACH)
def test_a_huge_target_is_clipped(robots, name):
    robot = robots(name)
    run = Run(robot)
    run.want(np.full(len(robot.default), 1e6))
    outcome = run.fly(0.1)
    assert outcome.rules["limit"] >= 3
    assert outcome.interventions.rate == 1.0
    assert (np.array(run.sent) <= np.array(robot.contract.target.high) + 1e-9).all()
    if name == "go2":
        assert {"limit", "jump", "torque"} <= set(outcome.rules)
        assert (np.abs(np.diff(run.sent, axis=0)) <= 20 / robot.contract.rate + 1e-9).all()


@pytest.mark.parametrize("name", EACH)
def test_a_target_that_is_no_number_is_never_sent(robots, name):
    robot = robots(name)
    run, commands = Run(robot), []
    write = run.link.write
    run.link.write = lambda command: (commands.append(command), write(command))[1]  # type: ignore[method-assign]
    run.want(np.full(len(robot.default), np.nan))
    outcome = run.fly(1.0)
    assert (outcome.status, outcome.reason.split(":")[0]) == ("guard", "held")
    assert outcome.rules["policy"] >= 1
    assert all(np.isfinite(c.target).all() for c in commands)
    held = {c.mode for c in commands if c.time > commands[-1].time - 0.2}
    assert held == {"damp"}
    assert run.body.mode == "damp"
    if name not in POSES:
        assert {c.mode for c in commands} == {"damp"}, "a torque cannot be held"


@pytest.mark.parametrize("name", ["go2", "unitree_go2", HUMANOID])
def test_a_robot_that_tips_over_is_damped(robots, name):
    robot = robots(name)
    run = Run(robot)
    assert robot.contract.safety.tilt == 1.0

    def tip() -> None:
        if len(run.sent) == 5:
            run.body.sim.qpos[0, 2] += 0.3
            run.body.sim.qpos[0, 3:7] = [math.cos(0.7), math.sin(0.7), 0.0, 0.0]

    outcome = run.fly(2.0, tip)
    assert outcome.status == "guard"
    assert outcome.reason.startswith("tilt")
    assert len(run.sent) < 20
    assert run.body.mode == "damp"


@pytest.mark.parametrize("name", EACH)
def test_a_dead_link_ends_in_damp_on_both_sides(robots, name):
    run = Run(robots(name))

    def cut() -> None:
        run.link.dead = run.link.dead or len(run.sent) == 5

    outcome = run.fly(2.0, cut)
    assert outcome.status == "guard"
    assert outcome.reason.startswith(("lost", "held"))
    assert run.loop.guard.finished
    assert run.body.mode == "damp"
    assert run.body.truth()["events"] == []
