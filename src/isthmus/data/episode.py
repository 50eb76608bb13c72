"""What happened, in simulation or on a robot: time, named signals with units, targets, events, and where it came from."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.files import canonical_json
from isthmus.data.contract import Contract, Signal

EventLevel = Literal["info", "warning", "error"]
EVENT_LEVELS: tuple[EventLevel, ...] = ("info", "warning", "error")
RESERVED_NAMES = ("time", "target", "wanted", "status", "events")
"""Names that a signal of an episode cannot have, because a recording has something else under them."""


@dataclass(frozen=True)
class Event:
    """Something that happened at one moment."""

    time: float
    """s since the start of the episode."""
    level: EventLevel
    name: str
    """What kind of event: `stale`, `ramp`."""
    text: str
    """One sentence."""

    def __post_init__(self) -> None:
        if self.level not in EVENT_LEVELS or not math.isfinite(self.time):
            raise BadInput(f"an event needs a finite time and one of the levels {', '.join(EVENT_LEVELS)}.")


@dataclass(frozen=True, eq=False)
class Episode:
    """T control ticks. Two episodes are the same if their hashes are; a NaN stands for a value that is missing."""

    contract: Contract
    """The robot's."""
    time: np.ndarray
    """(T,) s since the start, strictly increasing, one per control tick."""
    signals: Mapping[str, np.ndarray]
    """(T, k) per signal of the contract and of the operator, in their units and the order of their labels."""
    target: np.ndarray
    """(T, m) what was sent to the robot."""
    wanted: np.ndarray
    """(T, m) what the policy asked for, before the guard."""
    operator: tuple[Signal, ...] = ()
    """Signals that come from the operator, such as `command`."""
    status: Mapping[str, np.ndarray] = field(default_factory=dict)
    """(T,) per name: timing, state of the guard, whatever else was noted per tick."""
    events: tuple[Event, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Where it came from: `source` (real, virtual, sim, import), `unit`, `controller_hash`, `started` (Unix s), `parents`,
    and `e` where it is known (name -> value, nominal where left out)."""
    complete: bool = True
    """False: the recording was cut."""

    def __post_init__(self) -> None:
        check_signal_names(self.contract, self.operator, tuple(self.status))
        n, m = np.size(self.time), self.contract.target.size
        sizes = {s.name: s.size for s in (*self.contract.signals, *self.operator)}
        if set(self.signals) != set(sizes):
            raise BadInput(f"the episode needs the signals {', '.join(sizes)}, not {', '.join(self.signals)}.")
        frozen = {
            "time": _readonly_array("time", self.time, (n,)),
            "signals": {name: _readonly_array(name, self.signals[name], (n, k)) for name, k in sizes.items()},
            "target": _readonly_array("target", self.target, (n, m)),
            "wanted": _readonly_array("wanted", self.wanted, (n, m)),
            "status": {name: _readonly_array(name, column, (n,)) for name, column in self.status.items()},
            "events": tuple(self.events),
            "operator": tuple(self.operator),
            "origin": as_plain_json(self.origin, "the episode's origin"),
        }
        _check_time(frozen["time"])
        for name, value in frozen.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.time)

    @property
    def duration(self) -> float:
        """s from the first tick to the last."""
        return float(self.time[-1] - self.time[0]) if len(self) else 0.0

    @property
    def rate(self) -> float:
        """Ticks per second, by the median step; the contract's where there is no step."""
        return float(1.0 / np.median(np.diff(self.time))) if len(self) > 1 else self.contract.rate

    def time_slice(self, start: float, stop: float) -> Episode:
        """The ticks and events with start <= time < stop, at their own times."""
        keep = slice(*np.searchsorted(self.time, [start, stop]))
        return replace(
            self,
            time=self.time[keep],
            signals={name: values[keep] for name, values in self.signals.items()},
            target=self.target[keep],
            wanted=self.wanted[keep],
            status={name: values[keep] for name, values in self.status.items()},
            events=tuple(e for e in self.events if start <= e.time < stop),
            origin={**self.origin, "parents": [self.hash], "part": [float(t) for t in self.time[keep][[0, -1]]]}
            if keep.start < keep.stop
            else {**self.origin, "parents": [self.hash], "part": []},
        )

    def metadata(self) -> dict[str, Any]:
        """All but the arrays, as JSON can hold it."""
        return {
            "contract": self.contract.to_dict(),
            "operator": [asdict(s) for s in self.operator],
            "status": list(self.status),
            "events": [asdict(e) for e in self.events],
            "origin": self.origin,
            "complete": self.complete,
        }

    @cached_property
    def hash(self) -> str:
        """SHA-256 over all there is, bit by bit."""
        digest = hashlib.sha256(canonical_json(self.metadata()).encode())
        names = [s.name for s in (*self.contract.signals, *self.operator)]
        for array in (self.time, *(self.signals[n] for n in names), self.target, self.wanted, *self.status.values()):
            digest.update(np.ascontiguousarray(array, "<f8").tobytes())
        return digest.hexdigest()


def check_signal_names(contract: Contract, operator: tuple[Signal, ...], status: tuple[str, ...]) -> None:
    """Refuse names that stand for two things."""
    names = [s.name for s in (*contract.signals, *operator)]
    twice = {n for n in names if names.count(n) > 1 or n in RESERVED_NAMES}
    twice |= {n for n in status if status.count(n) > 1 or n == "time"}
    if twice:
        raise BadInput(f"the name {min(twice)!r} stands for two things in one recording; give one of them another name.")


def as_plain_json(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same as JSON would give it back; what JSON cannot hold is a BadInput."""
    try:
        text = canonical_json(dict(data))
        text.encode()
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{where} must be plain JSON: {error}.") from None


def _check_time(time: np.ndarray) -> None:
    # NaN fails every comparison, so that this finds it, too.
    with np.errstate(invalid="ignore"):
        on = np.isfinite(time) & (np.diff(time, prepend=-np.inf) > 0)
    if not on.all():
        tick = int(np.argmin(on))
        after = f" after {time[tick - 1]:.6g} s" if tick else ""
        raise BadInput(
            "the episode's time must be finite and increase from tick to tick, but "
            f"tick {tick} is at {time[tick]:.6g} s{after}, and {np.count_nonzero(~on)} of {len(time)} ticks are like that."
        )


def _readonly_array(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A read-only view, float64, of the shape that is due."""
    array = np.asarray(values, np.float64).view()
    if array.shape != shape:
        raise BadInput(f"{name} of the episode has the shape {array.shape}, not {shape}.")
    array.flags.writeable = False
    return array
