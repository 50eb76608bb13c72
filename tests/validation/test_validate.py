"""Protocols, campaigns and certificates, on a pendulum that a few operators swing up."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from isthmus.cli.main import main
from isthmus.core.errors import BadInput, Interrupted
from isthmus.core.statistics import Rate
from isthmus.deploy.batch_controller import BatchController
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.deploy.signal_map import SignalMap
from isthmus.studio.film import Film
from isthmus.studio.reports.certificate import write_certificate
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.env import Env
from isthmus.validation import (
    certificate,
    measured_success,
    prediction_agreement,
    protocol,
    robot_trials,
    simulated_trials,
)
from isthmus.validation.protocol import ParameterChange, Protocol, Stage, StageForces, StageGround
from isthmus.validation.stage import check_protocol_fits, default_protocol, set_up_stage
from isthmus.validation.stage_result import StageResult
from isthmus.validation.validate import validate
from isthmus.world import Belief
from support.controllers import Gains, counting, swing_up

TASK = get_task("pendulum/swingup")
QUICK = """
name = "quick"
[[stages]]
name = "short"
required = 0.5
expected = 0.9
[[stages]]
name = "loads"
required = 0.5
expected = 0.9
[stages.setup]
payload = [0.0, 0.05]
[stages.worlds]
ground_friction = { range = [0.5, 1.0] }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("validate")
    swing_up(made / "good.controller")
    swing_up(made / "bad.controller", Gains(pump=-4.0))
    (made / "quick.toml").write_text(QUICK)
    return made


def said(capsys, *args: str) -> tuple[int, dict]:
    code = main(["validate", *args, "--json"])
    return code, json.loads(capsys.readouterr().out)


# Protocols ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "task"),
    [("bench", "pendulum/swingup"), ("bench", "cartpole/balance"), ("legged", "go1/walk"), ("aerial", "crazyflie/hover")],
)
def test_shipped_protocols_fit_their_robots(name, task):
    """Every stage makes worlds inside the hard bounds, and leaves nothing out on the robots that it is made for."""
    own, task = protocol.load_protocol(name), get_task(task)
    check_protocol_fits(own, task.robot)
    assert default_protocol(task.robot) == name
    for stage in own.stages:
        found = set_up_stage(stage, task, task.robot.prior)
        task.robot.space.check(found.sample_worlds(np.random.default_rng(0), 50))
        assert stage.steps
        assert found.skipped_parts == () or name == "bench"
        for pattern, (names, change) in found.parameter_changes.items():
            e = found.sample_worlds(np.random.default_rng(1), 200)[:, task.robot.space.index(names[0])]
            assert change.range is None or (change.range[0] <= e.min() and e.max() <= change.range[1]), pattern


def test_a_protocol_keeps_its_hash_and_knows_a_change():
    own = protocol.load_protocol("legged")
    assert protocol.load_protocol("legged").hash == own.hash != replace(own, stages=own.stages[:-1]).hash
    assert own.with_stages(("tethered",)).stages == own.stages[:1]


def test_forces_are_parts_of_the_weight_and_ground_is_where_feet_are():
    go1 = get_task("go1/walk")
    stage = Stage(
        "s", 0.5, 0.9, forces=StageForces(push=0.3, gust=0.1), ground=StageGround(("bumps",)), fade={"strength_.*": 0.2}
    )
    found = set_up_stage(stage, go1, go1.robot.prior)
    weight = 9.81 * float(go1.robot.model.body_subtreemass[go1.robot.model.body("trunk").id])
    assert found.task.disturbance.gust_force == pytest.approx(0.1 * weight)
    assert found.task.terrain is not None
    assert set(found.parameter_fades) == {f"strength_{leg}" for leg in ("FR", "FL", "RR", "RL")}
    e = found.sample_worlds(np.random.default_rng(0), 3)
    column = go1.robot.space.index("strength_FR")
    assert found.faded_parameters(e, 0.5)[:, column] == pytest.approx(0.9 * e[:, column])
    assert len(set_up_stage(stage, TASK, TASK.robot.prior).skipped_parts) == 3


