"""The decision table of the loop, row by row."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest

from isthmus.core.statistics import Rate
from isthmus.pipeline import decisions
from isthmus.pipeline.decisions import REPAIRS, Situation, choose_repair, has_improved, is_finished, performs_task, ranks
from isthmus.pipeline.evidence import RobotEvidence

GOOD = RobotEvidence(("completed",), (), 10.0, 1.0, 0.9, True)


@pytest.mark.parametrize(
    ("evidence", "performs"),
    [
        (GOOD, True),
        (dataclasses.replace(GOOD, success=0.9), True),
        (dataclasses.replace(GOOD, success=0.89), False),
        (dataclasses.replace(GOOD, success=None), True),
        (dataclasses.replace(GOOD, statuses=("completed", "guard")), False),
        (dataclasses.replace(GOOD, statuses=("failed",)), False),
        (dataclasses.replace(GOOD, statuses=("refused",), success=None), False),
        (RobotEvidence(), False),
    ],
)
def test_a_robot_performs_its_task_if_every_run_completes_and_measurable_success_is_high(evidence, performs):
    assert performs_task(evidence) is performs
    assert is_finished(evidence) is performs
    for certified in (False, None):
        assert not is_finished(dataclasses.replace(evidence, certified=certified))


def test_no_field_of_the_evidence_can_hold_episodes_of_a_virtual_robot():
    names = {f.name for f in dataclasses.fields(RobotEvidence)}
    assert names == {"statuses", "reasons", "seconds", "success", "score", "certified"}


def test_rank_goes_by_stops_then_certificate_then_success_then_score_then_seconds():
    worse = [
        dataclasses.replace(GOOD, statuses=("guard",)),
        dataclasses.replace(GOOD, certified=False, score=1.0),
        dataclasses.replace(GOOD, success=0.5, score=1.0, seconds=99.0),
        dataclasses.replace(GOOD, score=0.8, seconds=99.0),
        dataclasses.replace(GOOD, seconds=9.0),
    ]
    found = ranks([*worse, GOOD])
    assert found == sorted(found)
    assert len(set(found)) == len(found)


def test_an_entry_that_one_attempt_lacks_is_left_out_for_all():
    first = dataclasses.replace(GOOD, certified=None, success=0.0)
    second = dataclasses.replace(GOOD, certified=False, success=1.0)
    assert ranks([first, second]) == [(1.0, 0.0, 0.9, 10.0), (1.0, 1.0, 0.9, 10.0)]
    assert ranks([first, dataclasses.replace(second, success=None, score=None)]) == [(1.0, 10.0), (1.0, 10.0)]


def test_equal_is_no_improvement():
    better = dataclasses.replace(GOOD, success=0.5)
    assert has_improved([GOOD])
    assert has_improved([better, GOOD])
    assert not has_improved([GOOD, GOOD])
    assert not has_improved([better, GOOD, dataclasses.replace(GOOD, seconds=10.01)])


CASES = [
    (("wiring", True, False, None, 1), "by hand"),
    (("controller", False, True, "identify", 2), "by hand"),
    (("nothing", True, False, None, 1), "none"),
    (("nothing", False, False, None, 1), "longer"),
    (("policy", True, False, None, 1), "longer"),
    (("states", False, False, None, 1), "wider"),
    (("inside", False, False, None, 1), "identify"),
    (("inside", False, True, "identify", 2), "adapt"),
    (("inside", False, True, "adapt", 3), "experiment"),
    ((None, False, False, None, 1), "experiment"),
    (("outside", False, False, None, 1), "identify"),
    (("outside", False, True, "identify", 2), "experiment"),
    (("physics", False, False, None, 1), "identify"),
    (("sensor", False, False, None, 1), "identify"),
    (("link", False, False, None, 1), "identify"),
]


@pytest.mark.parametrize(("situation", "action"), CASES)
def test_the_repair_of_each_cause(situation, action):
    assert choose_repair(Situation(*situation)) == action


def test_every_situation_has_a_repair_and_every_rule_is_used():
    causes = (None, "wiring", "controller", "nothing", "policy", "states", "inside", "outside", "physics", "sensor", "link")
    actions = (None, "identify", "adapt")
    used = set()
    for values in itertools.product(causes, (True, False), (True, False), actions, (1, 2)):
        situation = Situation(*values)
        used.add(next(i for i, r in enumerate(REPAIRS) if (not r.causes or values[0] in r.causes) and r.applies(situation)))
        choose_repair(situation)
    assert used == set(range(len(REPAIRS)))


@pytest.mark.parametrize(
    ("takes", "seconds", "recorded", "repeats", "again"),
    [
        (1, 0.2, True, False, True),
        (2, 4.9, True, False, True),
        (3, 0.2, True, False, False),
        (1, 5.0, True, False, False),
        (1, 0.0, False, False, False),
        (2, 0.2, True, True, False),
    ],
)
def test_a_stopped_robot_is_recorded_up_to_three_times(takes, seconds, recorded, repeats, again):
    assert decisions.records_again(takes, seconds, 10.0, recorded, repeats) is again


@pytest.mark.parametrize(
    ("cause", "errors", "unexplained"),
    [
        ("outside", (1.0, 1.79), False),
        ("outside", (1.0, 1.8), True),
        ("physics", (1.0, 1.0), True),
        (None, (math.nan, 1.0), False),
    ],
)
def test_parameters_do_not_explain_a_large_error_or_missing_physics(cause, errors, unexplained):
    assert decisions.is_unexplained(cause, errors) is unexplained


@pytest.mark.parametrize(
    ("case", "ground"),
    [
        ((True, True, False, "x"), True),
        ((True, False, True, ""), True),
        ((True, False, True, "x"), False),
        ((False, True, True, ""), False),
    ],
)
def test_the_ground_comes_first_where_friction_or_no_clue_points_to_it(case, ground):
    assert decisions.learns_ground(*case) is ground


def test_forces_on_a_body_are_not_looked_for_in_its_motors():
    assert decisions.learns_actuator(True, "")
    assert decisions.learns_actuator(True, "stribeck")
    assert not decisions.learns_actuator(True, "drag")
    assert not decisions.learns_actuator(False, "")


@pytest.mark.parametrize(
    ("rates", "from_scratch", "then"),
    [
        ([0.9], False, "good"),
        ([0.49], False, "restart"),
        ([0.5], False, "continue"),
        ([0.6, 0.6], False, "stop"),
        ([0.6, 0.7], False, "continue"),
        ([0.005], True, "stop"),
        ([0.01], True, "continue"),
        ([0.2, 0.1], True, "stop"),
    ],
)
def test_what_follows_a_training(rates, from_scratch, then):
    assert decisions.next_training(rates, from_scratch) == then


def test_a_policy_is_deployed_unless_it_surely_fails_on_the_twin():
    assert decisions.reason_not_to_deploy(Rate(0.02, 0.0, 0.1, 200)) == ""
    assert "cannot do the task" in decisions.reason_not_to_deploy(Rate(0.0, 0.0, 0.02, 200))
