"""Thirty bugs that people hit between a policy and a robot, each committed on purpose. docs/guides/deployment-bugs.md is
the table; the last test keeps the two together.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode
from isthmus.data.recording import Writer, read
from isthmus.deploy.controller import Controller, Manifest, pack, unpack
from isthmus.deploy.guard import STATES
from isthmus.deploy.limits import AHEAD
from isthmus.deploy.link import Command, Identity, Packet
from isthmus.deploy.links.inprocess import Body, InProcess
from isthmus.deploy.operator import Operator
from isthmus.deploy.preflight import Check, preflight
from isthmus.deploy.recorder import Recorder
from isthmus.deploy.rules import Thresholds
from isthmus.deploy.runtime import STATUS, Loop, Outcome
from isthmus.errors import BadInput
from isthmus.learn import export
from isthmus.learn.actor import Actor, Shape
from isthmus.learn.runs import Plan, Run
from isthmus.robots import get_robot
from isthmus.sim.engine import Engine
from isthmus.sim.reality import RealEngine, Reality, VirtualRobot
from isthmus.sim.reality.faults import Wires
from isthmus.sim.reality.tables import Faults
from isthmus.tasks import get_task
from isthmus.tasks.env import Env
from isthmus.tasks.task import Task
from isthmus.world.inertia import quat_to_mat

GO1 = get_robot("go1")
GRAVITY = 9.81


# Policies without training -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """An actor as training has it, and the graph as export writes it."""

    run: Run
    actor: Actor
    onnx: bytes
    manifest: Manifest

    @property
    def controller(self) -> Controller:
        return Controller(self.manifest, self.onnx)


def make(task: Task, prepare: Callable[[Actor], None] = lambda actor: None, mirrored: bool = True) -> Made:
    torch.manual_seed(0)
    actor = Actor(Shape.of(task, (16,), mirrored))
    with torch.no_grad():
        prepare(actor)
    run = Run(Path(), Plan(task.name), task, task.robot.prior, {"hash": "0" * 64})
    data = export.graph_bytes(actor)
    return Made(run, actor, data, export.manifest_of(run, actor, data))


@pytest.fixture(scope="module")
def walk() -> Made:
    """go1 that stands: its actions are tiny."""
    return make(get_task("go1/walk"))


def strong(actor: Actor) -> None:
    """Actions that matter, and observations that are far from normal before they are normalized."""
    list(actor.net.parameters())[-2].mul_(60)
    actor.normalize.mean.copy_(torch.linspace(-0.3, 0.4, len(actor.normalize.mean)))
    actor.normalize.var.copy_(torch.linspace(0.5, 2.0, len(actor.normalize.var)))


@pytest.fixture(scope="module")
def swing() -> Made:
    """A pendulum with a memory of three frames and a scale of many digits."""
    task = get_task("pendulum/swingup")
    return make(replace(task, policy=replace(task.policy, history=3, reach=1.2345678)), strong, mirrored=False)


# Robots ------------------------------------------------------------------------------------------------------------------


class Watched:
    """A robot that remembers what it was told. What it says and hears may pass through a bridge that changes it."""

    def __init__(
        self,
        body: Body,
        contract: Contract | None = None,
        say: Callable[[Packet], list[Packet]] = lambda packet: [packet],
        hear: Callable[[Command], Command] = lambda command: command,
    ):
        self.body, self.period, self.say, self.hear = body, body.period, say, hear
        self.contract = contract or body.identity.contract
        self.commands: list[Command] = []

    @property
    def identity(self) -> Identity:
        return replace(self.body.identity, contract=self.contract)

    def command(self, command: Command) -> None:
        self.commands.append(command)
        self.body.command(self.hear(command))

    def advance(self) -> list[Packet]:
        return [said for packet in self.body.advance() for said in self.say(packet)]


def virtual(start: np.ndarray | None = None, robot: str = "go1", **tables) -> VirtualRobot:
    """A virtual robot with a reality of these tables."""
    return VirtualRobot(get_robot(robot), Reality.from_dict({"robot": robot} | tables), start=start)


def real(start: np.ndarray | None = None, robot: str = "go1", **tables) -> Watched:
    return Watched(virtual(start, robot, **tables))


def turned(yaw: float) -> np.ndarray:
    """Where go1 stands when it looks that way."""
    qpos = np.array(GO1.home)
    qpos[3], qpos[6] = np.cos(yaw / 2), np.sin(yaw / 2)
    return qpos


class Still:
    """go1 at rest in its default pose on ground that is tilted by a quaternion, behind the wires of `faults`."""

    period = 0.002

    def __init__(self, quat: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0), pace: float = 1.0, faults: Faults | None = None):
        quat_ = np.array(quat) / np.linalg.norm(quat)
        up = quat_to_mat(quat_[None])[0].T @ [0.0, 0.0, GRAVITY]
        sensed = np.concatenate([GO1.default, np.zeros(12), np.zeros(3), quat_, up])
        self.values = Wires(faults or Faults(), GO1.contract).signals(sensed[None])[0]
        self.pace, self.count = pace, 0
        self.identity = Identity(GO1.contract, "still", GO1.model_hash, "idle", 0.1)

    def command(self, command: Command) -> None:
        pass

    def advance(self) -> list[Packet]:
        self.count += 1
        return [Packet(self.count, self.count * self.period * self.pace, "idle", self.values.copy())]


def tilted(angle: float, axis: str = "y") -> tuple[float, ...]:
    return (np.cos(angle / 2), *(np.sin(angle / 2) * (a == axis) for a in "xyz"))


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch):
    """How fast this machine is must not decide over a check: each look at the watch is 10 µs after the one before."""
    watch = SimpleNamespace(perf_counter=partial(next, (1e-5 * k for k in itertools.count())))
    monkeypatch.setattr("isthmus.deploy.preflight.time", watch)


# Looking and running -----------------------------------------------------------------------------------------------------


def look(made: Made, body: Watched) -> list[Check]:
    """The checks of a preflight, in which no command is ever sent."""
    found, flight = preflight(made.controller, InProcess(body), Operator(made.manifest.operator).at(0.0))
    assert body.commands == []
    assert (flight is not None) == all(c.ok for c in found)
    return found


def failed(made: Made, body: Watched) -> dict[str, str]:
    """Checks that failed, and what they say."""
    return {c.name: c.text for c in look(made, body) if not c.ok}


def fly(made: Made, body: Watched, seconds: float, path: Path | None = None, link: InProcess | None = None) -> Outcome:
    """A whole run on a robot that passes preflight."""
    link, controller, operator = link or InProcess(body), made.controller, Operator(made.manifest.operator)
    checks, flight = preflight(controller, link, operator.at(0.0))
    assert flight is not None, [c for c in checks if not c.ok]
    recorder = None
    if path is not None:
        recorder = Recorder(Writer(path, flight.identity.contract, made.manifest.operator, STATUS))
    return Loop(controller, link, flight, operator, recorder).run(seconds)


def recorded(made: Made, body: Watched, seconds: float, path: Path) -> tuple[Outcome, Episode]:
    outcome = fly(made, body, seconds, path)
    return outcome, read(path)


# 1, 2: joints ------------------------------------------------------------------------------------------------------------


def shuffled(signal: Signal, order: np.ndarray) -> Signal:
    pick = lambda row: tuple(row[i] for i in order) if row else ()
    return replace(signal, labels=pick(signal.labels), low=pick(signal.low), high=pick(signal.high))


def test_joints_in_another_order_are_matched_by_name(walk):
    """Positions, speeds and targets each in an order of their own: every joint is told the same as before."""
    rng, old, at = np.random.default_rng(0), GO1.contract, GO1.contract.slices()
    orders = {name: rng.permutation(12) for name in ("joint_pos", "joint_vel", "joint_target")}
    to = orders["joint_target"]
    pick = lambda row: tuple(row[i] for i in to)
    rows = {name: pick(getattr(old.safety, name)) for name in ("effort", "rest", "damping")}
    contract = replace(
        old,
        signals=tuple(shuffled(s, orders[s.name]) if s.name in orders else s for s in old.signals),
        target=shuffled(old.target, to),
        gains={name: pick(row) for name, row in old.gains.items()},
        safety=replace(old.safety, **rows),
    )
    columns = np.concatenate([np.arange(old.width)[at[s.name]][orders.get(s.name, slice(None))] for s in old.signals])
    plain = real()
    other = Watched(
        virtual(),
        contract,
        say=lambda p: [replace(p, values=p.values[columns])],
        hear=lambda c: replace(c, target=c.target[np.argsort(to)]),
    )
    assert not (columns == np.arange(old.width)).all()
    a, b = fly(walk, plain, 0.5), fly(walk, other, 0.5)
    assert (a.ended, b.ended) == ("done", "done")
    assert len(plain.commands) == len(other.commands) == a.ticks
    for ours, theirs in zip(plain.commands, other.commands, strict=True):
        assert np.array_equal(ours.target[to], theirs.target)


@pytest.mark.parametrize(
    ("pair", "checks"),
    [(["FL_hip", "FL_calf"], {"range", "pose"}), (["FL_thigh", "FR_thigh"], set()), (["FL_hip", "RR_hip"], set())],
)
def test_swapped_motors_show_before_the_start_only_where_their_poses_differ(walk, pair, checks):
    assert failed(walk, real(faults={"swap": [pair]})).keys() == checks


def test_gains_of_another_joint_are_refused(walk):
    kp = dict(zip(GO1.contract.target.labels, GO1.contract.gains["kp"], strict=True))
    contract = replace(GO1.contract, gains={**GO1.contract.gains, "kp": tuple((kp | {"RL_calf": 40.0}).values())})
    found = failed(walk, Watched(virtual(), contract))
    assert found == {"contract": "gain kp of RL_calf is 35 for the controller and 40 there"}
    without = replace(GO1.contract, gains={"kp": GO1.contract.gains["kp"]})
    assert failed(walk, Watched(virtual(), without)).keys() == {"contract"}


def test_motors_that_are_much_weaker_than_they_say_end_the_ramp(walk):
    """Before the robot moves nobody can know; a little too weak stays for `isthmus gap`."""
    weak, nearly = real(params={"kp": 0.5}), real(params={"kp": 0.9})
    assert failed(walk, real(params={"kp": 0.5})) == {}
    assert fly(walk, weak, 0.5).why.startswith("follow: ")
    assert weak.commands[-1].mode == "damp"
    assert fly(walk, nearly, 0.2).ended == "done"


# 3, 4, 5, 6, 11: what is in the graph --------------------------------------------------------------------------------------


def damaged(data: bytes, edit: Callable[[onnx.GraphProto], None]) -> bytes:
    model = onnx.load_from_string(data)
    edit(model.graph)
    assert model.SerializeToString() != data
    return model.SerializeToString()


def rewrite(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[onnx.GraphProto], None]:
    """Change a stored array of a graph."""

    def edit(graph: onnx.GraphProto) -> None:
        (stored,) = (i for i in graph.initializer if i.name.endswith(name))
        old = numpy_helper.to_array(stored)
        stored.CopyFrom(numpy_helper.from_array(change(old).astype(old.dtype).reshape(old.shape), stored.name))

    return edit


def without_clip(graph: onnx.GraphProto) -> None:
    """The action is no longer clipped; the target still is."""
    (node,) = (n for n in graph.node if n.op_type == "Clip" and n.output[0] == "next.action")
    node.CopyFrom(onnx.helper.make_node("Identity", node.input[:1], node.output))


def without_normalizer(graph: onnx.GraphProto) -> None:
    rewrite("normalize.mean", np.zeros_like)(graph)
    rewrite("rsqrt", np.ones_like)(graph)


FRAMES = lambda w: w.reshape(len(w), 3, -1)
"""First layer of `swing`, (out, history, frame)."""
BROKEN: dict[str, tuple[Callable, str]] = {
    "scale rounded": (rewrite("actor.reach", lambda x: x.round(2)), "recorded"),
    "scale missing": (rewrite("actor.reach", np.ones_like), "recorded"),
    "default pose wrong": (rewrite("actor.default", lambda x: x + 0.02), "recorded"),
    "clip lost": (without_clip, "extreme"),
    "normalizer missing": (without_normalizer, "recorded"),
    "history reversed": (rewrite("net.0.weight", lambda w: FRAMES(w)[:, ::-1]), "recorded"),
    "history term by term": (rewrite("net.0.weight", lambda w: FRAMES(w).transpose(0, 2, 1)), "recorded"),
}


@pytest.mark.parametrize("bug", BROKEN)
def test_a_graph_that_lost_something_is_not_exported(swing, bug, tmp_path, monkeypatch):
    edit, kind = BROKEN[bug]
    monkeypatch.setattr(export, "TICKS", 60)
    monkeypatch.setattr(export, "graph_bytes", lambda actor: damaged(swing.onnx, edit))
    with pytest.raises(BadInput, match=f"differs from the policy by .* on {kind} signals"):
        export.export(swing.run, swing.actor, tmp_path / "a.controller")
    assert list(tmp_path.iterdir()) == []


def test_the_whole_graph_is_exported(swing, tmp_path, monkeypatch):
    """The tests above fail for their bug and for nothing else."""
    monkeypatch.setattr(export, "TICKS", 60)
    monkeypatch.setattr(export, "graph_bytes", lambda actor: swing.onnx)
    checked = export.export(swing.run, swing.actor, tmp_path / "a.controller")
    assert checked["worst"] <= export.TOLERANCE
    assert Controller.load(tmp_path / "a.controller").manifest == swing.manifest


def test_no_file_beside_the_graph_can_hold_a_scale(swing):
    fields = swing.manifest.to_dict()
    for name in ("action_scale", "scale", "clip", "history", "normalizer"):
        with pytest.raises(BadInput, match=f"unknown entry '{name}'"):
            Manifest.from_dict(fields | {name: 0.25}, "contract.json")


@pytest.mark.parametrize(
    ("tables", "checks"),
    [
        ({"faults": {"flip": ["FL_calf"]}}, {"range", "pose"}),
        ({"faults": {"flip": ["FL_thigh"]}}, {"pose"}),
        ({"faults": {"flip": ["FL_hip"]}}, set()),
        ({"sensors": {"encoder_offset": {"RR_thigh": 0.9}}}, {"pose"}),
        ({"sensors": {"encoder_offset": {"RR_calf": -1.6}}}, {"range", "pose"}),
    ],
)
def test_a_wrong_zero_or_direction_shows_before_the_start_where_it_moves_the_pose(walk, tables, checks):
    """A joint whose zero is in the middle looks the same both ways: that is for `isthmus gap`."""
    assert failed(walk, real(**tables)).keys() == checks


def test_zero_action_holds_the_pose(walk, tmp_path):
    outcome, found = recorded(walk, real(), 0.5, tmp_path / "a.mcap")
    running = found.status["state"] == STATES.index("run")
    assert outcome.ended == "done"
    assert np.abs(found.signals["joint_pos"][running] - GO1.default).max() < 0.3
    assert np.abs(found.target[running] - GO1.default).max() < 0.05


# 7, 8, 9, 10: units and frames ---------------------------------------------------------------------------------------------


def test_another_unit_in_the_contract_is_refused(walk):
    for name, unit in (("joint_vel", "deg/s"), ("gyro", "deg/s")):
        signals = tuple(replace(s, unit=unit) if s.name == name else s for s in GO1.contract.signals)
        found = failed(walk, Watched(virtual(), replace(GO1.contract, signals=signals)))
        assert found.keys() == {"contract"}
        assert (
            f"{name} has the unit '{GO1.contract[name].unit}' for the controller and '{unit}' for the robot"
            in found["contract"]
        )


@pytest.mark.parametrize(
    ("units", "checks"),
    [
        ({"joint_pos": "deg"}, {"range", "pose"}),
        ({"gyro": "deg/s"}, {"still"}),
        ({"accel": "g"}, {"gravity"}),
        ({"joint_vel": "deg/s"}, set()),
        ({"joint_target": "deg"}, set()),
    ],
)
def test_another_unit_than_the_contract_says_shows_in_what_is_not_zero_at_rest(walk, units, checks):
    assert failed(walk, real(faults={"units": units})).keys() == checks


@pytest.mark.parametrize(("units", "rule"), [({"joint_vel": "deg/s"}, "speed"), ({"joint_target": "deg"}, "follow")])
def test_another_unit_that_shows_only_in_motion_ends_in_damping(walk, units, rule):
    body = real(faults={"units": units})
    outcome = fly(walk, body, 1.0)
    assert (outcome.ended, outcome.why.split(":")[0]) == ("guard", rule)
    assert outcome.seconds == 0, "the policy never had the robot"
    assert body.commands[-1].mode == "damp"


@pytest.mark.parametrize(
    ("yaw", "checks"),
    [(0.0, set()), (0.2, set()), (0.6, {"gravity"}), (1.57, {"upright", "gravity"}), (-2.5, {"upright", "gravity"})],
)
def test_another_order_of_the_quaternion_shows_unless_the_robot_looks_along_x(walk, yaw, checks):
    """Level at heading zero, xyzw read as wxyz is level at heading π."""
    assert failed(walk, real(turned(yaw))).keys() == set()
    assert failed(walk, real(turned(yaw), faults={"quaternion": "xyzw"})).keys() == checks


def test_another_frame_in_the_contract_is_refused(walk):
    signals = tuple(replace(s, frame="world") if s.name == "gyro" else s for s in GO1.contract.signals)
    found = failed(walk, Watched(virtual(), replace(GO1.contract, signals=signals)))
    assert found == {"contract": "gyro has the frame 'body' for the controller and 'world' for the robot"}


@pytest.mark.parametrize(("angle", "checks"), [(0.0, set()), (0.1, set()), (0.4, {"gravity"}), (-0.8, {"gravity"})])
def test_an_accelerometer_in_the_worlds_frame_shows_on_a_slope(walk, angle, checks):
    assert failed(walk, Watched(Still(tilted(angle)))) == {}
    assert failed(walk, Watched(Still(tilted(angle), faults=Faults(frames={"accel": "world"})))).keys() == checks


def test_a_gyroscope_in_another_frame_cannot_be_seen_at_rest(walk):
    for yaw in (0.0, 1.57):
        assert failed(walk, real(turned(yaw), faults={"frames": {"gyro": "world"}})) == {}


@pytest.mark.parametrize(("tilt", "checks"), [(0.05, set()), (0.5, set()), (1.2, {"upright"})])
def test_an_inertial_sensor_on_a_tilted_plate_agrees_with_itself(walk, tilt, checks):
    """Orientation and accelerometer turn together; only the legs know better."""
    assert failed(walk, real(sensors={"imu_tilt": [tilt, 0.0]})).keys() == checks


CONJUGATE = np.array([1.0, -1.0, -1.0, -1.0])


@pytest.mark.parametrize(("angle", "checks"), [(0.0, set()), (0.1, set()), (0.2, {"gravity"}), (-0.5, {"gravity"})])
def test_an_orientation_the_other_way_round_shows_on_a_slope(walk, angle, checks):
    """The inverse rotation has gravity on the wrong side by twice the slope."""
    at = GO1.contract.slices()["quat"]

    def inverse(p: Packet) -> list[Packet]:
        p.values[at] *= CONJUGATE
        return [p]

    assert failed(walk, Watched(Still(tilted(angle, "x")), say=inverse)).keys() == checks


def test_gravity_with_the_wrong_sign_is_refused(walk):
    assert failed(walk, real(sensors={"accel_scale": -1.0})).keys() == {"gravity"}
    assert failed(walk, Watched(Still((0.0, 1.0, 0.0, 0.0)))).keys() == {"upright"}


# 12, 13, 14: memory, signals, shapes ---------------------------------------------------------------------------------------


def replayed(made: Made, episode: Episode, ticks: int = 1) -> np.ndarray:
    """Targets of a controller that is given the recorded signals, `ticks` times per tick."""
    controller, found = made.controller, []
    for k in np.nonzero(np.isfinite(episode.wanted).all(1))[0]:
        for _ in range(ticks):
            target = controller.tick({name: episode.signals[name][k] for name in controller.inputs})
        found.append(target)
    return np.array(found)


def test_a_replay_gives_the_recorded_targets_bit_for_bit(swing, tmp_path):
    """Preflight ticks the policy too, and leaves nothing of that in its memory. Ticking twice would show."""
    outcome, found = recorded(swing, real(robot="pendulum"), 2.0, tmp_path / "a.mcap")
    assert outcome.ended == "done"
    wanted = found.wanted[np.isfinite(found.wanted).all(1)]
    assert len(wanted) >= 90
    assert np.ptp(wanted) > 0.01
    assert np.array_equal(replayed(swing, found), wanted)
    assert not np.allclose(replayed(swing, found, ticks=2), wanted, atol=1e-3)


def without(contract: Contract, name: str) -> Contract:
    return replace(contract, signals=tuple(s for s in contract.signals if s.name != name))


def test_a_signal_that_the_robot_lacks_is_refused_at_export_and_at_preflight(walk):
    task = walk.run.task
    robot = replace(task.robot, contract=without(GO1.contract, "gyro"), sources={**GO1.sources})
    blind = replace(walk.run, task=replace(task, robot=robot))
    with pytest.raises(BadInput, match="unknown signal 'gyro' in the policy's inputs: go1 does not measure it"):
        export.manifest_of(blind, walk.actor, walk.onnx)
    keep = np.delete(np.arange(GO1.contract.width), np.arange(GO1.contract.width)[GO1.contract.slices()["gyro"]])
    contract = without(GO1.contract, "gyro")
    body = Watched(virtual(), contract, say=lambda p: [replace(p, values=p.values[keep])])
    assert failed(walk, body) == {"contract": "the robot has no signal 'gyro'"}


def test_a_graph_and_a_contract_of_other_shapes_do_not_load_together(walk):
    """At load, not at the first tick."""
    m = walk.manifest
    twelve = m.robot["gyro"]
    four = replace(twelve, labels=("x", "y", "z", "t"), low=(), high=())
    wider = replace(m.robot, signals=tuple(four if s.name == "gyro" else s for s in m.robot.signals))
    cases = {
        "gyro": replace(m, robot=wider),
        "accel": replace(m, inputs=(*m.inputs, "accel")),
        "memory.frames": replace(m, memory={**m.memory, "frames": (1, 1)}),
        "memory.more": replace(m, memory={**m.memory, "more": (1,)}),
        "quat": replace(m, inputs=tuple(n for n in m.inputs if n != "quat")),
    }
    for name, wrong in cases.items():
        with pytest.raises(
            BadInput, match=rf"'(memory|next)?\.?{name.split('.')[-1]}' the contract says .*, but the graph has"
        ):
            Controller(wrong, walk.onnx)


# 15, 16, 17, 18, 19, 20: time and physics ------------------------------------------------------------------------------------


def test_a_constant_delay_cannot_be_seen_before_the_robot_answers_a_command(walk):
    assert failed(walk, real(faults={"delay": 0.08})) == {}
    assert fly(walk, real(faults={"delay": 0.08}), 0.2).ended == "done"


class SlowLink(InProcess):
    """Sending a command takes `share` of a tick."""

    def __init__(self, body: Body, share: float):
        super().__init__(body)
        self.share = share

    def write(self, command: Command) -> None:
        super().write(command)
        self.sleep_until(self.now() + self.share / GO1.contract.rate)


def test_a_loop_that_misses_its_deadlines_is_counted_held_and_ended(walk):
    body = real()
    quick = fly(walk, real(), 0.3, link=SlowLink(real(), 0.5))
    slow = fly(walk, body, 0.3, link=SlowLink(body, 1.5))
    assert (quick.ended, quick.missed.rate) == ("done", 0.0)
    assert slow.missed.rate == 1.0
    assert slow.rules["deadline"] > 0
    assert slow.why.startswith("held: ")
    assert body.commands[-1].mode == "damp"
    assert body.commands[-1].time - body.commands[0].time < 3.0, "half a second of it was enough"


@pytest.mark.parametrize(("pace", "checks"), [(0.995, set()), (0.9, {"clock"}), (0.6, {"fresh", "clock"}), (1.5, {"clock"})])
def test_a_simulation_that_is_slower_than_real_time_is_refused(walk, pace, checks):
    assert failed(walk, Watched(Still(pace=pace))).keys() == checks


def test_a_step_of_the_target_has_the_same_answer_in_training_and_on_the_virtual_robot():
    """One motor law, with the contract's gains: u - q decays alike, to the difference that the finer step makes."""
    step = np.array(GO1.default) + np.tile([0.1, -0.1, 0.2], 4)
    both = (Engine(GO1, 1, threads=1), RealEngine(GO1, Reality("go1"), 1, threads=1, tick=1 / GO1.contract.rate))
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
    assert outcome.ended == "done"
    running = found.status["state"] == STATES.index("run")
    assert found.signals["joint_vel"][running].std() == pytest.approx(noise, rel=0.1)


