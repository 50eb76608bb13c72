"""What a guard looks for, when it acts, and how it reports."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.data.contract import Contract
from isthmus.data.episode import Event, Level

NOTED = ("duplicate", "order", "dropped", "nonfinite")
"""About single packets, which are not used: the newest good one is."""
CLIPPED = ("limit", "jump", "torque")
"""The target is changed to the nearest safe one."""
HELD = ("stale", "clock", "range", "policy", "deadline")
"""The last safe target is held until it is over."""
DAMPED = ("lost", "tilt", "position", "speed", "follow", "mode", "held")
"""There is no way back."""
RULES: tuple[str, ...] = (*NOTED, *CLIPPED, *HELD, *DAMPED)
BIT = {rule: 1 << i for i, rule in enumerate(RULES)}


def bits(*rules: str) -> int:
    return sum(BIT[r] for r in rules)


@dataclass(frozen=True)
class Thresholds:
    """When a guard acts. Times in s, counts in ticks."""

    stale: float
    """Signals older than this are not acted on."""
    lost: float
    """Signals older than this mean that the robot is gone."""
    hold: float = 0.5
    """Longest time in `hold`; of an earlier hold, what has not been forgiven counts."""
    forgive: float = 0.2
    """s of holding that are forgiven per s without."""
    recover: int = 5
    """Sound ticks in a row that end a hold."""
    patience: int = 3
    """Ticks in a row that a measured value must be out of bounds: one noisy sample is no reason to fall."""
    deadlines: int = 5
    """Missed deadlines in a row that start a hold."""
    obey: float = 0.3
    """Longest time that the robot may be in another mode than it was told."""
    clock: float = 0.05
    """Jump of the robot's clock."""
    position: float = 0.15
    """rad or m beyond a joint's limit that encoders may show, at most a tenth of its range."""
    excess: float = 1.3
    """Factor on other limits of measured values."""
    follow: float = 0.4
    """rad or m: largest distance between pose and default at the end of the ramp, at most a quarter of the joint's range."""
    speed: float = 0.6
    """rad/s or m/s: of the ramp, and of sitting down."""
    ramp: float = 0.5
    """Shortest ramp."""
    sit: float = 4.0
    """Longest time to sit down."""
    damp: float = 1.5
    """Time in `damp` before the end."""

    @staticmethod
    def of(contract: Contract) -> Thresholds:
        tick = 1.0 / contract.rate
        return Thresholds(stale=max(3 * tick, 0.02), lost=max(12 * tick, 0.2))


class Log:
    """Rules that spoke, as counts, as bits of this tick, and as events: one at the start of a spell, one at its end."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        """Since the last `take`."""
        self.counts = dict.fromkeys(RULES, 0)
        """Ticks in which each rule spoke; packets for those that are about packets."""
        self.active = 0
        """Rules that spoke in this tick."""
        self.start = self.now = 0.0
        self._spells: dict[str, tuple[float, int]] = {}
        """Last moment and length of the spells in progress."""

    def begin(self, now: float) -> None:
        """Count from here on: what was said before belongs to preflight, which has told it."""
        self.start = self.now = now
        self.events, self.counts, self._spells = [], dict.fromkeys(RULES, 0), {}

    def tick(self, now: float) -> None:
        self.now, self.active = now, 0
        self._close(1.0)

    def finish(self) -> None:
        """Close the spells that are still open."""
        self._close(-1.0)

    def _close(self, silence: float) -> None:
        for rule, (last, times) in list(self._spells.items()):
            if self.now - last > silence:
                del self._spells[rule]
                if times > 1:
                    self.event("info", rule, f"{times} times, the last at {last - self.start:.2f} s.")

    def speak(self, rule: str, text: str, times: int = 1) -> None:
        self.active |= BIT[rule]
        self.counts[rule] += times
        spell = self._spells.get(rule)
        if spell is None:
            level: Level = "error" if rule in DAMPED else "warning" if rule in HELD else "info"
            self.event(level, rule, f"{text}.")
        self._spells[rule] = (self.now, times + (spell[1] if spell else 0))

    def event(self, level: Level, name: str, text: str) -> None:
        self.events.append(Event(self.now - self.start, level, name, text[:1].upper() + text[1:]))

    def take(self) -> list[Event]:
        found, self.events = self.events, []
        return found

    def reason(self) -> str:
        return ", ".join(r for r in RULES if self.active & BIT[r]) or "nothing to go by"
