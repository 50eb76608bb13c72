"""The loop as a function of the library: what it returns, and what may not influence it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import isthmus.pipeline
from isthmus.core.errors import BadInput
from isthmus.pipeline.loop import loop
from isthmus.pipeline.outcome import LoopResult, describe_truth, parameters_outside_prior
from isthmus.real2sim.identify.identify import ParameterEstimate
from isthmus.studio.reports.loop import write_loop_report
from isthmus.tasks.catalogue import get_task
from support.fake_library import FakeLibrary, certificate, refuses, verbs

TASK = "pendulum/swingup"


def calls(library: FakeLibrary) -> list[tuple]:
    return [(c.verb, {k: v for k, v in c.arguments.items() if k != "link"}) for c in library.calls]


@pytest.mark.parametrize("cause", ["outside", "nothing", "policy", None])
def test_a_virtual_robot_and_hardware_get_the_same_calls_and_the_same_verdict(tmp_path, cause):
    """Episodes inside the virtual robot are evaluated after everything else, and whatever they say changes nothing."""
    found = {}
    for name, link, virtual_success in (("hardware", "zenoh", 0.0), ("bad", "sim:x", 0.0), ("good", "sim:x", 1.0)):
        library = FakeLibrary(cause, success=1.0)
        library.virtual_success = virtual_success
        (tmp_path / "same").mkdir()
        result = loop(TASK, link=link, out=tmp_path / "same", rounds=2, library=library)
        (tmp_path / "same").rename(tmp_path / name)
        found[name] = (calls(library), result)
    hardware, result = found["hardware"]
    assert not result.virtual_scores
    for name in ("bad", "good"):
        more, virtual = found[name]
        assert more[: len(hardware)] == hardware
        assert all(verb == "evaluate" and "reality" in arguments for verb, arguments in more[len(hardware) :])
        assert len(virtual.virtual_scores) == len(virtual.attempts)
        for part in ("able", "best", "attempts", "repairs", "stop_reason"):
            assert virtual.to_dict()[part] == result.to_dict()[part]


def test_nothing_that_decides_imports_the_virtual_score_or_a_reality():
    for path in Path(isthmus.pipeline.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            words = (*names, getattr(node, "module", "") or "")
            assert not any("reality" in word.lower() for word in words), path
            if path.stem != "loop":
                assert not any("virtual_score" in word for word in words), path


def test_a_result_is_what_its_json_says(tmp_path):
    result = loop(TASK, link="sim:x", out=tmp_path, library=FakeLibrary("physics", left=2.0))
    assert LoopResult.from_dict(json.loads(json.dumps(result.to_dict()))).to_dict() == result.to_dict()


@pytest.mark.parametrize(("success", "able"), [(1.0, True), (0.0, False), (None, True)])
def test_a_robot_is_judged_by_its_recording(tmp_path, success, able):
    result = loop(TASK, link="zenoh", out=tmp_path, library=FakeLibrary(success=success))
    assert result.able is able
    assert any("recorded success" in line for line in result.sentences) == (success is not None)


def test_not_validated_is_not_able(tmp_path):
    library = FakeLibrary(success=1.0)
    library.validate = lambda arguments: certificate(False)
    assert not loop(TASK, link="zenoh", out=tmp_path, library=library).able


def test_the_policy_that_did_best_on_the_robot_is_handed_over(tmp_path):
    library = FakeLibrary(success=1.0)
    original = library.measure

    def worse_on_the_twin(arguments):
        library.success = 0.0
        return original(arguments)

    library.measure = worse_on_the_twin
    library.diagnose = FakeLibrary("outside", success=1.0).diagnose
    result = loop(TASK, link="zenoh", out=tmp_path, library=library)
    assert [a.evidence.success for a in result.attempts] == [1.0, 0.0]
    assert result.best is not None
    assert result.best.controller == result.attempts[0].controller
    assert any("an earlier policy" in line for line in result.sentences)


def test_the_fitted_actuator_model_is_told_with_its_parameters(tmp_path):
    result = loop(TASK, link="zenoh", out=tmp_path, library=FakeLibrary("physics"))
    assert any("(stribeck: stribeck 0.4)" in line for line in result.sentences)


@pytest.mark.parametrize("cause", ["physics", "wiring", "policy", None])
def test_whatever_happens_there_is_a_report(tmp_path, cause):
    """Recordings that cannot be read, scores without intervals, an actuator model that could not be fitted."""
    library = FakeLibrary(cause, left=3.0)
    library.fit_actuator = refuses("too few segments.")
    result = loop(TASK, link="sim:x", out=tmp_path, library=library)
    truth = {"params": {"payload": 0.2}, "unmodelled": {"stribeck": {"static": 0.3}}}
    result = LoopResult.from_dict(result.to_dict() | {"truth": truth})
    page = write_loop_report(result, tmp_path, tmp_path / "report.html", library=library).read_text()
    assert "</html>" in page
    assert "payload 0.2 kg" in page
    assert "after the last decision" in page
    assert ("too few segments" in page) == ("fit_actuator" in verbs(library))
    assert library.calls == library.calls[: len(result.calls)], "a report makes no call"


def test_truth_in_words():
    space = get_task(TASK).robot.space
    assert describe_truth({"params": {"payload": 0.2}}, space) == "payload 0.2 kg"
    assert "as its model" in describe_truth({}, space)


def test_only_parameters_beyond_their_prior_are_outside():
    def row(value: float, width: float = 0.1) -> ParameterEstimate:
        return ParameterEstimate(value, value - width, value + width, (0.0, 1.0), "1")

    library = FakeLibrary()
    library.parameters = lambda: {"inside": row(0.5), "above": row(1.5), "far below": row(-1.0), "unsure": row(1.5, 0.6)}
    result = library.identify({"robot": "pendulum", "recordings": (), "out": ""})
    assert [m.name for m in parameters_outside_prior(result)] == ["far below", "above"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rounds": 0}, "rounds"),
        ({"seconds": 1.0}, "seconds"),
        ({"budget": -1.0}, "budget"),
        ({"run": Path("nowhere")}, "nowhere"),
    ],
)
def test_bad_arguments_are_named(tmp_path, options, said):
    with pytest.raises(BadInput, match=said):
        loop(TASK, link="zenoh", out=tmp_path / "x", library=FakeLibrary(), **options)
    assert not (tmp_path / "x").exists()