def test_places_multiply_or_replace_what_is_believed():
    stage = Stage(
        "s",
        0.5,
        0.9,
        worlds={"joint_friction": ParameterChange(times=(2.0, 2.0)), "payload": ParameterChange(range=(0.1, 0.2))},
    )
    sure = TASK.robot.prior.nominal().fix({"joint_friction": 0.12})
    e = set_up_stage(stage, TASK, sure).sample_worlds(np.random.default_rng(0), 20)
    assert e[:, TASK.robot.space.index("joint_friction")] == pytest.approx(0.24)
    payload = e[:, TASK.robot.space.index("payload")]
    assert payload.min() >= 0.1
    assert payload.max() <= 0.2
    assert payload.std() > 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (QUICK.replace("expected = 0.9", "expected = 0.4"), "required < expected"),
        (QUICK.replace("payload = [0.0, 0.05]", "payload = [0.0, 99.0]"), "hard bounds"),
        (QUICK.replace("ground_friction = { range = [0.5, 1.0] }", "payload = { range = [0.5, 0.1] }"), "range"),
        (QUICK.replace("setup", "setups"), "did you mean 'setup'"),
        (QUICK.replace('name = "loads"', 'name = "short"'), "names of their own"),
        (QUICK + '"(" = { times = [1, 2] }', "pattern"),
        ("stages = 3", "stages"),
    ],
)
def test_broken_protocols_are_one_sentence(folder, capsys, text, says):
    path = folder / "broken.toml"
    path.write_text(text)
    assert main(["validate", str(folder / "good.controller"), "--protocol", str(path)]) == 2
    message = capsys.readouterr().err.strip()
    assert says in message
    assert "\n" not in message


# Campaigns ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_good_controller_passes_and_a_broken_one_fails_with_its_worst_worlds(folder, capsys):
    code, found = said(
        capsys, str(folder / "good.controller"), "--protocol", "bench", "--stages", "nominal", "-o", str(folder / "a.html")
    )
    assert (code, found["passed"], found["environment"]) == (0, True, "prior")
    stage = found["stages"][0]
    assert stage["success"]["low"] >= stage["required"]
    assert stage["success"]["n"] == stage["trials"] <= stage["max_trials"]
    code, found = said(capsys, str(folder / "bad.controller"), "--protocol", "bench", "-o", str(folder / "b.json"))
    assert (code, found["passed"], found["not_reached"]) == (1, False, ["loads", "cold-and-weak"])
    stage = found["stages"][0]
    assert stage["decision"] == "fail"
    assert len(stage["worst"]) == 5
    assert set(stage["worst"][0]["e"]) == set(TASK.robot.space.names)
    page = (folder / "b.html").read_text()
    assert "Why nominal failed" in page
    assert "http" not in page
    assert ("data:image/gif;base64," in page) != ("no film" in page)
    saved = certificate.load_certificate(folder / "b.json")
    assert saved.to_dict() == found
    assert saved.inputs["controller"] == OnnxController.load(folder / "bad.controller").hash
    (folder / "c.json").write_text((folder / "b.json").read_text().replace('"passed": false', '"passed": true'))
    with pytest.raises(BadInput, match="changed"):
        certificate.load_certificate(folder / "c.json")


def test_the_same_seed_gives_the_same_campaign_and_a_world_can_be_flown_again(folder):
    controller = OnnxController.load(folder / "good.controller")
    own = set_up_stage(Stage("s", 0.5, 0.9, episode=1.0, fade={"strength": 0.5}), TASK, TASK.robot.prior)
    a, b = (simulated_trials.simulate_stage(own, controller, 7, "prior") for _ in range(2))
    assert a[0] == b[0] != simulated_trials.simulate_stage(own, controller, 8, "prior")[0]
    assert np.array_equal(a[1].poses, b[1].poses)
    worst = a[0].worst[0]
    e = own.sample_worlds(np.random.default_rng([worst.seed, 1]), simulated_trials.BATCH_WORLDS)
    assert dict(zip(TASK.robot.space.names, e[worst.row], strict=True)) == worst.e


