"""Put a controller's names onto a robot's. Order never matters; a difference in meaning is never papered over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.data.contract import Contract, Signal
from isthmus.deploy.manifest import Manifest


@dataclass(frozen=True)
class SignalMap:
    signal_columns: dict[str, np.ndarray]
    """For each of the robot's signals that the controller needs: its columns in the robot's packets, in its order."""
    target_order: np.ndarray
    """The robot's target is the controller's target in this order."""

    @staticmethod
    def from_contracts(manifest: Manifest, robot: Contract) -> SignalMap:
        problems = contract_differences(manifest, robot)
        if problems:
            raise BadInput(f"the controller does not fit the robot: {'; '.join(problems)}.")
        return SignalMap.by_name(manifest, robot)

    @staticmethod
    def by_name(manifest: Manifest, robot: Contract) -> SignalMap:
        """Of a robot that is known to be the right one, at whatever rate it was recorded."""
        at = robot.slices()
        columns = {
            name: np.array([at[name].start + robot[name].component_index(x) for x in manifest.robot[name].labels])
            for name in manifest.inputs
        }
        return SignalMap(columns, np.array([manifest.robot.target.component_index(x) for x in robot.target.labels]))


def contract_differences(manifest: Manifest, robot: Contract) -> list[str]:
    """What a controller expects and the robot does not offer, as sentences."""
    ours = manifest.robot
    if ours.robot != robot.robot:
        return [f"it was made for {ours.robot}, this is {robot.robot}"]
    found = []
    if abs(ours.rate - robot.rate) > 1e-6 * ours.rate:
        found.append(f"it runs at {ours.rate:g} Hz, the robot at {robot.rate:g} Hz")
    for name in manifest.inputs:
        found += _signal_differences(ours[name], robot[name]) if robot.has(name) else [f"the robot has no signal {name!r}"]
    found += _signal_differences(ours.target, robot.target)
    unset = set(robot.target.labels) - set(ours.target.labels)
    if unset:
        found.append(f"it sets no target for {', '.join(sorted(unset))}")
    if set(ours.target.labels) == set(robot.target.labels):
        rows = {f"gain {g}": (ours.gains.get(g, ()), robot.gains.get(g, ())) for g in {**ours.gains, **robot.gains}}
        rows |= {"lower limit": (ours.target.low, robot.target.low), "upper limit": (ours.target.high, robot.target.high)}
        for what, (a, b) in rows.items():
            found += _value_differences(what, dict(zip(ours.target.labels, a)), dict(zip(robot.target.labels, b)))  # noqa: B905
    return found


def _signal_differences(ours: Signal, theirs: Signal) -> list[str]:
    found = [
        f"{ours.name} has the {what} {a!r} for the controller and {b!r} for the robot"
        for what, a, b in (("unit", ours.unit, theirs.unit), ("frame", ours.frame, theirs.frame))
        if a != b
    ]
    missing = set(ours.labels) - set(theirs.labels)
    return [*found, f"{ours.name} of the robot lacks {', '.join(sorted(missing))}"] if missing else found


def _value_differences(what: str, ours: dict[str, float], theirs: dict[str, float]) -> list[str]:
    wrong = [
        x for x in {**ours, **theirs} if ours.get(x) is None or theirs.get(x) is None or not _nearly_equal(ours[x], theirs[x])
    ]
    if not wrong:
        return []
    first = wrong[0]
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return [
        f"{what} of {first}{more} is {_format_value(ours.get(first))} for the controller and "
        f"{_format_value(theirs.get(first))} there"
    ]


def _nearly_equal(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1.0)


def _format_value(x: float | None) -> str:
    return "unknown" if x is None else f"{x:g}"
