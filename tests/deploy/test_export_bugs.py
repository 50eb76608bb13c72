"""Deployment bugs of a controller's file: what its graph lost is noticed, and it fits itself, its robot and its commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from isthmus.core.errors import BadInput
from isthmus.data.contract import Contract
from isthmus.data.episode import Episode
from isthmus.data.mcap.writer import EpisodeWriter, read_episode
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.links.in_process import InProcessLink
from isthmus.deploy.manifest import Manifest
from isthmus.deploy.onnx_controller import OnnxController, pack_controller, unpack_controller
from isthmus.deploy.preflight import preflight
from isthmus.deploy.recorder import STATUS_COLUMNS, Recorder
from isthmus.deploy.runtime import ControlLoop
from isthmus.learn.policies import export
from isthmus.learn.policies.actor import Actor
from isthmus.tasks.catalogue import get_task
from support.deployments import Made, Watched, failed, make, real, recorded
from support.virtual_robots import GO1, virtual

pytestmark = pytest.mark.usefixtures("no_hurry")


def strong(actor: Actor) -> None:
    """Actions that matter, and observations that are far from normal before they are normalized."""
    list(actor.net.parameters())[-2].mul_(60)
    actor.normalize.mean.copy_(torch.linspace(-0.3, 0.4, len(actor.normalize.mean)))
    actor.normalize.var.copy_(torch.linspace(0.5, 2.0, len(actor.normalize.var)))


@pytest.fixture(scope="module")
def swing() -> Made:
    """A pendulum with a memory of three frames and a scale of many digits."""
    task = get_task("pendulum/swingup")
    return make(replace(task, policy=replace(task.policy, history=3, action_scale=1.2345678)), strong, mirrored=False)


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
    (centre,) = (n for n in graph.node if n.op_type == "Sub" and n.input[1].endswith("normalize.mean"))
    (scale,) = (n for n in graph.node if n.op_type == "Mul" and n.input[0] == centre.output[0])
    for node in (centre, scale):
        node.CopyFrom(onnx.helper.make_node("Identity", node.input[:1], node.output))


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
        export.export_actor(swing.run, swing.actor, tmp_path / "a.controller")
    assert list(tmp_path.iterdir()) == []


def test_the_whole_graph_is_exported(swing, tmp_path, monkeypatch):
    """The tests above fail for their bug and for nothing else."""
    monkeypatch.setattr(export, "TICKS", 60)
    monkeypatch.setattr(export, "graph_bytes", lambda actor: swing.onnx)
    checked = export.export_actor(swing.run, swing.actor, tmp_path / "a.controller")
    assert max(checked.largest_difference.values()) <= export.TOLERANCE
    assert OnnxController.load(tmp_path / "a.controller").manifest == swing.manifest


def test_no_file_beside_the_graph_can_hold_a_scale(swing):
    fields = swing.manifest.to_dict()
    for name in ("action_scale", "scale", "clip", "history", "normalizer"):
        with pytest.raises(BadInput, match=f"unknown entry '{name}'"):
            Manifest.from_dict(fields | {name: 0.25}, "contract.json")


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
    assert outcome.status == "completed"
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
        export.make_manifest(blind, walk.actor, walk.onnx)
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
            OnnxController(wrong, walk.onnx)


# 28, 29: whose file it is, and what it may be asked -----------------------------------------------------------------------


def test_the_contract_of_another_policy_does_not_go_with_a_graph(walk, swing):
    with pytest.raises(BadInput, match="the contract belongs to another graph"):
        unpack_controller(pack_controller(walk.manifest, swing.onnx), "mixed")
    other = replace(walk.manifest, default=tuple(x + 0.1 for x in walk.manifest.default))
    before, after = pack_controller(walk.manifest, walk.onnx), pack_controller(other, walk.onnx)
    forged = after[:-64] + before[-64:]
    with pytest.raises(BadInput, match="damaged"):
        unpack_controller(forged, "forged")
    m = unpack_controller(before, "whole")[0]
    hashes = (m.model_hash, m.space_hash, m.belief_hash)
    assert hashes == (GO1.model_hash, GO1.space.hash, walk.run.belief.hash)


def test_a_controller_for_another_robot_is_refused(swing):
    assert failed(swing, real()).keys() == {"robot", "model", "contract"}


def test_what_was_asked_is_recorded_and_what_was_never_trained_cannot_be_asked(walk, tmp_path):
    """A dead zone is a map from command to motion: the recording has both."""
    with pytest.raises(BadInput, match="outside -1 … 1, which the policy was trained for"):
        CommandSchedule(walk.manifest.operator, ("forward=1.5",))
    with pytest.raises(BadInput, match="did you mean"):
        CommandSchedule(walk.manifest.operator, ("foward=0.5",))
    link, operator = InProcessLink(real()), CommandSchedule(walk.manifest.operator, ("0.1:yaw=0.02",))
    _, flight = preflight(walk.controller, link, operator.values_at(0.0))
    assert flight is not None
    recorder = Recorder(EpisodeWriter(tmp_path / "a.mcap", flight.identity.contract, walk.manifest.operator, STATUS_COLUMNS))
    ControlLoop(walk.controller, link, flight, operator, recorder).run(0.3)
    asked = read_episode(tmp_path / "a.mcap").signals["command"]
    assert asked.max(0) == pytest.approx([0.0, 0.0, 0.02])
    assert (asked[0] == 0).all()
