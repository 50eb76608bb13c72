"""Protocols as data: the stages that a controller goes through, from the easiest to the hardest.

A stage is a family of worlds on a twin or a prior, and at the same time the steps that an operator follows on a real robot:

    [[stages]]
    name = "outdoor"
    steps = "On a dry pavement …"               what the operator sets up
    required = 0.8                              the success rate that must be shown …
    expected = 0.95                             … and that of a controller that ought to pass
    episode = 10.0                              s
    command = 0.7                               part of the command's range
    width = 1.0                                 of what is believed of the robot
    [stages.worlds]                             numbers that the place decides, by patterns of their names
    ground_friction = { range = [0.5, 1.0] }
    "strength.*" = { times = [0.8, 0.95] }
    [stages.fade]                               part that is lost on the way to the end of the episode
    "strength.*" = 0.1
    [stages.forces]                             pushes in m/s, forces in parts of the weight
    push = 0.3
    gust = 0.02
    [stages.ground]
    kinds = ["slope", "bumps"]
    [stages.setup]                              what the operator can set and the simulator knows: changes from trial to trial
    payload = [0.0, 1.0]

A pattern that names nothing on a robot, and a part that it cannot have, is left out there, and said so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import content_hash, parse_toml, read_bytes
from isthmus.core.from_plain import from_plain
from isthmus.sim.reality.tables import Unmodelled, non_default_entries
from isthmus.sim.scenes.terrain import TERRAIN_KINDS
from isthmus.validation.sequential_test import RateGoal

MAX_PROTOCOL_BYTES = 2**20
MAX_STAGES = 32
PROTOCOLS_FOLDER = "protocols"


@dataclass(frozen=True)
class ParameterChange:
    """What a place does to a number of the world: draws it from a range, or multiplies what is believed of it."""

    range: tuple[float, float] | None = None
    """In the parameter's unit, uniform in its own scale."""
    times: tuple[float, float] | None = None
    """A factor, drawn once per world for all parameters of the pattern."""

    def __post_init__(self) -> None:
        if (self.range is None) == (self.times is None):
            raise BadInput("give either 'range' or 'times', as a list of two numbers.")
        low, high = self.range or self.times or (0.0, 0.0)
        if low > high or (self.times is not None and low <= 0):
            raise BadInput(f"from {low:g} to {high:g} is not a range" + (" of factors." if self.times else "."))


@dataclass(frozen=True)
class StageForces:
    """Disturbances; a robot without a base that moves freely has none."""

    push: float = 0.0
    """m/s by which pushes change its speed, at most."""
    every: tuple[float, float] = (3.0, 6.0)
    """s between pushes."""
    steady: float = 0.0
    """Largest constant horizontal force, in parts of the robot's weight."""
    gust: float = 0.0
    """Standard deviation of a gusty one, in parts of the robot's weight."""
    gust_time: float = 0.5
    """s."""

    def __post_init__(self) -> None:
        if min(self.push, self.steady, self.gust) < 0 or max(self.steady, self.gust) > 2 or self.push > 10:
            raise BadInput("pushes are between 0 and 10 m/s, forces between 0 and 2 times the weight.")
        if not 0 < self.every[0] <= self.every[1] or self.gust_time <= 0:
            raise BadInput("the times of pushes and gusts must be positive.")


@dataclass(frozen=True)
class StageGround:
    kinds: tuple[str, ...]
    height: float = 1.0
    """Scale of all heights, see `tasks.terrain`."""
    roughness: float = 0.5
    """Tiles up to this part of the difficulty."""

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in TERRAIN_KINDS:
                raise unknown_name("kind of ground", kind, TERRAIN_KINDS)
        if not self.kinds or not 0 < self.height <= 3 or not 0 < self.roughness <= 1:
            raise BadInput("ground needs at least one kind, a height above 0 and a roughness between 0 and 1.")