# 21, 22, 23: the right robot, ready ----------------------------------------------------------------------------------------


def test_another_revision_of_the_model_is_refused(walk):
    found = failed(walk, real(faults={"model": "other"}))
    assert found.keys() == {"model"}
    assert f"the controller was trained with {GO1.model_hash[:12]}" in found["model"]


def test_a_built_in_controller_that_is_still_on_is_refused(walk):
    assert failed(walk, real(faults={"mode": "busy"})) == {"mode": "busy: switch its built-in controller off"}


def crouched(depth: float) -> np.ndarray:
    """go1 with its thighs and calves bent further, on its feet."""
    qpos = np.array(GO1.home)
    qpos[8::3] += depth
    qpos[9::3] -= 2 * depth
    legs = lambda a: 0.213 * (np.cos(a[0]) + np.cos(a[0] + a[1]))
    qpos[2] -= legs(qpos[8:10] - [depth, -2 * depth]) - legs(qpos[8:10])
    return qpos


def test_a_pose_far_from_the_start_is_refused(walk):
    assert failed(walk, real(crouched(0.3))) == {}
    stretched = np.array(GO1.home)
    stretched[8::3], stretched[2] = -0.6, 0.5
    assert "pose" in failed(walk, real(stretched))


def test_a_robot_that_lies_stands_up_before_the_policy_takes_over(walk, tmp_path):
    """As it does after every run: the next one starts from where the last one left it."""
    body = real()
    for name in "ab":
        outcome, found = recorded(walk, body, 0.2, tmp_path / f"{name}.mcap")
        assert outcome.ended == "done", outcome.why
    first = int(np.nonzero(found.status["state"] == STATES.index("run"))[0][0])
    assert np.abs(found.signals["joint_pos"][0] - GO1.default).max() > 0.9
    assert np.abs(found.signals["joint_pos"][first] - GO1.default).max() < 0.4
    assert np.abs(np.diff(found.target[:first], axis=0)).max() * GO1.contract.rate < 2 * Thresholds.speed


