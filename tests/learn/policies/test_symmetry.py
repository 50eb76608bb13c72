"""Left and right are alike: in the tables, in the networks, and in the physics."""

from __future__ import annotations

import re
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from isthmus.core.errors import BadInput
from isthmus.core.geometry import to_matrix
from isthmus.learn.policies.actor import Actor, ActorSpec
from isthmus.learn.policies.symmetry import mirrored_label, reflection
from isthmus.robots.go1 import JOINTS, go1
from isthmus.sim.morphology import Mirror
from isthmus.sim.robot import Robot
from isthmus.sim.simulation import Simulation
from isthmus.tasks.catalogue import TASKS, get_task
from isthmus.tasks.env import Env

MIRRORED = sorted(name for name, make in TASKS.items() if make().robot.morphology.mirror is not None)


def even(robot: Robot) -> Robot:
    """The robot with a base that is the same on both sides; published ones are slightly off."""
    if not robot.morphology.base:
        return robot
    trunk = robot.model.body(robot.morphology.base)
    axes = to_matrix(trunk.iquat)
    full = axes @ np.diag(trunk.inertia) @ axes.T
    numbers = f"{full[0, 0]} {full[1, 1]} {full[2, 2]} 0 {full[0, 2]} 0"
    inertial = f'<inertial pos="{trunk.ipos[0]} 0 {trunk.ipos[2]}" mass="{trunk.mass[0]}" fullinertia="{numbers}"/>'
    changed, count = re.subn(r'(<freejoint name="root"/>\s*)<inertial [^>]*/>', lambda m: m[1] + inertial, robot.xml)
    assert count == 1
    return replace(robot, xml=changed)


def swap(x: np.ndarray, labels, kind: str, mirror: Mirror) -> np.ndarray:
    r = reflection([(list(labels), kind)], mirror)
    return x[..., list(r.order)] * np.array(r.signs)


def mirrored_state(robot: Robot, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not robot.morphology.base:
        return -qpos, -qvel
    joint = lambda x: swap(x, JOINTS, "joint_pos", robot.morphology.mirror) if len(x) else x
    return (
        np.concatenate([qpos[:3] * [1, -1, 1], qpos[3:7] * [1, -1, 1, -1], joint(qpos[7:])]),
        np.concatenate([qvel[:3] * [1, -1, 1], qvel[3:6] * [-1, 1, -1], joint(qvel[6:])]),
    )


def a_pair_of_worlds(robot: Robot, rng: np.random.Generator) -> np.ndarray:
    """Values of e of a world without noise and of its mirror image, (2, d)."""
    space, mirror = robot.space, robot.morphology.mirror
    assert mirror is not None
    e = robot.prior.sample(rng, 1)[0]
    for i, name in enumerate(space.names):
        e[i] = 0.0 if name.endswith("_noise") else e[i]
    unit = swap(space.unit(e) * 2 - 1, space.names, "e", mirror)
    return np.stack([e, space.from_unit((unit + 1) / 2)])


def a_pair_of_starts(robot: Robot, rng: np.random.Generator, height: float) -> tuple[np.ndarray, np.ndarray]:
    model = robot.model
    qpos, qvel = np.array(robot.home), 0.3 * rng.standard_normal(model.nv)
    mujoco.mj_integratePos(model, qpos, 0.1 * rng.standard_normal(model.nv), 1.0)
    if robot.morphology.base:
        qpos[2] = robot.home[2] + height
    other = mirrored_state(robot, qpos, qvel)
    return np.stack([qpos, other[0]]), np.stack([qvel, other[1]])


# Tables ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MIRRORED)
def test_reflecting_twice_changes_nothing(name):
    task = get_task(name)
    mirror, env = task.robot.morphology.mirror, Env(task, 1)
    for parts in (
        ActorSpec.for_task(task).observation_labels(),
        env.critic_labels(),
        [(list(task.robot.contract.target.labels), "target")],
    ):
        r = reflection(parts, mirror)
        order, signs = np.array(r.order), np.array(r.signs)
        assert (order[order] == np.arange(len(order))).all()
        assert (signs[order] * signs == 1).all()


def test_labels_change_sides():
    mirror = go1().morphology.mirror
    assert mirrored_label("FL_hip", mirror) == "FR_hip"
    assert mirrored_label("encoder_offset_RR_calf", mirror) == "encoder_offset_RL_calf"
    assert mirrored_label("payload", mirror) == "payload"
    with pytest.raises(BadInput, match="FR_hip"):
        reflection([(["FL_hip"], "joint_pos")], mirror)


# Networks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MIRRORED)
def test_a_policy_treats_a_mirror_image_as_a_mirror_image(name):
    """Also after the statistics of the observations were gathered on one side only."""
    task = get_task(name)
    torch.manual_seed(0)
    actor = Actor(ActorSpec.for_task(task, (16,)))
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in actor.net.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=g))
        r = reflection(actor.spec.observation_labels() * actor.spec.policy.history, task.robot.morphology.mirror)
        reflect = lambda x: x[:, list(r.order)] * torch.tensor(r.signs)
        x = torch.randn(200, len(r.order), generator=g) * torch.rand(len(r.order), generator=g) * 3 + 0.5
        actor.normalize.update(x, actor.net.reflect)
        assert torch.allclose(reflect(actor.normalize(x)), actor.normalize(reflect(x)), atol=1e-5)
        want = image_of(actor.act(x), actor.spec.action_labels(), task)
        assert torch.allclose(actor.act(reflect(x)), want, atol=1e-5)
        assert want.abs().max() > 0.01


