"""The loop looks at the ground of a robot on feet where its numbers point there, and says what it found."""

from __future__ import annotations

import pytest

from isthmus.pipeline.evidence import LoopSettings
from isthmus.pipeline.outcome import loop_result
from isthmus.studio.reports.loop import write_loop_report
from isthmus.tasks.catalogue import get_task
from support.fake_library import Robot, lived, verbs

TASK = "go1/walk"


class Walker(Robot):
    """Walks on soft ground or not, and its friction was found outside of what was believed or not."""

    def __init__(self, cause: str, soft: bool, bent: bool, left: float = 1.2):
        super().__init__(cause, left=left)
        self.soft, self.bent = soft, bent

    def identify(self, args):
        code, found = super().identify(args)
        friction = {"unit": "1", "value": 1.7, "low": 1.6, "high": 1.8, "before": [0.2, 1.4 if self.bent else 1.9]}
        return code, found | {"parameters": found["parameters"] | {"ground_friction": friction}}

    def residual(self, args):
        assert args[args.index("--only") + 1] == "ground"
        tried = {"as believed": {"fitted": 1.2, "held_out": 1.22}, "soft ground": {"fitted": 1.1, "held_out": 1.09}}
        ground = {"stiffness": 2750.0, "damping": 84.0, "sink": 0.0114} if self.soft else None
        return (0 if self.soft else 1), {"kept": self.soft, "ground": ground, "candidates": tried}


def told(tmp_path, robot: Robot) -> tuple:
    story, steps = lived(tmp_path, robot, TASK)
    for attempt in story.attempts:
        for h in attempt.diagnosis.get("hypotheses", []):
            h |= {"sentence": "so it is", "action": "do it", "gain": ""}
    task = get_task(TASK)
    found = loop_result(story, task.robot.space, None)
    page = write_loop_report(tmp_path / "report.html", story, LoopSettings(TASK, "sim"), task, found, steps).read_text()
    return story.repairs[0], " ".join(found.sentences), page


@pytest.mark.parametrize(("cause", "bent"), [("outside", True), ("physics", False)])
def test_soft_ground_is_found_trained_on_and_told(tmp_path, cause, bent):
    robot = Walker(cause, soft=True, bent=bent)
    repair, sentences, page = told(tmp_path, robot)
    assert repair.twin == tmp_path / "1-ground.twin"
    assert "ground into which it sinks by 11 mm" in sentences
    assert "force" not in sentences
    assert "as believed 1.22, soft ground 1.09. Soft ground was kept" in page
    assert "actuator" not in verbs(robot)


def test_numbers_that_leave_little_and_do_not_touch_the_ground_are_enough(tmp_path):
    robot = Walker("outside", soft=True, bent=False)
    assert told(tmp_path, robot)[0].twin == tmp_path / "1-numbers.twin"
    assert "residual" not in verbs(robot)


@pytest.mark.parametrize(("cause", "then"), [("outside", []), ("physics", ["actuator"])])
def test_hard_ground_is_no_answer(tmp_path, cause, then):
    robot = Walker(cause, soft=False, bent=True)
    repair, sentences, page = told(tmp_path, robot)
    assert [v for v in verbs(robot) if v in ("residual", "actuator")] == ["residual", *then]
    assert repair.twin == tmp_path / f"1-{(then or ['numbers'])[0]}.twin"
    assert "sinks" not in sentences
    assert "Soft ground was not kept" in page
