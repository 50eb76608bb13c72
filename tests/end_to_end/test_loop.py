"""The loop as a user starts it, in a process of its own, with all its commands."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isthmus.pipeline import budgets, decisions, settings, stages, virtual_score
from isthmus.pipeline.loop import loop
from isthmus.studio.reports.loop import write_loop_report

SHORT = ("--budget", "0.1", "--seconds", "6")


def start(folder: Path, *options: str, home: Path | None = None) -> subprocess.Popen:
    env = os.environ | {"OMP_NUM_THREADS": "1"} | ({"HOME": str(home)} if home else {})
    args = [sys.executable, "-m", "isthmus", "loop", "pendulum/swingup", "-o", str(folder), *SHORT, *options, "--json"]
    return subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def finished(process: subprocess.Popen) -> tuple[int, dict]:
    out, err = process.communicate(timeout=900)
    assert out.strip(), err
    return process.returncode, json.loads(out.strip().splitlines()[-1])


def steps(folder: Path) -> dict[str, float]:
    return {p.name: p.stat().st_mtime for p in (folder / "journal").glob("*.json")}


def calls(folder: Path) -> list[tuple]:
    """The calls of a loop in order, with their arguments and status."""
    found = [json.loads(p.read_text()) for p in sorted((folder / "journal").glob("*.json"))]
    return [(r["verb"], r["arguments"], r["status"]) for r in found]


def test_a_tiny_loop_of_real_calls_comes_to_its_end_and_a_second_one_repeats_nothing(tmp_path, monkeypatch):
    """With a policy that has hardly learned anything, deployed all the same."""
    retrain = dataclasses.replace(settings.RETRAIN, min_success_to_deploy=0.0, max_trainings=1)
    report = dataclasses.replace(settings.REPORT, sweep_worlds=8, virtual_episodes=8)
    for module in (settings, decisions, stages):
        monkeypatch.setattr(module, "RETRAIN", retrain)
    for module in (settings, stages, virtual_score):
        monkeypatch.setattr(module, "REPORT", report)
    # By steps, not by the clock: on a busy machine a policy of some seconds may not move at all.
    monkeypatch.setitem(budgets.TASK_BUDGETS, "pendulum/swingup", budgets.TaskBudget((16_000, 8_000)))
    options = {"link": "sim:hidden:3:parametric-outside", "out": tmp_path, "seconds": 3.0}
    found = loop("pendulum/swingup", **options)
    assert not found.stop_reason
    verbs = [verb for verb, _, _ in calls(tmp_path)]
    assert verbs[:4] == ["train", "export", "run", "diagnose"]
    assert verbs[-8:-2] == ["export", "validate", "run", "measure", "evaluate", "evaluate"]
    assert [a.evidence.statuses for a in found.attempts] == [("completed",)] * 2
    assert all(a.evidence.success in (0.0, 1.0) for a in found.attempts), "success is computed from the recording"
    assert [s.success.n for s in found.virtual_scores] == [8, 8]
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file() and p.name != ".lock"}
    again = loop("pendulum/swingup", **options)
    assert again.to_dict() == found.to_dict()
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert "</html>" in write_loop_report(found, tmp_path, tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_killed_again_and_again_it_comes_to_its_end_and_repeats_nothing(tmp_path):
    """With a home that nobody may write to, in a folder whose name is not ASCII."""
    folder, home = tmp_path / "Zwilling Nº 7 – ось", tmp_path / "home"
    home.mkdir()
    home.chmod(0o500)
    seen: dict[str, float] = {}
    for _ in range(6):
        process = start(folder, home=home)
        until = time.monotonic() + 600
        while (
            process.poll() is None
            and time.monotonic() < until
            and (not (folder / "journal").exists() or steps(folder).keys() <= seen.keys())
        ):
            time.sleep(0.1)
        time.sleep(1.0)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        now = steps(folder)
        assert all(now[name] == when for name, when in seen.items())
        seen = now
    code, found = finished(start(folder, home=home))
    assert code in (0, 1)
    assert all(steps(folder)[name] == when for name, when in seen.items())
    assert "</html>" in (folder / "report.html").read_text()
    assert {score["success"]["n"] for score in found["virtual_scores"]} == {64}


@pytest.mark.slow
def test_a_robot_that_cannot_work_at_all_is_reported_with_code_1(tmp_path):
    """Its motor is all but dead."""
    (tmp_path / "dead.toml").write_text('robot = "pendulum"\n[params]\nstrength = 0.3\njoint_friction = 0.6\n')
    code, found = finished(start(tmp_path / "loop", "--reality", str(tmp_path / "dead.toml")))
    assert code == 1
    assert found["able"] is False
    assert found["virtual_scores"][0]["success"]["rate"] == 0.0
    assert "</html>" in (tmp_path / "loop" / "report.html").read_text()


@pytest.mark.slow
def test_what_the_demo_runs_ends_well(tmp_path):
    args = [sys.executable, "-m", "isthmus", "loop", "-o", str(tmp_path), "--json"]
    code, found = finished(subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    assert code == 0
    first, last = found["virtual_scores"][0], found["virtual_scores"][-1]
    assert first["success"]["high"] < last["success"]["low"]


@pytest.mark.slow
def test_two_loops_at_once_do_not_disturb_each_other(tmp_path):
    both = [start(tmp_path / name) for name in ("a", "b")]
    assert all(finished(p)[0] in (0, 1) for p in both)
    assert {p.name for p in (tmp_path / "a" / "journal").iterdir()} == {p.name for p in (tmp_path / "b" / "journal").iterdir()}


@pytest.mark.slow
def test_a_robot_in_another_process_that_is_switched_off_and_on_again(tmp_path):
    """Over a real link. While it is off the loop ends with the reason; then the same command goes on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        link = f"zenoh:tcp/127.0.0.1:{free.getsockname()[1]}"
    args = [sys.executable, "-m", "isthmus", "robot", "pendulum", "--link", link, "--hidden", "7"]
    code, found = finished(start(tmp_path / "loop", "--link", link))
    assert code == 1
    assert any("the robot could not be run" in line for line in found["sentences"])
    trained = steps(tmp_path / "loop")["01-train.json"]
    robot = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
    try:
        assert robot.stdout is not None
        assert "listens" in robot.stdout.readline()
        code, found = finished(start(tmp_path / "loop", "--link", link))
    finally:
        robot.terminate()
        robot.communicate()
    assert code in (0, 1)
    assert found["robot_seconds"] > 5.0
    assert steps(tmp_path / "loop")["01-train.json"] == trained


@pytest.mark.slow
def test_ctrl_c_saves_everything_and_ends_with_code_3(tmp_path):
    process = start(tmp_path / "loop")
    until = time.monotonic() + 120
    while not (tmp_path / "loop" / "0-prior" / "checkpoints").exists() and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    code, found = finished(process)
    assert code == 3
    assert "the same command resumes" in found["error"]
