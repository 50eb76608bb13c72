"""The robot's own last word on commands, for any body: whole ones only, from one controller at a time, and none for too long
means damping. It does not trust the controller's side, and works when that side is gone."""

from __future__ import annotations

import math

import numpy as np

from isthmus.deploy.links.in_process import RobotBody
from isthmus.deploy.links.link import Command


class CommandArbiter:
    def __init__(self, body: RobotBody):
        self.body = body
        self.owner = 0
        """The controller that is obeyed; 0 is nobody."""
        self._size = body.identity.contract.target.size
        self._timeout = body.identity.timeout
        self._last_command_time = -math.inf
        self._last_sequence = -1
        self._last_command: Command | None = None

    def forward(self, command: Command, now: float) -> None:
        """Pass a command on, if it is one to be obeyed."""
        fresh = now - self._last_command_time <= self._timeout
        if fresh and command.owner != self.owner:
            return
        if fresh and command.sequence <= self._last_sequence:
            return
        if command.mode == "busy" or command.target.shape != (self._size,) or not np.isfinite(command.target).all():
            return
        self.owner, self._last_command_time, self._last_sequence, self._last_command = (
            command.owner,
            now,
            command.sequence,
            command,
        )
        self.body.command(command)

    def check_timeout(self, now: float) -> None:
        """Damp a body that was told to track and then nothing more."""
        if now - self._last_command_time <= self._timeout:
            return
        self.owner = 0
        if self._last_command is not None and self._last_command.mode == "track":
            self.damp()

    def damp(self) -> None:
        """Whatever happened, this is how a robot is left."""
        if self._last_command is not None and self._last_command.mode == "track":
            last = self._last_command
            self._last_command = Command(last.sequence, last.time, "damp", last.target, last.owner)
            self.body.command(self._last_command)
