"""Ground that gives way: feet sink in by their load, and a robot that walked on it is found to have."""

from __future__ import annotations

import json
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.data.mcap.writer import write_episode
from isthmus.real2sim.identify.identification import PreparedSegments, prepare_segments
from isthmus.real2sim.identify.missing_physics import fit_ground, ground_parameters
from isthmus.real2sim.residual.prior import extend_space
from isthmus.robots import get_robot
from isthmus.robots.twin import Twin
from isthmus.sim.physics.ground import CompliantGround, ground_from_sink_depth, hardest_stable_ground
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.robot import MOTOR_FIELDS, Robot
from isthmus.sim.simulate_recording import record_targets
from isthmus.sim.simulation import Simulation
from isthmus.world import Belief

OPEN = ("payload", "contact_time")


@pytest.fixture(scope="module")
def go1() -> Robot:
    return get_robot("go1")


def on(robot: Robot, ground: CompliantGround | None) -> Robot:
    return replace(robot, unit=UnitPhysics(ground=ground))


def stood(engine: Simulation, seconds: float = 2.0) -> np.ndarray:
    """Height of the base, (n,), of robots that stood for a while."""
    for _ in range(round(seconds / engine.tick)):
        engine.step(np.tile(engine.robot.default, (engine.n, 1)))
    return engine.qpos[:, 2].copy()


def test_a_robot_that_stands_sinks_in_by_its_load_over_the_stiffness(go1: Robot):
    height = [
        stood(Simulation(on(go1, ground_from_sink_depth(go1, sink)), 1, threads=1)).item()
        for sink in (0.003, 0.005, 0.01, 0.02)
    ]
    assert np.diff(height) == pytest.approx([-0.002, -0.005, -0.01], rel=0.1)


def test_worlds_have_their_own_ground_and_a_parameter_of_the_model_no_longer_speaks(go1: Robot):
    soft = on(go1, ground_from_sink_depth(go1, 0.01))
    larger, _ = extend_space(soft, go1.prior.nominal(), ground_parameters(soft))
    e = np.tile(larger.space.nominal, (3, 1))
    e[:, -2:] = [ground_from_sink_depth(go1, 0.01).stiffness, ground_from_sink_depth(go1, 0.01).damping]
    e[1, larger.space.index("contact_time")] = 0.07
    e[2, larger.space.index("ground_stiffness")] *= 0.5
    engine = Simulation(larger, 3, threads=1)
    engine.apply(e, engine.all_ids)
    engine.reset(engine.all_ids)
    height = stood(engine)
    assert height[1] == height[0]
    assert height[0] - height[2] == pytest.approx(0.01, rel=0.1)


def test_figures_of_a_ground_need_one(go1: Robot):
    robot, _ = extend_space(go1, go1.prior, ground_parameters(go1))
    with pytest.raises(BadInput, match="ground of go1 is that of its model"):
        Simulation(robot, 1)


def test_without_a_ground_of_its_own_a_robot_has_the_settings_of_its_model(go1: Robot):
    hard, soft = (Simulation(on(go1, ground), 1, threads=1).model.opt for ground in (None, ground_from_sink_depth(go1, 0.01)))
    assert (hard.cone, hard.impratio) == (go1.model.opt.cone, go1.model.opt.impratio)
    assert (soft.cone, soft.impratio) == (int(mujoco.mjtCone.mjCONE_ELLIPTIC), 100.0)


def test_a_twin_keeps_its_ground(go1: Robot, tmp_path):
    ground = CompliantGround(3100.0, 80.0)
    twin = Twin("go1", go1.model_hash, go1.prior, UnitPhysics(ground=ground)).save(tmp_path / "a.twin")
    again = Twin.load(tmp_path / "a.twin")
    assert again.apply_to(go1, "here").unit.ground == ground
    assert again.unit.hash == twin.unit.hash != UnitPhysics(ground=CompliantGround(3000.0, 80.0)).hash


@pytest.mark.parametrize(
    "ground", [None, {}, [1, 2], {"stiffness": "soft", "damping": 1.0}, {"stiffness": -3.0, "damping": 1.0},
               {"stiffness": True, "damping": 1.0},
        {"stiffness": 3e3, "damping": float("inf")}, {"stiffness": float("nan"), "damping": 1.0}]
)  # fmt: skip
def test_a_ground_that_makes_no_sense_is_refused(ground):
    text = json.dumps({"motors": {}, "learned": [], "ground": ground}).encode()
    with pytest.raises(BadInput, match="ground"):
        UnitPhysics.from_files({"unit.json": text}, MOTOR_FIELDS, "here")


def test_ground_that_physics_steps_cannot_follow_is_refused(go1: Robot):
    most = hardest_stable_ground(go1)
    half = CompliantGround(0.5 * most.stiffness, 0.5 * most.damping)
    assert stood(Simulation(on(go1, half), 1, threads=1)) == pytest.approx(0.31, abs=0.01)
    for ground in (CompliantGround(2.0 * most.stiffness, 50.0), CompliantGround(3e3, 2.0 * most.damping)):
        with pytest.raises(BadInput, match="too hard"):
            Twin("go1", go1.model_hash, go1.prior, UnitPhysics(ground=ground)).apply_to(go1, "here")
    fast = go1.at_rate(500.0)
    assert max(p.high for p in ground_parameters(on(fast, most))) <= most.stiffness < hardest_stable_ground(fast).stiffness


