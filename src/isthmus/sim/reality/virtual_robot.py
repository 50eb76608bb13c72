"""A robot that is not there: it takes commands and sends packets as hardware does, and shows nothing else.

    robot = VirtualRobot(go1, Reality.load("real.toml"))
    robot.command(Command(0, now, "track", target))      whenever one arrives
    for packet in robot.advance(): …                     one period of physics, and what leaves the robot now

What it does in each mode, all of it on board, without the delays and faults of the link:

- idle, busy: a position drive holds its default pose with its own motors, and moves there slowly from any other. Other
  robots are held still at home, with their signals alive; coming back to idle puts them back there.
- track: the motors follow the latest target.
- damp: joints are damped as the contract's safety says, without any stiffness, also those of a model's own servos. What
  flies levels itself by the contract's law, on its own sensors with their errors but before any fault of the wiring;
  without a law its rotors stop.

A robot that tracks and hears nothing for longer than its time-out goes to damp, and back when commands return.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.files import content_hash
from isthmus.data.contract import AffineFeedback
from isthmus.deploy.links.link import Command, Identity, Mode, Packet
from isthmus.sim.reality.ground_truth import GroundTruth
from isthmus.sim.reality.motor_derating import MotorDerating
from isthmus.sim.reality.network import Channel
from isthmus.sim.reality.reality_file import Reality
from isthmus.sim.reality.sensor_errors import SensorErrors
from isthmus.sim.reality.servo_damping import ServoDamping
from isthmus.sim.reality.simulation import PACKET_PERIOD, real_simulation
from isthmus.sim.reality.wiring_faults import WiringFaults
from isthmus.sim.robot import Robot

COMMAND_TIMEOUT = 0.1
"""s without commands after which a robot that tracks damps itself."""
IDLE_SPEED = 0.5
"""rad/s (or m/s) at which a robot goes back to its default pose by itself."""
IDLE_GAIN_FACTOR = 2.0
"""How much stiffer than for targets the motors are when the robot holds itself: it must stand with any load."""
_SALT = os.urandom(16)
"""A robot's name must tell its realities apart, but not to those who know what realities there are."""