def test_the_way_to_the_start_pose_is_a_ramp_within_the_torque_of_the_motors(walk, tmp_path):
    """kp (u - q) - kd q̇, predicted from what the robot said, for every command that was sent."""
    outcome, found = recorded(walk, real(crouched(0.4)), 0.2, tmp_path / "a.mcap")
    assert outcome.ended == "done"
    q, qd = found.signals["joint_pos"], found.signals["joint_vel"]
    kp, kd, effort = GO1.contract.gains["kp"], GO1.contract.gains["kd"], np.array(GO1.contract.safety.effort)
    gap = np.abs(q[0] - GO1.default).max()
    assert gap > 0.4
    share = np.abs(kp * (found.target - q) - kd * qd) / effort
    assert share.max() <= 1.0 + 1e-9
    assert (np.abs(kp * (found.target[0] - q[0])) <= (AHEAD + 0.05) * effort).all()
    ramp = found.status["state"] == STATES.index("ramp")
    assert ramp.sum() >= 0.5 * GO1.contract.rate
    assert np.abs(np.diff(found.target[ramp], axis=0)).max() < 0.05


# 24, 27, 28, 29, 30 --------------------------------------------------------------------------------------------------------


def test_a_nominal_belief_and_an_empty_reality_leave_every_number_nominal(walk):
    nominal = GO1.space.nominal
    env = Env(walk.run.task, 4, seed=3, belief=GO1.prior.nominal())
    assert (env.engine.e == nominal).all()
    assert (RealEngine(GO1, Reality("go1"), 2, threads=1).e == nominal).all()
    assert not (Env(walk.run.task, 4, seed=3).engine.e == nominal).all()