@pytest.mark.parametrize("name", MIRRORED)
def test_without_symmetry_the_network_is_free(name):
    task = get_task(name)
    assert ActorSpec.for_task(task, (16,), symmetric=False).mirror is None
    torch.manual_seed(0)
    actor = Actor(ActorSpec.for_task(task, (16,), symmetric=False))
    r = reflection(actor.spec.observation_labels() * actor.spec.policy.history, task.robot.morphology.mirror)
    out = reflection([actor.spec.action_labels()], task.robot.morphology.mirror)
    x = torch.randn(20, actor.observation_size, generator=torch.Generator().manual_seed(0))
    image = actor.act(x[:, list(r.order)] * torch.tensor(r.signs))
    assert not torch.allclose(image, actor.act(x)[:, list(out.order)] * torch.tensor(out.signs), atol=1e-4)


def image_of(x: torch.Tensor, part, task) -> torch.Tensor:
    r = reflection([part], task.robot.morphology.mirror)
    return x[:, list(r.order)] * torch.tensor(r.signs)


@pytest.mark.parametrize("name", MIRRORED)
def test_mirrored_actions_are_mirrored_targets(name):
    """A rhythm under the policy is half a cycle later on the other side."""
    task = get_task(name)
    actor = Actor(ActorSpec.for_task(task, (16,)))
    m = actor.spec.target.size
    action = torch.randn(30, m, generator=torch.Generator().manual_seed(2))
    memory = actor.memory(30)
    if "phase" in memory:
        memory |= {"phase": torch.linspace(0, 0.99, 30)[:, None], "gate": torch.ones(30, 1)}
    other = memory | ({"phase": memory["phase"] + 0.5} if "phase" in memory else {})
    there = actor.target(image_of(action, actor.spec.action_labels(), task), other)
    here = image_of(actor.target(action, memory), (list(actor.spec.target.labels), "target"), task)
    assert torch.allclose(there, here, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in MIRRORED if get_task(n).policy.feedback])
