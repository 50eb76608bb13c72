"""Apply e to worlds: from the text of a target to columns of per-world arrays.

`resolve_targets` matches names once and gives a list of `Write`s; `Binding.apply` writes values. Applying always starts
from the nominal row, so applying twice equals applying once and applying the nominal e restores the model bit for
bit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import mujoco
import numpy as np

from isthmus.core.errors import BadInput, unknown_name
from isthmus.sim.physics import ground, motor_law
from isthmus.sim.physics.inertia_fields import INERTIAL_FIELDS
from isthmus.sim.physics.motors import DELAY_FIELDS
from isthmus.sim.physics.sensors import SIGNAL_FIELDS
from isthmus.sim.robot import Robot
from isthmus.world import Target

_OBJECT_TYPES = {
    "geom": mujoco.mjtObj.mjOBJ_GEOM,
    "body": mujoco.mjtObj.mjOBJ_BODY,
    "joint": mujoco.mjtObj.mjOBJ_JOINT,
    "actuator": mujoco.mjtObj.mjOBJ_ACTUATOR,
}
_CONTACT_FIELDS = ("geom_solref", "geom_solimp")
"""What a unit's own ground takes the place of."""
TARGET_KINDS = (*_OBJECT_TYPES, "opt", "motor", "link", "signal", "ground")


@dataclass(frozen=True)
class Write:
    """One parameter acting on columns of one per-world array."""

    array: str
    columns: np.ndarray
    param: int
    how: str


