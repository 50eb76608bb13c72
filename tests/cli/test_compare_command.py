"""`isthmus compare` as people call it: what it writes and prints, and what it refuses."""

from __future__ import annotations

import json

import pytest

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.learn.evaluate import paired_results, recovery
from isthmus.learn.evaluate import sweep as sweeping
from isthmus.learn.evaluate.contenders import load_contenders
from isthmus.learn.evaluate.statistics import Estimate
from isthmus.tasks.catalogue import get_task
from support.command_line import call
from support.short_tasks import PENDULUM


@pytest.fixture(scope="module")
def realities(tmp_path_factory):
    folder = tmp_path_factory.mktemp("realities")
    (folder / "plain.toml").write_text('robot = "pendulum"\n')
    (folder / "heavy.toml").write_text('robot = "pendulum"\n[params]\npayload = 0.1\n')
    return folder


@pytest.mark.slow
def test_everything_is_in_the_record_and_fits_a_terminal_of_80_columns(capsys, tiny, realities, tmp_path, monkeypatch, short):
    from isthmus.cli import render

    monkeypatch.setattr(render.out, "_width", 80)
    monkeypatch.setattr(sweeping, "GRID_SIZE", 3)
    names = [tiny[n] for n in ("ppo-0", "ppo-1", "teacher", "student")]
    options = ["--worlds", "5", "--reality", realities, "--sweep", "payload", "--change", "payload=0.1", "--at", "0.1"]
    code, out, err = call(capsys, "compare", *names, *options, "-o", tmp_path / "out")
    assert code == 0, err
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"compare.json", "compare.png", "sweep.png", "recovery.png"}
    record = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert list(record["sets"]) == ["inside", "outside", "nominal", "heavy", "plain", "realities"]
    assert record["sets"]["heavy"]["worlds"] + record["sets"]["plain"]["worlds"] == 5
    for ground in record["sets"].values():
        assert [r["name"] for r in ground["runs"]] == ["ppo-0", "ppo-1", "teacher", "student"]
        assert [m["runs"] for m in ground["methods"]] == [2, 1, 1]
        assert set(ground["runs"][0]["success"]) == {"rate", "low", "high", "n"}
        assert {"score", "return", "angle_error", "power"} <= set(ground["runs"][0]["means"])
        assert ground["gaps_closed"][0]["method"] == "student"
    assert len(record["sweeps"][0]["curves"][0]["success"]) == 3
    assert record["change"]["at"] == 0.1
    assert len(record["change"]["runs"][0]["curves"]["score"]) == 15
    assert record["hash"]
    assert all(len(r["run_hash"]) == len(r["belief_hash"]) == 64 for r in record["runs"])
    tables = [line for line in out.splitlines() if line.startswith(("ppo-", "teacher ", "student ", "run "))]
    assert max(len(line) for line in tables) <= 80
    assert sum("Δ success" in line for line in tables) == 6
    assert all("ppo-0" in line.split()[0] for line in tables if line.startswith("ppo-0"))
    broken = [line for line in out.splitlines() if line.startswith("  ") and line.strip()]
    assert not broken


def test_a_file_may_be_asked_for_instead_of_a_folder(capsys, tiny, tmp_path, short):
    for name in ("x.json", "y.png"):
        options = ["--worlds", "3", "--grounds", "nominal", "--json"]
        code, out, err = call(capsys, "compare", tiny["ppo-0"], *options, "-o", tmp_path / name)
        assert code == 0, err
        assert json.loads(out)["files"] == [str(tmp_path / name)]
    assert {p.name for p in tmp_path.iterdir()} == {"x.json", "y.png"}


def test_what_was_found_is_told_even_if_it_cannot_be_written(capsys, tiny, tmp_path, monkeypatch, short):
    from isthmus.core import files

    def full(path, data):
        raise BadInput(f"cannot write {path}: the disk is full.")

    monkeypatch.setattr(files, "atomic_write", full)
    options = ["compare", tiny["ppo-0"], "--worlds", "2", "--grounds", "nominal", "-o", tmp_path / "x.json"]
    code, out, err = call(capsys, *options)
    assert code == 2
    assert "nominal, 2 worlds" in out
    assert "the disk is full" in err
    assert "wrote" not in out
    code, out, err = call(capsys, *options, "--json")
    told = json.loads(out)
    assert (code, told["exit"], told["files"]) == (2, 2, [])
    assert "the disk is full" in told["error"]
    assert told["sets"]["nominal"]["runs"]