def test_the_reflex_to_a_mirrored_signal_is_the_mirrored_reflex(name):
    task = get_task(name)
    actor = Actor(ActorSpec.for_task(task, (16,)))
    g = torch.Generator().manual_seed(3)
    signals = {s.name: torch.randn(40, s.size, generator=g) for s in actor.spec.signals}
    other = {s.name: image_of(signals[s.name], (list(s.labels), s.name), task) for s in actor.spec.signals}
    _, memory = actor.observe(signals, actor.memory(40))
    _, there = actor.observe(other, actor.memory(40))
    assert torch.allclose(there["reflex"], image_of(memory["reflex"], actor.spec.action_labels(), task), atol=1e-4)
    assert memory["reflex"].abs().max() > 0.1


# Physics ---------------------------------------------------------------------------------------------------------------


def converged(spec: mujoco.MjSpec) -> None:
    """Contacts solved to the end: the quick solver takes the feet one after the other, which is not symmetric."""
    spec.option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    spec.option.iterations, spec.option.tolerance = 100, 1e-14


@pytest.mark.parametrize("height", [1.0, 0.0])
@pytest.mark.parametrize("name", sorted({name.split("/")[0] for name in MIRRORED}))
def test_a_mirrored_world_moves_as_the_mirror_image(name, height, targets):
    robot = even(next(make().robot for task, make in TASKS.items() if task.startswith(f"{name}/")))
    rng = np.random.default_rng(3)
    engine = Simulation(robot, 2, edit=converged)
    e = a_pair_of_worlds(robot, rng)
    engine.apply(e, engine.all_ids)
    engine.reset(engine.all_ids, *a_pair_of_starts(robot, rng, height))
    labels = robot.contract.target.labels
    for _ in range(15):
        u = targets(robot, rng, 1)[0]
        engine.step(np.stack([u, swap(u, labels, "target", robot.morphology.mirror)]))
        for array, image in zip((engine.qpos, engine.qvel), mirrored_state(robot, engine.qpos[0], engine.qvel[0]), strict=True):
            assert array[1] == pytest.approx(image, abs=1e-6)
    assert np.abs(engine.qvel).max() > 0.05


@pytest.mark.parametrize("name", sorted(set(MIRRORED) - {"go1/terrain"}))
def test_observation_and_critic_of_a_mirrored_world_are_the_mirror_images(name):
    task = get_task(name)
    task = replace(task, robot=even(task.robot), terminations=())
    robot, rng = task.robot, np.random.default_rng(4)
    e = a_pair_of_worlds(robot, rng)
    env = Env(task, 2, training=False, e=e)
    env.disturbances.config = task.disturbance.scaled(0.0)
    env.disturbances.reset(env.sim.all_ids)
    env.sim.reset(env.sim.all_ids, *a_pair_of_starts(robot, rng, 1.0))
    if task.command is not None:
        signal = task.command.signal
        command = rng.uniform(signal.low, signal.high)
        env.command = torch.tensor(
            np.stack([command, swap(command, signal.labels, signal.name, robot.morphology.mirror)])
        ).float()
    actor = Actor(ActorSpec.for_task(task, (8,)))
    memory = actor.memory(2)
    if "phase" in memory:
        memory["phase"][1] = 0.5
    parts = actor.spec.observation_labels() * actor.spec.policy.history
    labels, kind = actor.spec.action_labels()
    for _ in range(6):
        observation, memory = actor.observe(env.signals(), memory)
        r = reflection(parts, robot.morphology.mirror)
        assert torch.allclose(observation[1], observation[0, list(r.order)] * torch.tensor(r.signs), atol=1e-4)
        a = rng.uniform(-0.5, 0.5, len(labels))
        action = torch.tensor(np.stack([a, swap(a, labels, kind, robot.morphology.mirror)])).float()
        env.step(actor.target(action, memory))
        memory = actor.remember(memory, action)
        seen, r = env.critic(), reflection(env.critic_labels(), robot.morphology.mirror)
        assert torch.allclose(seen[1], seen[0, list(r.order)] * torch.tensor(r.signs), atol=1e-4)
