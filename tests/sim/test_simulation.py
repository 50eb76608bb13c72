"""Laws of the batched engine: e reaches the physics, from nominal, and a world depends on nothing but itself."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest
from mujoco.batch import MODEL_FIELDS
from scipy import stats

from isthmus.core.errors import BadInput
from isthmus.sim.engines.batch import control_callback
from isthmus.sim.simulation import Simulation
from isthmus.tasks.env import Env
from isthmus.world import LogUniform, Param, Space, Uniform

N = 6


@pytest.fixture(scope="module")
def engine(robot) -> Simulation:
    return Simulation(robot, N)


def model_numbers(model: mujoco.MjModel, without: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    found = {}
    for name in sorted(MODEL_FIELDS):
        if not name.startswith(without or ("-",)):
            source, field = (model.opt, name[4:]) if name.startswith("opt.") else (model, name)
            found[name] = np.array(getattr(source, field))
    return found


def numbers_of(engine: Simulation, world: int) -> dict[str, np.ndarray]:
    """Every number that e can reach in one world: the model, derived constants included, motors, link and sensors."""
    arrays = {f"array {k}": v[world].copy() for k, v in engine.binding.arrays.items()}
    views = {
        f"view {k}": engine.userdata[k][world].copy() for k in engine.userdata if k.startswith("motor.") or k.endswith("_delay")
    }
    return model_numbers(engine.engine.get_model(world)) | arrays | views


def assert_same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    assert [k for k in a if not np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f")] == []


def fresh(engine: Simulation, seed: int = 0) -> np.random.Generator:
    """Put an engine back to nominal and home."""
    engine.xfrc_applied[:] = 0.0
    engine.apply(np.tile(engine.robot.space.nominal, (engine.n, 1)), engine.all_ids)
    engine.reset(engine.all_ids)
    return np.random.default_rng(seed)


# e reaches the physics, from nominal ---------------------------------------------------------------------------------


def test_applying_twice_is_applying_once(engine):
    rng = fresh(engine)
    e, other = engine.robot.prior.sample(rng, N), engine.robot.prior.sample(rng, N)
    engine.apply(e, engine.all_ids)
    once = [numbers_of(engine, i) for i in range(N)]
    for values in (other, e, e):
        engine.apply(values, engine.all_ids)
    for i in range(N):
        assert_same(numbers_of(engine, i), once[i])
    assert (engine.e == e).all()


def test_applying_nominal_restores_the_model_bit_for_bit(engine):
    rng = fresh(engine)
    before = numbers_of(engine, 1)
    engine.apply(engine.robot.prior.sample(rng, N), engine.all_ids)
    with pytest.raises(AssertionError):
        assert_same(numbers_of(engine, 1), before)
    engine.apply(np.tile(engine.robot.space.nominal, (N, 1)), engine.all_ids)
    assert_same(numbers_of(engine, 1), before)
    ours = ("numeric", "name", "names_map")
    assert_same(model_numbers(engine.engine.get_model(1), ours), model_numbers(engine.robot.model, ours))


def test_applying_to_some_worlds_leaves_the_others_alone(engine):
    rng = fresh(engine)
    engine.apply(engine.robot.prior.sample(rng, N), engine.all_ids)
    before = [numbers_of(engine, i) for i in range(N)]
    engine.apply(engine.robot.prior.sample(rng, 2), np.array([1, 4]))
    for i in (0, 2, 3, 5):
        assert_same(numbers_of(engine, i), before[i])


def test_a_target_that_matches_nothing_names_what_exists(robot):
    def with_target(text: str):
        return dataclasses.replace(robot, space=Space((Param("p", "1", 1.0, 0.5, 2.0, (text,)),)))

    motor, body = robot.contract.target.labels[0], robot.model.body(1).name
    wrong = {
        f"motor:{motor}x/kp": motor, f"motor:{motor}/kpp": "kp", f"body:{body}y/mass": body, f"body:{body}/mas": "mass",
        "link:/action_dely": "action_delay", "signal:nothing/bias": robot.contract.signals[0].name, "opt:/gravty[0]": "gravity",
        f"body:{body}/inertia[0]": "mass", f"body:{body}/com[3]": "0", f"body:{body}/com": r"\[0\]", "bdy:x/mass": "body",
    }  # fmt: skip
    for text, hint in wrong.items():
        with pytest.raises(BadInput, match=hint):
            Simulation(with_target(text), 1)


def test_a_thousand_resets_give_the_distribution_that_was_asked_for(task):
    """Read back from the numbers that the physics uses, one parameter at a time."""
    env = Env(task, n=1000, seed=7, training=False)
    engine, space = env.sim, task.robot.space
    writers: dict[tuple[str, int], set[int]] = {}
    for w in engine.binding.writes:
        for c in w.columns:
            writers.setdefault((w.array, int(c)), set()).add(w.param)
    checked = set()
    for w in engine.binding.writes:
        if w.param in checked:
            continue
        column = int(w.columns[0])
        others = sorted(writers[w.array, column] - {w.param})
        assert not others or w.how == "scale"
        values = (engine.userdata if w.array in engine.userdata else engine.binding.arrays)[w.array][:, column]
        nominal = engine.binding.nominal[w.array][column]
        drawn = (
            values
            if w.how == "set"
            else values / nominal / engine.e[:, others].prod(1)
            if w.how == "scale"
            else values - nominal
        )
        factor = task.robot.prior[space.names[w.param]]
        assert isinstance(factor, Uniform | LogUniform)
        log = isinstance(factor, LogUniform)
        law = stats.loguniform(factor.low, factor.high) if log else stats.uniform(factor.low, factor.high - factor.low)
        assert stats.kstest(drawn, law.cdf).pvalue > 1e-4, space.names[w.param]
        checked.add(w.param)
    assert checked == {space.index(name) for name in task.robot.prior.free().names}


def test_the_bodies_of_the_physics_follow_their_numbers(task):
    env = Env(task, n=200, seed=8, training=False)
    engine, nominal = env.sim, task.robot.model
    arrays = engine.binding.arrays
    density, payload = arrays["inertia.mass"], arrays["inertia.payload"]
    mass, com = engine.engine.field("body_mass"), engine.engine.field("body_ipos")
    assert np.allclose(mass, density * nominal.body_mass + payload, rtol=1e-12)
    own = (density * nominal.body_mass)[..., None] * (nominal.body_ipos + arrays["inertia.com"].reshape(200, -1, 3))
    assert np.allclose(mass[..., None] * com, own + payload[..., None] * np.array(task.robot.morphology.payload.at), atol=1e-12)


class SameNoise:
    """A generator that gives every world the same noise."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def standard_normal(self, shape, dtype=np.float32):
        return np.broadcast_to(self.rng.standard_normal(shape[1], dtype=dtype), shape)


