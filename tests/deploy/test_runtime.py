"""The loop, in lock-step with robots inside this process: every moment is exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from isthmus.data.contract import Contract
from isthmus.data.episode import Episode
from isthmus.data.mcap.writer import read_episode
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.guard.guard import GUARD_STATES
from isthmus.deploy.guard.rules import RULE_BITS
from isthmus.deploy.links.in_process import InProcessLink, RobotBody
from isthmus.deploy.links.link import MODES, Command
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.deploy.run_result import RunResult
from isthmus.deploy.runtime import SETTLE_SECONDS, ControlLoop
from isthmus.deploy.signal_map import SignalMap
from isthmus.robots import get_robot
from isthmus.sim.reality import Reality, VirtualRobot
from support.contracts import put, reordered
from support.controllers import constant, floats, manifest, model
from support.fake_bodies import PERIOD, StandIn
from support.lockstep import CONTRACTS, GAIN, changes, counter, fly, quiet, ready, stand_in, states

# Runs ----------------------------------------------------------------------------------------------------------------

BAD_NETWORK = {"drop": 0.1, "duplicate": 0.1, "delay": {"extra": 0.004, "jitter": 0.004}}


def virtual(name: str, **faults) -> VirtualRobot:
    return VirtualRobot(get_robot(name), Reality.from_dict({"robot": name, "faults": faults}))


BODIES: dict[str, tuple[str, Callable[[], RobotBody]]] = {
    "go1": ("go1", lambda: virtual("go1")),
    "pendulum": ("pendulum", lambda: virtual("pendulum")),
    "a bad network": ("go1", lambda: virtual("go1", **BAD_NETWORK)),
    "an arm that is silent for a while": ("arm", lambda: stand_in("arm", say=quiet(2.0, 0.1))),
}


@pytest.fixture(scope="module", params=BODIES)
def twice(request, tmp_path_factory) -> tuple[str, list[tuple[RunResult, Episode]]]:
    """The same run, two times, each with a fresh controller and robot."""
    name, make = BODIES[request.param]
    found = []
    for i in range(2):
        path = tmp_path_factory.mktemp("runs") / f"{i}.mcap"
        body = make()
        outcome, _ = fly(counter(name, "", body.identity.model_hash), body, 1.0, path, ("forward=0.2", "0.5:yaw=-0.1"))
        found.append((outcome, read_episode(path)))
    return name, found


def test_the_same_run_twice_is_the_same_bit_for_bit(twice):
    _, ((first, episode), (second, again)) = twice
    assert episode.hash == again.hash
    assert first.reason == second.reason
    assert first.rules == second.rules
    assert first.status == "completed", first.reason
    assert len(episode) == first.ticks == first.recorded_ticks
    assert episode.complete
    assert first.lost_ticks == 0


def replay(controller: OnnxController, episode: Episode) -> np.ndarray:
    """What a fresh controller wants, asked at the ticks at which it was asked."""
    fit = SignalMap.from_contracts(controller.manifest, episode.contract)
    names = [s.name for s in episode.contract.signals]
    rows = np.concatenate([episode.signals[n] for n in names], axis=1)
    out, asked = np.full_like(episode.wanted, np.nan), False
    for k, row in enumerate(rows):
        if np.isnan(episode.wanted[k]).all():
            asked = False
            continue
        if not asked:
            controller.reset()
        signals = {n: row[columns] for n, columns in fit.signal_columns.items()}
        out[k] = controller.tick(signals | {s.name: episode.signals[s.name][k] for s in episode.operator})[fit.target_order]
        asked = True
    return out


def test_a_fresh_controller_reproduces_the_recorded_wishes_exactly(twice):
    """Also where there was a hold in between: a history that advances twice, or goes on after a gap, would show."""
    name, ((_, episode), _) = twice
    asked = np.isfinite(episode.wanted).all(axis=1)
    assert asked.sum() > 50
    assert np.array_equal(replay(counter(name), episode), episode.wanted, equal_nan=True)


def test_where_nothing_intervened_the_robot_got_what_was_wanted(twice):
    _, ((outcome, episode), _) = twice
    in_run = np.array(states(episode)) == "run"
    asked = np.isfinite(episode.wanted).all(axis=1)
    same = (episode.target == episode.wanted).all(axis=1)
    assert (in_run & asked).sum() > 50
    other = in_run & asked & ~same
    assert (episode.status["rules"][other] > 0).all()
    # The tick in which the ramp ends belongs to the ramp: the policy was not asked yet.
    ticks = (asked & in_run).sum() + (np.array(states(episode)) == "hold").sum()
    resumed = sum(a == "hold" and b == "run" for a, b in zip(states(episode), states(episode)[1:], strict=False))
    assert outcome.interventions.n == ticks + resumed
    assert outcome.interventions.rate == pytest.approx(
        (outcome.interventions.n - (same & asked & in_run).sum()) / outcome.interventions.n
    )


def test_the_memory_of_the_policy_starts_anew_after_a_hold(tmp_path):
    body = stand_in(say=quiet(2.4, 0.1))
    outcome, _ = fly(counter(signal="gyro"), body, 2.0, tmp_path / "a.mcap")
    episode = read_episode(tmp_path / "a.mcap")
    count = np.round((episode.wanted - CONTRACTS["go1"][1])[:, 0] / GAIN)
    asked = np.isfinite(count)
    starts = [k for k in range(1, len(count)) if asked[k] and not asked[k - 1]]
    assert outcome.status == "completed"
    assert len(starts) == 2
    assert [count[k] for k in starts] == [1, 1]
    for start in starts:
        stop = next(k for k in range(start, len(count)) if not asked[k])
        assert (np.diff(count[start:stop]) == 1).all()
    between = states(episode)[starts[0] : starts[1]]
    assert changes(between) == ["run", "hold", "run"]


def test_a_run_is_told_from_ramp_to_stop(tmp_path):
    body = stand_in()
    outcome, loop = fly(counter(), body, 1.0, tmp_path / "a.mcap")
    episode = read_episode(tmp_path / "a.mcap")
    assert changes(states(episode)) == ["ramp", "run", "stop"]
    assert [e.name for e in episode.events if e.name in GUARD_STATES] == ["ramp", "run", "stop"]
    assert outcome.seconds == pytest.approx(1.0 + SETTLE_SECONDS, abs=0.05)
    assert body.commands[-1].mode == "damp"
    assert {c.mode for c in body.commands[:-1]} == {"track"}
    assert [c.sequence for c in body.commands] == list(range(outcome.ticks))
    np.testing.assert_array_equal(episode.target, [c.target for c in body.commands])
    np.testing.assert_array_equal(episode.time, [c.time - body.commands[0].time for c in body.commands])
    np.testing.assert_array_equal(episode.status["mode"], [MODES.index("idle"), *[MODES.index("track")] * (outcome.ticks - 1)])
    assert loop.progress.state == "stop"
    assert not outcome.rules


@pytest.mark.parametrize("moment", [0.1, 1.5])
def test_a_run_that_is_interrupted_sits_down_first(moment):
    body, said = stand_in(), []
    start: list[float] = []

    def stopping() -> str:
        start[:] = start or [body.time]
        return "interrupted" if body.time - start[0] >= moment else ""

    outcome, loop = fly(counter(), body, math.inf, stopping=stopping)
    said = [c.target for c in body.commands if c.mode == "track"]
    assert (outcome.status, outcome.reason) == ("interrupted", "interrupted")
    np.testing.assert_allclose(said[-1], body.contract.safety.rest, atol=5e-3)
    assert loop.guard.finished


def test_an_interrupt_while_the_policy_comes_to_rest_does_not_make_it_longer():
    ends = []
    for late in (False, True):
        body = stand_in()
        asked = []

        def stopping(body=body, asked=asked, late=late) -> str:
            asked.append(body.time)
            return "interrupted" if late and body.time - asked[0] > 0.5 + 1.0 + 1.0 else ""

        outcome, _ = fly(counter(), body, 1.0, stopping=stopping)
        ends.append(outcome.ticks)
    assert ends[0] == ends[1]


def test_a_policy_that_raises_is_held_and_then_damped(tmp_path):
    controller = counter()
    body, real, calls = stand_in(), controller.tick, []

    def tick(signals):
        calls.append(1)
        if len(calls) > 50 + 30:
            raise RuntimeError("broken")
        return real(signals)

    controller.tick = tick
    outcome, _ = fly(controller, body, 5.0, tmp_path / "a.mcap")
    assert outcome.status == "guard"
    assert outcome.reason.startswith("held")
    assert outcome.rules["policy"] >= 1
    assert changes(states(read_episode(tmp_path / "a.mcap")))[-2:] == ["damp", "stop"]


# Time ----------------------------------------------------------------------------------------------------------------


class Slow(InProcessLink):
    """A link on a machine that takes its time: `costs(tick)` seconds between waking and having sent."""

    costs: Callable[[int], float] = staticmethod(lambda tick: 0.0)

    def write(self, command: Command) -> None:
        super().write(command)
        self.sleep_until(self.now() + self.costs(command.sequence))


def slow(costs: Callable[[int], float]) -> Callable[[RobotBody], InProcessLink]:
    def make(body: RobotBody) -> InProcessLink:
        link = Slow(body)
        link.costs = costs
        return link

    return make


def ticks_of(body: StandIn, tick: float) -> np.ndarray:
    """When commands were sent, in ticks since the first; they must lie on the grid."""
    times = (np.array([c.time for c in body.commands]) - body.commands[0].time) / tick
    np.testing.assert_allclose(times, np.round(times), atol=1e-6)
    return np.round(times).astype(int)


@pytest.mark.parametrize(("name", "most"), [("go1", 9), ("arm", 1)])
def test_deadlines_are_absolute_whatever_a_tick_costs(name, most):
    """A loop that slept for the rest of a period after each tick would drift."""
    tick, body = 1 / CONTRACTS[name][0].rate, stand_in(name)
    outcome, _ = fly(counter(name), body, 2.0, link=slow(lambda k: PERIOD * (k % (most + 1))))
    times = np.array([c.time for c in body.commands]) - body.commands[0].time
    due = tick * np.arange(len(times))
    # The clock of this link has a resolution of one period.
    assert np.abs(times - due).max() <= PERIOD
    assert outcome.missed.rate == 0.0
    assert outcome.status == "completed"


@pytest.mark.parametrize(("cost", "skipped"), [(0.9, 0), (1.1, 1), (1.9, 1), (2.1, 2), (7.5, 7)])
def test_a_tick_that_takes_too_long_is_counted_and_nothing_is_caught_up(cost, skipped):
    body = stand_in()
    outcome, loop = fly(counter(), body, 1.5, link=slow(lambda k: cost * 0.02 if k == 60 else 0.0))
    slots = ticks_of(body, 0.02)
    # Its own deadline was missed, and so were those that passed meanwhile.
    assert round(outcome.missed.rate * outcome.missed.n) == (1 + skipped if cost > 1 else 0)
    assert outcome.missed.n == slots[-1] + 1
    assert np.diff(slots)[60] == 1 + skipped
    assert (np.delete(np.diff(slots), 60) == 1).all()
    # It woke at its deadlines, never late, never early.
    np.testing.assert_allclose(loop.wake_latency, 0.0, atol=1e-9)
    assert loop.compute_time[60] == pytest.approx(cost * 0.02)
    assert outcome.wake_latency.max == loop.wake_latency.max()
    assert outcome.compute_time.max == loop.compute_time.max()
    assert sum(outcome.wake_latency_histogram.counts) == outcome.ticks


def test_deadlines_missed_in_a_row_are_a_hold_and_then_the_end(tmp_path):
    body = stand_in()
    outcome, loop = fly(counter(), body, 5.0, tmp_path / "a.mcap", link=slow(lambda k: 0.03 if k >= 60 else 0.0))
    episode = read_episode(tmp_path / "a.mcap")
    assert outcome.status == "guard"
    assert outcome.reason.startswith("held")
    assert changes(states(episode)) == ["ramp", "run", "hold", "damp", "stop"]
    first = states(episode).index("hold")
    assert first == 60 + loop.guard.thresholds.max_missed_deadlines
    assert episode.status["missed"].sum() == round(outcome.missed.rate * outcome.missed.n) == outcome.missed.n - 60
    assert episode.status["rules"][first] == RULE_BITS["deadline"]


@pytest.mark.parametrize("name", ["go1", "arm", "pendulum"])
def test_a_link_that_dies_ends_in_hold_then_damp_then_stop_at_the_stated_times(name, tmp_path):
    body = stand_in(name, say=quiet(2.5, math.inf))
    outcome, loop = fly(counter(name), body, 10.0, tmp_path / "a.mcap")
    episode, t = read_episode(tmp_path / "a.mcap"), loop.guard.thresholds
    assert outcome.status == "guard"
    assert outcome.reason.startswith("lost")
    assert changes(states(episode))[-4:] == ["run", "hold", "damp", "stop"]
    start = {s: episode.time[states(episode).index(s)] for s in ("hold", "damp", "stop")}
    silent = episode.time[np.flatnonzero(np.diff(episode.status["sequence"]))[-1] + 1]
    tick = loop.tick
    assert t.stale_after - tick <= start["hold"] - silent <= t.stale_after + 2 * tick
    assert t.lost_after - tick <= start["damp"] - silent <= t.lost_after + 2 * tick
    assert t.damp_seconds - tick <= start["stop"] - start["damp"] <= t.damp_seconds + 2 * tick
    held = [c for c, s in zip(body.commands, states(episode), strict=True) if s == "hold"]
    assert {c.mode for c in held} == {"track" if body.contract.has_joint_targets else "damp"}
    assert {c.mode for c, s in zip(body.commands, states(episode), strict=True) if s in ("damp", "stop")} == {"damp"}
    assert len(episode) == outcome.ticks == len(body.commands)
    assert [e.name for e in episode.events if e.name in GUARD_STATES][-3:] == ["hold", "damp", "stop"]
    assert np.isnan(episode.wanted[states(episode).index("hold") :]).all()


@pytest.mark.parametrize("name", ["go1", "arm", "pendulum"])
def test_a_link_that_comes_back_soon_enough_goes_on(name):
    limit = 1 / CONTRACTS[name][0].rate
    for silence, ended in ((0.15, "completed"), (0.2 if name == "arm" else 0.24, "guard")):
        body = stand_in(name, say=quiet(2.5, silence + 2 * limit * (ended == "guard")))
        outcome, _ = fly(counter(name), body, 2.5)
        assert outcome.status == ended
        assert outcome.rules["stale"] >= 1


# Names, not places ---------------------------------------------------------------------------------------------------


def telling(contract: Contract, default: np.ndarray) -> OnnxController:
    """Every component of every input has its own weight in the target of its own joint, so no two can be exchanged."""
    m = contract.target.size
    of_joint = {x: i for i, x in enumerate(contract.target.labels)}
    own = [0.01 * (of_joint[x] + 1) * np.eye(m)[of_joint[x]] for x in contract["joint_pos"].labels]
    each = np.arange(1, m + 1)[None]
    weights = {
        "joint_pos": np.array(own),
        "quat": 1e-3 * np.arange(1, 5)[:, None] * each,
        "accel": 1e-4 * np.arange(1, 4)[:, None] * each,
    }
    nodes = [helper.make_node("MatMul", [name, f"w_{name}"], [f"part_{name}"]) for name in weights]
    nodes.append(helper.make_node("Sum", [*(f"part_{name}" for name in weights), "default"], [contract.target.name]))
    rows = {f"w_{k}": v for k, v in weights.items()} | {"default": default[None]}
    made = model(
        nodes,
        [floats(name, 1, contract[name].size) for name in weights],
        [floats(contract.target.name, 1, m)],
        [constant(k, v.astype(np.float32)) for k, v in rows.items()],
    ).SerializeToString()
    about = replace(manifest(contract, default, made), inputs=tuple(weights), operator=(), memory={})
    return OnnxController(about, made)


class Leaning(StandIn):
    """A body that is not symmetric in anything, and falls at `falls`."""

    falls = math.inf

    def values(self) -> np.ndarray:
        values = put(self.contract, super().values(), "accel", x=0.9, y=-0.7, z=9.6)
        half = 0.05 if self.time < self.falls else 0.7
        c, s = math.cos(half), math.sin(half)
        return put(self.contract, values, "quat", w=c, x=0.6 * s, y=0.8 * s, z=0.0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("falls", [math.inf, 2.5])
def test_a_robot_with_everything_in_another_order_does_the_same(seed, falls):
    contract, default = CONTRACTS["go1"]
    runs = []
    for robot in (contract, reordered(contract, seed)):
        order = [contract.target.component_index(x) for x in robot.target.labels]
        body = Leaning(robot, (default + 0.02 * np.arange(12))[order])
        body.falls = falls
        controller = telling(contract, default)
        link = InProcessLink(body)
        flight, checks = ready(controller, link)
        outcome = ControlLoop(controller, link, flight, CommandSchedule(())).run(2.5)
        back = [robot.target.component_index(x) for x in contract.target.labels]
        said = next(c.text for c in checks if c.name == "contract")
        assert ("another order, matched by name" in said) == (robot is not contract)
        runs.append((outcome.status, outcome.reason, outcome.rules, [(c.mode, c.target[back].tolist()) for c in body.commands]))
    assert runs[0] == runs[1]
    assert runs[0][0] == ("completed" if falls == math.inf else "guard")
    assert falls == math.inf or runs[0][1].startswith("tilt")


def test_a_policy_that_is_too_slow_is_ended_although_holding_it_would_cure_it():
    """In a hold nobody asks the policy, so its deadlines are met; and then they are missed again."""
    controller, body = counter(), stand_in()
    link = InProcessLink(body)
    flight, _ = ready(controller, link)
    quick = controller.tick

    def slowly(signals):
        link.sleep_until(link.now() + 1.15 / controller.manifest.robot.rate)
        return quick(signals)

    controller.tick = slowly
    outcome = ControlLoop(controller, link, flight, CommandSchedule(controller.manifest.operator)).run(20.0)
    assert outcome.status == "guard"
    assert outcome.reason.startswith("held")
    assert outcome.rules["deadline"] > 0


@pytest.mark.parametrize("pace", [0.99, 0.999, 1.01])
@pytest.mark.parametrize("every", [1, 10])
def test_a_clock_that_goes_a_little_wrong_is_lived_with(pace, every):
    body = stand_in(every=every, say=lambda packet: [replace(packet, time=pace * packet.time)])
    outcome, _ = fly(counter(), body, 20.0)
    assert (outcome.status, outcome.rules) == ("completed", {})
