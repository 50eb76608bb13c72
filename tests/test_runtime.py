"""Preflight, loop and recorder, in lock-step with robots inside this process: every moment is exact."""

from __future__ import annotations

import errno
import io
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from robots_for_tests import (
    COMMAND,
    PERIOD,
    StandIn,
    constant,
    contracts,
    counting,
    floats,
    manifest,
    model,
    put,
    ready,
    reordered,
    still,
    tilted,
)

from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode, Event
from isthmus.data.recording import Writer, read
from isthmus.deploy import recorder as recorder_module
from isthmus.deploy.controller import Controller
from isthmus.deploy.fit import Fit, differences
from isthmus.deploy.guard import STATES
from isthmus.deploy.link import MODES, Command, Identity, Packet
from isthmus.deploy.links.inprocess import Body, InProcess
from isthmus.deploy.operator import Operator
from isthmus.deploy.preflight import preflight
from isthmus.deploy.recorder import Recorder
from isthmus.deploy.rules import BIT
from isthmus.deploy.runtime import FADE, SETTLE, STATUS, Loop, Outcome
from isthmus.errors import BadInput
from isthmus.robots import get_robot
from isthmus.sim.reality import Reality, VirtualRobot

CONTRACTS = contracts()
GAIN = 0.0005


def stand_in(name: str = "go1", **options) -> StandIn:
    contract, default = CONTRACTS[name]
    return StandIn(contract, **({"pose": default, "every": int(1 / contract.rate / PERIOD)} | options))


def counter(name: str = "go1", signal: str = "", model_hash: str = "m" * 64) -> Controller:
    contract, default = CONTRACTS[name]
    return counting(contract, default, signal, GAIN, model_hash)


def fly(
    controller: Controller,
    body: Body,
    seconds: float,
    path: Path | io.BytesIO | None = None,
    commands: tuple[str, ...] = (),
    link: Callable[[Body], InProcess] = InProcess,
    stopping: Callable[[], str] = lambda: "",
) -> tuple[Outcome, Loop]:
    """Preflight and run."""
    made, operator = link(body), Operator(controller.manifest.operator, commands)
    flight, _ = ready(controller, made, operator)
    recorder = path and Recorder(Writer(path, flight.identity.contract, controller.manifest.operator, STATUS, {}))
    loop = Loop(controller, made, flight, operator, recorder or None)
    return loop.run(seconds, stopping), loop


def states(episode: Episode) -> list[str]:
    return [STATES[int(i)] for i in episode.status["state"]]


def changes(names: list[str]) -> list[str]:
    return [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]


def quiet(start: float, seconds: float) -> Callable[[Packet], list[Packet]]:
    """Say nothing for some time; what would have been said is lost."""
    return lambda packet: [] if start <= packet.time < start + seconds else [packet]


# Runs ----------------------------------------------------------------------------------------------------------------

BAD_NETWORK = {"drop": 0.1, "duplicate": 0.1, "delay": {"extra": 0.004, "jitter": 0.004}}


def virtual(name: str, **faults) -> VirtualRobot:
    return VirtualRobot(get_robot(name), Reality.from_dict({"robot": name, "faults": faults}))


BODIES: dict[str, tuple[str, Callable[[], Body]]] = {
    "go1": ("go1", lambda: virtual("go1")),
    "pendulum": ("pendulum", lambda: virtual("pendulum")),
    "a bad network": ("go1", lambda: virtual("go1", **BAD_NETWORK)),
    "an arm that is silent for a while": ("arm", lambda: stand_in("arm", say=quiet(2.0, 0.1))),
}


@pytest.fixture(scope="module", params=BODIES)
def twice(request, tmp_path_factory) -> tuple[str, list[tuple[Outcome, Episode]]]:
    """The same run, two times, each with a fresh controller and robot."""
    name, make = BODIES[request.param]
    found = []
    for i in range(2):
        path = tmp_path_factory.mktemp("runs") / f"{i}.mcap"
        body = make()
        outcome, _ = fly(counter(name, "", body.identity.model_hash), body, 1.0, path, ("forward=0.2", "0.5:yaw=-0.1"))
        found.append((outcome, read(path)))
    return name, found