def resolve_targets(robot: Robot, model: mujoco.MjModel | None = None) -> list[Write]:
    """What the parameters of the robot's Space write to, with names matched in `model`, by default the robot's own."""
    model = robot.model if model is None else model
    writes: list[Write] = []
    for i, param in enumerate(robot.space.params):
        for text in param.targets:
            where = f"target {text!r} of parameter {param.name!r}"
            array, columns = _target_columns(Target.parse(text), robot, model, where)
            if array.startswith("link.") and (param.how != "set" or param.low < 0 or array in {w.array for w in writes}):
                raise BadInput(f"{where}: a delay is set by one parameter only, and is never negative.")
            if array.startswith("motor.") and param.how == "set":
                columns = columns[~_overridden_by_unit(robot, array.removeprefix("motor."))[columns]]
            if array in _CONTACT_FIELDS and robot.unit.ground:
                columns = columns[~np.isin(columns // getattr(model, array).shape[1], ground.ground_geoms(model))]
            if len(columns):
                writes.append(Write(array, columns, i, param.how))
    return writes


def _overridden_by_unit(robot: Robot, field: str) -> np.ndarray:
    """(m,) motors of which the unit has a figure of its own: no parameter sets what was found of this very motor."""
    own = robot.unit.motors.get(field)
    if own is None:
        return np.zeros(robot.contract.target.size, bool)
    design = getattr(robot.motors, field, None) or (motor_law.MOTOR_FIELD_DEFAULTS.get(field, 0.0),) * len(own)
    return np.array(own) != np.array(design)


def _target_columns(t: Target, robot: Robot, model: mujoco.MjModel, where: str) -> tuple[str, np.ndarray]:
    """The per-world array that a target names, and the columns of its flattened rows."""
    if t.kind == "motor":
        _check_known("motor field", t.field, motor_law.MOTOR_LAW_FIELDS, where)
        return f"motor.{t.field}", _matching_rows(t.pattern, robot.contract.target.labels, "motor", where)
    if t.kind == "link":
        _check_known("link field", t.field, DELAY_FIELDS, where)
        return f"link.{t.field}", np.array([0])
    if t.kind == "ground":
        _check_known("figure of the ground", t.field, ground.GROUND_FIELDS, where)
        if robot.unit.ground is None:
            raise BadInput(f"{where}: the ground of {robot.name} is that of its model, which has no such figure.")
        return f"ground.{t.field}", np.array([0])
    if t.kind == "signal":
        _check_known("signal field", t.field, SIGNAL_FIELDS, where)
        return f"signal.{t.field}", _signal_columns(t, robot, where)
    if t.kind == "opt":
        _check_known("option", f"opt.{t.field}", _batch_model_fields(), where)
        size = np.size(getattr(model.opt, t.field))
        return f"opt.{t.field}", np.array([_component_index(t.index, size, where)])
    if t.kind not in _OBJECT_TYPES:
        raise unknown_name("kind of target", t.kind, TARGET_KINDS, where)
    return _object_columns(t, model, where)


def _object_columns(t: Target, model: mujoco.MjModel, where: str) -> tuple[str, np.ndarray]:
    count = {"geom": model.ngeom, "body": model.nbody, "joint": model.njnt, "actuator": model.nu}[t.kind]
    names = [mujoco.mj_id2name(model, _OBJECT_TYPES[t.kind], i) or "" for i in range(count)]
    rows = _matching_rows(t.pattern, names, t.kind, where)
    if t.kind == "body" and t.field in INERTIAL_FIELDS:
        width = 3 if t.field == "com" else 1
        return f"inertia.{t.field}", rows * width + _component_index(t.index, width, where)
    array = f"{t.kind}_{t.field}"
    if t.kind == "joint":
        array = f"dof_{t.field}"
        if array in _batch_model_fields():
            rows = np.concatenate([np.arange(model.jnt_dofadr[r], model.jnt_dofadr[r] + _dof_count(model, r)) for r in rows])
        else:
            array = f"jnt_{t.field}"
    _check_known("model field", array, _batch_model_fields(), where)
    if array in ("body_mass", "body_inertia", "body_ipos", "body_iquat"):
        raise BadInput(f"{where}: change a body through mass, com or payload, so that it stays a possible body.")
    width = int(np.prod(getattr(model, array).shape[1:]))
    return array, rows * width + _component_index(t.index, width, where)


def _dof_count(model: mujoco.MjModel, joint: int) -> int:
    return {0: 6, 1: 3, 2: 1, 3: 1}[int(model.jnt_type[joint])]


def _batch_model_fields() -> frozenset[str]:
    from mujoco.batch import MODEL_FIELDS

    return MODEL_FIELDS


def _check_known(what: str, name: str, choices, where: str) -> None:
    if name not in choices:
        raise unknown_name(what, name, choices, where)


def _matching_rows(pattern: str, names, what: str, where: str) -> np.ndarray:
    fits = re.compile(pattern).fullmatch
    rows = [i for i, name in enumerate(names) if fits(name)]
    if not rows:
        raise unknown_name(what, pattern, [n for n in names if n], where)
    return np.array(rows)


def _component_index(text: str | None, size: int, where: str) -> int:
    if text is None and size > 1:
        raise BadInput(f"{where}: the field has {size} components; say which, as in field[0].")
    value = int(text) if text and text.isdigit() else (0 if text is None else -1)
    if not 0 <= value < size:
        raise BadInput(f"{where}: index {text} is not in 0 … {size - 1}.")
    return value


def _signal_columns(t: Target, robot: Robot, where: str) -> np.ndarray:
    """Columns in the concatenation of all signals of the contract, in its order."""
    signals, start = robot.contract.signals, 0
    matched = set(_matching_rows(t.pattern, [s.name for s in signals], "signal", where).tolist())
    columns: list[int] = []
    for i, signal in enumerate(signals):
        if i in matched:
            labels = range(signal.size) if t.index is None else [signal.component_index(t.index)]
            columns += [start + k for k in labels]
        start += signal.size
    return np.array(columns)


@dataclass
class Binding:
    """A Space tied to the per-world arrays of one simulation."""

    writes: list[Write]
    arrays: dict[str, np.ndarray]
    """Per-world values, (n, columns), by array name."""
    nominal: dict[str, np.ndarray]
    """Nominal rows, (columns,), by array name."""

    def __post_init__(self) -> None:
        self._groups = _group_writes(self.writes)

    def apply(self, e: np.ndarray, ids: np.ndarray) -> None:
        """Write e, shape (k, d), into worlds `ids`, (k,), starting from nominal."""
        for name, groups in self._groups.items():
            rows = np.repeat(self.nominal[name][None], len(ids), axis=0)
            for how, columns, params in groups:
                value = e[:, params]
                if how == "set":
                    rows[:, columns] = value
                elif how == "scale":
                    rows[:, columns] *= value
                else:
                    rows[:, columns] += value
            self.arrays[name][ids] = rows


def _group_writes(writes: list[Write]) -> dict[str, list[tuple[str, np.ndarray, np.ndarray]]]:
    """Writes by array, in order; neighbours of one kind that touch different columns become a single write."""
    groups: dict[str, list[tuple[str, np.ndarray, np.ndarray]]] = {}
    for w in writes:
        group = groups.setdefault(w.array, [])
        params = np.full(len(w.columns), w.param)
        if group and group[-1][0] == w.how and not np.intersect1d(group[-1][1], w.columns).size:
            how, columns, before = group.pop()
            group.append((how, np.concatenate([columns, w.columns]), np.concatenate([before, params])))
        else:
            group.append((w.how, w.columns, params))
    return groups
