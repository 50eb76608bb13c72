"""A run can be stopped at any moment, and goes on as if it never had been."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.core.files import content_hash
from isthmus.learn import checkpoint, runs

TASK, STEPS = "pendulum/swingup", 8_000
COMMAND = [sys.executable, "-m", "isthmus", "train"]


def start(folder: Path, *options: str, **kwargs) -> subprocess.Popen:
    size = [] if "--resume" in options else ["--worlds", "32"]
    command = [*COMMAND, TASK, "-o", str(folder), "--save-every", "0", *size, *options]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, **kwargs)


def finish(process: subprocess.Popen) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def wait_for(folder: Path, iteration: int, process: subprocess.Popen) -> None:
    """Until a checkpoint at or after `iteration` is on disk, or the process has ended."""
    for _ in range(24_000):
        found = checkpoint.list_checkpoints(folder) if folder.exists() else []
        if (found and int(found[-1].stem) >= iteration) or process.poll() is not None:
            return
        time.sleep(0.005)
    raise AssertionError("no checkpoint came")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that was never interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    code, out, err = finish(start(folder, "--steps", str(STEPS), "--json"))
    assert code == 0, err
    assert json.loads(out)["steps"] >= STEPS
    return folder


@pytest.fixture
def ended(tiny) -> Path:
    """A short run, for what any run has."""
    return tiny["ppo-0"]


def final(folder: Path) -> tuple[dict, dict]:
    arrays, meta = checkpoint.read(checkpoint.newest(folder))
    return arrays, {k: v for k, v in meta.items() if k not in ("seconds", "run")} | {"named": bool(meta["run"])}


def signed(record: dict) -> dict:
    """The record with the hash that fits it."""
    rest = {k: v for k, v in record.items() if k != "hash"}
    return rest | {"hash": content_hash(rest)}


def test_an_altered_record_is_refused(ended, tmp_path):
    record = json.loads((ended / "run.json").read_text())
    record["plan"]["seed"] = 5
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(BadInput, match="altered"):
        runs.load(tmp_path)


@pytest.mark.slow
def test_a_larger_budget_is_kept_for_the_next_resume(tmp_path, capsys):
    folder = tmp_path / "longer"
    train = ["train", TASK, "-o", str(folder), "--save-every", "0"]
    assert main([*train, "--worlds", "32", "--steps", "2000"]) == 0
    capsys.readouterr()
    assert main([*train, "--resume", "--steps", "4000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] >= 4000
    assert runs.load(folder).config.steps == 4000
    assert main([*train, "--resume"]) == 0


def assert_same(a: Path, b: Path) -> None:
    (arrays, meta), (others, other_meta) = final(a), final(b)
    assert meta == other_meta
    assert arrays.keys() == others.keys()
    for name in arrays:
        assert np.array_equal(arrays[name], others[name], equal_nan=True), name


@pytest.mark.slow
def test_killed_and_resumed_equals_uninterrupted(whole, tmp_path):
    folder = tmp_path / "killed"
    process = start(folder, "--steps", str(STEPS))
    for moment in (2, 9):
        wait_for(folder, moment, process)
        process.kill()
        process.communicate()
        for path in checkpoint.list_checkpoints(folder):
            checkpoint.read(path)
        process = start(folder, "--resume")
    code, _, err = finish(process)
    assert code == 0, err
    assert_same(whole, folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [r["iteration"] for r in rows] == list(range(1, len(rows) + 1))


@pytest.mark.slow
def test_interrupt_saves_everything_and_exits_with_3(whole, tmp_path):
    folder = tmp_path / "stopped"
    process = start(folder, "--steps", str(STEPS), "--json")
    wait_for(folder, 3, process)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert code == 3, err
    assert json.loads(out)["exit"] == 3
    assert finish(start(folder, "--resume"))[0] == 0
    assert_same(whole, folder)


def test_a_run_records_what_made_it(ended):
    record = json.loads((ended / "run.json").read_text())
    assert record["plan"]["task"] == TASK
    assert record["plan"]["seed"] == 0
    assert {"torch", "mujoco", "numpy", "isthmus"} <= set(record["versions"])
    for key in ("space_hash", "model_hash", "belief_hash", "hash", "rewards"):
        assert record[key], key
    assert set(record["code"]) in (set(), {"commit", "changed"})
    assert checkpoint.read(checkpoint.newest(ended))[1]["run"] == record["hash"]
    assert list((ended / "events").glob("events.*"))


@pytest.mark.parametrize("keep", [0, 7, 8, 500, 0.5, 0.999])
def test_a_truncated_checkpoint_is_one_sentence_and_stays(ended, tmp_path, keep):
    data = checkpoint.newest(ended).read_bytes()
    bad = tmp_path / "000001.safetensors"
    bad.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    with pytest.raises(BadInput, match="000001"):
        checkpoint.read(bad)
    assert bad.exists()


def test_a_flipped_bit_is_noticed(ended, tmp_path):
    data = bytearray(checkpoint.newest(ended).read_bytes())
    for place in np.random.default_rng(0).integers(0, len(data), 40):
        data[place] ^= 4
        bad = tmp_path / "bad.safetensors"
        bad.write_bytes(data)
        with pytest.raises(BadInput):
            checkpoint.read(bad)
        data[place] ^= 4


def test_a_run_of_another_space_is_refused(ended, tmp_path):
    record = json.loads((ended / "run.json").read_text())
    record["space_hash"] = "0" * 64
    record = signed(record)
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(BadInput, match="another space"):
        runs.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"plan": 3},
        {"plan": {"task": TASK, "settings": {"wrlds": 3}}},
        {"plan": {"task": "pendulum/swingup", "settings": {"worlds": "many"}}},
    ],
)
def test_a_broken_plan_is_refused(ended, tmp_path, change):
    record = signed(json.loads((ended / "run.json").read_text()) | change)
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(BadInput):
        runs.load(tmp_path)


def test_an_existing_run_is_never_overwritten(ended, capsys):
    before = {p: p.read_bytes() for p in ended.rglob("*") if p.is_file()}
    assert main(["train", TASK, "-o", str(ended), "--steps", "10"]) == 2
    assert "--resume" in capsys.readouterr().err
    assert before == {p: p.read_bytes() for p in ended.rglob("*") if p.is_file()}


@pytest.mark.slow
def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path):
    """Files may grow to 64 kB only: the first checkpoint does not fit."""

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))

    folder = tmp_path / "full"
    code, _, err = finish(start(folder, "--steps", str(STEPS), preexec_fn=small))
    assert code == 2
    assert "Traceback" not in err
    assert "cannot write" in err
    assert (folder / "run.json").exists()
    assert finish(start(folder, "--resume"))[0] == 0


@pytest.mark.parametrize("where", ["/dev/null/run", "/proc/run"])
def test_a_folder_that_cannot_be_written_is_one_sentence(where, capsys):
    assert main(["train", TASK, "-o", where, "--steps", "10"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert err.count("\n") == 1
    assert where in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to a read-only folder")
def test_a_read_only_folder_is_one_sentence(tmp_path):
    tmp_path.chmod(0o500)
    code, _, err = finish(start(tmp_path / "run", "--steps", "10"))
    assert code == 2
    assert "cannot write" in err
