"""Which column of somebody's recording is which value of a robot's contract, as a TOML file, and the import that follows it.

    absent = ["quat", "accel"]            # the contract's signals that were not recorded
    [time]
    column = "t_ms"
    unit = "ms"
    [signals.joint_pos]
    columns = "q_{label}"                 # or a list in the order of the labels, or a table: label = "column"
    unit = "deg"
    flip = ["FR_hip"]                     # labels whose sign is the other way round there
    [target]
    columns = "cmd[{i}]"
    unit = "rad"

A value of the contract is flip · scale · (unit's factor) · column + offset, with the offset in the contract's unit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import content_hash, read_toml
from isthmus.core.from_plain import from_plain
from isthmus.core.progress import Progress, silent
from isthmus.core.units import conversion_factor
from isthmus.data import clock_alignment
from isthmus.data.checks import limits
from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode, as_plain_json, check_signal_names
from isthmus.data.importers import Table, load_table

MAX_MAP_BYTES = 2**20
PerLabel = float | tuple[float, ...] | Mapping[str, float]
"""One number for all labels, a list in their order, or a table."""


@dataclass(frozen=True)
class SignalColumns:
    """Where the values of one signal come from."""

    columns: str | tuple[str, ...] | Mapping[str, str]
    """A pattern with {label} or {i} (from 0), a list in the order of the labels, or a table from label to column."""
    unit: str
    """In the file; it is converted to the contract's."""
    scale: PerLabel = 1.0
    offset: PerLabel = 0.0
    """In the contract's unit, added last."""
    flip: tuple[str, ...] = ()
    """Labels with the opposite sign."""


@dataclass(frozen=True)
class OperatorSignal:
    """A signal that came from the operator; the contract does not know it, so it is described here."""

    columns: str | tuple[str, ...] | Mapping[str, str]
    unit: str
    labels: tuple[str, ...]
    frame: str = ""


@dataclass(frozen=True)
class TimeColumn:
    column: str = ""
    """Empty: the time stamps of the file's messages, or `rate` where it has none."""
    unit: str = "s"
    rate: float = 0.0
    """Hz to resample to, each value held until the next; 0 keeps the ticks of the file."""


