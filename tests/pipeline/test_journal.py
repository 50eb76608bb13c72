"""A loop that was killed resumes where it was, and repeats nothing that counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isthmus.core.errors import BadInput, Interrupted
from isthmus.pipeline.journal import Call, Journal, exclusive_folder, output_hash, run_calls
from isthmus.pipeline.loop import loop
from support.fake_library import FakeLibrary, Killed, run_loop, verbs

CALLS = 14
"""Of the loop of FakeLibrary on a virtual robot."""


def whole(folder: Path, library: FakeLibrary, **settings):
    """The result of a loop as JSON, without the timing of its calls."""
    result = loop("pendulum/swingup", link="sim:somewhere", out=folder, library=library, **settings).to_dict()
    return result | {"calls": [{k: v for k, v in call.items() if k != "seconds"} for call in result["calls"]]}


def journal(folder: Path) -> dict[str, dict]:
    """Records without their timing and without hashes of what a fake library writes differently each time."""
    records = {p.name: json.loads(p.read_text()) for p in sorted((folder / "journal").iterdir())}
    return {name: {k: v for k, v in record.items() if k not in ("seconds", "outputs")} for name, record in records.items()}


@pytest.mark.parametrize("half_written", [False, True])
@pytest.mark.parametrize("at", range(CALLS))
def test_killed_at_any_call_it_ends_with_the_same_result_and_journal(tmp_path, at, half_written):
    """kill -9 before a call, or in the middle of one that has written half of its outputs."""
    folder = tmp_path / "loop"
    expected = whole(folder, FakeLibrary())
    expected_journal = journal(folder)
    assert len(expected["calls"]) == CALLS
    folder.rename(tmp_path / "uninterrupted")
    library = FakeLibrary()
    library.kill_at, library.kill_with_outputs = at, half_written
    with pytest.raises(Killed):
        whole(folder, library)
    library.kill_at = -1
    assert whole(folder, library) == expected
    assert journal(folder) == expected_journal
    assert len(library.calls) == CALLS, "finished calls are not repeated"
    partial = list(folder.glob("*.partial-1.mcap"))
    assert len(partial) == (half_written and library.calls[at].verb == "run"), "a half recording is kept"


def test_training_that_was_killed_resumes_its_checkpoints(tmp_path):
    library = FakeLibrary()
    library.kill_at, library.kill_with_outputs = 0, True
    with pytest.raises(Killed):
        whole(tmp_path, library)
    library.kill_at = -1
    whole(tmp_path, library)
    assert library.calls[0].arguments == {"task": "pendulum/swingup", "out": tmp_path / "0-prior", "resume": True}


def test_checkpoints_that_no_begun_call_made_are_not_resumed(tmp_path):
    (tmp_path / "0-prior" / "checkpoints").mkdir(parents=True)
    (tmp_path / "0-prior" / "checkpoints" / "1.safetensors").touch()
    library = FakeLibrary()
    run_loop(tmp_path, library)
    assert "resume" not in library.calls[0].arguments


def test_an_interrupt_says_how_to_resume_and_leaves_what_was_begun(tmp_path):
    library = FakeLibrary()
    library.stop_at = 2
    with pytest.raises(Interrupted, match="record"):
        whole(tmp_path, library)
    assert (tmp_path / "journal" / "03-record.begun").exists()


@pytest.mark.parametrize("change", [Path.unlink, lambda p: p.write_text("altered")])
def test_an_output_that_is_lost_or_altered_is_made_again_with_all_that_came_of_it(tmp_path, change):
    run_loop(tmp_path, FakeLibrary())
    change(tmp_path / "1-numbers.twin")
    library = FakeLibrary()
    run_loop(tmp_path, library)
    assert verbs(library) == ["identify", "train", "export", "validate", "run", "measure", "evaluate", "evaluate"]


def test_logs_of_a_run_do_not_count_but_its_weights_do(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    weights = tmp_path / "checkpoints" / "1.safetensors"
    weights.write_text("a")
    before = output_hash(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("{}")
    assert output_hash(tmp_path) == before
    weights.write_text("b")
    assert output_hash(tmp_path) != before


def test_a_record_counts_only_for_the_same_arguments(tmp_path):
    run_loop(tmp_path, FakeLibrary())
    library = FakeLibrary()
    run_loop(tmp_path, library, seconds=12.0)
    assert verbs(library)[0] == "run"
    assert len(list(tmp_path.glob("*.replaced-1.mcap"))) == 2, "recordings of the robot are never deleted"


def test_a_folder_may_be_moved(tmp_path):
    (tmp_path / "here").mkdir()
    run_loop(tmp_path / "here", FakeLibrary())
    (tmp_path / "here").rename(tmp_path / "there")
    library = FakeLibrary()
    history, _ = run_loop(tmp_path / "there", library)
    assert library.calls == []
    assert history.attempts[0].recordings == (tmp_path / "there" / "0-prior.mcap",)


def test_a_robot_that_was_switched_off_is_tried_again(tmp_path):
    library = FakeLibrary()
    library.status_of_runs = "refused"
    assert "no packets" in run_loop(tmp_path, library)[0].stop_reason
    library.status_of_runs = "completed"
    assert not run_loop(tmp_path, library)[0].stop_reason
    assert verbs(library).count("export") == 2, "nothing before the run was repeated"


@pytest.mark.parametrize(
    ("error", "status", "traceback"),
    [(BadInput("no."), "failed", False), (ConnectionError("reset"), "retry", False), (ZeroDivisionError("x"), "failed", True)],
)
def test_an_error_of_a_call_is_recorded_and_repeated_next_time(tmp_path, error, status, traceback):
    library, calls = FakeLibrary(), []

    def broken(arguments):
        calls.append(arguments)
        raise error

    library.export = broken
    for _ in range(2):
        history, records = run_loop(tmp_path, library)
        assert str(error) in history.stop_reason
        assert records[-1].status == status
        assert (tmp_path / "journal" / "02-export.traceback").exists() == traceback
    assert len(calls) == 2


def test_a_result_survives_the_journal(tmp_path):
    _, records = run_loop(tmp_path, FakeLibrary())
    library = FakeLibrary()
    _, again = run_loop(tmp_path, library)
    assert library.calls == []
    assert [r.result.to_dict() for r in again] == [r.result.to_dict() for r in records]


def test_the_command_is_stored_with_the_record(tmp_path):
    run_loop(tmp_path, FakeLibrary())
    record = json.loads((tmp_path / "journal" / "02-export.json").read_text())
    assert record["command"] == ["isthmus", "export", "${FOLDER}/0-prior", "--out", "${FOLDER}/0-prior.controller"]


def test_one_folder_has_one_loop(tmp_path, monkeypatch):
    monkeypatch.setattr("isthmus.pipeline.journal.LOCK_TIMEOUT", 0.1)
    with exclusive_folder(tmp_path), pytest.raises(BadInput, match="another loop"), exclusive_folder(tmp_path):
        pass


def test_a_broken_record_is_named(tmp_path):
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "01-train.json").write_text('{"status": "x"}')

    def stages():
        yield Call("train", "", "train", {"task": "pendulum/swingup"})

    with pytest.raises(BadInput, match=r"01-train\.json"):
        run_calls(stages(), Journal(tmp_path), FakeLibrary())


def test_other_settings_do_not_resume_in_the_same_folder(tmp_path):
    whole(tmp_path, FakeLibrary())
    with pytest.raises(BadInput, match="seed"):
        whole(tmp_path, FakeLibrary(), seed=3)
