"""What a guard looks for, when it acts, and how it reports."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.data.contract import Contract
from isthmus.data.episode import Event, EventLevel

PACKET_RULES = ("duplicate", "order", "dropped", "nonfinite")
"""About single packets, which are not used: the newest good one is."""
CLIP_RULES = ("limit", "jump", "torque")
"""The target is changed to the nearest safe one."""
HOLD_RULES = ("stale", "clock", "range", "policy", "deadline")
"""The last safe target is held until it is over."""
DAMP_RULES = ("lost", "tilt", "position", "speed", "follow", "mode", "held")
"""There is no way back."""
RULES: tuple[str, ...] = (*PACKET_RULES, *CLIP_RULES, *HOLD_RULES, *DAMP_RULES)
RULE_BITS = {rule: 1 << i for i, rule in enumerate(RULES)}


def rule_mask(*rules: str) -> int:
    return sum(RULE_BITS[r] for r in rules)


@dataclass(frozen=True)
class Thresholds:
    """When a guard acts. Times in s, counts in ticks."""

    stale_after: float
    """Signals older than this are not acted on."""
    lost_after: float
    """Signals older than this mean that the robot is gone."""
    max_hold: float = 0.5
    """Longest time in `hold`; of an earlier hold, what has not been forgiven counts."""
    hold_forgiveness: float = 0.2
    """s of holding that are forgiven per s without."""
    recovery_ticks: int = 5
    """Sound ticks in a row that end a hold."""
    violation_ticks: int = 3
    """Ticks in a row that a measured value must be out of bounds: one noisy sample is no reason to fall."""
    max_missed_deadlines: int = 5
    """Missed deadlines in a row that start a hold."""
    max_mode_mismatch: float = 0.3
    """Longest time that the robot may be in another mode than it was told."""
    max_clock_jump: float = 0.05
    """Jump of the robot's clock."""
    position_margin: float = 0.15
    """rad or m beyond a joint's limit that encoders may show, at most a tenth of its range."""
    limit_factor: float = 1.3
    """Factor on other limits of measured values."""
    max_ramp_error: float = 0.4
    """rad or m: largest distance between pose and default at the end of the ramp, at most a quarter of the joint's range."""
    ramp_speed: float = 0.6
    """rad/s or m/s: of the ramp, and of sitting down."""
    min_ramp_seconds: float = 0.5
    """Shortest ramp."""
    max_sit_seconds: float = 4.0
    """Longest time to sit down."""
    damp_seconds: float = 1.5
    """Time in `damp` before the end."""

    @staticmethod
    def for_contract(contract: Contract) -> Thresholds:
        tick = 1.0 / contract.rate
        return Thresholds(stale_after=max(3 * tick, 0.02), lost_after=max(12 * tick, 0.2))


class GuardLog:
    """Rules that spoke, as counts, as bits of this tick, and as events: one at the start of a spell, one at its end."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        """Since the last `take`."""
        self.counts = dict.fromkeys(RULES, 0)
        """Ticks in which each rule spoke; packets for those that are about packets."""
        self.active_rules = 0
        """Rules that spoke in this tick."""
        self.start = self.now = 0.0
        self._ongoing_spells: dict[str, tuple[float, int]] = {}
        """Last moment and length of the spells in progress."""

    def reset(self, now: float) -> None:
        """Count from here on: what was said before belongs to preflight, which has told it."""
        self.start = self.now = now
        self.events, self.counts, self._ongoing_spells = [], dict.fromkeys(RULES, 0), {}

    def begin_tick(self, now: float) -> None:
        self.now, self.active_rules = now, 0
        self._close_spells(1.0)

    def finish(self) -> None:
        """Close the spells that are still open."""
        self._close_spells(-1.0)

    def _close_spells(self, silence: float) -> None:
        for rule, (last, times) in list(self._ongoing_spells.items()):
            if self.now - last > silence:
                del self._ongoing_spells[rule]
                if times > 1:
                    self.add_event("info", rule, f"{times} times, the last at {last - self.start:.2f} s.")

    def report(self, rule: str, text: str, times: int = 1) -> None:
        self.active_rules |= RULE_BITS[rule]
        self.counts[rule] += times
        spell = self._ongoing_spells.get(rule)
        if spell is None:
            level: EventLevel = "error" if rule in DAMP_RULES else "warning" if rule in HOLD_RULES else "info"
            self.add_event(level, rule, f"{text}.")
        self._ongoing_spells[rule] = (self.now, times + (spell[1] if spell else 0))

    def add_event(self, level: EventLevel, name: str, text: str) -> None:
        self.events.append(Event(self.now - self.start, level, name, text[:1].upper() + text[1:]))

    def take_events(self) -> list[Event]:
        found, self.events = self.events, []
        return found

    def active_reason(self) -> str:
        return ", ".join(r for r in RULES if self.active_rules & RULE_BITS[r]) or "nothing to go by"
