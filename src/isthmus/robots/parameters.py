"""Parameters and their usual ranges, as every robot here builds its Space and prior from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from isthmus.world import Belief, Param, Space
from isthmus.world.param import ApplyMode, Scale


@dataclass(frozen=True)
class ParameterRange:
    """A parameter together with what we believe of it before we have seen the robot."""

    param: Param
    prior: tuple[float, float] | None


def vary(
    name: str,
    unit: str,
    target: str | tuple[str, ...],
    nominal: float,
    bounds: tuple[float, float],
    prior: tuple[float, float] | None,
    how: ApplyMode = "set",
    scale: Scale = "linear",
    doc: str = "",
) -> ParameterRange:
    targets = (target,) if isinstance(target, str) else target
    return ParameterRange(Param(name, unit, nominal, *bounds, targets=targets, scale=scale, how=how, doc=doc), prior)


def factor(name: str, target: str | tuple[str, ...], bounds, prior, doc: str = "") -> ParameterRange:
    """A factor on the nominal number, 1 at nominal."""
    return vary(name, "1", target, 1.0, bounds, prior, how="scale", scale="log", doc=doc)


def offset(name: str, unit: str, target: str, bound: float, prior: float, doc: str = "") -> ParameterRange:
    """A symmetric offset, 0 at nominal."""
    return vary(name, unit, target, 0.0, (-bound, bound), (-prior, prior), how="add", doc=doc)


def delays(action: tuple[float, float, float], sensor: tuple[float, float, float]) -> Iterator[ParameterRange]:
    """The delays of the link, each as nominal, longest possible and longest likely, s."""
    for name, (nominal, longest, likely), doc in (
        ("action_delay", action, "from a target sent to a target in force"),
        ("sensor_delay", sensor, "age of the signals when they are read"),
    ):
        yield vary(name, "s", f"link:/{name}", nominal, (0.0, longest), (0.0, likely), doc=doc)


def space_and_prior(ranges: Iterable[ParameterRange]) -> tuple[Space, Belief]:
    ranges = tuple(ranges)
    space = Space(tuple(r.param for r in ranges))
    return space, Belief.from_ranges(space, {r.param.name: r.prior for r in ranges if r.prior is not None})