def test_worlds_in_a_crowd_go_as_they_would_alone(folder):
    controller = OnnxController.load(folder / "good.controller")
    own = set_up_stage(Stage("s", 0.5, 0.9, episode=1.0), TASK, Belief(TASK.robot.space))
    e = np.tile(TASK.robot.space.nominal, (3, 1))
    flown = simulated_trials.simulate_trials(own, controller, e, 3)
    env = Env(own.task, 3, seed=3, training=False, e=e)
    for _ in range(45):
        signals = env.signals()
        rows = [controller.tick({k: v[i].numpy() for k, v in signals.items()}) for i in range(3)]
        env.step(torch.from_numpy(np.stack(rows)))
    assert env.sim.qpos[:, 0] == pytest.approx(flown.poses[9][:, 0], abs=1e-6)


def test_the_memory_of_one_world_never_reaches_another():
    contract, default = TASK.robot.contract, np.array(TASK.robot.default)
    controller = counting(contract, default)
    crowd, target = (
        BatchController(controller, SignalMap.from_contracts(controller.manifest, contract), 3),
        np.zeros((3, 1), np.float32),
    )
    signals, command = np.zeros((3, contract.width)), np.zeros((3, controller.manifest.operator[0].size))
    for worlds in ([0, 1, 2], [0], [0, 2]):
        crowd(signals, {controller.manifest.operator[0].name: command}, target, np.array(worlds))
    assert [float(m["count"][0, 0]) for m in crowd.memory] == [3.0, 1.0, 2.0]


def test_what_failures_have_in_common_is_found():
    rng = np.random.default_rng(0)
    own = set_up_stage(Stage("s", 0.5, 0.9), TASK, TASK.robot.prior)
    e = own.sample_worlds(rng, 200)
    weak = e[:, TASK.robot.space.index("strength")] < 0.95
    flown = simulated_trials.TrialTable(e, ~weak, weak, rng.uniform(size=200), np.ones(200), np.zeros((2, 200, 1)), 0.1, 0)
    assert simulated_trials.differing_parameters(own, [(0, flown)])[0].name == "strength"


# On a robot ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_virtual_robot_is_judged_from_what_it_measures(folder, capsys):
    (folder / "one.toml").write_text(QUICK.replace("required = 0.5", "required = 0.3"))
    args = ["--protocol", str(folder / "one.toml"), "--stages", "loads", "--link", "sim", "--yes", "--sim-worlds", "50"]
    code, found = said(capsys, str(folder / "good.controller"), *args)
    stage = found["stages"][0]
    assert (code, found["environment"], stage["decision"]) == (0, "real", "pass")
    assert {row["judged_by"] for row in stage["records"]} == {"measured"}
    assert {row["setup"]["payload"] for row in stage["records"]} <= {0.0, 0.05}
    assert {row["predicted"] for row in stage["records"]} <= {
        stage["records"][0]["predicted"],
        stage["records"][-1]["predicted"],
    } | {row["predicted"] for row in stage["records"]}
    by_load = {(row["setup"]["payload"], row["predicted"]) for row in stage["records"]}
    assert len(by_load) == len({load for load, _ in by_load})
    assert stage["predicted"]["n"] == 50
    assert stage["assisted"]["alone"]["trials"] >= 1


def test_outcomes_are_entered_in_the_planned_order(folder, capsys):
    plan, args = folder / "plan.csv", ["--protocol", str(folder / "quick.toml"), "--stages", "loads"]
    control = str(folder / "good.controller")
    assert said(capsys, control, *args, "--plan", str(plan))[0] == 0
    rows = list(csv.DictReader(plan.open()))
    assert {row["payload"] for row in rows} == {"0", "0.05"}

    def entered(change) -> tuple[int, dict]:
        for i, row in enumerate(rows):
            change(i, row)
        with plan.open("w") as file:
            sheet = csv.DictWriter(file, rows[0])
            sheet.writeheader()
            sheet.writerows(rows)
        return said(capsys, control, *args, "--results", str(plan), "--sim-worlds", "0")

    code, found = entered(lambda i, row: row.update(success="y" if i < 3 else ""))
    assert (code, found["stages"][0]["decision"], found["stages"][0]["trials"]) == (1, "open", 3)
    code, found = entered(lambda i, row: row.update(success="y"))
    assert (code, found["stages"][0]["decision"]) == (0, "pass")
    code, found = entered(lambda i, row: row.update(success="" if i == 1 else "y"))
    assert code == 2
    assert "order" in found["error"]
    code, found = entered(lambda i, row: row.update(success="y", payload="0.03"))
    assert code == 2
    assert "bias" in found["error"]


