"""What a person meets at the command line: help, lists, JSON, and errors that say what would be right."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.cli.main import VERBS, main
from isthmus.robots import ROBOTS
from isthmus.tasks.catalogue import TASKS


def call(capsys, *argv: str) -> tuple[int, str, str]:
    try:
        code = main(list(argv))
    except SystemExit as stop:  # tyro leaves this way
        code = int(stop.code or 0)
    got = capsys.readouterr()
    return code, got.out, got.err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(capsys, verb):
    code, out, _ = call(capsys, verb, "--help")
    assert code == 0
    assert f"isthmus {verb}" in out
    assert "example" in out


def test_list_names_every_robot_task_and_parameter(capsys):
    code, out, _ = call(capsys, "list", "--json")
    listed = json.loads(out)
    assert code == 0
    assert set(listed["robots"]) == set(ROBOTS)
    assert set(listed["tasks"]) == set(TASKS)
    for name, make in ROBOTS.items():
        assert [p["name"] for p in listed["robots"][name]["params"]] == list(make().space.names)


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["trian"], "train"),
        (["train", "go1/wlak", "-o", "x"], "go1/walk"),
        (["train", "pendulum/swingup", "-o", "x", "--method", "pop"], "ppo"),
        (["train", "pendulum/swingup"], "-o"),
        (["train", "-o", "x"], "isthmus list"),
        (["train", "pendulum/swingup", "-o", "x", "--minutes", "-1"], "minutes"),
        (["train", "pendulum/swingup", "-o", "x", "--minutes", "nan"], "minutes"),
        (["train", "pendulum/swingup", "-o", "x", "--minutes", "inf"], "minutes"),
        (["train", "pendulum/swingup", "-o", "x", "--belief", "absent.json"], "absent.json"),
        (["train", "pendulum/swingup", "-o", "absent", "--resume"], "absent"),
        (["evaluate", "absent"], "absent"),
        (["evaluate", "absent", "--worlds", "0"], "worlds"),
        (["export", "absent", "-o", "x.controller"], "absent"),
        (["play", "absent"], "absent"),
        (["play", "absent.npz"], "absent.npz"),
        (["list", "go2"], "go1"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(capsys, tmp_path, monkeypatch, argv, hint):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, *argv)
    assert code == 2
    assert hint in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_misspelt_option_names_the_right_one(capsys):
    code, _, err = call(capsys, "train", "pendulum/swingup", "-o", "x", "--minuts", "3")
    assert code == 2
    assert "--minutes" in err


def test_a_misspelt_parameter_in_a_belief_names_the_right_one(capsys, tmp_path):
    from isthmus.robots import get_robot

    belief = get_robot("pendulum").prior.to_dict()
    name = belief["factors"][0]["name"]
    belief["factors"][0]["name"] = name[:-1] + "x"
    path = tmp_path / "b.json"
    path.write_text(json.dumps(belief))
    code, _, err = call(capsys, "train", "pendulum/swingup", "-o", str(tmp_path / "r"), "--belief", str(path))
    assert code == 2
    assert name in err
    assert err.count("\n") == 1


def test_a_belief_outside_hard_bounds_is_refused(capsys, tmp_path):
    from isthmus.robots import get_robot

    robot = get_robot("pendulum")
    belief = robot.prior.to_dict()
    belief["factors"][0]["high"] = robot.space[belief["factors"][0]["name"]].high * 10 + 1
    path = tmp_path / "b.json"
    path.write_text(json.dumps(belief))
    code, _, err = call(capsys, "train", "pendulum/swingup", "-o", str(tmp_path / "r"), "--belief", str(path))
    assert code == 2
    assert "hard bounds" in err
    assert not (tmp_path / "r").exists()


def test_errors_are_json_when_json_is_asked_for(capsys):
    code, out, _ = call(capsys, "evaluate", "absent", "--json")
    assert code == 2
    assert json.loads(out)["exit"] == 2


def test_doctor_says_what_is_missing(capsys):
    code, out, _ = call(capsys, "doctor", "--quick", "--json")
    told = json.loads(out)
    assert code == 0
    assert all(c["ok"] or c["fix"] for c in told["checks"])
    assert told["packages"]["mujoco"]


def test_starting_up_needs_neither_torch_nor_mujoco():
    script = """
import sys
from isthmus.cli.main import main
main(["--help"])
sys.exit(any(m in sys.modules for m in ("torch", "mujoco")))
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0


def test_train_eval_export_end_to_end(capsys, tmp_path: Path, monkeypatch):
    import onnxruntime  # noqa: F401

    run, task = tmp_path / "run", TASKS["pendulum/swingup"]()
    monkeypatch.setitem(TASKS, task.name, lambda: replace(task, episode=1.0))
    code, out, err = call(capsys, "train", "pendulum/swingup", "-o", str(run), "--steps", "3000", "--worlds", "32", "--json")
    assert code == 0, err
    assert json.loads(out)["evaluation"]["success"]["n"] == 200
    code, out, err = call(capsys, "evaluate", str(run), "--worlds", "20", "--nominal", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["success"]["low"] <= result["success"]["rate"] <= result["success"]["high"]
    code, _, err = call(capsys, "evaluate", str(run), "--worlds", "4", "--set", "mas=1")
    assert code == 2
    code, out, err = call(capsys, "export", str(run), "-o", str(tmp_path / "p.controller"), "--json")
    assert code == 0, err
    assert max(json.loads(out)["largest_difference"].values()) <= 1e-5