@pytest.mark.parametrize(("offset", "checks"), [(0.1, set()), (0.3, set()), (1.0, {"pose"})])
def test_an_encoder_that_is_off_by_a_little_cannot_be_told_from_a_pose(walk, offset, checks):
    assert failed(walk, real(sensors={"encoder_offset": {"FL_thigh": offset}})).keys() == checks


def test_the_contract_of_another_policy_does_not_go_with_a_graph(walk, swing):
    with pytest.raises(BadInput, match="the contract belongs to another graph"):
        unpack(pack(walk.manifest, swing.onnx), "mixed")
    other = replace(walk.manifest, default=tuple(x + 0.1 for x in walk.manifest.default))
    before, after = pack(walk.manifest, walk.onnx), pack(other, walk.onnx)
    forged = after[:-64] + before[-64:]
    with pytest.raises(BadInput, match="damaged"):
        unpack(forged, "forged")
    m = unpack(before, "whole")[0]
    hashes = (m.model_hash, m.space_hash, m.belief_hash)
    assert hashes == (GO1.model_hash, GO1.space.hash, walk.run.belief.hash)


def test_a_controller_for_another_robot_is_refused(swing):
    assert failed(swing, real()).keys() == {"robot", "model", "contract"}


def test_what_was_asked_is_recorded_and_what_was_never_trained_cannot_be_asked(walk, tmp_path):
    """A dead zone is a map from command to motion: the recording has both."""
    with pytest.raises(BadInput, match="outside -1 … 1, which the policy was trained for"):
        Operator(walk.manifest.operator, ("forward=1.5",))
    with pytest.raises(BadInput, match="did you mean"):
        Operator(walk.manifest.operator, ("foward=0.5",))
    link, operator = InProcess(real()), Operator(walk.manifest.operator, ("0.1:yaw=0.02",))
    _, flight = preflight(walk.controller, link, operator.at(0.0))
    assert flight is not None
    recorder = Recorder(Writer(tmp_path / "a.mcap", flight.identity.contract, walk.manifest.operator, STATUS))
    Loop(walk.controller, link, flight, operator, recorder).run(0.3)
    asked = read(tmp_path / "a.mcap").signals["command"]
    assert asked.max(0) == pytest.approx([0.0, 0.0, 0.02])
    assert (asked[0] == 0).all()


