"""Which law do motors follow: plant one, and the simplest that explains it is chosen."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.data.episode import Episode
from isthmus.real2sim.identify import motor_identification
from isthmus.real2sim.identify.excitation_signals import Multisine
from isthmus.real2sim.identify.force_features import zero_force
from isthmus.real2sim.identify.model_selection import Candidate, choose
from isthmus.real2sim.identify.motor_bench import TABLE_COLUMNS, read_bench
from isthmus.real2sim.identify.motor_identification import fit_to_motion, fit_to_torque
from isthmus.real2sim.identify.motor_law_files import belief_with_delay, load_law_onto
from isthmus.real2sim.identify.motor_laws import MOTOR_LAW_TERMS, fitted_figures, law_parameters
from isthmus.real2sim.prepare.segments import cut
from isthmus.real2sim.prepare.tracks import to_tracks
from isthmus.real2sim.residual.prediction_errors import prediction_errors
from isthmus.robots import get_robot
from isthmus.robots.pendulum import ROD_MASS, WEIGHT_MASS
from isthmus.sim.physics.ground import CompliantGround
from isthmus.sim.physics.motor_figures import motor_parameters, nominal_motor_figures
from isthmus.sim.physics.motor_law import MotorLaw
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.robot import MOTOR_FIELDS
from isthmus.sim.simulate_recording import record_targets
from isthmus.sim.simulation import Simulation
from isthmus.world.factors import Uniform

RNG = np.random.default_rng
DT = 0.005
STRIBECK = tuple(rung for rung in MOTOR_LAW_TERMS if rung.name == "stribeck")


def bench_file(path, unit: UnitPhysics, noise: float = 0.02, seconds: float = 40.0, extra=None, seed: int = 0):
    """A table of one motor of go1, with the law of a unit, moved about by hand while its target wanders."""
    robot = dataclasses.replace(get_robot("go1"), unit=unit)
    i = robot.contract.target.component_index("FL_calf")
    rng, t = RNG(seed), np.arange(round(seconds / DT)) * DT
    wave = lambda size, fast: (
        size * sum(np.sin(2 * np.pi * rng.uniform(0.2, fast) * t + rng.uniform(0, 6)) for _ in range(4)) / 2
    )
    q = -1.5 + wave(0.4, 2.0)
    u, qd = q + wave(0.25, 4.0), np.gradient(q, DT)
    motors = {f: (row[i],) for f, row in dataclasses.asdict(robot.motors_of_unit).items() if f in MOTOR_FIELDS and row}
    law = MotorLaw(dataclasses.replace(robot.motors, **{f: motors.get(f, ()) for f in motors}, **{
        f: () for f in ("kp", "kd", "torque_limit", "speed_limit", "coulomb", "viscous") if f not in motors
    }), 1, DT / 3, frozenset())  # fmt: skip
    f = {name: row[None] for name, row in law.nominal.items()}
    state = {"lagged": u[:1, None].copy(), "rotor": q[:1, None].copy(), "rotor_speed": np.zeros((1, 1))}
    tau = []
    for k in range(len(t)):
        for _ in range(3):
            out = law.torque(f, state, np.array([[u[k]]]), np.array([[q[k]]]), np.array([[qd[k]]]))
        tau.append(out.item())
    tau = np.array(tau) + (0.0 if extra is None else extra(u - q, qd)) + noise * rng.standard_normal(len(t))
    rows = np.stack([t, u, q, qd, tau], axis=1)
    head = ",".join(["time", *(f"{c}.FL_calf" for c in TABLE_COLUMNS)])
    np.savetxt(path, rows, delimiter=",", header=head, comments="", fmt="%.9g")
    return robot


def plain(**figures_) -> UnitPhysics:
    base = nominal_motor_figures(get_robot("go1"))
    none = {"coulomb": (0.0,) * 12, "viscous": (0.0,) * 12}
    return UnitPhysics(
        motors=none | {name: tuple(np.full(12, value)) for name, value in figures_.items()} | {"kp": tuple(base["kp"])}
    )


@pytest.mark.slow
def test_a_motor_that_is_ideal_needs_no_more(tmp_path):
    robot = bench_file(tmp_path / "a.csv", plain(), seconds=20)
    found = fit_to_torque(get_robot("go1"), read_bench([tmp_path / "a.csv"], robot))
    assert found.chosen_law == "ideal"
    assert found.learned is None
    assert found.candidates[0].held_out_error == pytest.approx(0.02, rel=0.1)


@pytest.mark.slow
def test_planted_friction_and_lag_are_found(tmp_path):
    planted = {"coulomb": 0.6, "viscous": 0.05, "lag": 0.02}
    robot = bench_file(tmp_path / "a.csv", plain(**planted))
    found = fit_to_torque(get_robot("go1"), read_bench([tmp_path / "a.csv"], robot))
    assert found.chosen_law == "lag"
    chosen = next(t for t in found.candidates if t.name == "lag")
    assert chosen.held_out_error == pytest.approx(0.02, rel=0.2)
    assert chosen.values["motor_coulomb"] == pytest.approx(0.6, rel=0.05)
    assert chosen.values["motor_lag"] + chosen.values["motor_action_delay"] == pytest.approx(0.02, rel=0.15)


@pytest.mark.slow
def test_what_no_figure_explains_takes_a_network(tmp_path):
    odd = lambda error, qd: 3.0 * np.tanh(8.0 * error) * np.exp(-((qd / 3.0) ** 2))
    robot = bench_file(tmp_path / "a.csv", plain(), extra=odd)
    found = fit_to_torque(get_robot("go1"), read_bench([tmp_path / "a.csv"], robot))
    assert found.chosen_law == "network"
    assert found.learned is not None
    best = min(t.held_out_error for t in found.candidates[:-1])
    assert found.candidates[-1].held_out_error < 0.5 * best


def test_a_better_law_must_be_better_by_more_than_chance():
    rng = RNG(0)
    base = rng.uniform(1.0, 2.0, 30)
    same = Candidate("same", {}, 0, 0, base + 0.2 * rng.standard_normal(30))
    much = Candidate("much", {}, 0, 0, 0.5 * base)
    first = Candidate("first", {}, 0, 0, base)
    assert choose([first, same]) is first
    assert choose([first, same, much]) is much
    assert choose([first, much, dataclasses.replace(first, name="hardly", held_out_errors=0.495 * base)]) is much


def test_a_few_pieces_that_hold_nearly_all_of_the_error_hide_no_better_law_and_make_none():
    """Errors of a pendulum that sticks: without Stribeck friction two of nine pieces are missed, and all but one are worse."""
    without = np.array([14.29, 11.05, 1.73, 1.43, 0.99, 1.50, 3.15, 1.55, 2.34])
    law = np.array([1.51, 1.01, 1.11, 0.91, 1.00, 0.82, 1.14, 0.79, 1.22])
    one = np.where(np.arange(9) == 0, 0.2, 1.05) * without
    many = np.where(np.arange(9) < 2, 2.0, 0.8) * without
    first, better, lucky, worse = (Candidate("", {}, 0, 0, each) for each in (without, law, one, many))
    assert choose([first, better]) is better
    assert choose([better, first]) is better
    assert choose([first, lucky]) is first
    assert choose([first, worse]) is first
    empty = [Candidate("", {}, 0, 0, np.append(t.held_out_errors, 0.0)) for t in (first, better)]
    assert choose(empty) is empty[1]


def test_the_ladder_leaves_out_what_makes_no_sense():
    pendulum, go1 = get_robot("pendulum"), get_robot("go1")
    named = lambda robot, labels: {p.name for rung in MOTOR_LAW_TERMS for p in law_parameters(robot, labels, rung)}
    assert not {"motor_kp", "motor_coulomb"} & named(pendulum, ("hinge",))
    assert not {"motor_backlash", "motor_spring"} & named(get_robot("cartpole"), ("slider",)), "without a rotor"
    assert {"motor_backlash", "motor_spring"} <= named(pendulum, ("hinge",))
    assert "motor_backlash" in named(go1, ("FL_calf",))
    assert "motor_spring" not in named(go1, ("FL_calf",)), "its steps are too long for any spring that is told from rigid"
    assert "motor_coulomb" not in named(go1, ("FL_calf",))
    assert {f"strength_{leg}" for leg in ("FL", "FR", "RL", "RR")} | {"kp", "kd", "action_delay"} <= set(motor_parameters(go1))
    assert "sensor_delay" not in motor_parameters(go1)
    extra = law_parameters(go1, ("FL_calf", "FR_calf"), MOTOR_LAW_TERMS[5])
    found = fitted_figures(go1, extra, {"motor_stribeck": 0.3, "motor_stribeck_speed": 0.2})
    assert found["stribeck"] == tuple(0.3 if name in ("FL_calf", "FR_calf") else 0.0 for name in go1.contract.target.labels)


@pytest.mark.slow
def test_the_command_writes_a_law_that_a_robot_takes(tmp_path, capsys):
    bench_file(tmp_path / "a.csv", plain(lag=0.03), seconds=12)
    out = tmp_path / "calf.actuator"
    assert main(["actuator", "go1", str(tmp_path / "a.csv"), "--motors", ".*_calf", "-o", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["motors"] == ["FL_calf"]
    assert told["law"] == "lag"
    soft = dataclasses.replace(get_robot("go1"), unit=UnitPhysics(ground=CompliantGround(3e3, 80.0)))
    robot, _ = load_law_onto(out, soft)
    assert robot.unit.ground == soft.unit.ground
    assert robot.motors_of_unit.lag[robot.contract.target.component_index("FL_calf")] > 0
    assert robot.motors_of_unit.lag[robot.contract.target.component_index("FL_hip")] == 0
    with pytest.raises(BadInput, match="FL_calf"):
        load_law_onto(out, get_robot("pendulum"))
    (tmp_path / "b.csv").write_text("time,torque.FL_calf\n0,1\n1,2\n2,3\n")
    for wrong, hint in (
        (["go1", str(tmp_path / "b.csv")], "target.FL_calf"),
        (["go1", str(tmp_path / "a.csv"), "--motors", "knee"], "FL_calf"),
        (["go1", str(tmp_path / "a.csv"), "-o", "x.txt"], "NAME.actuator"),
        (["pendulum", str(tmp_path / "a.csv")], "torque.hinge"),
        (["go1", str(tmp_path / "a.csv"), "--motors", "["], "regular expression"),
        (["go1", str(tmp_path / "c.mcap"), "--laws", "sticky"], "stribeck"),
        (["go1", str(tmp_path / "a.csv"), "--horizon", "nan"], "--horizon"),
    ):
        assert main(["actuator", *wrong]) == 2
        assert hint in capsys.readouterr().err


@pytest.mark.slow
def test_a_law_with_more_figures_fits_no_worse(monkeypatch):
    """From motion alone: each law starts where the one below ended, so that a figure which is not needed does no harm."""
    robot = get_robot("pendulum")
    fixed = robot.prior.fix({n: robot.space[n].nominal for n in robot.space.names if n not in ("joint_friction", "strength")})
    engine, rng = Simulation(robot, 1, threads=1), RNG(0)
    engine.apply(robot.space.nominal[None], engine.all_ids)
    engine.reset(engine.all_ids)
    ticks = np.arange(160)
    targets = 1.2 * np.sin(2 * np.pi * (0.2 + 0.004 * ticks) * ticks / 50)[:, None]
    signals = {"joint_pos": [], "joint_vel": []}
    for u in targets:
        for rows, y, noise in zip(signals.values(), engine.noiseless_signals()[0], (0.001, 0.05), strict=True):
            rows.append([y + noise * rng.standard_normal()])
        engine.replay(u[None])
    episode = Episode(robot.contract, ticks / 50, {n: np.array(v) for n, v in signals.items()}, targets, targets)
    segments = cut(to_tracks([episode], robot.contract, 0.02), robot, 15)
    held = np.arange(len(segments)) % 3 == 1
    monkeypatch.setattr(motor_identification, "learn", lambda robot, *args, **named: zero_force(robot, "motor", ("hinge",)))
    noise = np.array([0.001, 0.05])
    found = fit_to_motion(robot, segments.take(~held), segments.take(held), fixed, noise, ("hinge",), threads=1).motor_model
    laws = [t for t in found.candidates if t.name != "network"]
    assert [t.name for t in laws] == ["as believed", "limits", "stribeck", "load", "backlash", "flex"]
    for below, above in itertools.pairwise(t for t in laws if t.name != "flex"):
        assert above.train_error < 1.05 * below.train_error
    assert found.chosen_law == "as believed"


def test_what_was_found_of_a_motor_is_in_force_whatever_a_parameter_would_set():
    """joint_friction sets the Coulomb friction of every motor of go1, but for one that was measured."""
    go1 = get_robot("go1")
    measured = tuple(
        0.55 if name == "FL_calf" else c for name, c in zip(go1.contract.target.labels, go1.motors.coulomb, strict=True)
    )
    robot = dataclasses.replace(go1, unit=UnitPhysics(motors={"coulomb": measured}))
    engine = Simulation(robot, 1)
    e = go1.prior.median()
    e[go1.space.index("joint_friction")] = 0.3
    engine.apply(e[None], engine.all_ids)
    there = dict(zip(go1.contract.target.labels, engine.binding.arrays["motor.coulomb"][0], strict=True))
    assert there.pop("FL_calf") == 0.55
    assert set(there.values()) == {0.3}


def test_the_delay_of_a_law_becomes_that_of_the_link(tmp_path):
    go1 = get_robot("go1")
    assert belief_with_delay(go1, go1.prior, 0.0) is go1.prior
    assert belief_with_delay(go1, go1.prior, 0.013).interval("action_delay", 0.9) == (0.013, 0.013)


@pytest.mark.parametrize(
    ("column", "change", "hint"),
    [
        ("joint_vel", np.degrees, "another unit or sign"),
        ("joint_vel", np.negative, "another unit or sign"),
        ("joint_pos", np.zeros_like, "never changes"),
        ("torque", lambda v: np.clip(v, -0.2 * v.max(), 0.2 * v.max()), "clipped"),
    ],
)
def test_tables_with_wrong_columns_are_refused(tmp_path, column, change, hint):
    bench_file(tmp_path / "a.csv", plain(lag=0.03), seconds=4)
    rows = np.genfromtxt(tmp_path / "a.csv", delimiter=",", names=True, deletechars="")
    name = f"{column}.FL_calf"
    rows[name] = change(rows[name])
    np.savetxt(
        tmp_path / "b.csv",
        np.column_stack([rows[n] for n in rows.dtype.names]),
        delimiter=",",
        header=",".join(rows.dtype.names),
        comments="",
    )
    with pytest.raises(BadInput, match=hint):
        read_bench([tmp_path / "b.csv"], get_robot("go1"), ".*_calf")


def test_currents_stand_for_torques(tmp_path):
    bench_file(tmp_path / "a.csv", plain(lag=0.03), seconds=4)
    text = (tmp_path / "a.csv").read_text()
    (tmp_path / "b.csv").write_text(text.replace("torque.", "current.", 1))
    torques, currents = (
        read_bench([tmp_path / f], get_robot("go1"), ".*_calf", k) for f, k in (("a.csv", 0.0), ("b.csv", 0.5))
    )
    assert np.allclose(currents.tau, 0.5 * torques.tau)
    with pytest.raises(BadInput, match="--torque-constant"):
        read_bench([tmp_path / "b.csv"], get_robot("go1"), ".*_calf")


@pytest.mark.slow
def test_what_a_fit_without_the_law_believed_does_not_stand_in_its_way(monkeypatch):
    """Numbers fitted without Stribeck friction make up for it, and are sure of it; the ladder finds the law all the same."""
    robot = get_robot("pendulum")
    truth = dataclasses.replace(robot, unit=UnitPhysics(motors={"stribeck": (0.4,), "stribeck_speed": (0.8,)}))
    bent = {"joint_friction": (0.29, 0.31), "joint_damping": (0.004, 0.006)}
    held = robot.prior.fix({n: robot.space[n].nominal for n in robot.space.names if n not in bent})
    belief = held.replace(*(Uniform(name, *ends) for name, ends in bent.items()))
    episode = record_targets(truth, truth.space.nominal, Multisine(truth, 8.0).chirp(high=2.0, amplitude_share=0.9), seed=2)
    segments, noise = cut(to_tracks([episode], robot.contract, 0.02), robot, 15), np.array([0.0015, 0.1])
    out = np.arange(len(segments)) % 3 == 1
    monkeypatch.setattr(motor_identification, "learn", lambda robot, *args, **named: zero_force(robot, "motor", ("hinge",)))
    parts = segments.take(~out), segments.take(out)
    found = fit_to_motion(robot, *parts, belief, noise, ("hinge",), threads=1, law_terms=STRIBECK)
    least = prediction_errors(truth, segments.take(out), noise, noise, [truth.space.nominal], 1)[0].overall
    assert found.motor_model.chosen_law == "stribeck"
    assert found.motor_model.candidates[1].held_out_error < 1.1 * least
    assert found.belief.median()[robot.space.index("joint_friction")] < 0.2


@pytest.mark.slow
def test_numbers_that_only_show_together_stay_together_beside_a_law(monkeypatch):
    """Motion tells the ratio of strength to mass. A belief in which the two vary by themselves is one of other pendulums."""
    robot = get_robot("pendulum")
    truth = dataclasses.replace(robot, unit=UnitPhysics(motors={"stribeck": (0.4,), "stribeck_speed": (0.8,)}))
    held = robot.prior.fix({n: robot.space[n].nominal for n in robot.space.names if n not in ("weight_mass", "strength")})
    episode = record_targets(truth, truth.space.nominal, Multisine(truth, 8.0).chirp(high=2.0, amplitude_share=0.9), seed=2)
    segments, noise = cut(to_tracks([episode], robot.contract, 0.02), robot, 15), np.array([0.0015, 0.1])
    out = np.arange(len(segments)) % 3 == 1
    monkeypatch.setattr(motor_identification, "learn", lambda robot, *args, **named: zero_force(robot, "motor", ("hinge",)))
    monkeypatch.setattr(motor_identification, "choose", lambda tried: next(t for t in tried if t.name == "stribeck"))
    parts = segments.take(~out), segments.take(out)
    after = fit_to_motion(robot, *parts, held, noise, ("hinge",), threads=1, law_terms=STRIBECK).belief
    mass, strength = (after.sample(RNG(0), 2000)[:, robot.space.index(n)] for n in ("weight_mass", "strength"))
    ratio = strength / (mass + ROD_MASS / WEIGHT_MASS / 2)
    assert ratio.mean() == pytest.approx(1.0 / (1.0 + ROD_MASS / WEIGHT_MASS / 2), rel=0.03)
    assert ratio.std() / ratio.mean() < 0.5 * mass.std() / mass.mean()
    assert np.corrcoef(mass, strength)[0, 1] > 0.8


@pytest.mark.slow
def test_masses_that_were_found_without_the_law_are_set_right_with_it(monkeypatch):
    robot = get_robot("pendulum")
    truth = dataclasses.replace(robot, unit=UnitPhysics(motors={"backlash": (0.04,)}))
    own = ("weight_mass", "joint_friction", "joint_damping")
    before = robot.prior.fix({n: robot.space[n].nominal for n in robot.space.names if n not in own})
    bent = before.replace(Uniform("weight_mass", 0.78, 0.8))
    episode = record_targets(truth, truth.space.nominal, Multisine(truth, 12.0).chirp(high=4.0, amplitude_share=0.9), seed=2)
    segments, noise = cut(to_tracks([episode], robot.contract, 0.02), robot, 15), np.array([0.0015, 0.1])
    out = np.arange(len(segments)) % 3 == 1
    monkeypatch.setattr(motor_identification, "learn", lambda robot, *args, **named: zero_force(robot, "motor", ("hinge",)))
    gears = [r for r in MOTOR_LAW_TERMS if r.name == "backlash"]
    parts = segments.take(~out), segments.take(out)
    found = fit_to_motion(robot, *parts, bent, noise, ("hinge",), threads=1, prior_belief=before, law_terms=gears)
    assert found.motor_model.chosen_law == "backlash"
    assert found.motor_model.motor_figures["backlash"][0] == pytest.approx(0.04, rel=0.02)
    # Without all numbers beside the law it is 2.9 times the noise that is left.
    least = prediction_errors(truth, parts[1], noise, noise, [truth.space.nominal], 1)[0].overall
    assert found.motor_model.candidates[-1].held_out_error < 1.1 * least
    assert found.belief.median()[robot.space.index("weight_mass")] == pytest.approx(1.0, rel=0.03)
    for name, sigma in (("joint_pos", 0.0015), ("joint_vel", 0.1)):
        shown = found.belief.median()[robot.space.index(f"{name}_noise")]
        assert shown == pytest.approx(sigma, rel=0.15)
        assert shown <= found.unexplained_noise[name] * (1 + 1e-9) < 2.0 * sigma


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "field", "value"), [("backlash", "backlash", 0.04), ("flex", "spring", 45.0), ("as believed", "", 0.0)]
)
def test_a_gear_is_found_by_what_its_rotor_does(monkeypatch, planted, field, value):
    robot = get_robot("pendulum")
    truth = dataclasses.replace(robot, unit=UnitPhysics(motors={field: (value,)} if field else {}))
    own = ("joint_friction", "joint_damping")
    held = robot.prior.fix({n: robot.space[n].nominal for n in robot.space.names if n not in own})
    episode = record_targets(truth, truth.space.nominal, Multisine(truth, 12.0).chirp(high=4.0, amplitude_share=0.9), seed=2)
    segments, noise = cut(to_tracks([episode], robot.contract, 0.02), robot, 15), np.array([0.0015, 0.1])
    out = np.arange(len(segments)) % 3 == 1
    monkeypatch.setattr(motor_identification, "learn", lambda robot, *args, **named: zero_force(robot, "motor", ("hinge",)))
    gears = [r for r in MOTOR_LAW_TERMS if r.name in ("backlash", "flex")]
    parts = segments.take(~out), segments.take(out)
    found = fit_to_motion(robot, *parts, held, noise, ("hinge",), threads=1, law_terms=gears).motor_model
    assert found.chosen_law == planted
    if field:
        assert found.motor_figures[field][0] == pytest.approx(value, rel=0.2)