def test_the_same_run_twice_is_the_same_bit_for_bit(twice):
    _, ((first, episode), (second, again)) = twice
    assert episode.hash == again.hash
    assert first.why == second.why
    assert first.rules == second.rules
    assert first.ended == "done", first.why
    assert len(episode) == first.ticks == first.recorded
    assert episode.complete
    assert first.lost == 0


def replay(controller: Controller, episode: Episode) -> np.ndarray:
    """What a fresh controller wants, asked at the ticks at which it was asked."""
    fit = Fit.of(controller.manifest, episode.contract)
    names = [s.name for s in episode.contract.signals]
    rows = np.concatenate([episode.signals[n] for n in names], axis=1)
    out, asked = np.full_like(episode.wanted, np.nan), False
    for k, row in enumerate(rows):
        if np.isnan(episode.wanted[k]).all():
            asked = False
            continue
        if not asked:
            controller.reset()
        signals = {n: row[columns] for n, columns in fit.signals.items()}
        out[k] = controller.tick(signals | {s.name: episode.signals[s.name][k] for s in episode.operator})[fit.target]
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
    episode = read(tmp_path / "a.mcap")
    count = np.round((episode.wanted - CONTRACTS["go1"][1])[:, 0] / GAIN)
    asked = np.isfinite(count)
    starts = [k for k in range(1, len(count)) if asked[k] and not asked[k - 1]]
    assert outcome.ended == "done"
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
    episode = read(tmp_path / "a.mcap")
    assert changes(states(episode)) == ["ramp", "run", "stop"]
    assert [e.name for e in episode.events if e.name in STATES] == ["ramp", "run", "stop"]
    assert outcome.seconds == pytest.approx(1.0 + SETTLE, abs=0.05)
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
    assert (outcome.ended, outcome.why) == ("interrupted", "interrupted")
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
    assert outcome.ended == "guard"
    assert outcome.why.startswith("held")
    assert outcome.rules["policy"] >= 1
    assert changes(states(read(tmp_path / "a.mcap")))[-2:] == ["damp", "stop"]


# Time ----------------------------------------------------------------------------------------------------------------


class Slow(InProcess):
    """A link on a machine that takes its time: `costs(tick)` seconds between waking and having sent."""

    costs: Callable[[int], float] = staticmethod(lambda tick: 0.0)

    def write(self, command: Command) -> None:
        super().write(command)
        self.sleep_until(self.now() + self.costs(command.sequence))


def slow(costs: Callable[[int], float]) -> Callable[[Body], InProcess]:
    def make(body: Body) -> InProcess:
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
    assert outcome.ended == "done"


@pytest.mark.parametrize(("cost", "skipped"), [(0.9, 0), (1.1, 1), (1.9, 1), (2.1, 2), (7.5, 7)])
def test_a_tick_that_takes_too_long_is_counted_and_nothing_is_caught_up(cost, skipped):
    body = stand_in()
    outcome, _ = fly(counter(), body, 1.5, link=slow(lambda k: cost * 0.02 if k == 60 else 0.0))
    slots = ticks_of(body, 0.02)
    # Its own deadline was missed, and so were those that passed meanwhile.
    assert round(outcome.missed.rate * outcome.missed.n) == (1 + skipped if cost > 1 else 0)
    assert outcome.missed.n == slots[-1] + 1
    assert np.diff(slots)[60] == 1 + skipped
    assert (np.delete(np.diff(slots), 60) == 1).all()
    # It woke at its deadlines, never late, never early.
    np.testing.assert_allclose(outcome.late, 0.0, atol=1e-9)
    assert outcome.compute[60] == pytest.approx(cost * 0.02)


def test_deadlines_missed_in_a_row_are_a_hold_and_then_the_end(tmp_path):
    body = stand_in()
    outcome, loop = fly(counter(), body, 5.0, tmp_path / "a.mcap", link=slow(lambda k: 0.03 if k >= 60 else 0.0))
    episode = read(tmp_path / "a.mcap")
    assert outcome.ended == "guard"
    assert outcome.why.startswith("held")
    assert changes(states(episode)) == ["ramp", "run", "hold", "damp", "stop"]
    first = states(episode).index("hold")
    assert first == 60 + loop.guard.thresholds.deadlines
    assert episode.status["missed"].sum() == round(outcome.missed.rate * outcome.missed.n) == outcome.missed.n - 60
    assert episode.status["rules"][first] == BIT["deadline"]


