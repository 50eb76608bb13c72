"""The robot's own last word: whole commands, one controller at a time, and damping when they stop. For any body."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isthmus.data.mcap.writer import EpisodeWriter, read_episode
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.links.arbiter import CommandArbiter
from isthmus.deploy.links.in_process import InProcessLink
from isthmus.deploy.links.link import Command
from isthmus.deploy.recorder import STATUS_COLUMNS, Recorder
from isthmus.deploy.runtime import ControlLoop
from support.lockstep import GO1, counter, ready, stand_in

TARGET = np.zeros(12)
US, THEM = 7, 8


def track(sequence: int, owner: int = US, target: np.ndarray = TARGET) -> Command:
    return Command(sequence, 0.0, "track", target, owner)


def test_without_commands_a_body_is_damped_after_its_time_out_and_once():
    body = stand_in()
    gate = CommandArbiter(body)
    gate.forward(track(0), 0.0)
    gate.check_timeout(0.1)
    assert [c.mode for c in body.commands] == ["track"]
    for now in (0.1001, 0.2, 5.0):
        gate.check_timeout(now)
    assert [c.mode for c in body.commands] == ["track", "damp"]
    gate.forward(track(1), 5.1)
    assert body.commands[-1].mode == "track"


def test_a_body_that_was_never_commanded_is_left_alone():
    body = stand_in()
    gate = CommandArbiter(body)
    gate.check_timeout(100.0)
    gate.damp()
    assert body.commands == []


@pytest.mark.parametrize(
    "bad",
    [
        track(1, target=np.full(12, np.nan)),
        track(1, target=np.full(12, np.inf)),
        track(1, target=np.zeros(11)),
        track(0),
        replace(track(1), mode="busy"),
        track(1, THEM),
    ],
    ids=["not numbers", "infinite", "too few", "the same again", "no such mode", "from someone else"],
)
def test_a_command_that_is_not_to_be_obeyed_is_not_and_keeps_nobody_alive(bad):
    body = stand_in()
    gate = CommandArbiter(body)
    gate.forward(track(0), 0.0)
    gate.forward(bad, 0.09)
    assert len(body.commands) == 1
    gate.check_timeout(0.11)
    assert body.commands[-1].mode == "damp"


def test_one_controller_at_a_time_and_the_next_when_the_first_is_gone():
    body = stand_in()
    gate = CommandArbiter(body)
    for k in range(5):
        gate.forward(track(k), 0.05 * k)
        gate.forward(track(k + 1, THEM), 0.05 * k)
    assert {c.owner for c in body.commands} == {US}
    assert gate.owner == US
    gate.check_timeout(0.31)
    assert gate.owner == 0
    gate.forward(track(0, THEM), 0.32)
    assert gate.owner == THEM
    assert body.commands[-1].mode == "track"


class Shared(InProcessLink):
    """A link to a robot behind a gate, which someone else also commands from a moment on."""

    def __init__(self, body, since: float):
        super().__init__(body)
        self.gate, self.since, self._others = CommandArbiter(body), since, 0

    def sleep_until(self, moment: float) -> None:
        super().sleep_until(moment)
        if self.now() >= self.since:
            self._others += 1
            self.gate.forward(Command(self._others, 0.0, "track", np.array(self.body.pose), THEM), self.now())

    def read(self):
        return [replace(p, owner=self.gate.owner) for p in super().read()]

    def write(self, command: Command) -> None:
        self.gate.forward(command, self.now())


@pytest.mark.parametrize(("since", "ended"), [(0.0, "guard"), (2.0, "completed")])
def test_of_two_controllers_one_runs_and_the_other_ends_itself(since, ended):
    """Whoever comes second is not obeyed, sees it, and says so."""
    controller, body = counter(), stand_in()
    link = Shared(body, since=1e9)
    flight, _ = ready(controller, link)
    link.since = link.now() + since
    if since == 0.0:
        link.sleep_until(link.now() + 0.04)
    outcome = ControlLoop(controller, link, flight, CommandSchedule(controller.manifest.operator)).run(3.0)
    assert outcome.status == ended
    assert (outcome.reason == "") == (ended == "completed")
    if ended == "guard":
        assert outcome.reason.startswith("mode: the robot is told to track, but it obeys another controller")


class Breaks(InProcessLink):
    def read(self):
        if self.now() > 2.0:
            raise RuntimeError("the driver is gone")
        return super().read()


def test_a_link_that_raises_leaves_a_damped_robot_and_a_whole_recording(tmp_path):
    controller, body = counter(), stand_in()
    link = Breaks(body)
    flight, _ = ready(controller, link)
    recorder = Recorder(EpisodeWriter(tmp_path / "a.mcap", GO1, controller.manifest.operator, STATUS_COLUMNS, {}))
    with pytest.raises(RuntimeError, match="the driver is gone"):
        ControlLoop(controller, link, flight, CommandSchedule(controller.manifest.operator), recorder).run(5.0)
    assert body.commands[-1].mode == "damp"
    episode = read_episode(tmp_path / "a.mcap")
    assert episode.complete
    assert len(episode) == len(body.commands) - 1


def test_who_wants_it_over_at_once_gets_it():
    controller, body = counter(), stand_in()
    link = InProcessLink(body)
    flight, _ = ready(controller, link)
    loop = ControlLoop(controller, link, flight, CommandSchedule(controller.manifest.operator))
    ends = link.now() + 1.0

    def stopping() -> str:
        loop.damp_now = link.now() >= ends
        return ""

    outcome = loop.run(10.0, stopping)
    assert outcome.status == "interrupted"
    tracked = [c.time for c in body.commands if c.mode == "track"]
    assert max(tracked) <= ends + 0.021
    assert body.commands[-1].mode == "damp"