@dataclass(frozen=True)
class Stage:
    name: str
    required: float
    expected: float
    doc: str = ""
    steps: str = ""
    """What the operator sets up for it on a real robot."""
    episode: float = 0.0
    """s of a trial; 0 for the task's own."""
    command: float = 1.0
    """Part of the command's range about its middle."""
    width: float = 1.0
    """How many times as wide as it is the belief is taken."""
    false_pass: float = 0.05
    false_fail: float = 0.05
    most: int = 0
    """Trials at most; 0 for as many as the error rates need."""
    worlds: Mapping[str, ParameterChange] = field(default_factory=dict)
    fade: Mapping[str, float] = field(default_factory=dict)
    forces: StageForces = field(default_factory=StageForces)
    ground: StageGround | None = None
    setup: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    unmodelled: Unmodelled = field(default_factory=Unmodelled)
    """Physics that training lacks, as in a reality file."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", self.name):
            raise BadInput(f"the name of a stage has lower-case letters, digits and hyphens, unlike {self.name!r}.")
        if not 0 <= self.episode <= 3600 or not 0 < self.command <= 1 or not 0 <= self.width <= 10:
            raise BadInput(f"stage {self.name!r}: episode is 0 to 3600 s, command above 0 to 1, width 0 to 10.")
        if not 0 <= self.most <= 100_000:
            raise BadInput(f"stage {self.name!r}: most is between 0 and 100000 trials, not {self.most}.")
        for part in self.fade.values():
            if not 0 <= part < 1:
                raise BadInput(f"stage {self.name!r}: what fades loses a part between 0 and 1, not {part:g}.")
        for name in (*self.worlds, *self.fade):
            try:
                re.compile(name)
            except (re.error, RecursionError, OverflowError) as error:
                raise BadInput(f"stage {self.name!r}: {name!r} is no pattern of names: {error}.") from None
        for name, values in self.setup.items():
            if not values:
                raise BadInput(f"stage {self.name!r}: the setup of {name!r} has no values.")
        try:
            _ = self.goal
        except BadInput as error:
            raise BadInput(f"stage {self.name!r}: {error}") from None

    @property
    def goal(self) -> RateGoal:
        return RateGoal(self.required, self.expected, self.false_pass, self.false_fail)


@dataclass(frozen=True)
class Protocol:
    name: str
    stages: tuple[Stage, ...]
    doc: str = ""
    robots: Literal["any", "legged", "aerial"] = "any"
    """What it is made for."""

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        if not 0 < len(names) <= MAX_STAGES or len(set(names)) != len(names):
            raise BadInput(f"a protocol has 1 to {MAX_STAGES} stages with names of their own.")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"stages": [asdict(s) | {"unmodelled": non_default_entries(s.unmodelled)} for s in self.stages]}

    @cached_property
    def hash(self) -> str:
        return content_hash(self.to_dict())

    def with_stages(self, names: tuple[str, ...]) -> Protocol:
        """The same with these stages only, in its own order."""
        known = [stage.name for stage in self.stages]
        for name in names:
            if name not in known:
                raise unknown_name("stage", name, known, f"the protocol {self.name}")
        return Protocol(self.name, tuple(s for s in self.stages if s.name in names), self.doc, self.robots) if names else self


def builtin_protocols() -> dict[str, str]:
    """Names of the protocols that come with Isthmus, and the text of each."""
    folder = resources.files("isthmus.validation") / PROTOCOLS_FOLDER
    found = {entry.name.removesuffix(".toml"): entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".toml")}
    return dict(sorted(found.items()))


def load_protocol(name: str) -> Protocol:
    """By name, or from a TOML file."""
    own = builtin_protocols()
    if name in own:
        return from_plain(Protocol, parse_toml(own[name].encode(), name), f"protocol {name}")
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return from_plain(Protocol, parse_toml(read_bytes(path, MAX_PROTOCOL_BYTES), name), name)
    raise unknown_name("protocol", name, own)
