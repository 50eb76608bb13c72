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

from isthmus.core.errors import BadInput
from isthmus.data.contract import Signal
from isthmus.learn.policies.actor import Actor, reset_memory
from isthmus.studio.live.blowup_replay import replay
from isthmus.studio.live.panel import ButtonPresses, CommandPanel, LabelledSlider, ParameterPanel, hide_number_boxes
from isthmus.studio.live.parameter_sliders import command_limits, parse_assignments
from isthmus.studio.live.readout import Readout
from isthmus.studio.live.scene import LiveScene
from isthmus.studio.live.server import close_server, open_server, run_page, server_url
from isthmus.tasks.env import Env
from isthmus.tasks.task import Task
from isthmus.world import Belief, belief_on_space

__all__ = ["ViewerSession", "replay", "serve"]

NO_TIME_LIMIT = 1e8
"""s: an episode on the page ends with a fall or at the user's wish."""
MAX_FRAME_RATE = 50.0
"""Poses sent to the page per second, at most."""
READOUT_RATE = 5.0
"""Readouts per second."""
MAX_CATCH_UP = 0.2
"""s behind real time from which on lost time is not caught up."""
WORLD_IDS = np.array([0])


class ViewerSession:
    """One world, one policy, one page. `tick` advances it; only the thread that calls it touches the physics."""

    def __init__(self, task: Task, actor: Actor | None, belief: Belief | None, port: int, host: str, seed: int):
        self.task = replace(task, episode=NO_TIME_LIMIT)
        self.actor = actor
        robot = task.robot
        self.prior = belief_on_space(belief, robot.space) if belief is not None else robot.prior
        self.rng = np.random.default_rng(seed)
        self._e = robot.space.nominal[None].copy()
        self.env = Env(self.task, 1, seed=seed, training=False, e=self._e)
        self.env.disturbances.config = self.task.disturbance.scaled(0.0)
        self.env.disturbances.reset(WORLD_IDS)
        self.memory = actor.memory(1) if actor is not None else {}
        self.readout = Readout(self.task, self.env.sim.tick)
        self._xpos, self._xquat = (self.env.sim.engine.array(f) for f in ("xpos", "xquat"))
        signal = task.command.signal if task.command else None
        self.goal_signal = signal if signal and (signal.unit, signal.frame, signal.size) == ("m", "world", 3) else None
        """The command, if it is a place in the world."""
        self.server = open_server(port, host, task.name)
        try:
            self.scene = LiveScene(
                self.server, self.env.sim.model, robot.morphology.base, robot.home, _goal_distance(self.goal_signal)
            )
            self._add_controls()
        except BaseException:
            close_server(self.server)
            raise
        self.url = server_url(self.server)
        self.running = True
        self.poll()
        self.draw(jump=True)

    def _add_controls(self) -> None:
        gui, task = self.server.gui, self.task
        self.buttons = ButtonPresses(gui)
        self._readout_text = gui.add_markdown("")
        self.can_push = bool(task.robot.morphology.base)
        self.buttons.add_button_row(
            "robot", ("push", "reset") if self.can_push else ("reset",), "a shove from a random side; a new start"
        )
        self.pause = gui.add_checkbox("pause", False)
        self.follow = gui.add_checkbox("follow", self.goal_signal is None, hint="keep the robot in the middle of the view")
        if self.can_push:
            speed = "m/s that a push adds to the robot's speed"
            self.push_speed = LabelledSlider(gui, 0.0, 3.0, 0.8, lambda v: f"push by {v:.2g} m/s", speed, 0.05)
            weather = "strength of the task's own pushes, gusts and wind; 1 as in training"
            self.disturbance_scale = LabelledSlider(gui, 0.0, 2.0, 0.0, lambda v: f"disturbed ×{v:.2g}", weather, 0.05)
        self.command = None
        if task.command is not None:
            with gui.add_folder(f"command ({', '.join(dict.fromkeys(u for u in self.readout.units))})"):
                self.command = CommandPanel(gui, task.command.signal)
                self.buttons.add_button_row("", ("stop",), "ask for nothing")
        with gui.add_folder("world"):
            self.buttons.add_button_row(
                "all", ("nominal", "sample prior"), "every number nominal, or drawn from the prior belief"
            )
            with gui.add_form(None) as form:
                self.exact_values = gui.add_text(
                    "set", "", hint="exact values, then Enter: ground_friction = 0.42, payload = 2"
                )
            form.on_submit(lambda _: self.buttons.press(f"set {self.exact_values.value}"))
            self._error_text = gui.add_markdown("", visible=False)
            self.world = ParameterPanel(gui, task.robot.space, self._e[0])
        hide_number_boxes(gui)

    # What the user did ------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Carry out what was asked on the page since the last tick."""
        for name in self.buttons.take():
            if name == "push" and self.can_push:
                self._push()
            elif name == "reset":
                self.reset()
            elif name == "stop" and self.command is not None:
                self.command.set(self.command.neutral)
            elif name == "nominal":
                self._set_world(self.task.robot.space.nominal)
            elif name == "sample prior":
                self._set_world(self.prior.sample(self.rng, 1)[0])
            elif name.startswith("set "):
                self._set_values(name.removeprefix("set "))
        if self.world.poll():
            self._apply()
        self.scene.follow = bool(self.follow.value)
        if self.can_push:
            self.push_speed.was_moved()
            if self.disturbance_scale.was_moved():
                self.env.disturbances.config = self.task.disturbance.scaled(self.disturbance_scale.value)
                self.env.disturbances.reset(WORLD_IDS)
        if self.command is not None:
            self.env.command[0] = torch.from_numpy(self.command.value())

    def _push(self) -> None:
        angle, speed = self.rng.uniform(0, 2 * np.pi), self.push_speed.value
        self.env.disturbances.start_push(WORLD_IDS, speed * np.array([[np.cos(angle), np.sin(angle), 0.0]]))

    def _set_world(self, e: np.ndarray) -> None:
        self.world.set(e)
        self._apply()

    def _set_values(self, text: str) -> None:
        try:
            self._set_world(parse_assignments(text, self.task.robot.space, self.world.e))
            self._error_text.visible = False
        except BadInput as error:
            self._error_text.content, self._error_text.visible = str(error), True

    def _apply(self) -> None:
        self._e[0] = self.world.e
        self.env.set_parameters(self._e, WORLD_IDS)

    def reset(self) -> None:
        """Start anew: the episode has reached its end."""
        self.env.episode_ticks[0] = self.env.horizon
        self.tick()
        self.readout.restart()

    def _reset_memory(self) -> None:
        if self.actor is not None:
            reset_memory(self.memory, torch.zeros(1, dtype=torch.long))

    # Time -------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """One control tick of the world."""
        with torch.no_grad():
            if self.actor is None:
                target = self.env.default[None]
            else:
                target, self.memory = self.actor(self.actor.read_signals(self.env), self.memory)
            lost = self.env.diverged_worlds
            step = self.env.step(target)
        failed = bool(step.terminated[0])
        self.readout.add_tick(self.env.true_state, failed, self.env.diverged_worlds > lost)
        if failed or bool(step.timed_out[0]):
            self._reset_memory()
            self.draw(jump=True)

    def draw(self, jump: bool = False) -> None:
        if self.goal_signal is not None and self.command is not None:
            self.scene.show_goal(self.command.value())
        self.scene.update(self._xpos[0], self._xquat[0], self.env.disturbances.force[0], jump)

    def update_readout(self) -> None:
        asked = self.command.value() if self.command is not None else np.zeros(0)
        self._readout_text.content = self.readout.markdown(asked, bool(self.pause.value))

    def stop(self) -> None:
        """Ask the loop to end after its present tick."""
        self.running = False

    def run(self, seconds: float | None = None) -> None:
        """Real time, or as close as the machine comes, until `stop`, Ctrl-C or `seconds`."""
        tick = self.env.sim.tick
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
            if now - shown >= 0.9 / MAX_FRAME_RATE:
                self.draw()
                shown = now
            if now - written >= 1 / READOUT_RATE:
                self.update_readout()
                written = now
            due = max(due + tick, time.monotonic() - MAX_CATCH_UP)
            time.sleep(max(due - time.monotonic(), 0.0))


def _goal_distance(goal: Signal | None) -> float:
    """How far from the middle of its range a commanded place may lie, m."""
    return 0.0 if goal is None else max((high - low) / 2 for low, high in command_limits(goal)) * 3**0.5


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
    run_page(ViewerSession(task, actor, belief, port, host, seed), seconds, on_ready)