def test_only_robots_on_feet_have_one(go1: Robot, tmp_path, capsys):
    pendulum = get_robot("pendulum")
    assert go1.morphology.legged
    assert not pendulum.morphology.legged
    with pytest.raises(BadInput, match="no feet"):
        Twin("pendulum", pendulum.model_hash, pendulum.prior, UnitPhysics(ground=CompliantGround(3e3, 80.0))).apply_to(
            pendulum, "here"
        )
    Twin("pendulum", pendulum.model_hash, pendulum.prior).save(tmp_path / "a.twin")
    assert main(["residual", str(tmp_path / "a.twin"), "b.mcap", "--only", "ground"]) == 2
    assert "robots on feet" in capsys.readouterr().err


# Found from recordings ------------------------------------------------------------------------------------------------


def believed(go1: Robot) -> Belief:
    """Little is open, so that a fit is quick."""
    return go1.prior.nominal().with_factors(*(f for f in go1.prior.factors if set(f.names) <= set(OPEN)))


def hopped(go1: Robot, ground: CompliantGround | None):
    """It bends and stretches its legs, faster and faster, with 1 kg on its back; feet stay where they are."""
    e = go1.space.nominal.copy()
    e[go1.space.index("payload")] = 1.0
    t = np.arange(round(7.0 * go1.contract.rate)) / go1.contract.rate
    wave = 0.1 * np.sin(2 * np.pi * (0.8 + 0.05 * t) * t)
    parts = {"_thigh": 1.0, "_calf": -2.0}
    gains = [next((g for part, g in parts.items() if label.endswith(part)), 0.0) for label in go1.contract.target.labels]
    return record_targets(on(go1, ground), e, np.array(go1.default) + wave[:, None] * np.array(gains), 1)


def parts(go1: Robot, ground: CompliantGround | None) -> PreparedSegments:
    return prepare_segments(go1, [hopped(go1, ground)], believed(go1), 0.1, threads=1)


def test_who_hops_stays_on_its_feet(go1: Robot):
    _, x, y, _ = hopped(go1, ground_from_sink_depth(go1, 0.012)).signals["quat"].T
    assert (1.0 - 2.0 * (x**2 + y**2)).min() > 0.98


@pytest.mark.slow
def test_soft_ground_is_found_with_its_figures_and_numbers_come_back(go1: Robot):
    """Roughly: who follows a robot tick by tick takes a little for what the ground did that was its own correction."""
    ground = ground_from_sink_depth(go1, 0.012, 0.4)
    p = parts(go1, ground)
    assert p.held_out is not None
    found = fit_ground(p.robot, p.train, p.held_out, believed(go1), p.noise_floor, threads=1)
    assert found.ground is not None
    assert found.ground.stiffness == pytest.approx(ground.stiffness, rel=0.25)
    assert 0.5 * ground.damping < found.ground.damping < 2.0 * ground.damping
    known, soft = found.candidates
    assert soft.held_out_error < min(1.1, 0.93 * known.held_out_error)
    assert abs(soft.values["payload"] - 1.0) < 0.5
    assert abs(found.belief.median()[go1.space.index("payload")] - 1.0) < 0.5
    assert found.at_bounds == ()
    low, high = found.intervals["stiffness"]
    assert low < found.ground.stiffness < high


@pytest.mark.slow
def test_hard_ground_stays_that_of_the_model(go1: Robot):
    p = parts(go1, None)
    assert p.held_out is not None
    found = fit_ground(p.robot, p.train, p.held_out, believed(go1), p.noise_floor, threads=1)
    assert found.ground is None
    assert found.belief == believed(go1)


@pytest.mark.slow
def test_residual_gives_a_twin_its_ground_and_then_a_force(go1: Robot, tmp_path, capsys):
    twin, file = tmp_path / "a.twin", tmp_path / "a.mcap"
    Twin("go1", go1.model_hash, believed(go1)).save(twin)
    write_episode(file, hopped(go1, ground_from_sink_depth(go1, 0.012)))
    args = ["residual", str(twin), str(file), "--only", "ground", "--horizon", "0.1"]
    assert main([*args, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["learned"] == ["ground"]
    assert told["tried"]["soft ground"]["held_out"] < told["tried"]["as believed"]["held_out"]
    assert told["error"]["after"]["held_out"] < told["error"]["before"]["held_out"]
    unit = Twin.load(twin).unit
    assert unit.ground is not None
    assert unit.ground.to_dict() == {name: told["ground"][name] for name in ("stiffness", "damping")}
    assert told["ground"]["sink"] == pytest.approx(0.012, rel=0.2)
    assert main(args) == 2, "it has one already"
    args[3:5] = ["--joints", "root", "-o", str(tmp_path / "b.twin")]
    assert main([*args, "--json"]) in (0, 1)
    told = json.loads(capsys.readouterr().out)
    assert "ground" not in told, "it is not looked for again"
    assert set(told["learned"]) <= {"force"}
