"""A classical layer between policy and robot: it watches every tick, clips what goes too far, and takes over.

    ready -> ramp -> run -> stop          a run that ends well sits down on the way to its stop
              |       |
              +-hold--+                   something is missing: keep the last safe target, go on when it is there again
              |       |
              +-damp--+-> stop            no way back: the joints are damped

Everything it knows about the robot comes from the contract, so it works for any of them. Once per tick, in this order:

    sound = guard.see(packets, now)              are there signals that a policy may act on?
    mode, target = guard.decide(wanted, now)     what is sent to the robot
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from isthmus.data.contract import Contract
from isthmus.data.episode import Level
from isthmus.deploy.intake import Intake
from isthmus.deploy.limits import Limits, between, finite
from isthmus.deploy.link import Mode, Packet
from isthmus.deploy.rules import CLIPPED, DAMPED, HELD, Log, Thresholds, bits

State = Literal["ready", "ramp", "run", "hold", "damp", "stop"]
STATES: tuple[State, ...] = ("ready", "ramp", "run", "hold", "damp", "stop")
_HOLD, _CLIP = bits(*HELD), bits(*CLIPPED)


class Guard:
    def __init__(self, contract: Contract, default: np.ndarray, thresholds: Thresholds | None = None):
        """`contract` is the robot's own, and all arrays are in its order. `default` is the target to start from."""
        self.contract, self.default = contract, np.asarray(default, float)
        self.thresholds = thresholds or Thresholds.of(contract)
        self.log = Log()
        self.intake = Intake(contract, self.thresholds, self.log)
        self.state: State = "ready"
        self.why = ""
        """What ended the run, if the guard did."""
        self.finished = False
        self.target = self.default.copy()
        """What was sent last."""
        self.ticks = self.interventions = 0
        """Ticks in which the policy could have run, and those in which the robot got something else than it wanted."""
        self._since = 0.0
        self._resume: State = "run"
        self._from, self._goal, self._time = self.target, self.target, 0.0
        """Start, end and duration of a ramp."""
        self._sound = self._missed = 0
        self._streak: dict[str, int] = {}
        self._followed = 0.0
        """When the robot last did as it was told."""
        self._told: Mode = "idle"
        self._held, self._left = 0.0, -math.inf
        """s of holding that earlier holds have left, and when the last one ended: they fade, but slowly, so that a run of
        short holds does not go on forever."""
        self.owner = 0
        """Who we are to the robot; 0 where it makes no difference."""
        self.limits = Limits(contract, self.thresholds)

    # Signals --------------------------------------------------------------------------------------------------

    def begin(self, now: float, period: float) -> None:
        """Leave `ready`. The robot sends a packet every `period` s and stands where the last packet says."""
        self.log.begin(now)
        self._followed = now
        self.intake.period = period
        pose = self.limits.pose(self.intake.values)
        if pose is None:
            self._enter("run", "info", "")
            return
        # A robot that stands falls if its targets are where it is: nothing would carry it. So start ahead of the pose.
        self.target = pose + between(self.default - pose, -self.limits.ahead, self.limits.ahead)
        self._ramp_to(self.default, math.inf)
        self._enter("ramp", "info", f"the pose is {np.abs(pose - self.default).max():.2f} away from the start")

    def see(self, packets: list[Packet], now: float) -> bool:
        """Take in what arrived. True: there are sound signals to act on."""
        self.log.tick(now)
        before = self.intake.packet
        self.intake.take(packets, now)
        if self.state in ("ready", "damp") or self.finished:
            return self.intake.packet is not None
        age, t = self.intake.age, self.thresholds
        if age > t.lost:
            self._fail("lost", f"no signals for {age * 1e3:.0f} ms")
        elif age > t.stale:
            self.log.speak("stale", f"the newest signals are {age * 1e3:.0f} ms old")
        elif self.intake.packet is not before:
            self._judge()
        self._check_mode(now)
        return self.state != "damp" and not self.log.active & _HOLD

    def _judge(self) -> None:
        """Bounds and tilt of the newest signals: act where a value stays out."""
        found = self.limits.broken(self.intake.values)
        for rule, text in found.items():
            self._streak[rule] = self._streak.get(rule, 0) + 1
            if self._streak[rule] < self.thresholds.patience:
                continue
            if rule in DAMPED:
                self._fail(rule, text)
            else:
                self.log.speak(rule, text)
        if len(self._streak) > len(found):
            self._streak = {rule: n for rule, n in self._streak.items() if rule in found}

    def _check_mode(self, now: float) -> None:
        """A robot that is told to track and does not, for a while, has another master or another idea."""
        packet = self.intake.packet
        mode, owner = (packet.mode, packet.owner) if packet else ("idle", 0)
        ours = owner in (0, self.owner)
        if self._told != "track" or (mode == "track" and ours):
            self._followed = now
        elif now - self._followed > self.thresholds.obey:
            what = f"its mode is {mode}" if ours else "it obeys another controller"
            self._fail("mode", f"the robot is told to track, but {what}")

    def deadline(self, missed: bool) -> None:
        """Tell, after `see`, whether the tick before met its deadline."""
        self._missed = self._missed + 1 if missed else 0
        if self._missed >= self.thresholds.deadlines and self.state in ("ramp", "run", "hold"):
            self.log.speak("deadline", f"{self._missed} deadlines missed in a row")

    # Targets --------------------------------------------------------------------------------------------------

    def decide(self, wanted: np.ndarray | None, now: float) -> tuple[Mode, np.ndarray]:
        """Mode and target for the robot; `wanted` is the policy's target, None where it was not asked."""
        self._told, target = self._decide(wanted, now)
        return self._told, target

    def _decide(self, wanted: np.ndarray | None, now: float) -> tuple[Mode, np.ndarray]:
        if wanted is not None and not finite(wanted):
            self.log.speak("policy", "the policy's target is not a number")
            wanted = None
        if self.state in ("ramp", "run", "hold"):
            self._hold_or_resume(now)
        policy = self.state == "run" or (self.state == "hold" and self._resume == "run")
        self.ticks += policy
        if self.state == "run":
            if wanted is not None:
                self.target = self._clip(wanted)
            self.interventions += wanted is None or bool(self.log.active & _CLIP)
            return ("track", self.target) if wanted is not None else self._holding()
        if self.state == "hold":
            self.interventions += policy
            return self._holding()
        if self.state == "ramp":
            return self._ramping(now)
        if self.state == "stop" and not self.finished:
            return self._sitting(now)
        if self.state == "damp" and now - self._since >= self.thresholds.damp:
            self._enter("stop", "info", "damped for long enough")
            self.finished = True
        return "damp", self.target

    def _holding(self) -> tuple[Mode, np.ndarray]:
        """What is not a pose cannot be held; the robot's own damping is the safest thing then."""
        return ("track" if self.contract.joints else "damp"), self.target

    def _hold_or_resume(self, now: float) -> None:
        if self.log.active & _HOLD:
            self._sound = 0
            if self.state != "hold":
                self._resume = self.state
                self._held = max(0.0, self._held - self.thresholds.forgive * (now - self._left))
                self._enter("hold", "warning", self.log.reason())
        elif self.state == "hold":
            self._sound += 1
            if self._sound >= self.thresholds.recover:
                if self._resume == "ramp":
                    self._ramp_to(self.default, math.inf)
                self._held, self._left = self._held + now - self._since, now
                self._enter(self._resume, "info", "everything is there again")
        held = self._held + now - self._since
        if self.state == "hold" and held > self.thresholds.hold:
            self._fail("held", f"held for {held:.2f} s, longer than {self.thresholds.hold:g} s")

    def _ramp_to(self, goal: np.ndarray, longest: float) -> None:
        gap = float(np.abs(self.target - goal).max())
        self._from, self._goal = self.target, goal
        self._time = min(max(self.thresholds.ramp, gap / self.thresholds.speed), longest)

    def _ramping(self, now: float) -> tuple[Mode, np.ndarray]:
        self.target = self._clip(self._on_ramp(now))
        if now - self._since < self._time:
            return "track", self.target
        off = np.abs(self.limits.pose(self.intake.values) - self.default)
        most = self.limits.share(self.thresholds.follow)
        worst = int((off / most).argmax())
        if off[worst] > most[worst]:
            label = self.contract.target.labels[worst]
            self._fail("follow", f"{label} is {off[worst]:.2f} away from where it was told to be")
            return "damp", self.target
        self._enter("run", "info", "")
        return "track", self.target

    def _on_ramp(self, now: float) -> np.ndarray:
        share = min(1.0, (now - self._since) / self._time)
        return self._from + (0.5 - 0.5 * math.cos(math.pi * share)) * (self._goal - self._from)

    def _sitting(self, now: float) -> tuple[Mode, np.ndarray]:
        """Stand still first, then lie down, then let go."""
        rest = self.contract.safety.rest if self.contract.joints else ()
        if rest and now - self._since >= self._time and self._goal is self.default:
            self._ramp_to(np.array(rest), self.thresholds.sit)
            self._since = now
        if not rest or self.intake.age > self.thresholds.lost or now - self._since >= self._time:
            self.finished = True
            return "damp", self.target
        self.target = self._clip(self._on_ramp(now))
        return "track", self.target

    def _clip(self, wanted: np.ndarray) -> np.ndarray:
        """The nearest safe target."""
        out, said = self.limits.nearest(wanted, self.target, self.intake.values)
        for rule, text in said.items():
            self.log.speak(rule, text)
        return out

    # States ---------------------------------------------------------------------------------------------------

    def stop(self, now: float, why: str) -> None:
        """End the run in an orderly way: sit down, then damp."""
        if self.state in ("damp", "stop"):
            return
        self.log.now = now
        self._ramp_to(self.default, self.thresholds.sit)
        self._enter("stop", "info", why)

    def damp(self, now: float, why: str) -> None:
        """End the run at once: the operator pulled the plug."""
        if not self.finished and self.state != "damp":
            self.log.now = now
            self._enter("damp", "warning", why)

    def _enter(self, state: State, level: Level, text: str) -> None:
        before, self.state, self._since, self._sound = self.state, state, self.log.now, 0
        self.log.event(level, state, f"{before} to {state}{': ' + text if text else ''}.")

    def _fail(self, rule: str, text: str) -> None:
        if self.state == "damp" or self.finished:
            return
        self.log.speak(rule, text)
        self.why = f"{rule}: {text}"
        if self.state == "stop":
            # Lying down went wrong: let go now.
            self.finished = True
        else:
            self._enter("damp", "error", text)