def test_every_parameter_changes_what_the_robot_measures(robot, targets):
    space = robot.space
    e = np.tile(space.nominal, (len(space) + 2, 1))
    for i, name in enumerate(space.names):
        low, high = robot.prior.interval(name, 0.5)
        e[i, i] = high if abs(high - space.nominal[i]) > abs(low - space.nominal[i]) else low
        assert e[i, i] != space.nominal[i]
    engine = Simulation(robot, len(e))
    engine.apply(e, engine.all_ids)
    engine.reset(engine.all_ids)
    noise, rng, seen = SameNoise(0), np.random.default_rng(1), []
    for _ in range(round(2.0 / engine.tick)):
        engine.step(np.repeat(targets(robot, rng, 1, size=0.25), len(e), axis=0))
        seen.append(engine.signals(noise))
    assert not engine.diverged.any()
    change = np.abs(np.array(seen) - np.array(seen)[:, -1:]).max(axis=(0, 2))
    assert (change[-2:] == 0).all(), "two nominal worlds must stay equal"
    assert [name for name, c in zip(space.names, change, strict=False) if not c > 1e-5] == []


# A world depends on nothing but itself ------------------------------------------------------------------------------


@pytest.mark.skipif(
    control_callback.install_control_callback() is None, reason="no C compiler: the motor law runs outside MuJoCo"
)
def test_worlds_in_the_batch_equal_worlds_stepped_alone_bit_for_bit(engine, targets):
    robot, rng = engine.robot, fresh(engine, 2)
    engine.apply(robot.prior.sample(rng, N), engine.all_ids)
    engine.reset(engine.all_ids)
    alone = [(engine.engine.get_model(i), engine.engine.get_data(i)) for i in range(N)]
    for tick in range(8):
        force = rng.uniform(-1, 1, engine.xfrc_applied.shape) * (tick % 2) * 0.01
        engine.xfrc_applied[:] = force
        u = targets(robot, rng, N, size=0.3)
        engine.step(u)
        for i, (model, data) in enumerate(alone):
            data.xfrc_applied[:] = force[i]
            view = engine.layout.views(data.userdata[None])
            view["targets"][0, 1:] = view["targets"][0, :-1].copy()
            view["targets"][0, 0] = u[i]
            view["tick"][0] = data.time
            for _ in range(robot.substeps):
                mujoco.mj_step(model, data)
            assert np.array_equal(data.qpos, engine.qpos[i])
            assert np.array_equal(data.qvel, engine.qvel[i])
            assert np.array_equal(data.userdata, engine.engine.array("userdata")[i])
            assert data.time == engine.time[i]


