"""A policy in a browser: the robot walks while the numbers of its world are changed.

serve(get_task("go1/walk"), actor)          until Ctrl-C
replay(Path("runs/a/blowup-000.npz"))       the last moments of a world whose physics failed
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from isthmus.data.contract import Signal
from isthmus.errors import BadInput
from isthmus.learn.actor import Actor, forget
from isthmus.studio.panel import Clicks, CommandPanel, Knob, WorldPanel, hide_boxes
from isthmus.studio.readout import Readout
from isthmus.studio.replay import replay
from isthmus.studio.scene import Scene
from isthmus.studio.server import close_server, open_server, present, url_of
from isthmus.studio.sliders import command_limits, parse
from isthmus.tasks.env import Env
from isthmus.tasks.task import Task
from isthmus.world import Belief, adopt

__all__ = ["Session", "replay", "serve"]

FOREVER = 1e8
"""s: an episode on the page ends with a fall or at the user's wish."""
FRAMES = 50.0
"""Poses sent to the page per second, at most."""
TEXTS = 5.0
"""Readouts per second."""
LATE = 0.2
"""s behind real time from which on lost time is not caught up."""
WORLD = np.array([0])


class Session:
    """One world, one policy, one page. `tick` advances it; only the thread that calls it touches the physics."""

    def __init__(self, task: Task, actor: Actor | None, belief: Belief | None, port: int, host: str, seed: int):
        self.task = replace(task, episode=FOREVER)
        self.actor = actor
        robot = task.robot
        self.prior = adopt(belief, robot.space) if belief is not None else robot.prior
        self.rng = np.random.default_rng(seed)
        self._e = robot.space.nominal[None].copy()
        self.env = Env(self.task, 1, seed=seed, training=False, e=self._e)
        self.env.disturber.config = self.task.disturbance.scaled(0.0)
        self.env.disturber.reset(WORLD)
        self.memory = actor.memory(1) if actor is not None else {}
        self.readout = Readout(self.task, self.env.engine.tick)
        self._xpos, self._xquat = (self.env.engine.batch.bind(f) for f in ("xpos", "xquat"))
        signal = task.command.signal if task.command else None
        self.place = signal if signal and (signal.unit, signal.frame, signal.size) == ("m", "world", 3) else None
        """The command, if it is a place in the world."""
        self.server = open_server(port, host, task.name)
        try:
            self.scene = Scene(self.server, self.env.engine.model, robot.base, robot.home, _reach(self.place))
            self._controls()
        except BaseException:
            close_server(self.server)
            raise
        self.url = url_of(self.server)
        self.running = True
        self.poll()
        self.show(jump=True)

    def _controls(self) -> None:
        gui, task = self.server.gui, self.task
        self.clicks = Clicks(gui)
        self._text = gui.add_markdown("")
        self.pushable = bool(task.robot.base)
        self.clicks.row("robot", ("push", "reset") if self.pushable else ("reset",), "a shove from a random side; a new start")
        self.pause = gui.add_checkbox("pause", False)
        self.follow = gui.add_checkbox("follow", self.place is None, hint="keep the robot in the middle of the view")
        if self.pushable:
            speed = "m/s that a push adds to the robot's speed"
            self.shove = Knob(gui, 0.0, 3.0, 0.8, lambda v: f"push by {v:.2g} m/s", speed, 0.05)
            weather = "strength of the task's own pushes, gusts and wind; 1 as in training"
            self.weather = Knob(gui, 0.0, 2.0, 0.0, lambda v: f"disturbed ×{v:.2g}", weather, 0.05)
        self.command = None
        if task.command is not None:
            with gui.add_folder(f"command ({', '.join(dict.fromkeys(u for u in self.readout.units))})"):
                self.command = CommandPanel(gui, task.command.signal)
                self.clicks.row("", ("stop",), "ask for nothing")
        with gui.add_folder("world"):
            self.clicks.row("all", ("nominal", "sample prior"), "every number nominal, or drawn from the prior belief")
            with gui.add_form(None) as form:
                self.exact = gui.add_text("set", "", hint="exact values, then Enter: ground_friction = 0.42, payload = 2")
            form.on_submit(lambda _: self.clicks.press(f"set {self.exact.value}"))
            self._answer = gui.add_markdown("", visible=False)
            self.world = WorldPanel(gui, task.robot.space, self._e[0])
        hide_boxes(gui)

    # What the user did ------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Carry out what was asked on the page since the last tick."""
        for name in self.clicks.take():
            if name == "push" and self.pushable:
                self._push()
            elif name == "reset":
                self.reset()
            elif name == "stop" and self.command is not None:
                self.command.set(self.command.still)
            elif name == "nominal":
                self._set_world(self.task.robot.space.nominal)
            elif name == "sample prior":
                self._set_world(self.prior.sample(self.rng, 1)[0])
            elif name.startswith("set "):
                self._set_exactly(name.removeprefix("set "))
        if self.world.poll():
            self._apply()
        self.scene.follow = bool(self.follow.value)
        if self.pushable:
            self.shove.moved()
            if self.weather.moved():
                self.env.disturber.config = self.task.disturbance.scaled(self.weather.value)
                self.env.disturber.reset(WORLD)
        if self.command is not None:
            self.env.command[0] = torch.from_numpy(self.command.value())

    def _push(self) -> None:
        angle, speed = self.rng.uniform(0, 2 * np.pi), self.shove.value
        self.env.disturber.shove(WORLD, speed * np.array([[np.cos(angle), np.sin(angle), 0.0]]))

    def _set_world(self, e: np.ndarray) -> None:
        self.world.set(e)
        self._apply()

    def _set_exactly(self, text: str) -> None:
        try:
            self._set_world(parse(text, self.task.robot.space, self.world.e))
            self._answer.visible = False
        except BadInput as error:
            self._answer.content, self._answer.visible = str(error), True

    def _apply(self) -> None:
        self._e[0] = self.world.e
        self.env.change(self._e, WORLD)

    def reset(self) -> None:
        """Start anew: the episode has reached its end."""
        self.env.age[0] = self.env.horizon
        self.tick()
        self.readout.restart()

    def _forget(self) -> None:
        if self.actor is not None:
            forget(self.memory, torch.zeros(1, dtype=torch.long))

    # Time -------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """One control tick of the world."""
        with torch.no_grad():
            if self.actor is None:
                target = self.env.default[None]
            else:
                target, self.memory = self.actor(self.actor.sees(self.env), self.memory)
            lost = self.env.worlds_lost
            step = self.env.step(target)
        failed = bool(step.failed[0])
        self.readout.note(self.env.state_now, failed, self.env.worlds_lost > lost)
        if failed or bool(step.timed_out[0]):
            self._forget()
            self.show(jump=True)

    def show(self, jump: bool = False) -> None:
        if self.place is not None and self.command is not None:
            self.scene.mark(self.command.value())
        self.scene.update(self._xpos[0], self._xquat[0], self.env.disturber.force[0], jump)

    def write(self) -> None:
        asked = self.command.value() if self.command is not None else np.zeros(0)
        self._text.content = self.readout.markdown(asked, bool(self.pause.value))

    def stop(self) -> None:
        """Ask the loop to end after its present tick."""
        self.running = False

    def run(self, seconds: float | None = None) -> None:
        """Real time, or as close as the machine comes, until `stop`, Ctrl-C or `seconds`."""
        tick = self.env.engine.tick
        start = due = time.monotonic()
        shown = written = -np.inf
        while self.running:
            now = time.monotonic()
            if seconds is not None and now - start >= seconds:
                break
            self.poll()
            if self.pause.value:
                self.readout.resume()
                due = now
            else:
                self.tick()
            if now - shown >= 0.9 / FRAMES:
                self.show()
                shown = now
            if now - written >= 1 / TEXTS:
                self.write()
                written = now
            due = max(due + tick, time.monotonic() - LATE)
            time.sleep(max(due - time.monotonic(), 0.0))


def _reach(place: Signal | None) -> float:
    """How far from the middle of its range a commanded place may lie, m."""
    return 0.0 if place is None else max((high - low) / 2 for low, high in command_limits(place)) * 3**0.5


def serve(
    task: Task,
    actor: Actor | None,
    belief: Belief | None = None,
    port: int = 8080,
    host: str = "127.0.0.1",
    seconds: float | None = None,
    seed: int = 0,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Show a policy at work until Ctrl-C or for `seconds`; without an actor the robot holds its default pose.

    `on_ready` is given the page's address: at the port asked for, or the next free one. `belief` is what the page's
    sampling button draws from, by default the robot's prior.
    """
    present(Session(task, actor, belief, port, host, seed), seconds, on_ready)