@pytest.mark.parametrize("name", ["go1", "arm", "pendulum"])
def test_a_link_that_dies_ends_in_hold_then_damp_then_stop_at_the_stated_times(name, tmp_path):
    body = stand_in(name, say=quiet(2.5, math.inf))
    outcome, loop = fly(counter(name), body, 10.0, tmp_path / "a.mcap")
    episode, t = read(tmp_path / "a.mcap"), loop.guard.thresholds
    assert outcome.ended == "guard"
    assert outcome.why.startswith("lost")
    assert changes(states(episode))[-4:] == ["run", "hold", "damp", "stop"]
    start = {s: episode.time[states(episode).index(s)] for s in ("hold", "damp", "stop")}
    silent = episode.time[np.flatnonzero(np.diff(episode.status["sequence"]))[-1] + 1]
    tick = loop.tick
    assert t.stale - tick <= start["hold"] - silent <= t.stale + 2 * tick
    assert t.lost - tick <= start["damp"] - silent <= t.lost + 2 * tick
    assert t.damp - tick <= start["stop"] - start["damp"] <= t.damp + 2 * tick
    held = [c for c, s in zip(body.commands, states(episode), strict=True) if s == "hold"]
    assert {c.mode for c in held} == {"track" if body.contract.joints else "damp"}
    assert {c.mode for c, s in zip(body.commands, states(episode), strict=True) if s in ("damp", "stop")} == {"damp"}
    assert len(episode) == outcome.ticks == len(body.commands)
    assert [e.name for e in episode.events if e.name in STATES][-3:] == ["hold", "damp", "stop"]
    assert np.isnan(episode.wanted[states(episode).index("hold") :]).all()


@pytest.mark.parametrize("name", ["go1", "arm", "pendulum"])
def test_a_link_that_comes_back_soon_enough_goes_on(name):
    limit = 1 / CONTRACTS[name][0].rate
    for silence, ended in ((0.15, "done"), (0.2 if name == "arm" else 0.24, "guard")):
        body = stand_in(name, say=quiet(2.5, silence + 2 * limit * (ended == "guard")))
        outcome, _ = fly(counter(name), body, 2.5)
        assert outcome.ended == ended
        assert outcome.rules["stale"] >= 1


# Names, not places ---------------------------------------------------------------------------------------------------


def telling(contract: Contract, default: np.ndarray) -> Controller:
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
    return Controller(about, made)


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
        order = [contract.target.component(x) for x in robot.target.labels]
        body = Leaning(robot, (default + 0.02 * np.arange(12))[order])
        body.falls = falls
        controller = telling(contract, default)
        link = InProcess(body)
        flight, checks = ready(controller, link)
        outcome = Loop(controller, link, flight, Operator(())).run(2.5)
        back = [robot.target.component(x) for x in contract.target.labels]
        said = next(c.text for c in checks if c.name == "contract")
        assert ("another order, matched by name" in said) == (robot is not contract)
        runs.append((outcome.ended, outcome.why, outcome.rules, [(c.mode, c.target[back].tolist()) for c in body.commands]))
    assert runs[0] == runs[1]
    assert runs[0][0] == ("done" if falls == math.inf else "guard")
    assert falls == math.inf or runs[0][1].startswith("tilt")


# Preflight -----------------------------------------------------------------------------------------------------------


class Silent(InProcess):
    def identity(self, timeout: float) -> Identity:
        raise BadInput("no robot answers.")


def changed(**signals: dict[str, float]) -> Callable[[Packet], list[Packet]]:
    contract = CONTRACTS["go1"][0]

    def say(packet: Packet) -> list[Packet]:
        values = packet.values.copy()
        for name, parts in signals.items():
            put(contract, values, name, **parts)
        return [replace(packet, values=values)]

    return say


def lean(packet: Packet) -> list[Packet]:
    return [replace(packet, values=tilted(CONTRACTS["go1"][0], packet.values, 1.05))]