def test_the_number_of_worlds_and_threads_changes_nothing(robot, targets):
    e = robot.prior.sample(np.random.default_rng(3), 5)
    u = [targets(robot, np.random.default_rng(k), 5) for k in range(6)]
    runs = []
    for ids, threads in ((range(5), 1), (range(5), 2), ([3, 1], 1)):
        world = Simulation(robot, len(ids), threads=threads)
        world.apply(e[list(ids)], world.all_ids)
        world.reset(world.all_ids)
        for row in u:
            world.step(row[list(ids)])
        runs.append(world.qpos.copy())
    assert np.array_equal(runs[0], runs[1])
    assert np.array_equal(runs[0][[3, 1]], runs[2])


def test_restoring_continues_bit_for_bit(engine, targets):
    robot, rng = engine.robot, fresh(engine, 4)
    engine.apply(robot.prior.sample(rng, N), engine.all_ids)
    engine.reset(engine.all_ids)
    u = [targets(robot, rng, N) for _ in range(9)]
    for row in u[:4]:
        engine.step(row)
    saved = engine.state()

    def run(e: Simulation) -> np.ndarray:
        seen = [e.signals(np.random.default_rng(0))]
        for row in u[4:]:
            e.step(row)
            seen.append(np.concatenate([e.signals(np.random.default_rng(1)), e.qpos, e.qvel], axis=1, dtype=float))
        return np.concatenate(seen, axis=1)

    straight = run(engine)
    other = Simulation(robot, N)
    other.restore(saved)
    assert np.array_equal(run(other), straight)
    with pytest.raises(BadInput):
        other.restore(saved | {"qpos": saved["qpos"][:, :-1]})


def test_a_reset_world_is_like_new(engine, targets):
    robot, rng = engine.robot, fresh(engine, 5)
    e = robot.prior.sample(rng, N)
    u = [targets(robot, rng, N) for _ in range(4)]

    def episode() -> np.ndarray:
        engine.apply(e, engine.all_ids)
        engine.reset(engine.all_ids)
        for row in u:
            engine.step(row)
        return np.concatenate([engine.qpos, engine.qvel, engine.signals(np.random.default_rng(0))], axis=1)

    first = episode()
    assert np.array_equal(episode(), first)


# Sensors -------------------------------------------------------------------------------------------------------------


def test_an_accelerometer_agrees_with_mujocos(targets):
    """MuJoCo's own sensor at the same place, read after the same step; the attitude is one step newer in ours."""
    from isthmus.robots import get_robot

    robot = get_robot("go1")
    add = robot.xml.replace("</sensor>", '<accelerometer name="reference" site="imu"/></sensor>')
    engine = Simulation(dataclasses.replace(robot, xml=add), 3)
    rng, reference = np.random.default_rng(0), engine.model.sensor("reference").adr[0]
    spin = np.zeros((3, engine.model.nv))
    spin[:, 3:6] = rng.uniform(-1, 1, (3, 3))
    engine.reset(engine.all_ids, qvel=spin)
    at = robot.contract.slices()["accel"]
    for _ in range(20):
        engine.step(targets(robot, rng, 3, size=0.1))
        ours, theirs = engine.sensors.true_signals()[:, at], engine.sensordata[:, reference : reference + 3]
        turned = np.linalg.norm(engine.qvel[:, 3:6], axis=1, keepdims=True) * engine.dt
        assert (np.abs(ours - theirs) <= 1e-9 + 1.5 * turned * np.linalg.norm(theirs, axis=1, keepdims=True)).all()