def test_trials_that_were_made_outlast_an_interruption(folder):
    own = set_up_stage(Stage("s", 0.5, 0.9), TASK, TASK.robot.prior)

    def attempt(asked):
        if asked.trial == 2:
            raise Interrupted("the plug was pulled.")
        return robot_trials.TrialOutcome(True, "operator")

    result = robot_trials.run_stage(own, OnnxController.load(folder / "good.controller"), attempt, 0, 0)
    assert (result.decision, result.success.n, result.stop_reason) == ("open", 2, "the plug was pulled.")


def test_predictions_of_finitely_many_conditions_have_a_mean_that_is_known(folder):
    controller = OnnxController.load(folder / "good.controller")
    own = set_up_stage(Stage("s", 0.5, 0.9, episode=0.5, setup={"payload": (0.0, 0.05)}), TASK, TASK.robot.prior)
    known = robot_trials.SimulatorPredictions(own, controller, 0, 50)
    y = [
        known.success_probability(robot_trials.TrialConditions(i, {"payload": p}, np.zeros(0)))
        for i, p in enumerate((0.0, 0.05))
    ]
    assert known.sim.exact_mean == pytest.approx(np.mean(y))
    assert known.sim.bounds(0.01) == (known.sim.exact_mean,) * 2


def test_the_judge_agrees_with_the_environment(folder):
    """The score from exact signals is that of the environment, and a walking robot cannot be judged so."""
    assert measured_success.success_is_measurable(TASK)
    assert measured_success.success_is_measurable(get_task("cartpole/balance"))
    assert measured_success.success_is_measurable(get_task("crazyflie/hover"))
    assert not measured_success.success_is_measurable(get_task("go1/walk"))
    still = np.tile([np.pi, 0.0], (500, 1))
    assert measured_success.success_and_score(TASK, TASK.robot.contract, still, np.zeros((500, 1)), np.zeros(0)) == (
        True,
        pytest.approx(1.0),
    )
    assert measured_success.success_and_score(TASK, TASK.robot.contract, still[:200], np.zeros((200, 1)), np.zeros(0)) == (
        False,
        pytest.approx(0.4),
    )
    assert not measured_success.success_and_score(
        TASK, TASK.robot.contract, np.zeros((500, 2)), np.zeros((500, 1)), np.zeros(0)
    )[0]


# Over policies ------------------------------------------------------------------------------------------------------


def test_agreement_over_policies():
    predicted, observed = np.array([0.2, 0.5, 0.9]), np.array([0.1, 0.4, 0.8])
    assert prediction_agreement.mmrv(predicted, observed) == 0.0
    # Two neighbours the wrong way round, 0.4 apart: each violates by 0.4, the third not at all.
    assert prediction_agreement.mmrv(np.array([0.2, 0.9, 0.5]), np.array([0.1, 0.4, 0.8])) == pytest.approx(0.8 / 3)
    pairs = [prediction_agreement.Pair(str(i), "s", p, o, 20) for i, (p, o) in enumerate(zip(predicted, observed, strict=True))]
    found = prediction_agreement.agreement(pairs)
    assert found.pearson == pytest.approx(1.0, abs=0.01)
    assert found.bias == pytest.approx(0.1)


def stage_result(environment: str, rate: float, predicted: float | None = None) -> StageResult:
    told = Rate(predicted, 0.0, 1.0, 50) if predicted is not None else None
    return StageResult("s", "", "pass", environment, Rate(rate, 0.0, 1.0, 9), 0.5, 0.9, 0.05, 0.05, 9, 9, 9, 0, predicted=told)


def certificate_of(*stages: StageResult) -> certificate.Certificate:
    inputs = {"controller": "h", "protocol": "p"}
    return certificate.Certificate(True, "a", "t", "r", "x", "prior", "", "p", "", stages, (), inputs, 0)


