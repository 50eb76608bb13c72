"""Laws of hidden realities: the same for a seed, inside their family, fit for their robot, and alive."""

from __future__ import annotations

import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.deploy.links.link import Command
from isthmus.sim.reality import Reality, VirtualRobot
from isthmus.sim.reality.hidden import families, hidden
from support.menagerie import menagerie, needs_menagerie

SEEDS = 40
NAMES = ("nominal", "parametric-inside", "parametric-outside", "unmodelled", "wiring", "link", "sensors", "mixed")


def test_a_seed_is_one_reality(robot):
    drawn = [hidden(robot, seed) for seed in range(200)]
    for seed in range(SEEDS):
        assert hidden(robot, seed) == drawn[seed]
    assert len({reality.hash for _, reality in drawn[:SEEDS]}) == SEEDS
    assert {family for family, _ in drawn} == set(NAMES)
    assert set(families(robot)) == {*NAMES, "severe"}


def test_a_family_holds_what_it_says(robot):
    prior, space = robot.prior, robot.space
    for seed in range(SEEDS):
        drawn = {name: hidden(robot, seed, name)[1] for name in NAMES}
        tables = {name: set(reality.to_dict()) - {"robot", "seed"} for name, reality in drawn.items()}
        assert tables["nominal"] == set()
        assert tables["parametric-inside"] == tables["parametric-outside"] == {"params"}
        assert tables["unmodelled"] == {"unmodelled"}
        assert tables["wiring"] == tables["link"] == {"faults"}
        assert tables["sensors"] == {"sensors"}
        assert tables["mixed"] == {"params", "unmodelled"}
        for name, value in drawn["parametric-inside"].params.items():
            low, high = prior.interval(name, 1.0)
            assert low <= value <= high
        for name in ("parametric-outside", "mixed"):
            for param, value in drawn[name].params.items():
                low, high = prior.interval(param, 1.0)
                assert not low <= value <= high
                assert space[param].low <= value <= space[param].high
        assert len(drawn["unmodelled"].to_dict()["unmodelled"]) == 1
        assert len(drawn["wiring"].to_dict()["faults"]) == 1
        for reality in drawn.values():
            reality.check(robot)
            assert Reality.from_toml(reality.to_toml().encode()) == reality


def test_what_is_severe_is_further_out_and_stronger(robot):
    """Only where it is asked for: two or three numbers, none nearer than `mixed` ever draws it."""
    space, usual = robot.space, {}
    for seed in range(6 * SEEDS):
        drawn = hidden(robot, seed, "mixed")[1]
        for name, value in drawn.params.items():
            usual.setdefault((name, value > space[name].nominal), []).append(_beyond(robot, name, value))
    for seed in range(SEEDS):
        reality = hidden(robot, seed, "severe")[1]
        reality.check(robot)
        assert 2 <= len(reality.params) <= 3
        assert len(reality.to_dict()["unmodelled"]) == 1
        for name, value in reality.params.items():
            assert space[name].low <= value <= space[name].high
            others = usual.get((name, value > space[name].nominal), [0.0])
            assert _beyond(robot, name, value) > max(others) - 0.01, (seed, name)
    sags = [hidden(robot, seed, "severe")[1].unmodelled.battery_sag for seed in range(SEEDS)]
    assert all(sag is None or 0.4 <= sag <= 0.65 for sag in sags)


def _beyond(robot, name: str, value: float) -> float:
    """How far outside of the prior a number is, as a part of the way from there to its hard bound."""
    low, high = robot.prior.interval(name, 1.0)
    even = np.log if robot.space[name].scale == "log" else float
    end, bound = (low, robot.space[name].low) if value < low else (high, robot.space[name].high)
    return (even(value) - even(end)) / (even(bound) - even(end))


def live(robot, reality: Reality, periods: int = 120) -> VirtualRobot:
    """A short life: stand, track targets that wander, fall silent."""
    virtual, rng = VirtualRobot(robot, reality), np.random.default_rng(0)
    signal, u = robot.contract.target, np.array(robot.default)
    span = 0.1 * (np.array(signal.high or (1.0,) * signal.size) - np.array(signal.low or (-1.0,) * signal.size))
    for k in range(periods):
        if k % 10 == 0:
            u = np.array(robot.default) + span * rng.uniform(-1, 1, u.shape)
        if 10 < k < periods - 20:
            virtual.command(Command(k, virtual.time, "track", u))
        for packet in virtual.advance():
            assert np.isfinite(packet.values).all()
    return virtual


def test_every_hidden_reality_lives(robot):
    for seed in range(SEEDS):
        family, reality = hidden(robot, seed)
        assert live(robot, reality).truth()["events"] == [], (seed, family)
    for seed in range(SEEDS // 4):
        assert live(robot, hidden(robot, seed, "severe")[1]).truth()["events"] == [], seed


@pytest.mark.slow
@needs_menagerie
@pytest.mark.parametrize("name", ["unitree_go2", "skydio_x2", "robotstudio_so101"])
def test_robots_from_elsewhere_get_the_families_that_make_sense(name):
    robot = menagerie(name)
    found = families(robot)
    assert {"nominal", "parametric-inside", "link"} <= set(found) <= {*NAMES, "severe"}
    for family in found:
        reality = hidden(robot, 1, family)[1]
        assert live(robot, reality, 40).truth()["events"] == [], family


def test_a_family_that_does_not_exist_is_named(robot):
    with pytest.raises(BadInput, match="unmodelled"):
        hidden(robot, 0, "unmodeled")
    with pytest.raises(BadInput, match="seed"):
        hidden(robot, -1)
