"""A controller is the trained policy to the last digit, or it is not a controller."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from isthmus.core.errors import BadInput
from isthmus.core.files import content_hash
from isthmus.data.contract import Signal
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.learn.policies import export as export_module
from isthmus.learn.policies.actor import Actor
from isthmus.learn.policies.export import TOLERANCE
from isthmus.tasks.catalogue import get_task
from support.controllers import constant, trajectory
from support.deployments import make


@torch.no_grad()
def test_ticks_are_those_of_the_module_also_after_a_reset(exported):
    found, actor = OnnxController.load(exported.path), exported.actor
    memory, asked = actor.memory(1), []
    for tick, signals in enumerate(trajectory(found.manifest, 300)):
        if tick in (0, 1, 100, 101, 250):
            found.reset()
            memory = actor.memory(1)
        target, memory = actor({k: torch.tensor(v[None]) for k, v in signals.items()}, memory)
        np.testing.assert_allclose(found.tick(signals), target[0], atol=TOLERANCE)
        assert found.memory.keys() == memory.keys()
        for name, kept in memory.items():
            np.testing.assert_allclose(found.memory[name], kept, atol=TOLERANCE, err_msg=name)
        asked.append(memory["action"][0].numpy())
    # The policy of this test moves, and its clip is met.
    clip = exported.run.task.policy.action_clip
    assert np.ptp(asked, axis=0).min() > 0.1
    assert np.abs(asked).max() == clip


def test_what_a_tick_returns_stays_as_it_is(exported):
    found = OnnxController.load(exported.path)
    ticks = list(trajectory(found.manifest, 3))
    first = found.tick(ticks[0])
    kept = first.copy()
    found.tick(ticks[1])
    found.tick(ticks[2])
    assert (first == kept).all()


def test_a_reset_forgets_everything(exported):
    found = OnnxController.load(exported.path)
    runs_ = []
    for _ in range(2):
        found.reset()
        assert all(not kept.any() for kept in found.memory.values())
        runs_.append([found.tick(signals) for signals in trajectory(found.manifest, 20)])
    assert np.array_equal(*runs_)
    without = [found.tick(signals) for signals in trajectory(found.manifest, 20)]
    assert not np.array_equal(runs_[0], without)


def test_export_checks_a_thousand_ticks_and_every_kind_of_signal(exported):
    assert export_module.TICKS * export_module.WORLDS >= 1000
    assert exported.checked.largest_difference.keys() == {"recorded", "extreme", "boundary", "ramp"}
    assert 0.0 < max(exported.checked.largest_difference.values()) <= TOLERANCE
    assert (
        exported.checked.controller_hash == OnnxController.load(exported.path).hash == content_hash(exported.path.read_bytes())
    )


def nudge(data: bytes, name: str, by: float) -> bytes:
    """A graph of which one stored array is a little off."""
    model = onnx.load_from_string(data)
    (stored,) = (i for i in model.graph.initializer if i.name.endswith(name))
    stored.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(stored) + np.float32(by), stored.name))
    return model.SerializeToString()


def lingering(actor: Actor) -> None:
    """The next action is 0.97 of the last one, and 0.03: what is a little off goes on, and adds up to 33 times as much."""
    first, last = (m for m in actor.net.modules() if isinstance(m, torch.nn.Linear))
    for parameter in actor.net.parameters():
        parameter.zero_()
    first.weight[0, -1] = 1.0
    first.bias[0] = 10.0  # where an ELU is straight
    last.weight[0, 0], last.bias[0] = 0.97, 0.03 - 9.7


def test_last_digits_do_not_add_up_over_ticks(tmp_path, monkeypatch):
    made = make(get_task("pendulum/swingup"), lingering, mirrored=False)
    monkeypatch.setattr(export_module, "TICKS", 40)
    nudged = nudge(made.onnx, "net.2.bias", 2e-6)
    monkeypatch.setattr(export_module, "graph_bytes", lambda actor: nudged)
    checked = export_module.export_actor(made.run, made.actor, tmp_path / "a.controller")
    assert 1e-6 < checked.largest_difference["recorded"] <= TOLERANCE
    one, other = (OnnxController(made.manifest, graph) for graph in (made.onnx, nudged))
    quiet = {s.name: np.zeros(s.size, np.float32) for s in made.manifest.signals}
    carried = [export_module._difference(one.tick(quiet), other.tick(quiet)) for _ in range(200)]
    assert max(carried) > TOLERANCE


def test_a_memory_that_does_not_start_from_nothing_is_not_exported(exported, tmp_path, monkeypatch):
    """A controller forgets everything before its first tick."""
    memory = Actor.memory
    monkeypatch.setattr(Actor, "memory", lambda self, n: memory(self, n) | {"action": torch.full((n, 12), 0.5)})
    with pytest.raises(BadInput, match=r"differs from the policy by 0\.5 on recorded signals"):
        exported.export(tmp_path / "a.controller")


def test_a_policy_that_decides_by_its_signals_is_not_exported(exported, monkeypatch):
    """A graph has one of its two ways only, and signals of the other may be rare."""
    act = Actor.act
    monkeypatch.setattr(Actor, "act", lambda self, x: act(self, x) if float(x.abs().max()) < 1e30 else -act(self, x))
    with pytest.raises(BadInput, match="takes another way for other signals"):
        export_module.graph_bytes(exported.actor)


def test_the_manifest_says_what_the_run_was(exported):
    found, run = OnnxController.load(exported.path).manifest, exported.run
    assert found.robot == run.task.robot.contract
    assert found.default == run.task.robot.default
    assert found.operator == (run.task.command.signal,)
    assert found.run_hash == run.record["hash"]
    assert (found.model_hash, found.space_hash) == (run.task.robot.model_hash, run.task.robot.space.hash)


def initializer(data: onnx.ModelProto, ending: str) -> onnx.TensorProto:
    return next(x for x in data.graph.initializer if x.name.endswith(ending))


def shift(data: onnx.ModelProto, ending: str, change) -> None:
    alter(initializer(data, ending), change)


def alter(found: onnx.TensorProto, change) -> None:
    found.CopyFrom(constant(found.name, change(onnx.numpy_helper.to_array(found)).astype(np.float32)))


def node_for(data: onnx.ModelProto, output: str) -> onnx.NodeProto:
    return next(n for n in data.graph.node if output in n.output)


def lose(data: onnx.ModelProto, output: str) -> None:
    """Make the operator that gives `output` pass its first input on."""
    node = node_for(data, output)
    assert node.op_type in ("Clip", "Min")
    node.CopyFrom(helper.make_node("Identity", [node.input[0]], list(node.output)))


def older_first(data: onnx.ModelProto) -> None:
    kept = next(n for n in data.graph.node if n.op_type == "Slice" and n.input[0] == "memory.frames").output[0]
    stacked = next(n for n in data.graph.node if n.op_type == "Concat" and kept in n.input)
    stacked.input[:] = list(reversed(stacked.input))


def twice_a_tick(data: onnx.ModelProto) -> None:
    step = next(n for n in data.graph.node if n.op_type == "Add" and "memory.phase" in n.input and node_feeds(data, n, "Floor"))
    alter(node_for(data, next(i for i in step.input if i != "memory.phase")).attribute[0].t, lambda x: 2 * x)


def node_feeds(data: onnx.ModelProto, node: onnx.NodeProto, op: str) -> bool:
    return any(n.op_type == op and node.output[0] in n.input for n in data.graph.node)


SABOTAGE = {
    "another normalizer": lambda d: shift(d, "normalize.mean", lambda x: x + 1e-3),
    "a rounded scale": lambda d: shift(d, "reach", lambda x: x * 1.001),
    "another default": lambda d: shift(d, "actor.default", lambda x: x + np.eye(12)[3] * 1e-4),
    "a lost clip": lambda d: lose(d, "next.action"),
    "lost limits": lambda d: lose(d, "joint_target"),
    "the history the other way round": older_first,
    "a clock that goes twice as fast": twice_a_tick,
}


@pytest.mark.parametrize("what", SABOTAGE)
def test_export_notices_a_graph_that_differs_and_writes_nothing(exported, tmp_path, what):
    data = onnx.load_from_string(exported.onnx)
    SABOTAGE[what](data)
    with pytest.raises(BadInput, match=r"differs from the policy.*nothing written"):
        exported.export(tmp_path / "x.controller", data.SerializeToString(), ticks=5)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", ["gone", "unit", "order", "frame"])
def test_export_refuses_a_policy_whose_signals_the_robot_does_not_offer(exported, tmp_path, change):
    def changed(s: Signal) -> Signal:
        labels = (*s.labels[1:], s.labels[0]) if change == "order" else s.labels
        return replace(
            s, unit="deg/s" if change == "unit" else s.unit, labels=labels, frame="world" if change == "frame" else s.frame
        )

    task = exported.run.task
    contract = task.robot.contract
    signals = tuple(changed(s) if s.name == "gyro" else s for s in contract.signals if change != "gone" or s.name != "gyro")
    robot = replace(
        task.robot, contract=replace(contract, signals=signals), sources={s.name: task.robot.sources[s.name] for s in signals}
    )
    with pytest.raises(BadInput, match=r"'gyro'.*go1 does not measure it"):
        exported.export(tmp_path / "x.controller", run=replace(exported.run, task=replace(task, robot=robot)))
    assert not list(tmp_path.iterdir())


# On the robot --------------------------------------------------------------------------------------------------------

ON_THE_ROBOT = """
import importlib, json, pathlib, pkgutil, sys
import isthmus.deploy, isthmus.cli.main, isthmus.cli.run_
for package in ("core", "world", "data", "data.mcap", "deploy", "deploy.guard", "deploy.links"):
    package = "isthmus." + package
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{found.name}")
import numpy as np
from isthmus.deploy.onnx_controller import OnnxController
c = OnnxController.load(sys.argv[1])
target = c.tick({s.name: np.ones(s.size) for s in c.manifest.signals})
heavy = sorted({m.split(".")[0] for m in sys.modules} & {"torch", "mujoco", "scipy", "pyarrow", "onnx", "viser", "rosbags"})
most = next(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps({"target": target.tolist(), "heavy": heavy, "kib": int(most.split()[1])}))
"""


def test_the_robot_needs_neither_torch_nor_mujoco_nor_much_memory(exported):
    done = subprocess.run([sys.executable, "-c", ON_THE_ROBOT, str(exported.path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["heavy"] == []
    assert said["kib"] < 150 * 1024
    here = OnnxController.load(exported.path)
    assert said["target"] == here.tick({s.name: np.ones(s.size) for s in here.manifest.signals}).tolist()