@pytest.mark.parametrize(
    ("faults", "rule"), [({"drop": 0.1}, "dropped"), ({"duplicate": 0.15}, "duplicate"), ({"reorder": 0.1}, "order")]
)
def test_packets_that_are_lost_doubled_or_late_are_counted_and_never_acted_on_twice(walk, faults, rule, tmp_path):
    outcome, found = recorded(walk, real(faults=faults), 0.5, tmp_path / "a.mcap")
    assert outcome.ended == "done"
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
    assert outcome.ended == "done"
    assert outcome.rules == {"clock": 1}
    names = [e.name for e in found.events]
    at = names.index("clock")
    assert names[at : at + 3] == ["clock", "hold", "run"]


@pytest.mark.parametrize(("silence", "ended"), [(0.1, "done"), (1.0, "guard")])
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
        assert outcome.ended == ended
        assert outcome.rules["stale"] > 0
        assert outcome.why.split(":")[0] == ("lost" if ended == "guard" else "")
        old = found.status["age"] > 0.06 + 1e-6
        assert old.any()
        assert np.isnan(found.wanted[old]).all(), "the policy was not asked"


# The table -------------------------------------------------------------------------------------------------------------------

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "deployment-bugs.md"
VERDICTS = ("impossible", "caught at export", "caught at preflight", "caught by the guard", "diagnosed")


def rows() -> list[list[str]]:
    """Cells of the table's rows."""
    lines = [line for line in GUIDE.read_text().splitlines() if re.match(r"\| *\d+ *\|", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_the_table_has_thirty_rows_each_with_a_verdict_and_tests_that_exist():
    table = rows()
    assert [row[0] for row in table] == [str(i) for i in range(1, 31)]
    here, cited = Path(__file__), set()
    for number, bug, verdict, how, tests in table:
        assert min(len(bug), len(how)) > 0, number
        assert verdict in VERDICTS, (number, verdict)
        names = re.findall(r"`((?:test_\w+\.py::)?test_\w+)`", tests)
        assert names, f"row {number} names no test"
        for name in names:
            file, _, function = name.rpartition("::")
            path = here.with_name(file) if file else here
            assert function in functions_of(path), f"row {number}: {name} does not exist"
            cited |= {function} if path == here else set()
    own = {name for name in functions_of(here) if name.startswith("test_")}
    assert own - cited == {"test_the_table_has_thirty_rows_each_with_a_verdict_and_tests_that_exist"}
