"""A loop that was stopped goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isthmus.cli.main import main
from isthmus.core.errors import BadInput, Interrupted
from isthmus.pipeline import journal
from isthmus.pipeline.journal import Call, Journal, exclusive_folder
from support.fake_library import Robot, lived, verbs


@pytest.mark.parametrize("at", range(14))
def test_stopped_anywhere_it_goes_on_and_repeats_nothing(tmp_path, at):
    robot = Robot()
    robot.stop_at = at
    with pytest.raises(Interrupted):
        lived(tmp_path, robot)
    robot.stop_at = -1
    lived(tmp_path, robot)
    assert len(robot.asked) == 14
    assert len(set(robot.asked)) == 14


def test_training_that_was_killed_goes_on_and_half_a_file_does_not_stay(tmp_path):
    robot = Robot()
    robot.stop_at = 0
    with pytest.raises(Interrupted):
        lived(tmp_path, robot)
    (tmp_path / "0-prior" / "checkpoints").mkdir(parents=True)
    (tmp_path / "0-prior" / "checkpoints" / "1.safetensors").touch()
    (tmp_path / "0-prior.controller").write_text("half")
    seen = {}
    original = robot.export
    robot.export = lambda args: (seen.setdefault("there", Path(args[-1]).exists()), original(args))[1]
    robot.stop_at = -1
    lived(tmp_path, robot)
    assert robot.asked[0] == ("train", "--resume", "-o", str(tmp_path / "0-prior"))
    assert seen["there"] is False


def test_checkpoints_of_another_command_are_not_gone_on_with(tmp_path):
    robot = Robot()
    (tmp_path / "0-prior" / "checkpoints").mkdir(parents=True)
    (tmp_path / "0-prior" / "checkpoints" / "1.safetensors").touch()
    lived(tmp_path, robot)
    assert "--resume" not in robot.asked[0]


def test_a_lost_artifact_is_made_again_with_all_that_came_of_it(tmp_path):
    lived(tmp_path, Robot())
    (tmp_path / "1-numbers.twin").unlink()
    robot = Robot()
    lived(tmp_path, robot)
    assert verbs(robot) == ["identify", "train", "export", "validate", "run", "evaluate", "diagnose", "evaluate", "evaluate"]


def test_a_record_counts_only_for_the_command_that_made_it(tmp_path):
    lived(tmp_path, Robot())
    robot = Robot()
    lived(tmp_path, robot, seconds=12.0)
    assert verbs(robot)[0] == "run"
    assert len(robot.asked) == 12


def test_a_folder_may_be_moved(tmp_path):
    lived(tmp_path / "here", Robot())
    (tmp_path / "here").rename(tmp_path / "there")
    robot = Robot()
    lived(tmp_path / "there", robot)
    assert robot.asked == []


def test_a_robot_that_was_switched_off_is_tried_again(tmp_path):
    robot = Robot()
    robot.ended = "preflight"
    lived(tmp_path, robot)
    robot.ended = "done"
    story, _ = lived(tmp_path, robot)
    assert not story.stop_reason


def test_a_teacher_that_was_killed_is_gone_on_with(tmp_path):
    out = tmp_path / "run"
    (out / "teacher" / "checkpoints").mkdir(parents=True)
    (out / "teacher" / "checkpoints" / "1.safetensors").touch()
    step = Call("train", "", ("train", "pendulum/swingup", "-o", str(out), "--method", "rma"), (out,))
    assert journal._resume_arguments(step) == ("train", "--resume", "-o", str(out))


def test_one_folder_has_one_loop(tmp_path, monkeypatch):
    monkeypatch.setattr("isthmus.pipeline.journal.LOCK_TIMEOUT", 0.1)
    with exclusive_folder(tmp_path), pytest.raises(BadInput, match="another loop"), exclusive_folder(tmp_path):
        pass


def test_a_broken_record_of_a_step_is_named(tmp_path):
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "01-train.json").write_text('{"exit": "x"}')
    with pytest.raises(BadInput, match=r"01-train\.json"):
        Journal(tmp_path).read(1, Call("train", "", ("train",)))


def test_other_settings_do_not_go_on_in_the_same_folder(capsys, tmp_path):
    (tmp_path / "loop.json").write_text(json.dumps({"kind": "loop", "settings": {"task": "cartpole/balance"}}))
    assert main(["loop", "pendulum/swingup", "-o", str(tmp_path)]) == 2
    assert "cartpole/balance" in capsys.readouterr().err