def nan_controller() -> Controller:
    """Fine for zeros, but not for the signals of a robot that stands."""
    contract, default = CONTRACTS["go1"]
    nodes = [
        helper.make_node("ReduceSum", ["accel", "axis"], ["sum"], keepdims=1),
        helper.make_node("Neg", ["sum"], ["minus"]),
        helper.make_node("Sqrt", ["minus"], ["root"]),
        helper.make_node("Add", ["root", "default"], ["joint_target"]),
    ]
    constants = [constant("axis", np.array([1])), constant("default", default[None].astype(np.float32))]
    made = model(nodes, [floats("accel", 1, 3)], [floats("joint_target", 1, 12)], constants).SerializeToString()
    return Controller(replace(manifest(contract, default, made), operator=(), memory={}), made)


def only(kept: Callable[[Packet], bool]) -> Callable[[Packet], list[Packet]]:
    return lambda packet: [packet] if kept(packet) else []


HIP = CONTRACTS["go1"][1] + 0.85 * (np.arange(12) == 0)
FAILING: dict[str, dict] = {
    "robot": {"link": Silent},
    "model": {"model_hash": "x" * 64},
    "mode": {"mode": "busy"},
    "mode, another master": {"mode": "track"},
    "time-out, between two ticks": {"timeout": 0.03},
    "time-out, never": {"timeout": 60.0},
    "signals": {"say": lambda packet: []},
    "signals, none of them numbers": {"say": changed(gyro={"x": math.nan})},
    "signals, too few numbers": {"say": lambda packet: [replace(packet, values=packet.values[:-1])]},
    "signals, no time": {"say": lambda packet: [replace(packet, time=math.nan)]},
    "fresh": {"say": only(lambda packet: packet.time < 0.4)},
    "rate": {"every": 20},
    "order, twice": {"say": lambda packet: [packet, packet]},
    "order, missing": {"every": 2, "say": only(lambda packet: packet.sequence % 5 in (0, 1) or packet.sequence == 1)},
    "clock": {"every": 5, "say": lambda packet: [replace(packet, time=1.5 * packet.time)]},
    "range": {"say": changed(joint_vel={"FR_hip": 30.1 * 1.3 + 0.1})},
    "upright": {"say": lean},
    "upright, no quaternion": {"say": changed(quat={"w": 1.2})},
    "gravity": {"say": changed(accel={"z": -9.81})},
    "gravity, none": {"say": changed(accel={"z": 5.0})},
    "still": {"say": changed(gyro={"z": 1.1})},
    "pose": {"pose": HIP},
    "policy": {"controller": nan_controller},
}
IN_ORDER = "robot model contract mode time-out signals fresh rate order clock range upright gravity still pose policy"
NAMES = IN_ORDER.split()


def look(options: dict) -> tuple[StandIn, list, object]:
    options = dict(options)
    link, make = options.pop("link", InProcess), options.pop("controller", counter)
    body = stand_in(**options)
    controller = make()
    checks, flight = preflight(controller, link(body), Operator(controller.manifest.operator).at(0.0))
    return body, checks, flight


def test_a_robot_that_is_ready_passes_every_check_without_a_command():
    body, checks, flight = look({"model_hash": "m" * 64})
    assert [c.name for c in checks] == NAMES
    assert all(c.ok for c in checks)
    assert flight is not None
    assert flight.period == pytest.approx(0.02)
    assert body.commands == []


@pytest.mark.parametrize("case", FAILING)
def test_each_check_fails_alone_and_then_no_command_is_sent(case):
    body, checks, flight = look(FAILING[case])
    assert [c.name for c in checks if not c.ok] == [case.split(",")[0]]
    assert flight is None
    assert body.commands == []


def test_each_check_has_such_a_case():
    assert {case.split(",")[0] for case in FAILING} == set(NAMES) - {"contract"}


def test_checks_are_told_as_they_come():
    told: list = []
    checks, _ = preflight(counter(), InProcess(stand_in()), Operator((COMMAND,)).at(0.0), told.append)
    assert told == checks


def test_preflight_is_not_part_of_the_recording(tmp_path):
    """What it heard has been told; a run starts at zero."""
    body = stand_in(every=5, say=lambda packet: [packet] * (1 + (packet.time < 0.5 and packet.sequence % 4 == 0)))
    outcome, _ = fly(counter(), body, 1.0, tmp_path / "a.mcap")
    episode = read(tmp_path / "a.mcap")
    assert outcome.rules == {}
    assert episode.time[0] == 0.0
    assert [e.name for e in episode.events] == ["ramp", "run", "stop"]
    assert all(0.0 <= e.time <= episode.time[-1] for e in episode.events)


