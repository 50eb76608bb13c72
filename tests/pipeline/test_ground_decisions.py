"""The loop fits the ground of a legged robot where its parameters point there, and says what it found."""

from __future__ import annotations

import pytest

from isthmus.pipeline.loop import loop
from isthmus.real2sim.identify.identify import ParameterEstimate
from isthmus.real2sim.identify.learn_residual import GroundRecord
from isthmus.real2sim.result_parts import ErrorChange, ErrorPair
from isthmus.studio.reports.loop import write_loop_report
from support.fake_library import FakeLibrary, residual_result, verbs

TASK = "go1/walk"


class Walker(FakeLibrary):
    """Walks on soft ground or not, and its friction was identified outside of its prior or not."""

    def __init__(self, cause: str, soft: bool, friction_outside: bool, left: float = 1.2):
        super().__init__(cause, left=left)
        self.soft, self.friction_outside = soft, friction_outside

    def parameters(self):
        high = 1.4 if self.friction_outside else 1.9
        return super().parameters() | {"ground_friction": ParameterEstimate(1.7, 1.6, 1.8, (0.2, high), "1")}

    def learn_residual(self, arguments):
        assert arguments["only"] == "ground"
        candidates = {"as believed": ErrorPair(1.2, 1.22), "soft ground": ErrorPair(1.1, 1.09)}
        ground = GroundRecord(2750.0, 84.0, 0.0114, (), (2500.0, 3000.0), (70.0, 95.0)) if self.soft else None
        error = ErrorChange(ErrorPair(1.2, 1.22), ErrorPair(1.1, 1.09))
        return residual_result(self.soft, error, ground, candidates)


def run(folder, library: Walker):
    result = loop(TASK, link="zenoh", out=folder, library=library)
    page = write_loop_report(result, folder, folder / "report.html", library=library).read_text()
    return result.repairs[0].twin, " ".join(result.sentences), page


@pytest.mark.parametrize(("cause", "outside"), [("outside", True), ("physics", False)])
def test_soft_ground_is_found_trained_on_and_reported(tmp_path, cause, outside):
    library = Walker(cause, soft=True, friction_outside=outside)
    twin, sentences, page = run(tmp_path, library)
    assert twin == str(tmp_path / "1-ground.twin")
    assert "soft ground was found, into which it sinks by 11 mm" in sentences
    assert "residual dynamics" not in sentences
    assert "as believed 1.22, soft ground 1.09. Soft ground was kept" in page
    assert "fit_actuator" not in verbs(library)


def test_parameters_that_leave_little_and_do_not_touch_the_ground_are_enough(tmp_path):
    library = Walker("outside", soft=True, friction_outside=False)
    assert run(tmp_path, library)[0] == str(tmp_path / "1-numbers.twin")
    assert "learn_residual" not in verbs(library)


@pytest.mark.parametrize(("cause", "then"), [("outside", []), ("physics", ["fit_actuator"])])
def test_hard_ground_is_no_answer(tmp_path, cause, then):
    library = Walker(cause, soft=False, friction_outside=True)
    twin, sentences, page = run(tmp_path, library)
    assert [v for v in verbs(library) if v in ("learn_residual", "fit_actuator")] == ["learn_residual", *then]
    assert twin == str(tmp_path / ("1-actuator.twin" if then else "1-numbers.twin"))
    assert "sinks" not in sentences
    assert "Soft ground was not kept" in page
