"""Which calls a loop makes, in which order, and what they are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.deploy.run_result import RunResult
from isthmus.pipeline.outcome import is_able
from isthmus.pipeline.stages import recording_commands
from isthmus.tasks.catalogue import get_task
from support.episodes import episode
from support.fake_library import FakeLibrary, refuses, run_loop, train_result, trainings, verbs

FIRST = ["train", "export", "run", "diagnose"]
SECOND = ["train", "export", "validate", "run", "measure", "evaluate", "evaluate"]


def test_the_whole_loop_in_order(tmp_path):
    library = FakeLibrary()
    history, records = run_loop(tmp_path, library)
    assert verbs(library) == [*FIRST, "identify", *SECOND]
    assert [r.call for r in records] == library.calls
    assert history.attempts[-1].evidence.certified
    assert history.repairs[0].twin == tmp_path / "1-numbers.twin"
    assert trainings(library)[1]["dynamics"] == tmp_path / "1-numbers.twin"
    assert trainings(library)[1]["start"] == tmp_path / "0-prior"


@pytest.mark.parametrize("cause", ["wiring", "controller"])
def test_causes_that_training_cannot_remove_are_left_to_a_person(tmp_path, cause):
    library = FakeLibrary(cause)
    history, _ = run_loop(tmp_path, library)
    assert history.repairs[0].action == "by hand"
    assert verbs(library) == FIRST
    assert not is_able(history)


def test_a_robot_that_performs_its_task_is_only_validated(tmp_path):
    library = FakeLibrary("nothing", success=1.0)
    history, _ = run_loop(tmp_path, library)
    assert verbs(library) == [*FIRST, "validate"]
    assert is_able(history)


def test_a_policy_that_is_the_cause_is_trained_for_longer_without_a_twin(tmp_path):
    library = FakeLibrary("policy")
    run_loop(tmp_path, library)
    assert "identify" not in verbs(library)
    assert not {"dynamics", "width"} & trainings(library)[1].keys()


def test_a_policy_that_fails_inside_its_own_twin_is_trained_to_adapt(tmp_path):
    library = FakeLibrary("inside")
    history, _ = run_loop(tmp_path, library, rounds=2)
    assert [r.action for r in history.repairs] == ["identify", "adapt"]
    last = trainings(library)[-1]
    assert last["method"] == "rma"
    assert "start" not in last, "a policy with another memory starts from scratch"
    assert last["dynamics"] == tmp_path / "1-numbers.twin"


@pytest.mark.parametrize(
    ("rates", "starts"),
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
def test_a_policy_is_fine_tuned_on_the_twin_and_starts_from_scratch_only_where_that_is_stuck(tmp_path, rates, starts):
    library = FakeLibrary()
    following = iter([0.95, *rates])
    library.train = lambda a: train_result(next(following))
    history, _ = run_loop(tmp_path, library)
    first, *later = trainings(library)
    assert [Path(a["start"]).name if "start" in a else "" for a in later] == starts
    assert all(a["dynamics"] == tmp_path / "1-numbers.twin" for a in later)
    assert all((a["steps"] == first["steps"]) == ("start" not in a) for a in later)
    assert bool(history.stop_reason) == (rates[-1] < 0.08)
    if not history.stop_reason:
        best = later[max(range(len(rates)), key=lambda i: (rates[i], i))]
        assert history.attempts[-1].run == best["out"]


def test_a_budget_is_for_all_trainings(tmp_path):
    library = FakeLibrary(trained=0.5)
    run_loop(tmp_path, library, budget=8.0)
    assert [a["minutes"] for a in trainings(library)] == [4.0, 1.0, 1.0]


def test_states_outside_of_training_widen_the_randomization(tmp_path):
    library = FakeLibrary("states")
    run_loop(tmp_path, library)
    assert trainings(library)[1]["width"] > 1.0


@pytest.mark.parametrize(
    ("task", "verb", "name"),
    [("pendulum/swingup", "fit_actuator", "actuator"), ("crazyflie/hover", "learn_residual", "residual")],
)
def test_unexplained_physics_is_learned_where_it_acts(tmp_path, task, verb, name):
    library = FakeLibrary("physics", left=2.0)
    history, _ = run_loop(tmp_path, library, task)
    assert verb in verbs(library)
    assert history.repairs[0].twin == tmp_path / f"1-{name}.twin"


def test_a_force_that_does_not_help_is_not_trained_with(tmp_path):
    library = FakeLibrary("physics", left=2.0, kept=False)
    history, _ = run_loop(tmp_path, library, "crazyflie/hover")
    assert history.repairs[0].twin == tmp_path / "1-numbers.twin"


def test_an_unknown_cause_asks_for_an_experiment(tmp_path):
    library = FakeLibrary(None)
    history, _ = run_loop(tmp_path, library)
    assert verbs(library)[4:7] == ["excite", "run", "identify"]
    assert tmp_path / "1-probe.mcap" in library.calls[6].arguments["recordings"]
    assert history.repairs[0].action == "experiment"


def test_rounds_end_when_it_is_finished_or_no_better(tmp_path):
    library = FakeLibrary("outside", success=0.0)
    run_loop(tmp_path / "bad", library, rounds=3)
    assert verbs(library).count("train") == 3  # the third is no better than the second
    library = FakeLibrary("outside", success=1.0)
    run_loop(tmp_path / "good", library, rounds=3)
    assert verbs(library).count("train") == 2


def test_a_twin_is_kept_when_the_next_cause_is_another(tmp_path):
    library = FakeLibrary("outside")
    original = library.diagnose
    library.diagnose = lambda a: (setattr(library, "cause", "policy" if a["dynamics"] else "outside"), original(a))[1]
    run_loop(tmp_path, library, rounds=2)
    assert trainings(library)[-1]["dynamics"] == tmp_path / "1-numbers.twin"


def test_a_robot_that_does_not_start_ends_the_loop_with_the_reason(tmp_path):
    library = FakeLibrary()
    library.status_of_runs = "refused"
    history, _ = run_loop(tmp_path, library)
    assert "no packets" in history.stop_reason
    assert not is_able(history)


def test_a_refused_recording_ends_the_loop_with_the_reason(tmp_path):
    library = FakeLibrary()
    library.diagnose = refuses("the recording is too short.")
    history, _ = run_loop(tmp_path / "whole", library)
    assert "too short" in history.stop_reason

    def stopped(arguments):
        arguments["record"].write_text("short")
        return RunResult("guard", "follow: a leg is 0.5 away", 0.1)

    library.run = stopped
    history, _ = run_loop(tmp_path / "stopped", library)
    assert "too short" in history.stop_reason
    assert "a leg is 0.5 away" in history.stop_reason


@pytest.mark.parametrize(("same", "takes"), [(False, 3), (True, 2)])
def test_a_robot_that_is_stopped_early_is_recorded_again_unless_it_repeats_itself(tmp_path, same, takes):
    library = FakeLibrary()
    contents = iter(range(10))

    def stopped(arguments):
        from isthmus.data.mcap.writer import write_episode

        write_episode(arguments["record"], episode(seed=0 if same else next(contents)))
        return RunResult("guard", "tilt", 0.1)

    library.run = stopped
    run_loop(tmp_path, library, link="zenoh")
    assert [c.name for c in library.calls[:5]].count("record") == takes


def test_a_policy_that_cannot_do_the_task_on_the_twin_is_not_deployed(tmp_path):
    library = FakeLibrary()
    original = library.train
    never = train_result(0.0)
    library.train = lambda a: never if "dynamics" in a else original(a)
    history, _ = run_loop(tmp_path, library)
    assert "cannot do the task" in history.stop_reason
    assert verbs(library).count("run") == 1
    assert not is_able(history)


def test_commands_stay_inside_the_trained_range():
    task = get_task("crazyflie/hover")
    signal = task.command.signal
    for entry in recording_commands(task, 20.0, 0):
        name, value = entry.split(":")[-1].split("=")
        i = signal.labels.index(name)
        assert signal.low[i] <= float(value) <= signal.high[i]
    assert recording_commands(get_task("pendulum/swingup"), 20.0, 0) == ()


def test_the_link_goes_to_nothing_but_the_robot(tmp_path):
    """Nothing else of the stages could know what a virtual robot hides."""
    library = FakeLibrary("physics", left=3.0)
    run_loop(tmp_path, library)
    for call in library.calls:
        for name, value in call.arguments.items():
            assert "somewhere" not in str(value) or (call.verb, name) == ("run", "link")
