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
from isthmus.data.episode import EventLevel
from isthmus.deploy.guard.limits import SafetyLimits, all_finite, clamp
from isthmus.deploy.guard.packet_filter import PacketFilter
from isthmus.deploy.guard.rules import CLIP_RULES, DAMP_RULES, HOLD_RULES, GuardLog, Thresholds, rule_mask
from isthmus.deploy.links.link import Mode, Packet

GuardState = Literal["ready", "ramp", "run", "hold", "damp", "stop"]
GUARD_STATES: tuple[GuardState, ...] = ("ready", "ramp", "run", "hold", "damp", "stop")
_HOLD_BITS, _CLIP_BITS = rule_mask(*HOLD_RULES), rule_mask(*CLIP_RULES)


class Guard:
    def __init__(self, contract: Contract, default: np.ndarray, thresholds: Thresholds | None = None):
        """`contract` is the robot's own, and all arrays are in its order. `default` is the target to start from."""
        self.contract, self.default = contract, np.asarray(default, float)
        self.thresholds = thresholds or Thresholds.for_contract(contract)
        self.log = GuardLog()
        self.packet_filter = PacketFilter(contract, self.thresholds, self.log)
        self.state: GuardState = "ready"
        self.end_reason = ""
        """What ended the run, if the guard did."""
        self.finished = False
        self.last_target = self.default.copy()
        """What was sent last."""
        self.ticks = self.interventions = 0
        """Ticks in which the policy could have run, and those in which the robot got something else than it wanted."""
        self._state_since = 0.0
        self._resume_state: GuardState = "run"
        self._ramp_start, self._ramp_goal, self._ramp_duration = self.last_target, self.last_target, 0.0
        """Start, end and duration of a ramp."""
        self._good_ticks = self._missed_in_a_row = 0
        self._violation_streaks: dict[str, int] = {}
        self._last_obeyed = 0.0
        """When the robot last did as it was told."""
        self._commanded_mode: Mode = "idle"
        self._held_seconds, self._last_hold_end = 0.0, -math.inf
        """s of holding that earlier holds have left, and when the last one ended: they fade, but slowly, so that a run of
        short holds does not go on forever."""
        self.owner = 0
        """Who we are to the robot; 0 where it makes no difference."""
        self.limits = SafetyLimits(contract, self.thresholds)

    # Signals --------------------------------------------------------------------------------------------------

    def start(self, now: float, period: float) -> None:
        """Leave `ready`. The robot sends a packet every `period` s and stands where the last packet says."""
        self.log.reset(now)
        self._last_obeyed = now
        self.packet_filter.period = period
        pose = self.limits.pose(self.packet_filter.values)
        if pose is None:
            self._enter_state("run", "info", "")
            return
        # A robot that stands falls if its targets are where it is: nothing would carry it. So start ahead of the pose.
        self.last_target = pose + clamp(self.default - pose, -self.limits.max_start_offset, self.limits.max_start_offset)
        self._ramp_to(self.default, math.inf)
        self._enter_state("ramp", "info", f"the pose is {np.abs(pose - self.default).max():.2f} away from the start")

    def receive(self, packets: list[Packet], now: float) -> bool:
        """Take in what arrived. True: there are sound signals to act on."""
        self.log.begin_tick(now)
        before = self.packet_filter.packet
        self.packet_filter.accept(packets, now)
        if self.state in ("ready", "damp") or self.finished:
            return self.packet_filter.packet is not None
        age, t = self.packet_filter.age, self.thresholds
        if age > t.lost_after:
            self._fail_to_damping("lost", f"no signals for {age * 1e3:.0f} ms")
        elif age > t.stale_after:
            self.log.report("stale", f"the newest signals are {age * 1e3:.0f} ms old")
        elif self.packet_filter.packet is not before:
            self._check_signals()
        self._check_mode(now)
        return self.state != "damp" and not self.log.active_rules & _HOLD_BITS

    def _check_signals(self) -> None:
        """Bounds and tilt of the newest signals: act where a value stays out."""
        found = self.limits.violated_rules(self.packet_filter.values)
        for rule, text in found.items():
            self._violation_streaks[rule] = self._violation_streaks.get(rule, 0) + 1
            if self._violation_streaks[rule] < self.thresholds.violation_ticks:
                continue
            if rule in DAMP_RULES:
                self._fail_to_damping(rule, text)
            else:
                self.log.report(rule, text)
        if len(self._violation_streaks) > len(found):
            self._violation_streaks = {rule: n for rule, n in self._violation_streaks.items() if rule in found}

    def _check_mode(self, now: float) -> None:
        """A robot that is told to track and does not, for a while, has another master or another idea."""
        packet = self.packet_filter.packet
        mode, owner = (packet.mode, packet.owner) if packet else ("idle", 0)
        ours = owner in (0, self.owner)
        if self._commanded_mode != "track" or (mode == "track" and ours):
            self._last_obeyed = now
        elif now - self._last_obeyed > self.thresholds.max_mode_mismatch:
            what = f"its mode is {mode}" if ours else "it obeys another controller"
            self._fail_to_damping("mode", f"the robot is told to track, but {what}")

    def note_deadline(self, missed: bool) -> None:
        """Tell, after `see`, whether the tick before met its deadline."""
        self._missed_in_a_row = self._missed_in_a_row + 1 if missed else 0
        if self._missed_in_a_row >= self.thresholds.max_missed_deadlines and self.state in ("ramp", "run", "hold"):
            self.log.report("deadline", f"{self._missed_in_a_row} deadlines missed in a row")

    # Targets --------------------------------------------------------------------------------------------------

    def decide(self, policy_target: np.ndarray | None, now: float) -> tuple[Mode, np.ndarray]:
        """Mode and target for the robot; `wanted` is the policy's target, None where it was not asked."""
        self._commanded_mode, target = self._decide_command(policy_target, now)
        return self._commanded_mode, target

    def _decide_command(self, policy_target: np.ndarray | None, now: float) -> tuple[Mode, np.ndarray]:
        if policy_target is not None and not all_finite(policy_target):
            self.log.report("policy", "the policy's target is not a number")
            policy_target = None
        if self.state in ("ramp", "run", "hold"):
            self._hold_or_resume(now)
        policy = self.state == "run" or (self.state == "hold" and self._resume_state == "run")
        self.ticks += policy
        if self.state == "run":
            if policy_target is not None:
                self.last_target = self._clip_target(policy_target)
            self.interventions += policy_target is None or bool(self.log.active_rules & _CLIP_BITS)
            return ("track", self.last_target) if policy_target is not None else self._hold_command()
        if self.state == "hold":
            self.interventions += policy
            return self._hold_command()
        if self.state == "ramp":
            return self._ramp_command(now)
        if self.state == "stop" and not self.finished:
            return self._sit_down_command(now)
        if self.state == "damp" and now - self._state_since >= self.thresholds.damp_seconds:
            self._enter_state("stop", "info", "damped for long enough")
            self.finished = True
        return "damp", self.last_target

    def _hold_command(self) -> tuple[Mode, np.ndarray]:
        """What is not a pose cannot be held; the robot's own damping is the safest thing then."""
        return ("track" if self.contract.has_joint_targets else "damp"), self.last_target

    def _hold_or_resume(self, now: float) -> None:
        if self.log.active_rules & _HOLD_BITS:
            self._good_ticks = 0
            if self.state != "hold":
                self._resume_state = self.state
                self._held_seconds = max(
                    0.0, self._held_seconds - self.thresholds.hold_forgiveness * (now - self._last_hold_end)
                )
                self._enter_state("hold", "warning", self.log.active_reason())
        elif self.state == "hold":
            self._good_ticks += 1
            if self._good_ticks >= self.thresholds.recovery_ticks:
                if self._resume_state == "ramp":
                    self._ramp_to(self.default, math.inf)
                self._held_seconds, self._last_hold_end = self._held_seconds + now - self._state_since, now
                self._enter_state(self._resume_state, "info", "everything is there again")
        held = self._held_seconds + now - self._state_since
        if self.state == "hold" and held > self.thresholds.max_hold:
            self._fail_to_damping("held", f"held for {held:.2f} s, longer than {self.thresholds.max_hold:g} s")

    def _ramp_to(self, goal: np.ndarray, max_seconds: float) -> None:
        gap = float(np.abs(self.last_target - goal).max())
        self._ramp_start, self._ramp_goal = self.last_target, goal
        self._ramp_duration = min(max(self.thresholds.min_ramp_seconds, gap / self.thresholds.ramp_speed), max_seconds)

    def _ramp_command(self, now: float) -> tuple[Mode, np.ndarray]:
        self.last_target = self._clip_target(self._ramp_target(now))
        if now - self._state_since < self._ramp_duration:
            return "track", self.last_target
        off = np.abs(self.limits.pose(self.packet_filter.values) - self.default)
        most = self.limits.joint_tolerance(self.thresholds.max_ramp_error)
        worst = int((off / most).argmax())
        if off[worst] > most[worst]:
            label = self.contract.target.labels[worst]
            self._fail_to_damping("follow", f"{label} is {off[worst]:.2f} away from where it was told to be")
            return "damp", self.last_target
        self._enter_state("run", "info", "")
        return "track", self.last_target

    def _ramp_target(self, now: float) -> np.ndarray:
        share = min(1.0, (now - self._state_since) / self._ramp_duration)
        return self._ramp_start + (0.5 - 0.5 * math.cos(math.pi * share)) * (self._ramp_goal - self._ramp_start)

    def _sit_down_command(self, now: float) -> tuple[Mode, np.ndarray]:
        """Stand still first, then lie down, then let go."""
        rest = self.contract.safety.rest if self.contract.has_joint_targets else ()
        if rest and now - self._state_since >= self._ramp_duration and self._ramp_goal is self.default:
            self._ramp_to(np.array(rest), self.thresholds.max_sit_seconds)
            self._state_since = now
        if not rest or self.packet_filter.age > self.thresholds.lost_after or now - self._state_since >= self._ramp_duration:
            self.finished = True
            return "damp", self.last_target
        self.last_target = self._clip_target(self._ramp_target(now))
        return "track", self.last_target

    def _clip_target(self, policy_target: np.ndarray) -> np.ndarray:
        """The nearest safe target."""
        out, said = self.limits.nearest_safe_target(policy_target, self.last_target, self.packet_filter.values)
        for rule, text in said.items():
            self.log.report(rule, text)
        return out

    # States ---------------------------------------------------------------------------------------------------

    def stop(self, now: float, reason: str) -> None:
        """End the run in an orderly way: sit down, then damp."""
        if self.state in ("damp", "stop"):
            return
        self.log.now = now
        self._ramp_to(self.default, self.thresholds.max_sit_seconds)
        self._enter_state("stop", "info", reason)

    def damp(self, now: float, reason: str) -> None:
        """End the run at once: the operator pulled the plug."""
        if not self.finished and self.state != "damp":
            self.log.now = now
            self._enter_state("damp", "warning", reason)

    def _enter_state(self, state: GuardState, level: EventLevel, text: str) -> None:
        before, self.state, self._state_since, self._good_ticks = self.state, state, self.log.now, 0
        self.log.add_event(level, state, f"{before} to {state}{': ' + text if text else ''}.")

    def _fail_to_damping(self, rule: str, text: str) -> None:
        if self.state == "damp" or self.finished:
            return
        self.log.report(rule, text)
        self.end_reason = f"{rule}: {text}"
        if self.state == "stop":
            # Lying down went wrong: let go now.
            self.finished = True
        else:
            self._enter_state("damp", "error", text)