def test_a_difference_of_rates_shows_both_ends_of_its_interval():
    from isthmus.cli.comparison_tables import percentage_points

    assert percentage_points(Estimate(0.02, -0.051, 0.03)) == "+2.0 (-5.1 to +3.0)"


def test_every_example_of_the_help_has_a_line_of_its_own(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    examples = [line for line in capsys.readouterr().out.splitlines() if "example:" in line]
    assert len(examples) == 3
    assert all(line.startswith("example: isthmus compare") and len(line) <= 80 for line in examples)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["ppo-0", "cart"], "pendulum"),
        (["ppo-0", "--task", "crazyflie/hover"], "crazyflie"),
        (["ppo-0", "--task", "pendulum/swing"], "pendulum/swingup"),
        (["ppo-0", "absent"], "absent"),
        (["ppo-0", "--sweep", "paylod"], "payload"),
        (["ppo-0", "--change", "paylod=1"], "payload"),
        (["ppo-0", "--change", "payload"], "NAME=VALUE"),
        (["ppo-0", "--change", "payload=1e9"], "hard bounds"),
        (["ppo-0", "--change", "payload=0.1", "--before", "strength=1"], "change does not change"),
        (["ppo-0", "--change", "payload=0.1", "--at", "10"], "episode"),
        (["ppo-0", "--change", "payload=0.1", "--at", "nan"], "episode"),
        (["ppo-0", "--at", "1"], "go with change"),
        (["ppo-0", "--reality", "empty"], "no reality"),
        (["ppo-0", "--reality", "other"], "one.toml"),
        (["ppo-0", "--worlds", "0"], "worlds must"),
        (["ppo-0", "--seed", "-1"], "seed must"),
        (["ppo-0", "--grounds", "insight"], "inside"),
        (["ppo-0", "--grounds"], "nothing"),
        (["ppo-0", "--reference", "ppo-1"], "reference"),
        (["ppo-0", "--reference", "ppo-0", "--grounds", "inside"], "reference needs the nominal worlds"),
        (["ppo-0", "--margin", "nan"], "margin must"),
        (["ppo-0", "--margin", "0.05", "--grounds", "inside"], "margin needs the nominal worlds"),
        (["ppo-0", "--sweep", "payload", "strength", "payload"], "'payload' more than once"),
        (["ppo-0", "--change", "payload=0.1", "payload=0.2"], "'payload' more than once"),
        (["ppo-0", "-o", "/proc/x"], "/proc/x"),
        (["ppo-0", "-o", "empty/../ppo-0/run.json/x"], "run.json"),
        (["ppo-0", "-o", "folder.json"], "folder.json"),
        (["ppo-0", "--belief", "b.json"], "b.json"),
        ([], "which runs"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_simulated(capsys, tiny, tmp_path, monkeypatch, options, hint):
    monkeypatch.chdir(tmp_path)
    for module, name in ((paired_results, "run_episodes"), (recovery, "record_trace")):
        monkeypatch.setattr(module, name, lambda *args: pytest.fail("simulated"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "one.toml").write_text('robot = "go1"\n')
    for name, folder in tiny.items():
        (tmp_path / name).symlink_to(folder)
    code, _, err = call(capsys, "compare", *options, *([] if "--worlds" in options else ["--worlds", "2"]))
    assert code == 2
    assert hint in err
    assert err.count("\n") == 1


def test_a_run_that_sees_what_the_task_does_not_give_is_refused(tiny):
    from isthmus.learn.evaluate.contenders import check_signals

    task = get_task("go1/walk")
    entry = load_contenders((tiny["ppo-0"],), get_task(PENDULUM))[0]
    with pytest.raises(BadInput, match="observes"):
        check_signals(entry.run, entry.actor, task)
