"""Deployment bugs of time and physics: delays, deadlines, rates, noise, and packets that are old, doubled or out of order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isthmus.deploy.guard.guard import GUARD_STATES
from isthmus.deploy.links.in_process import InProcessLink, RobotBody
from isthmus.deploy.links.link import Command, Packet
from isthmus.sim.reality import Reality, real_simulation
from isthmus.sim.simulation import Simulation
from isthmus.tasks.env import Env
from support.deployments import Still, Watched, failed, fly, real, recorded
from support.virtual_robots import GO1, virtual

pytestmark = pytest.mark.usefixtures("no_hurry")


# 15, 16, 18, 19, 20, 24: time and physics ----------------------------------------------------------------------------------


def test_a_constant_delay_cannot_be_seen_before_the_robot_answers_a_command(walk):
    assert failed(walk, real(faults={"delay": 0.08})) == {}
    assert fly(walk, real(faults={"delay": 0.08}), 0.2).status == "completed"


class SlowLink(InProcessLink):
    """Sending a command takes `share` of a tick."""

    def __init__(self, body: RobotBody, share: float):
        super().__init__(body)
        self.share = share

    def write(self, command: Command) -> None:
        super().write(command)
        self.sleep_until(self.now() + self.share / GO1.contract.rate)


def test_a_loop_that_misses_its_deadlines_is_counted_held_and_ended(walk):
    body = real()
    quick = fly(walk, real(), 0.3, link=SlowLink(real(), 0.5))
    slow = fly(walk, body, 0.3, link=SlowLink(body, 1.5))
    assert (quick.status, quick.missed.rate) == ("completed", 0.0)
    assert slow.missed.rate == 1.0
    assert slow.rules["deadline"] > 0
    assert slow.reason.startswith("held: ")
    assert body.commands[-1].mode == "damp"
    assert body.commands[-1].time - body.commands[0].time < 3.0, "half a second of it was enough"


@pytest.mark.parametrize(("pace", "checks"), [(0.995, set()), (0.9, {"clock"}), (0.6, {"fresh", "clock"}), (1.5, {"clock"})])
def test_a_simulation_that_is_slower_than_real_time_is_refused(walk, pace, checks):
    assert failed(walk, Watched(Still(pace=pace))).keys() == checks


def test_a_step_of_the_target_has_the_same_answer_in_training_and_on_the_virtual_robot():
    """One motor law, with the contract's gains: u - q decays alike, to the difference that the finer step makes."""
    step = np.array(GO1.default) + np.tile([0.1, -0.1, 0.2], 4)
    both = (Simulation(GO1, 1, threads=1), real_simulation(GO1, Reality("go1"), 1, threads=1, tick=1 / GO1.contract.rate))
    paths = []
    for engine in both:
        path = []
        for _ in range(25):
            engine.step(step[None])
            path.append(engine.qpos[0, 7:19].copy())
        paths.append(np.array(path))
    moved = np.abs(paths[0][-1] - GO1.default).max()
    assert moved > 0.05
    assert np.abs(paths[0] - paths[1]).max() < 0.15 * moved
    assert GO1.motors.kp == GO1.contract.gains["kp"]
    assert GO1.motors.kd == GO1.contract.gains["kd"]


def test_another_rate_is_refused(walk):
    found = failed(walk, Watched(virtual(), replace(GO1.contract, rate=100.0)))
    assert found == {"contract": "it runs at 50 Hz, the robot at 100 Hz"}


def test_noise_beyond_that_of_training_passes_and_can_be_measured_in_the_recording(walk, tmp_path):
    noise = 3.0
    assert noise > GO1.prior.interval("joint_vel_noise", 1.0)[1]
    outcome, found = recorded(walk, real(params={"joint_vel_noise": noise}), 0.5, tmp_path / "a.mcap")
    assert outcome.status == "completed"
    running = found.status["state"] == GUARD_STATES.index("run")
    assert found.signals["joint_vel"][running].std() == pytest.approx(noise, rel=0.1)


def test_a_nominal_belief_and_an_empty_reality_leave_every_number_nominal(walk):
    nominal = GO1.space.nominal
    env = Env(walk.run.task, 4, seed=3, belief=GO1.prior.nominal())
    assert (env.sim.e == nominal).all()
    assert (real_simulation(GO1, Reality("go1"), 2, threads=1).e == nominal).all()
    assert not (Env(walk.run.task, 4, seed=3).sim.e == nominal).all()


# 30: packets ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "rule"), [({"drop": 0.1}, "dropped"), ({"duplicate": 0.15}, "duplicate"), ({"reorder": 0.1}, "order")]
)
def test_packets_that_are_lost_doubled_or_late_are_counted_and_never_acted_on_twice(walk, faults, rule, tmp_path):
    outcome, found = recorded(walk, real(faults=faults), 0.5, tmp_path / "a.mcap")
    assert outcome.status == "completed"
    assert outcome.rules[rule] > 50
    assert outcome.interventions.rate == 0
    assert (np.diff(found.status["sequence"]) > 0).all()
    assert rule in [e.name for e in found.events]


@pytest.mark.parametrize(
    ("faults", "checks"),
    [
        ({"drop": 0.8}, {"order"}),
        ({"duplicate": 0.9}, {"order"}),
        ({"clock_jump": {"at": 0.3, "by": 1.0}}, {"clock"}),
        ({"clock_jump": {"at": 0.3, "by": -1.0}}, {"fresh", "rate", "clock"}),
    ],
)
def test_a_network_that_is_no_good_is_refused(walk, faults, checks):
    assert failed(walk, real(faults=faults)).keys() == checks


@pytest.mark.parametrize("by", [1.0, -0.1])
def test_a_jump_of_the_clock_holds_the_robot_for_a_moment(walk, by, tmp_path):
    outcome, found = recorded(walk, real(faults={"clock_jump": {"at": 2.0, "by": by}}), 0.5, tmp_path / "a.mcap")
    assert outcome.status == "completed"
    assert outcome.rules == {"clock": 1}
    names = [e.name for e in found.events]
    at = names.index("clock")
    assert names[at : at + 3] == ["clock", "hold", "run"]


@pytest.mark.parametrize(("silence", "ended"), [(0.1, "completed"), (1.0, "guard")])
def test_stale_signals_are_not_acted_on(walk, silence, ended, tmp_path):
    """The robot says nothing for a while, or says the same old thing again and again."""
    for repeat in (False, True):
        kept: list[Packet] = []

        def say(p: Packet, repeat: bool = repeat, kept: list[Packet] = kept) -> list[Packet]:
            if 2.0 < p.time < 2.0 + silence:
                return kept[-1:] if repeat else []
            kept.append(p)
            return [p]

        outcome, found = recorded(walk, Watched(virtual(), say=say), 0.5, tmp_path / "a.mcap")
        assert outcome.status == ended
        assert outcome.rules["stale"] > 0
        assert outcome.reason.split(":")[0] == ("lost" if ended == "guard" else "")
        old = found.status["age"] > 0.06 + 1e-6
        assert old.any()
        assert np.isnan(found.wanted[old]).all(), "the policy was not asked"