def test_pairs_come_from_one_certificate_or_from_two():
    sim, real = certificate_of(stage_result("twin", 0.9)), certificate_of(stage_result("real", 0.7))
    assert prediction_agreement.predicted_observed_pairs([sim]) == []
    with pytest.raises(BadInput, match="predicted and an observed"):
        prediction_agreement.compare_certificates([sim])
    found = prediction_agreement.compare_certificates([sim, real])
    assert found.pairs == (prediction_agreement.Pair("a", "s", 0.9, 0.7, 9),)
    both = certificate_of(stage_result("real", 0.7, predicted=0.8))
    assert prediction_agreement.predicted_observed_pairs([both]) == [prediction_agreement.Pair("a", "s", 0.8, 0.7, 9)]


def test_a_certificate_survives_its_file_and_shows_on_its_page(tmp_path):
    made = certificate_of(stage_result("real", 0.7, predicted=0.8))
    files = write_certificate(made, tmp_path / "a.html", Film(problem="no film, because nothing was drawn"))
    assert certificate.load_certificate(files[0]) == made
    assert made.hash in files[1].read_text()
    with pytest.raises(BadInput, match=r"\.json or a \.html"):
        write_certificate(made, tmp_path / "a.pdf")


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--protocol", "leged"], "did you mean 'legged'"),
        (["--protocol", "legged"], "try --protocol bench"),
        (["--on", "go1"], "controller of pendulum, not of go1"),
        (["--on", "pendulm"], "did you mean 'pendulum'"),
        (["--on", "missing.twin"], "missing.twin"),
        (["--stages", "nominl"], "did you mean 'nominal'"),
        (["-o", "a.pdf"], ".json or a .html"),
        (["--link", "sim", "--results", "x.csv"], "not both"),
        (["--sim-worlds", "3"], "at least 50"),
        (["--yes"], "go with --link"),
        (["--link", "carrier-pigeon", "--yes", "--sim-worlds", "0"], "unknown link"),
        (["--results", "missing.csv"], "missing.csv"),
    ],
)
def test_bad_input_is_one_sentence(folder, capsys, args, says):
    assert main(["validate", str(folder / "good.controller"), *args]) == 2
    message = capsys.readouterr().err.strip()
    assert says in message
    assert re.fullmatch(r"isthmus: .*", message)


def test_controllers_that_cannot_be_validated(folder, capsys):
    assert main(["validate"]) == 2
    other = swing_up(folder / "other.controller", task="pendulum/juggle")
    assert main(["validate", str(other)]) == 2
    assert "task that is not known" in capsys.readouterr().err
    assert main(["validate", "--history", str(folder / "quick.toml")]) == 2


def test_a_protocol_needs_stages():
    with pytest.raises(BadInput, match="stages"):
        Protocol("empty", ())


# The library ----------------------------------------------------------------------------------------------------------


def test_a_stage_that_the_operator_does_not_confirm_is_no_result(folder):
    class Refusing(robot_trials.AskNobody):
        def confirm_stage(self, stage: Stage) -> bool:
            return False

    with pytest.raises(Interrupted, match="no trial"):
        validate(folder / "good.controller", protocol=folder / "quick.toml", link="sim", operator=Refusing())


def test_a_stage_in_simulation_is_shown_with_its_worst_motion_only_if_it_fails(folder):
    seen = []
    made = validate(
        OnnxController.load(folder / "bad.controller"),
        protocol=folder / "quick.toml",
        on_stage=lambda setup, result, motion: seen.append((result, motion)),
    )
    assert (made.passed, made.not_reached, made.environment) == (False, ("loads",), "prior")
    assert [result for result, _ in seen] == list(made.stages)
    assert seen[0][1].poses.shape[1] == TASK.robot.model.nq
    assert certificate.Certificate.from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.parametrize(
    ("options", "says"),
    [({"seed": -1}, "negative"), ({"run_all": True, "link": "sim"}, "first stage"), ({"record": "x"}, "go with --link")],
)
def test_options_that_exclude_each_other(folder, options, says):
    with pytest.raises(BadInput, match=says):
        validate(folder / "good.controller", **options)
