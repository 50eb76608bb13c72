"""The loop: what it does next, and what it says."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest

import isthmus.pipeline
from isthmus.cli.loop_ import Args, settings_from_options
from isthmus.cli.main import main
from isthmus.pipeline.evidence import LoopSettings
from isthmus.pipeline.journal import Journal, run_calls
from isthmus.pipeline.outcome import loop_result, parameters_outside_prior
from isthmus.pipeline.stages import loop_stages, recording_commands
from isthmus.studio.reports.loop import write_loop_report
from isthmus.tasks.catalogue import get_task
from support.fake_library import QUIET, RATE, Robot, lived, verbs


def test_the_whole_way_in_order(tmp_path):
    robot = Robot()
    story, done = lived(tmp_path, robot)
    first = ["train", "export", "run", "evaluate", "diagnose"]
    assert verbs(robot) == [
        *first,
        "identify",
        "train",
        "export",
        "validate",
        "run",
        "evaluate",
        "diagnose",
        "evaluate",
        "evaluate",
    ]
    assert len(done) == len(robot.asked)
    assert story.attempts[-1].certificate_record.exit_code == 0
    assert story.repairs[0].twin == tmp_path / "1-numbers.twin"
    assert "--belief" in robot.asked[6]
    assert "--from" in robot.asked[6]


@pytest.mark.parametrize("cause", ["wiring", "controller"])
def test_what_training_cannot_mend_is_left_to_a_person(tmp_path, cause):
    robot = Robot(cause)
    story, _ = lived(tmp_path, robot)
    assert story.repairs[0].action == "by hand"
    assert verbs(robot).count("train") == 1
    assert not loop_result(story, get_task("pendulum/swingup").robot.space, None).good


def test_a_good_robot_is_only_validated(tmp_path):
    robot = Robot("nothing", success=1.0)
    story, _ = lived(tmp_path, robot)
    assert verbs(robot) == ["train", "export", "run", "evaluate", "diagnose", "validate"]
    assert loop_result(story, get_task("pendulum/swingup").robot.space, None).good


def test_a_policy_that_is_to_blame_is_trained_for_longer_without_a_twin(tmp_path):
    robot = Robot("policy")
    lived(tmp_path, robot)
    assert "identify" not in verbs(robot)
    again = [a for a in robot.asked if a[0] == "train"][1]
    assert "--belief" not in again
    assert "--width" not in again


def test_a_policy_that_fails_in_worlds_of_its_own_twin_learns_to_adapt(tmp_path):
    robot = Robot("inside")
    story, _ = lived(tmp_path, robot, rounds=2)
    assert [r.action for r in story.repairs] == ["numbers", "adapt"]
    last = [args for args in robot.asked if args[0] == "train"][-1]
    assert last[4:6] == ("--method", "rma")
    assert "--from" not in last, "a policy with another memory begins anew"
    assert last[last.index("--belief") + 1] == str(tmp_path / "1-numbers.twin")


@pytest.mark.parametrize(
    ("learns", "begins"),
    [
        ([0.95], ["0-prior"]),
        ([0.5, 0.6, 0.95], ["0-prior", "1-twin", "1-twin-2"]),
        ([0.0, 0.95], ["0-prior", ""]),
        ([0.0, 0.5, 0.6, 0.7, 0.8, 0.85], ["0-prior", "", "1-twin-2", "1-twin-3", "1-twin-4", "1-twin-5"]),
        ([0.18, 0.3, 0.6, 0.95], ["0-prior", "", "1-twin-2", "1-twin-3"]),
        ([0.6, 0.7, 0.7], ["0-prior", "1-twin", "1-twin-2"]),
        ([0.0, 0.0], ["0-prior", ""]),
        ([0.0, 0.03, 0.05, 0.2, 0.1], ["0-prior", "", "1-twin-2", "1-twin-3", "1-twin-4"]),
        ([0.3, 0.2, 0.25, 0.1], ["0-prior", "", "1-twin-2", "1-twin-3"]),
    ],
)
def test_a_policy_goes_on_with_the_twin_and_only_where_that_leads_nowhere_another_begins_anew(tmp_path, learns, begins):
    robot = Robot()
    rates = iter([0.95, *learns])
    result = lambda rate: {"evaluation": {"success": {"rate": rate, "low": max(rate - 0.1, 0), "high": rate + 0.02, "n": 256}}}
    robot.train = lambda args: (0, result(next(rates)))
    story, _ = lived(tmp_path, robot)
    first, *trained = [args for args in robot.asked if args[0] == "train"]
    steps = lambda args: args[args.index("--steps") + 1]
    assert [Path(a[a.index("--from") + 1]).name if "--from" in a else "" for a in trained] == begins
    assert all("--belief" in args for args in trained)
    assert all((steps(a) == steps(first)) == ("--from" not in a) for a in trained)
    assert bool(story.stop_reason) == (learns[-1] < 0.1)
    if not story.stop_reason:
        best = trained[max(range(len(learns)), key=lambda i: (learns[i], i))]
        assert str(story.attempts[-1].run) == best[best.index("-o") + 1]


def test_a_budget_is_for_all_trainings(tmp_path):
    robot = Robot()
    robot.learns = 0.5
    lived(tmp_path, robot, budget=8.0, rounds=1)
    trained = [float(args[args.index("--minutes") + 1]) for args in robot.asked if args[0] == "train"]
    assert trained == [4.0, 1.0, 1.0]


def test_states_never_seen_widen_the_worlds(tmp_path):
    robot = Robot("states")
    lived(tmp_path, robot)
    assert "--width" in next(a for a in robot.asked if "--from" in a)


@pytest.mark.parametrize(("task", "verb"), [("pendulum/swingup", "actuator"), ("crazyflie/hover", "residual")])
def test_what_numbers_leave_is_learned_where_it_acts(tmp_path, task, verb):
    robot = Robot("physics", left=2.0)
    story, _ = lived(tmp_path, robot, task)
    assert verb in verbs(robot)
    assert story.repairs[0].twin == tmp_path / f"1-{verb}.twin"


def test_the_law_that_was_found_is_told_with_its_figures(tmp_path):
    story, _ = lived(tmp_path, Robot("physics"))
    assert any(
        "(stribeck: stribeck 0.4)" in line
        for line in loop_result(story, get_task("pendulum/swingup").robot.space, None).sentences
    )


def test_a_force_that_does_not_help_is_not_trained_with(tmp_path):
    robot = Robot("physics", left=2.0, kept=False)
    story, _ = lived(tmp_path, robot, "crazyflie/hover")
    assert story.repairs[0].twin == tmp_path / "1-numbers.twin"


def test_who_cannot_tell_makes_an_experiment(tmp_path):
    robot = Robot(None)
    story, _ = lived(tmp_path, robot)
    assert verbs(robot)[5:8] == ["excite", "run", "identify"]
    assert str(tmp_path / "1-probe.mcap") in robot.asked[7]
    assert story.repairs[0].action == "experiment"


def test_rounds_end_as_soon_as_it_is_good(tmp_path):
    robot = Robot("outside", success=0.1)
    lived(tmp_path / "bad", robot, rounds=3)
    assert verbs(robot).count("train") == 3  # the third is no better than the second
    robot = Robot("outside", success=1.0)
    lived(tmp_path / "good", robot, rounds=3)
    assert verbs(robot).count("train") == 2


def test_what_was_found_is_kept_when_the_next_verdict_is_another(tmp_path):
    robot = Robot("outside", success=0.1)
    original, rates = robot.diagnose, iter([0.1, 0.4, 0.6, 0.6, 0.6])
    robot.eval = lambda args: (0, {"success": {**RATE, "rate": next(rates)}}) if "--reality" in args else (0, {"success": RATE})
    robot.diagnose = lambda args: (setattr(robot, "cause", "policy" if "--twin" in args else "outside"), original(args))[1]
    lived(tmp_path, robot, rounds=2)
    last = [a for a in robot.asked if a[0] == "train"][-1]
    assert str(tmp_path / "1-numbers.twin") in last


def test_not_validated_is_not_good(tmp_path):
    robot = Robot("outside", success=1.0)
    robot.validate = lambda args: (1, {"passed": False})
    story, _ = lived(tmp_path, robot)
    assert not loop_result(story, get_task("pendulum/swingup").robot.space, None).good


@pytest.mark.parametrize(
    "robot", [Robot("physics", left=3.0), Robot("wiring"), Robot("policy"), Robot(None)], ids=lambda r: str(r.cause)
)
def test_whatever_happens_there_is_a_report(tmp_path, robot):
    """Recordings that cannot be read, scores without intervals, a force that could not be learned."""
    robot.residual = lambda args: (2, {"error": "too few segments."})
    robot.actuator = robot.residual
    prediction = {"horizons": [0.1, 0.2], "signals": {"joint_pos": [{"value": 2.0}, {"value": None}]}}
    whole = robot.diagnose
    robot.diagnose = lambda args: (
        0,
        whole(args)[1] | {"prediction": prediction, "score": {"value": 3.0, "low": None, "high": None}},
    )
    story, steps = lived(tmp_path, robot)
    for a in story.attempts:
        for h in a.diagnosis.get("hypotheses", []):
            h |= {"sentence": "so it is", "action": "do it", "gain": ""}
    task = get_task("pendulum/swingup")
    found = loop_result(story, task.robot.space, {"params": {"payload": 0.2}, "unmodelled": {"stribeck": {"static": 0.3}}})
    page = write_loop_report(tmp_path / "report.html", story, LoopSettings(task.name, "sim"), task, found, steps).read_text()
    assert "</html>" in page
    assert "payload 0.2 kg" in page
    assert ("too few segments" in page) == (robot.cause == "physics")


def test_a_real_robot_is_judged_by_its_recording(tmp_path):
    robot = Robot("outside")
    original = robot.diagnose
    measures = lambda x: {"behaviour": {"measures": [{"name": "success", "recorded": x}]}}
    for done, good in ((1.0, True), (0.0, False)):
        robot.diagnose = lambda args, done=done: (0, original(args)[1] | measures(done))
        s = LoopSettings("pendulum/swingup", "zenoh")
        where = tmp_path / str(done)
        story, _ = run_calls(loop_stages(s, get_task("pendulum/swingup"), where), Journal(where), robot, QUIET)
        assert "evaluate" not in verbs(robot)[:5]
        assert loop_result(story, get_task("pendulum/swingup").robot.space, None).good is good


def test_a_robot_that_does_not_start_ends_it_with_the_reason(tmp_path):
    robot = Robot()
    robot.ended = "preflight"
    story, _ = lived(tmp_path, robot)
    assert "no packets" in story.stop_reason
    assert not loop_result(story, get_task("pendulum/swingup").robot.space, None).good


def test_a_recording_that_is_refused_ends_it_with_the_reason(tmp_path):
    robot = Robot()
    robot.diagnose = lambda args: (2, {"error": "the recording is too short."})
    story, _ = lived(tmp_path / "whole", robot)
    assert "too short" in story.stop_reason
    robot.run = lambda args: (0, {"status": "guard", "seconds": 0.1, "reason": "follow: a leg is 0.5 away"})
    story, _ = lived(tmp_path / "stopped", robot)
    assert "too short" in story.stop_reason
    assert "a leg is 0.5 away" in story.stop_reason


def test_a_robot_for_which_no_policy_is_found_is_not_run_again(tmp_path):
    robot = Robot()
    original = robot.train
    never = {"evaluation": {"success": {"rate": 0.0, "low": 0.0, "high": 0.02, "n": 200}}}
    robot.train = lambda args: (0, never) if "--belief" in args else original(args)
    story, _ = lived(tmp_path, robot)
    assert "cannot do this task" in story.stop_reason
    assert verbs(robot).count("run") == 1
    assert not loop_result(story, get_task("pendulum/swingup").robot.space, None).good


def test_commands_keep_inside_what_the_policy_was_trained_for():
    task = get_task("crazyflie/hover")
    asked = recording_commands(task, 20.0, 0)
    signal = task.command.signal
    for entry in asked:
        name, value = entry.split(":")[-1].split("=")
        i = signal.labels.index(name)
        assert signal.low[i] <= float(value) <= signal.high[i]
    assert recording_commands(get_task("pendulum/swingup"), 20.0, 0) == ()


def test_only_numbers_beyond_what_was_believed_have_moved():
    row = lambda value, wide=0.1: {"unit": "1", "value": value, "low": value - wide, "high": value + wide, "before": [0.0, 1.0]}
    found = {"inside": row(0.5), "beyond": row(1.5), "far below": row(-1.0), "not sure": row(1.5, 0.6)}
    assert [m.name for m in parameters_outside_prior(found)] == ["far below", "beyond"]


def test_the_word_for_a_reality_goes_nowhere_but_to_the_robot_and_its_watcher(tmp_path):
    robot = Robot("physics", left=3.0)
    lived(tmp_path, robot)
    for args in robot.asked:
        for before, word in itertools.pairwise(args):
            assert "somewhere" not in word or before in ("--link", "--reality")


def test_the_loop_never_reads_a_reality():
    """It may hand the word on, but nothing that knows what a reality is."""
    for path in Path(isthmus.pipeline.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = getattr(node, "module", "") or ""
            assert not any("reality" in name.lower() for name in (*names, module)), path


def test_a_drawn_reality_is_the_same_robot_by_either_option():
    drawn = Args("pendulum/swingup", hidden=3, family="mixed")
    assert settings_from_options(drawn) == settings_from_options(Args("pendulum/swingup", reality=Path("hidden:3:mixed")))
    assert settings_from_options(drawn)[0].watched == "hidden:3:mixed"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["pendulum/swingup", "--hidden", "3", "--link", "zenoh"], "only one of them"),
        (["pendulum/swingup", "--family", "mixed"], "--hidden"),
        (["pendulum/swingup", "--rounds", "0"], "--rounds"),
        (["pendulum/swingup", "--seconds", "1"], "--seconds"),
        (["pendulum/swngup"], "pendulum/swingup"),
        (["pendulum/swingup", "--link", "zenho"], "zenoh"),
        (["pendulum/swingup", "--reality", "nowhere.toml"], "nowhere.toml"),
        (["pendulum/swingup", "--hidden", "3", "--family", "mixd"], "mixed"),
    ],
)
def test_bad_options_are_named(capsys, args, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["loop", *args]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