def with_signal(contract: Contract, name: str, **fields) -> Contract:
    return replace(contract, signals=tuple(replace(s, **fields) if s.name == name else s for s in contract.signals))


def row(values: tuple[float, ...], i: int, x: float) -> tuple[float, ...]:
    return (*values[:i], x, *values[i + 1 :])


GO1 = CONTRACTS["go1"][0]
SAFE = replace(GO1.safety, effort=(), rest=(), damping=())
ONE_KP, ALL_KD, KI = {"kp": row(GO1.gains["kp"], 4, 36.0)}, {"kd": (1.0,) * 12}, {"ki": (1.0,) * 12}
LOWER, UPPER = row(GO1.target.low, 2, -2.7), row(GO1.target.high, 0, 0.8)
DIFFERENT: dict[str, tuple[Contract, tuple[str, ...]]] = {
    "unit of a signal": (with_signal(GO1, "accel", unit="g"), ("accel", "unit", "'m/s²'", "'g'")),
    "frame of a signal": (with_signal(GO1, "accel", frame="world"), ("accel", "frame", "'body'", "'world'")),
    "unit of the target": (replace(GO1, target=replace(GO1.target, unit="deg")), ("joint_target", "unit", "'deg'")),
    "a gain of one joint": (replace(GO1, gains=GO1.gains | ONE_KP), ("gain kp of FL_thigh is 35", "36")),
    "gains of all joints": (replace(GO1, gains=GO1.gains | ALL_KD), ("gain kd of FR_hip and 11 more is 0.5", "1")),
    "a gain that is missing": (replace(GO1, gains={"kp": GO1.gains["kp"]}), ("gain kd", "unknown")),
    "a gain more": (replace(GO1, gains=GO1.gains | KI), ("gain ki", "unknown")),
    "rate": (replace(GO1, rate=100.0), ("50 Hz", "100 Hz")),
    "a lower limit": (replace(GO1, target=replace(GO1.target, low=LOWER)), ("lower limit of FR_calf", "-2.7")),
    "an upper limit": (replace(GO1, target=replace(GO1.target, high=UPPER)), ("upper limit of FR_hip", "0.8")),
    "no limits": (replace(GO1, target=replace(GO1.target, high=())), ("upper limit of FR_hip and 11 more", "unknown")),
    "a signal that is missing": (replace(GO1, signals=GO1.signals[:-1]), ("no signal 'accel'",)),
    "a component that is missing": (with_signal(GO1, "accel", labels=("x", "y", "up")), ("accel of the robot lacks z",)),
    "another robot": (replace(GO1, robot="go2"), ("made for go1, this is go2",)),
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_robot_that_differs_from_the_contract_is_refused_in_one_sentence(what):
    contract, words = DIFFERENT[what]
    controller = counter(signal="accel")
    assert differences(controller.manifest, GO1) == []
    found = differences(controller.manifest, contract)
    assert len(found) == 1
    body = StandIn(contract, np.array(CONTRACTS["go1"][1]))
    checks, flight = preflight(controller, InProcess(body), Operator((COMMAND,)).at(0.0))
    assert flight is None
    failed = {c.name: c.text for c in checks if not c.ok}
    assert set(failed) == ({"robot", "contract"} if what == "another robot" else {"contract"})
    assert all(word in failed["contract"] for word in words)
    assert body.commands == []
    with pytest.raises(BadInput, match="does not fit"):
        Fit.of(controller.manifest, contract)


def test_a_robot_with_one_motor_more_is_refused():
    more = tuple(Signal(s.name, s.unit, (*s.labels, "tail")) for s in (GO1["joint_pos"], GO1.target))
    contract = replace(GO1, signals=(more[0], *GO1.signals[1:]), target=more[1], gains={}, safety=SAFE)
    assert "it sets no target for tail" in differences(counter(signal="accel").manifest, contract)


# What the operator asks for ------------------------------------------------------------------------------------------

WIDE = Signal("speed", "m/s", ("forward",), low=(0.5,), high=(2.0,))


def test_commands_follow_their_schedule():
    operator = Operator((COMMAND,), ("2:forward=0.5", "yaw=0.1", "1:command.forward=-1", "2:yaw=-0.5"))
    seen = [operator.at(t)["command"].tolist() for t in (math.nan, 0.0, 0.999, 1.0, 1.999, 2.0, 100.0)]
    assert seen == [[0, 0], [0, 0.1], [0, 0.1], [-1, 0.1], [-1, 0.1], [0.5, -0.5], [0.5, -0.5]]
    assert operator.row(100.0).tolist() == [0.5, -0.5]


def test_without_a_command_the_nearest_to_nothing_is_asked_for():
    assert Operator((COMMAND, WIDE)).at(0.0)["speed"].tolist() == [0.5]
    assert Operator((COMMAND, WIDE)).row(0.0).tolist() == [0.0, 0.0, 0.5]
    assert Operator(()).row(0.0).shape == (0,)


def test_a_release_fades_to_nothing_once():
    operator = Operator((COMMAND,), ("forward=1", "9:forward=-1"))
    assert operator.at(5.0)["command"][0] == 1.0
    operator.release(6.0, 2.0)
    operator.release(7.0, 100.0)
    assert [operator.at(t)["command"][0] for t in (5.0, 6.0, 6.5, 7.0, 8.0, 10.0)] == [1.0, 1.0, 0.75, 0.5, 0.0, 0.0]
    wide = Operator((WIDE,), ("forward=2",))
    wide.release(0.0, 1.0)
    assert [wide.at(t)["speed"][0] for t in (0.0, 0.5, 1.0, 2.0)] == [2.0, 1.25, 0.5, 0.5]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("forwrad=0.5", "did you mean 'forward'"),
        ("forward=1.01", "outside -1 … 1"),
        ("3:yaw=-0.6", "outside -0.5 … 0.5"),
        ("forward", "NAME=VALUE"),
        ("forward=", "NAME=VALUE"),
        ("forward=fast", "NAME=VALUE"),
        ("forward=nan", "NAME=VALUE"),
        ("forward=inf", "NAME=VALUE"),
        ("-1:forward=0.1", "NAME=VALUE"),
        ("inf:forward=0.1", "NAME=VALUE"),
        ("soon:forward=0.1", "NAME=VALUE"),
        (":forward=0.1", "NAME=VALUE"),
        ("", "NAME=VALUE"),
        ("=1", "forward"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(entry, words):
    with pytest.raises(BadInput, match=words):
        Operator((COMMAND,), ("forward=1", entry))


def test_a_command_at_the_edge_of_its_range_is_taken():
    assert Operator((COMMAND,), ("forward=1", "yaw=-0.5")).at(0.0)["command"].tolist() == [1.0, -0.5]


def test_a_controller_that_takes_no_commands_says_so():
    with pytest.raises(BadInput, match="takes no command 'forward'"):
        Operator((), ("forward=1",))


def test_commands_reach_the_policy_when_they_are_due_and_fade_before_the_end(tmp_path):
    fly(counter(signal="gyro"), stand_in(), 2.0, tmp_path / "a.mcap", ("forward=0.5", "1:forward=-1"))
    episode = read(tmp_path / "a.mcap")
    asked = np.isfinite(episode.wanted[:, 0])
    time = episode.time[asked] - episode.time[asked][0]
    forward = episode.signals["command"][asked, 0]
    edge = 1e-6
    fading = np.clip((time - 2.0) / FADE, 0, 1)
    expected = np.where(time < 1.0 - edge, 0.5, -1.0) * (1 - fading)
    np.testing.assert_allclose(forward, expected, atol=0.02 / FADE + 1e-9)
    assert set(forward[time < 2.0 - 0.021]) == {0.5, -1.0}
    assert forward[-1] == 0.0
    assert time[-1] == pytest.approx(2.0 + SETTLE, abs=0.03)
    # What is recorded is what the policy saw.
    count = np.arange(1, asked.sum() + 1)
    want = (CONTRACTS["go1"][1][0] + GAIN * (count + forward)).astype(np.float32)
    np.testing.assert_allclose(episode.wanted[asked, 0], want, atol=1e-6)


# Recording -----------------------------------------------------------------------------------------------------------


class Disk(io.BytesIO):
    """Full after so many bytes."""

    def __init__(self, room: float = math.inf):
        super().__init__()
        self.room = room

    def write(self, data) -> int:
        if self.tell() + len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def size_of_header() -> int:
    disk = Disk()
    Writer(disk, GO1, (COMMAND,), STATUS, {})
    return disk.tell()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("more", [0, 1, 30_000, 120_000])
def test_a_full_disk_costs_the_recording_and_not_the_run(more, tmp_path):
    plain, _ = fly(counter(), stand_in(), 1.0)
    disk, body = Disk(size_of_header() + more), stand_in()
    outcome, _ = fly(counter(), body, 1.0, disk)
    assert (outcome.ended, outcome.ticks) == ("done", plain.ticks)
    assert body.commands[-1].mode == "damp"
    assert "No space left" in outcome.problem
    (tmp_path / "a.mcap").write_bytes(disk.getvalue())
    episode = read(tmp_path / "a.mcap")
    assert not episode.complete
    assert len(episode) == outcome.recorded
    assert outcome.recorded + outcome.lost == outcome.ticks
    assert outcome.lost > 0
    assert (outcome.recorded > 0) == (more > 1000)
    for sent, recorded in zip(body.commands, episode.target, strict=False):
        assert (sent.target == recorded).all()


class Stuck(Disk):
    """Takes nothing until it is told to."""

    def __init__(self):
        super().__init__()
        self.free = threading.Event()
        self.free.set()
        self.gave_up = False

    def write(self, data) -> int:
        self.gave_up |= not self.free.wait(20.0)
        return super().write(data)


@pytest.fixture
def stuck(monkeypatch) -> Stuck:
    monkeypatch.setattr(recorder_module, "WAIT", 0.001)
    return Stuck()


def run_on(disk: Stuck, ticks: int) -> tuple[Outcome, StandIn]:
    """A run whose disk hangs from the beginning on and is free again at that tick."""
    controller, body = counter(), stand_in()
    link = InProcess(body)
    flight, _ = ready(controller, link)
    recorder = Recorder(Writer(disk, GO1, (COMMAND,), STATUS, {}))
    disk.free.clear()

    def stopping() -> str:
        if len(body.commands) == ticks:
            disk.free.set()
        return ""

    return Loop(controller, link, flight, Operator((COMMAND,)), recorder).run(1.0, stopping), body


def test_a_disk_that_hangs_does_not_hold_the_loop_up(stuck, tmp_path):
    """The disk is free again only because the loop went on for all these ticks."""
    outcome, body = run_on(stuck, 150)
    assert not stuck.gave_up
    assert (outcome.ended, outcome.lost, outcome.problem) == ("done", 0, "")
    assert outcome.recorded == outcome.ticks > 150
    (tmp_path / "a.mcap").write_bytes(stuck.getvalue())
    episode = read(tmp_path / "a.mcap")
    assert episode.complete
    np.testing.assert_array_equal(episode.target, [c.target for c in body.commands])


def test_a_disk_that_hangs_for_too_long_costs_rows_that_are_counted(stuck, monkeypatch):
    monkeypatch.setattr(recorder_module, "MAX_WAITING", 50)
    outcome, _ = run_on(stuck, 150)
    assert not stuck.gave_up
    assert outcome.ended == "done"
    assert outcome.lost > 0
    assert outcome.recorded + outcome.lost == outcome.ticks
    assert outcome.problem == "the disk is too slow"


def test_a_row_that_cannot_be_written_is_reported_and_the_recorder_goes_on():
    writer = Writer(Disk(), GO1, (COMMAND,), STATUS, {})
    recorder = Recorder(writer)
    width = writer.layout.width
    recorder.put(np.full(width, 0.0))
    recorder.put(np.full(width, 0.0), [Event(0.0, "info", "x", "X.")])
    recorder.put(np.full(width, 1.0))
    recorder.close()
    assert "increase" in recorder.problem
    assert recorder.rows + recorder.lost == 3
    assert recorder.lost > 0


def test_still_signals_are_as_the_names_say():
    """The helper that all of this stands on."""
    contract = reordered(CONTRACTS["arm"][0], 3)
    values, at = still(contract, np.array([0.3, -0.4])), contract.slices()
    assert values[at["quat"]][contract["quat"].component("w")] == 1.0
    assert values[at["joint_pos"]][contract["joint_pos"].component(contract.target.labels[0])] == 0.3
