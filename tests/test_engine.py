"""Laws of the batched engine: e reaches the physics, from nominal, and a world depends on nothing but itself."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest
from mujoco.batch import MODEL_FIELDS
from scipy import stats

from isthmus.errors import BadInput
from isthmus.sim import native
from isthmus.sim.blowup import KEPT, Recorder
from isthmus.sim.engine import SPEED_CEILING, Engine
from isthmus.tasks.env import Env
from isthmus.world import LogUniform, Param, Space, Uniform

N = 6


@pytest.fixture(scope="module")
def engine(robot) -> Engine:
    return Engine(robot, N)


def model_numbers(model: mujoco.MjModel, without: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    found = {}
    for name in sorted(MODEL_FIELDS):
        if not name.startswith(without or ("-",)):
            source, field = (model.opt, name[4:]) if name.startswith("opt.") else (model, name)
            found[name] = np.array(getattr(source, field))
    return found


def numbers_of(engine: Engine, world: int) -> dict[str, np.ndarray]:
    """Every number that e can reach in one world: the model, derived constants included, motors, link and sensors."""
    arrays = {f"array {k}": v[world].copy() for k, v in engine.binding.arrays.items()}
    views = {f"view {k}": engine.view[k][world].copy() for k in engine.view if k.startswith("motor.") or k.endswith("_delay")}
    return model_numbers(engine.batch.get_model(world)) | arrays | views


def assert_same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    assert [k for k in a if not np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f")] == []


def fresh(engine: Engine, seed: int = 0) -> np.random.Generator:
    """Put an engine back to nominal and home."""
    engine.xfrc[:] = 0.0
    engine.apply(np.tile(engine.robot.space.nominal, (engine.n, 1)), engine.all)
    engine.reset(engine.all)
    return np.random.default_rng(seed)


# e reaches the physics, from nominal ---------------------------------------------------------------------------------


def test_applying_twice_is_applying_once(engine):
    rng = fresh(engine)
    e, other = engine.robot.prior.sample(rng, N), engine.robot.prior.sample(rng, N)
    engine.apply(e, engine.all)
    once = [numbers_of(engine, i) for i in range(N)]
    for values in (other, e, e):
        engine.apply(values, engine.all)
    for i in range(N):
        assert_same(numbers_of(engine, i), once[i])
    assert (engine.e == e).all()


def test_applying_nominal_restores_the_model_bit_for_bit(engine):
    rng = fresh(engine)
    before = numbers_of(engine, 1)
    engine.apply(engine.robot.prior.sample(rng, N), engine.all)
    with pytest.raises(AssertionError):
        assert_same(numbers_of(engine, 1), before)
    engine.apply(np.tile(engine.robot.space.nominal, (N, 1)), engine.all)
    assert_same(numbers_of(engine, 1), before)
    ours = ("numeric", "name", "names_map")
    assert_same(model_numbers(engine.batch.get_model(1), ours), model_numbers(engine.robot.model, ours))


def test_applying_to_some_worlds_leaves_the_others_alone(engine):
    rng = fresh(engine)
    engine.apply(engine.robot.prior.sample(rng, N), engine.all)
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
            Engine(with_target(text), 1)


def test_a_thousand_resets_give_the_distribution_that_was_asked_for(task):
    """Read back from the numbers that the physics uses, one parameter at a time."""
    env = Env(task, n=1000, seed=7, training=False)
    engine, space = env.engine, task.robot.space
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
        values = (engine.view if w.array in engine.view else engine.binding.arrays)[w.array][:, column]
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
    engine, nominal = env.engine, task.robot.model
    arrays = engine.binding.arrays
    density, payload = arrays["inertia.mass"], arrays["inertia.payload"]
    mass, com = engine.batch.expand("body_mass"), engine.batch.expand("body_ipos")
    assert np.allclose(mass, density * nominal.body_mass + payload, rtol=1e-12)
    own = (density * nominal.body_mass)[..., None] * (nominal.body_ipos + arrays["inertia.com"].reshape(200, -1, 3))
    assert np.allclose(mass[..., None] * com, own + payload[..., None] * np.array(task.robot.payload_at), atol=1e-12)


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
    engine = Engine(robot, len(e))
    engine.apply(e, engine.all)
    engine.reset(engine.all)
    noise, rng, seen = SameNoise(0), np.random.default_rng(1), []
    for _ in range(round(2.0 / engine.tick)):
        engine.step(np.repeat(targets(robot, rng, 1, size=0.25), len(e), axis=0))
        seen.append(engine.measured(noise))
    assert not engine.blown.any()
    change = np.abs(np.array(seen) - np.array(seen)[:, -1:]).max(axis=(0, 2))
    assert (change[-2:] == 0).all(), "two nominal worlds must stay equal"
    assert [name for name, c in zip(space.names, change, strict=False) if not c > 1e-5] == []


# A world depends on nothing but itself ------------------------------------------------------------------------------


@pytest.mark.skipif(native.control_callback() is None, reason="no C compiler: the motor law runs outside MuJoCo")
def test_worlds_in_the_batch_equal_worlds_stepped_alone_bit_for_bit(engine, targets):
    robot, rng = engine.robot, fresh(engine, 2)
    engine.apply(robot.prior.sample(rng, N), engine.all)
    engine.reset(engine.all)
    alone = [(engine.batch.get_model(i), engine.batch.get_data(i)) for i in range(N)]
    for tick in range(8):
        force = rng.uniform(-1, 1, engine.xfrc.shape) * (tick % 2) * 0.01
        engine.xfrc[:] = force
        u = targets(robot, rng, N, size=0.3)
        engine.step(u)
        for i, (model, data) in enumerate(alone):
            data.xfrc_applied[:] = force[i]
            view = engine.wiring.views(data.userdata[None])
            view["targets"][0, 1:] = view["targets"][0, :-1].copy()
            view["targets"][0, 0] = u[i]
            view["tick"][0] = data.time
            for _ in range(robot.substeps):
                mujoco.mj_step(model, data)
            assert np.array_equal(data.qpos, engine.qpos[i])
            assert np.array_equal(data.qvel, engine.qvel[i])
            assert np.array_equal(data.userdata, engine.batch.bind("userdata")[i])
            assert data.time == engine.time[i]


def test_the_number_of_worlds_and_threads_changes_nothing(robot, targets):
    e = robot.prior.sample(np.random.default_rng(3), 5)
    u = [targets(robot, np.random.default_rng(k), 5) for k in range(6)]
    runs = []
    for ids, threads in ((range(5), 1), (range(5), 2), ([3, 1], 1)):
        world = Engine(robot, len(ids), threads=threads)
        world.apply(e[list(ids)], world.all)
        world.reset(world.all)
        for row in u:
            world.step(row[list(ids)])
        runs.append(world.qpos.copy())
    assert np.array_equal(runs[0], runs[1])
    assert np.array_equal(runs[0][[3, 1]], runs[2])


def test_restoring_continues_bit_for_bit(engine, targets):
    robot, rng = engine.robot, fresh(engine, 4)
    engine.apply(robot.prior.sample(rng, N), engine.all)
    engine.reset(engine.all)
    u = [targets(robot, rng, N) for _ in range(9)]
    for row in u[:4]:
        engine.step(row)
    saved = engine.state()

    def run(e: Engine) -> np.ndarray:
        seen = [e.measured(np.random.default_rng(0))]
        for row in u[4:]:
            e.step(row)
            seen.append(np.concatenate([e.measured(np.random.default_rng(1)), e.qpos, e.qvel], axis=1, dtype=float))
        return np.concatenate(seen, axis=1)

    straight = run(engine)
    other = Engine(robot, N)
    other.restore(saved)
    assert np.array_equal(run(other), straight)
    with pytest.raises(BadInput):
        other.restore(saved | {"qpos": saved["qpos"][:, :-1]})


def test_a_reset_world_is_like_new(engine, targets):
    robot, rng = engine.robot, fresh(engine, 5)
    e = robot.prior.sample(rng, N)
    u = [targets(robot, rng, N) for _ in range(4)]

    def episode() -> np.ndarray:
        engine.apply(e, engine.all)
        engine.reset(engine.all)
        for row in u:
            engine.step(row)
        return np.concatenate([engine.qpos, engine.qvel, engine.measured(np.random.default_rng(0))], axis=1)

    first = episode()
    assert np.array_equal(episode(), first)


# The motor law in C and in NumPy ------------------------------------------------------------------------------------

VARIANTS = {
    "ideal": {"speed_limit": (), "coulomb": (), "viscous": ()},
    "go1": {},
    "lag": {"lag": (0.004, 0.0, 0.05) * 4},
    "spring": {"spring": (300.0, 900.0, 500.0) * 4, "rotor_inertia": (0.01, 0.02, 0.015) * 4},
    "spring and lag": {"spring": (400.0,) * 12, "rotor_inertia": (0.01,) * 12, "lag": (0.01,) * 12, "speed_limit": ()},
    "stribeck": {"stribeck": (0.5, 0.2, 0.0) * 4, "stribeck_speed": (0.1,) * 12, "load_friction": (0.1,) * 12},
    "backlash": {"backlash": (0.02, 0.0, 0.005) * 4, "stribeck": (0.2,) * 12},
    "flex": {"spring": (30.0, 20.0, 25.0) * 4, "lag": (0.01,) * 12},
    "backlash behind the encoder": {"backlash": (0.02, 0.0, 0.005) * 4, "lag": (0.01,) * 12, "encoder": "link"},
    "weak": {"torque_limit": (3.0,) * 12, "speed_limit": (4.0,) * 12, "coulomb": (0.5,) * 12, "viscous": (0.1,) * 12},
}


@pytest.mark.skipif(native.control_callback() is None, reason="no C compiler")
@pytest.mark.parametrize("drive", ["position", "effort", "native"])
@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_the_motor_law_in_c_equals_numpy(variant, drive):
    from isthmus.robots.go1 import go1

    base = go1()
    free = tuple(p for p in base.space.params if not any(t.startswith("motor:") for t in p.targets))
    space = Space(free) if variant == "ideal" else base.space
    target = base.contract.target if drive == "position" else dataclasses.replace(base.contract.target, low=(), high=())
    robot = dataclasses.replace(
        base,
        motors=dataclasses.replace(base.motors, drive=drive, **VARIANTS[variant]),
        space=space,
        contract=dataclasses.replace(base.contract, target=target),
        default=base.default if drive == "position" else (0.0,) * 12,
    )
    if variant.startswith(("backlash", "spring", "flex")) and drive == "native":
        with pytest.raises(BadInput, match="backlash and springs"):
            Engine(robot, 3)
        return
    fast, slow = Engine(robot, 3), Engine(robot, 3, compiled=False)
    assert fast.compiled
    assert not slow.compiled
    rng = np.random.default_rng(0)
    e = space.vector({}) + 0.1 * (space.low - space.nominal) * rng.uniform(size=(3, len(space)))
    for x in (fast, slow):
        x.apply(e, x.all)
        x.reset(x.all)
    for _ in range(12):
        u = np.array(robot.default) + (0.5 if drive == "position" else 8.0) * rng.uniform(-1, 1, (3, 12))
        for x in (fast, slow):
            x.step(u)
        for name in ("qpos", "qvel", "ctrl"):
            assert np.allclose(getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-10), name
        same = [x.measured(np.random.default_rng(1)) for x in (fast, slow)]
        assert np.allclose(*same, rtol=1e-6, atol=1e-6)
    for name in ("lagged", "rotor", "rotor_speed", "touch"):
        assert np.allclose(fast.view[f"state.{name}"], slow.view[f"state.{name}"], rtol=1e-9, atol=1e-9)


def test_the_motor_law_in_c_equals_numpy_for_every_robot(robot, targets):
    fast, slow = Engine(robot, 4), Engine(robot, 4, compiled=False)
    e = robot.prior.sample(np.random.default_rng(0), 4)
    for x in (fast, slow):
        x.apply(e, x.all)
        x.reset(x.all)
    rng = np.random.default_rng(1)
    for _ in range(15):
        u = targets(robot, rng, 4, size=0.3)
        for x in (fast, slow):
            x.step(u)
        assert np.allclose(fast.qpos, slow.qpos, rtol=1e-9, atol=1e-10)
        assert np.allclose(fast.qvel, slow.qvel, rtol=1e-8, atol=1e-9)


# A world that blows up ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e6 * SPEED_CEILING])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_world_that_blows_up_is_reset_alone(robot, targets, tmp_path, bad, compiled):
    runs = {}
    for hurt in (False, True):
        engine = Engine(robot, 4, compiled=compiled)
        engine.apply(robot.prior.sample(np.random.default_rng(0), 4), engine.all)
        engine.reset(engine.all)
        recorder, rng, lost, seen = Recorder(engine, tmp_path / str(hurt)), np.random.default_rng(1), [], []
        for tick in range(8):
            u = targets(robot, rng, 4, size=0.05)
            recorder.note(u)
            if hurt and tick == 4:
                engine.qvel[2, -1] = bad
            engine.step(u)
            lost.append(recorder.rescue())
            seen.append(np.concatenate([engine.qpos, engine.qvel], axis=1))
        runs[hurt] = np.array(seen), np.array(lost), recorder
    clean, hurt = runs[False], runs[True]
    assert not clean[1].any()
    assert not clean[2].dumps
    assert np.argwhere(hurt[1]).tolist() == [[4, 2]]
    assert np.array_equal(hurt[0][:, [0, 1, 3]], clean[0][:, [0, 1, 3]])
    assert np.isfinite(hurt[0]).all()
    assert np.array_equal(hurt[0][4, 2, : len(robot.home)], robot.home)

    with np.load(hurt[2].dumps[0], allow_pickle=False) as dump:
        assert len(hurt[2].dumps) == 1
        assert str(dump["robot"]) == robot.name
        assert str(dump["model_hash"]) == robot.model_hash
        assert dump["qpos"].shape == (5, engine.model.nq)
        assert dump["target"].shape == (5, robot.contract.target.size)
        assert np.array_equal(dump["qpos"][1:5], clean[0][:4, 2, : engine.model.nq].astype(np.float32))
        assert np.array_equal(dump["e"], engine.e[2])
        assert tuple(dump["names"]) == robot.space.names


def test_a_dump_keeps_the_last_ticks_of_its_own_episode(tmp_path):
    from isthmus.robots.pendulum import pendulum

    engine = Engine(pendulum(), 2)
    recorder = Recorder(engine, tmp_path)
    for tick in range(KEPT + 9):
        if tick == 5:
            recorder.clear(np.array([1]))
        recorder.note(np.full((2, 1), float(tick)))
    engine.blown[:] = True
    assert recorder.rescue().all()
    first = np.load(recorder.dumps[0], allow_pickle=False)["target"][:, 0]
    assert first.tolist() == list(range(9, KEPT + 9))
    engine.reset(engine.all)
    recorder.clear(engine.all)
    for tick in range(3):
        recorder.note(np.full((2, 1), float(tick)))
    engine.blown[1] = True
    recorder.rescue()
    assert np.load(recorder.dumps[2], allow_pickle=False)["target"][:, 0].tolist() == [0.0, 1.0, 2.0]


def test_an_accelerometer_agrees_with_mujocos(targets):
    """MuJoCo's own sensor at the same place, read after the same step; the attitude is one step newer in ours."""
    from isthmus.robots import get_robot

    robot = get_robot("go1")
    add = robot.xml.replace("</sensor>", '<accelerometer name="reference" site="imu"/></sensor>')
    engine = Engine(dataclasses.replace(robot, xml=add), 3)
    rng, reference = np.random.default_rng(0), engine.model.sensor("reference").adr[0]
    spin = np.zeros((3, engine.model.nv))
    spin[:, 3:6] = rng.uniform(-1, 1, (3, 3))
    engine.reset(engine.all, qvel=spin)
    at = robot.contract.slices()["accel"]
    for _ in range(20):
        engine.step(targets(robot, rng, 3, size=0.1))
        ours, theirs = engine._raw()[:, at], engine.sensordata[:, reference : reference + 3]
        turned = np.linalg.norm(engine.qvel[:, 3:6], axis=1, keepdims=True) * engine.dt
        assert (np.abs(ours - theirs) <= 1e-9 + 1.5 * turned * np.linalg.norm(theirs, axis=1, keepdims=True)).all()