class VirtualRobot:
    def __init__(
        self, robot: Robot, reality: Reality, timeout: float = COMMAND_TIMEOUT, start: np.ndarray | None = None, unit: str = ""
    ):
        """`start` is the qpos of the robot's model at the beginning and whenever it is put back; home by default.

        `unit` is its name as a specimen. Without one it gets one at random: the same for one reality in one process.
        """
        if not 0 < timeout < 60:
            raise BadInput(f"a time-out must lie between 0 and 60 s, not at {timeout:g}.")
        self.robot, self.timeout, self.period = robot, timeout, PACKET_PERIOD
        self.sim = real_simulation(robot, reality, 1, threads=1, wired=False)
        self._wiring = WiringFaults(reality.faults, robot.contract)
        self._derating, self._sensor_errors = self.sim.part(MotorDerating), self.sim.part(SensorErrors)
        if start is not None and np.shape(start) != (robot.model.nq,):
            raise BadInput(f"the start of {robot.name} has {np.size(start)} numbers, not {robot.model.nq}.")
        self._start_qpos = None if start is None else np.array(start, dtype=float)[None]
        faults, safety = reality.faults, robot.contract.safety
        seeds = np.random.SeedSequence(reality.seed).spawn(3)
        self._rng = np.random.default_rng(seeds[0])
        self._outgoing: Channel[Packet] = Channel(faults, np.random.default_rng(seeds[1]))
        self._incoming: Channel[Command] = Channel(faults, np.random.default_rng(seeds[2]))
        self._clock_jump = faults.clock_jump
        self._mode: Mode = "busy" if faults.mode == "busy" else "idle"
        self._holds_pose = robot.motors.drive == "position" and self.sim.driven_joints is not None
        self._default = np.array(robot.default)
        self._target = self._hold_target = self._default
        self._servos = ServoDamping(self.sim, safety.damping) if robot.motors.drive == "native" else None
        self._off_target = np.array(safety.rest or (robot.default if self._holds_pose else (0.0,) * len(robot.default)))
        self._damping = np.array(safety.damping or [2.0 * kd for kd in robot.motors.kd] or [0.0])
        self._level_law = safety.level
        self._slices = robot.contract.slices()
        self._period_count, self._last_sequence, self._last_command_time = 0, -1, -np.inf
        self._skipped_seconds = 0.0
        self._truth = GroundTruth(self.sim)
        model = content_hash(f"not {robot.model_hash}".encode()) if faults.model == "other" else robot.model_hash
        unit = unit or f"virtual-{content_hash(_SALT + reality.hash.encode())[:8]}"
        self._identity = Identity(robot.contract, unit, model, self._mode, timeout, source="virtual")
        self._return_to_start()
        self._configure_motors()
        self._sensor_signals = self.sim.unrounded_signals(self._rng, 0.0)

    @property
    def time(self) -> float:
        """s that the robot has lived through since it was switched on."""
        return self._period_count * PACKET_PERIOD

    @property
    def clock(self) -> float:
        """What the robot takes for the time."""
        jump = self._clock_jump
        return self.time + self._skipped_seconds + (jump.by if jump is not None and self.time >= jump.at else 0.0)

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def identity(self) -> Identity:
        return replace(self._identity, mode=self._mode)

    def truth(self) -> dict[str, Any]:
        """The true state, for a log that nobody reads who has to find it out."""
        return {"time": self.time, "mode": self._mode} | self._truth.read()

    # Commands -------------------------------------------------------------------------------------------------

    def command(self, command: Command) -> None:
        """Take a command from the link; it may be late or lost on its last bit of way."""
        self._incoming.send(command, self.time)

    def _accept(self, command: Command) -> None:
        """Obey, unless busy, or the command is broken, or one that a newer one has overtaken."""
        if self._mode == "busy":
            return
        if command.sequence < self._last_sequence and self.time - self._last_command_time <= self.timeout:
            return
        if command.mode == "track":
            target = np.asarray(command.target, dtype=float)
            if target.shape != self._default.shape or not np.isfinite(target).all():
                return
            self._target = self._wiring.target(target)
        if command.mode in ("idle", "track", "damp"):
            self._last_sequence, self._last_command_time = command.sequence, self.time
            self._enter_mode(command.mode)

    def _enter_mode(self, mode: Mode) -> None:
        if mode == self._mode:
            return
        self._mode = mode
        if mode == "idle" and not self._holds_pose:
            self._return_to_start()
        self._configure_motors()

    def _configure_motors(self) -> None:
        """Motors as the mode has them, from where the robot is now."""
        engine = self.sim
        engine.motors.restore_gains()
        if self._servos is not None:
            self._servos.enable_damping() if self._mode == "damp" else self._servos.restore_servos()
        if self._holds_pose and engine.driven_joints is not None:
            self._hold_target = engine.qpos[0, engine.driven_joints[0]].copy()
        kp, kd = engine.userdata["motor.kp"], engine.userdata["motor.kd"]
        if self._mode == "damp":
            engine.motors.override_gains(*(0.0, self._damping) if self._holds_pose else (kp, kd))
        elif self._mode in ("idle", "busy") and self._holds_pose:
            engine.motors.override_gains(IDLE_GAIN_FACTOR * kp, IDLE_GAIN_FACTOR * kd)

    def _return_to_start(self) -> None:
        """To the start and at rest; what is warm stays warm."""
        worn = (self._derating, self._sensor_errors)
        kept = [part.state() for part in worn]
        self.sim.reset(self.sim.all_ids, self._start_qpos)
        for part, state in zip(worn, kept, strict=True):
            part.restore(state)

    # Time -----------------------------------------------------------------------------------------------------

    def advance(self) -> list[Packet]:
        """One period: commands that have arrived, physics, and the packets that leave now."""
        for command in self._incoming.arrivals(self.time):
            self._accept(command)
        if self._mode == "track" and self.time - self._last_command_time > self.timeout:
            self._enter_mode("damp")
        target = self._next_target()
        if target is not None:
            self._derating.battery_idle = self._mode in ("idle", "busy")
            self.sim.step(target[None])
            if self.sim.diverged[0]:
                self._recover()
        self._period_count += 1
        self._sensor_signals = self.sim.unrounded_signals(self._rng, PACKET_PERIOD)
        values = self._wiring.signals(self._sensor_signals)[0]
        self._outgoing.send(Packet(self._period_count, self.clock, self._mode, values.copy()), self.time)
        return self._outgoing.arrivals(self.time)

    def skip(self, seconds: float) -> None:
        """Time that passed without being simulated: the robot's clock goes on by as much, its physics does not."""
        if not (seconds >= 0 and math.isfinite(seconds)):
            raise BadInput(f"a robot cannot skip {seconds:g} s.")
        self._skipped_seconds += seconds

    def _next_target(self) -> np.ndarray | None:
        """What the motors are to do in the next period; nothing while the robot is held."""
        if self._mode == "track":
            return self._target
        if self._mode == "damp":
            return self._damping_target()
        if not self._holds_pose:
            return None
        reach = IDLE_SPEED * PACKET_PERIOD
        self._hold_target = self._hold_target + np.clip(self._default - self._hold_target, -reach, reach)
        return self._hold_target

    def _damping_target(self) -> np.ndarray:
        """Target of the damping mode; a position drive and a model's own servos have their gains changed instead."""
        if self._level_law is not None:
            return level_target(self._level_law, {name: self._sensor_signals[0, where] for name, where in self._slices.items()})
        if self._servos is not None:
            return self._servos.damping_ctrl()[0]
        if self._holds_pose or self.sim.driven_joints is None:
            return self._off_target
        return -self._damping * self.sim.qvel[0, self.sim.driven_joints[1]]

    def _recover(self) -> None:
        """Physics that failed ends in an event and a new start, not in the end of the robot."""
        self._truth.events.append({"time": self.time, "event": "physics failed; put back to the start"})
        self.sim.reset(self.sim.all_ids, self._start_qpos)
        self._mode = "busy" if self._mode == "busy" else "damp"
        self._configure_motors()


def level_target(law: AffineFeedback, signals: dict[str, np.ndarray]) -> np.ndarray:
    """constant + Σ gain · signal, with the quaternion's w made non-negative: q and -q are one attitude."""
    target = np.array(law.constant, dtype=float)
    for name, gain in law.gains.items():
        value = signals[name]
        if name == "quat" and value[0] < 0:
            value = -value
        target = target + np.array(gain) @ value
    return target