@dataclass(frozen=True)
class ColumnMap:
    """A mapping file."""

    time: TimeColumn = field(default_factory=TimeColumn)
    signals: Mapping[str, SignalColumns] = field(default_factory=dict)
    target: SignalColumns | None = None
    wanted: SignalColumns | None = None
    operator: Mapping[str, OperatorSignal] = field(default_factory=dict)
    status: Mapping[str, str] = field(default_factory=dict)
    """Name -> column of whatever else is worth keeping."""
    absent: tuple[str, ...] = ()
    """Signals, `signal.label`s, or `target`, that were not recorded; they become NaN."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """What to note about the recording: `unit` (which specimen), `started` (Unix time)."""

    def __post_init__(self) -> None:
        as_plain_json(self.origin, "`origin`")

    @property
    def hash(self) -> str:
        return content_hash(asdict(self))


def read_column_map(path: str | Path) -> ColumnMap:
    return from_plain(ColumnMap, read_toml(path, MAX_MAP_BYTES), str(path))


@dataclass(frozen=True)
class _ComponentSource:
    """One component of one signal: value = gain · column + offset."""

    column: str
    gain: float
    offset: float


def import_file(
    source: str | Path, mapping: ColumnMap, contract: Contract, where: str = "the mapping", progress: Progress = silent
) -> tuple[Episode, tuple[str, ...]]:
    """The episode that a file holds under a mapping, and what looks wrong in it, one sentence each."""
    table = load_table(source, progress)
    origin: dict[str, Any] = {"file": Path(source).name, "map_hash": mapping.hash}
    if Path(source).is_file():
        with open(source, "rb") as file:
            origin["parents"] = [hashlib.file_digest(file, "sha256").hexdigest()]
    return import_table(table, mapping, contract, origin, where)


def import_table(
    table: Table, mapping: ColumnMap, contract: Contract, origin: Mapping[str, Any] | None = None, where: str = "the mapping"
) -> tuple[Episode, tuple[str, ...]]:
    """The same from a table that is loaded already."""
    operator = tuple(Signal(name, o.unit, o.labels, o.frame) for name, o in mapping.operator.items())
    check_signal_names(contract, operator, tuple(mapping.status))
    sources = _resolve_sources(mapping, contract, table, where)
    columns = [s.column for parts in sources.values() for s in parts if s] + list(mapping.status.values())
    clock, warnings = clock_alignment.tick_grid(table, mapping.time, columns, contract.rate, where)
    held = clock_alignment.ZeroOrderHold(table, clock)

    def values(name: str, size: int) -> np.ndarray:
        parts = sources.get(name, [None] * size)
        rows = [np.full(len(clock.time), np.nan) if s is None else s.gain * held[s.column] + s.offset for s in parts]
        return np.stack(rows, axis=1)

    started = {"started": table.time_origin + clock.start} if table.time_origin else {}
    episode = Episode(
        contract=contract,
        time=clock.time,
        signals={s.name: values(s.name, s.size) for s in (*contract.signals, *operator)},
        target=values("target", contract.target.size),
        wanted=values("wanted", contract.target.size),
        operator=operator,
        status={name: held[column] for name, column in mapping.status.items()},
        origin={"source": "import", **started, **(origin or {}), **mapping.origin},
    )
    given = {n: [s is not None for s in parts] for n, parts in sources.items()}
    return episode, (*table.notes, *warnings, *held.warnings, *limits.import_warnings(episode, given, clock))


def _resolve_sources(
    mapping: ColumnMap, contract: Contract, table: Table, where: str
) -> dict[str, list[_ComponentSource | None]]:
    """Per signal, target and wanted, one source per label; None for what is absent."""
    for name in mapping.signals:
        contract[name]
    absent = set(mapping.absent)
    found: dict[str, list[_ComponentSource | None]] = {}
    missing: list[str] = []
    wanted = {"target": mapping.target, "wanted": mapping.wanted}
    signals = {s.name: s for s in contract.signals} | dict.fromkeys(wanted, contract.target)
    valid = {"target", *(s.name for s in contract.signals)} | {f"{n}.{x}" for n, s in signals.items() for x in s.labels}
    for name in absent - valid:
        raise unknown_name("signal", name, valid, f"`absent` of {where}")
    for name, signal in signals.items():
        part = wanted[name] if name in wanted else mapping.signals.get(name)
        if part is not None and name in absent:
            raise BadInput(f"{where} gives columns for {name!r} and lists it as absent.")
        if part is not None:
            found[name] = _component_sources(name, signal, part, absent, table, where)
        elif name not in absent and name != "wanted":
            missing.append(name)
    if missing:
        raise BadInput(
            f"{where} says nothing about {', '.join(missing)}; give columns, or list what was not recorded: "
            f"absent = [{', '.join(repr(m) for m in missing)}]."
        )
    for name, o in mapping.operator.items():
        signal = Signal(name, o.unit, o.labels, o.frame)
        found[name] = _component_sources(name, signal, SignalColumns(o.columns, o.unit), set(), table, where)
    return found


def _component_sources(
    name: str, signal: Signal, part: SignalColumns, absent: set[str], table: Table, where: str
) -> list[_ComponentSource | None]:
    place = f"{where}: {name}"
    gain = conversion_factor(part.unit, signal.unit, place)
    columns = _column_names(signal, part.columns, {x for x in signal.labels if f"{name}.{x}" in absent}, place)
    scale, offset = (_per_label(signal, v, base, place) for v, base in ((part.scale, 1.0), (part.offset, 0.0)))
    for label in part.flip:
        scale[signal.component_index(label)] *= -1.0
    for column in filter(None, columns):
        table[column]
    return [
        None if column is None else _ComponentSource(column, gain * a, b)
        for column, a, b in zip(columns, scale, offset, strict=True)
    ]


def _column_names(
    signal: Signal, given: str | tuple[str, ...] | Mapping[str, str], absent: set[str], where: str
) -> list[str | None]:
    """A column's name per label, None where absent."""
    if isinstance(given, str):
        if signal.size > 1 and "{label}" not in given and "{i}" not in given:
            raise BadInput(f"{where} has {signal.size} labels, so the pattern {given!r} needs {{label}} or {{i}}.")
        names = [given.replace("{label}", label).replace("{i}", str(i)) for i, label in enumerate(signal.labels)]
        return [None if label in absent else name for label, name in zip(signal.labels, names, strict=True)]
    if isinstance(given, Mapping):
        for label in given:
            signal.component_index(label)
        left = [x for x in signal.labels if x not in given and x not in absent]
        if left:
            raise BadInput(f"{where} has no column for {', '.join(left)}.")
        return [given.get(x) for x in signal.labels]
    if len(given) != signal.size:
        labels = ", ".join(signal.labels)
        raise BadInput(f"{where} has {signal.size} labels ({labels}), but the mapping lists {len(given)} columns.")
    return [None if x in absent else name for x, name in zip(signal.labels, given, strict=True)]


def _per_label(signal: Signal, value: PerLabel, base: float, where: str) -> list[float]:
    if isinstance(value, Mapping):
        for label in value:
            signal.component_index(label)
        return [value.get(x, base) for x in signal.labels]
    if isinstance(value, tuple):
        if len(value) != signal.size:
            raise BadInput(f"{where} has {signal.size} labels, but {len(value)} numbers for scale or offset.")
        return list(value)
    return [value] * signal.size
