"""Where motors, delays and past signals live in a world's own state row.

MuJoCo gives every world a block of numbers of ours (`userdata`) that is saved, restored and copied with its state.
We keep there the targets on their way, the motor parameters, the motor state and the recent past of the signals,
so that a world is one row of numbers and nothing else.

    userdata = [ tick start | last motor update | action delay | sensor delay
               | targets | params | state | ring | memory | force ]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isthmus.sim.indexing import SignalSources
from isthmus.sim.physics.motor_law import MOTOR_LAW_FIELDS, ROTOR_SUBSTEPS, STICTION_SPEED

TABLE_MAGIC = 19150815.0
TICK_START_SLOT, LAST_UPDATE_SLOT, ACTION_DELAY_SLOT, SENSOR_DELAY_SLOT, HEADER_SIZE = range(5)
MOTOR_STATE_FIELDS = ("lagged", "rotor", "rotor_speed", "touch")
_SOURCE_ARRAY_CODES = {"qpos": 0, "qvel": 1, "sensordata": 2, "qacc": 3, "rotor": 4, "rotor_speed": 5}
_DRIVE_CODES = {"position": 0, "effort": 1, "native": 2}


@dataclass(frozen=True)
class UserdataLayout:
    """Offsets into userdata, and what motors.c must know of the model."""

    motor_count: int
    substeps: int
    target_history: int
    """Targets kept, newest first."""
    signal_history: int
    """Past physics steps of signals kept."""
    signal_width: int
    """Signals side by side."""
    motor_history: int = 0
    """Physics steps of errors and speeds of the motors kept, for learned forces."""
    force_dofs: int = 0
    """Degrees of freedom on which a force can be asked for, where learned forces write to all of them."""

    @property
    def targets_offset(self) -> int:
        return HEADER_SIZE

    @property
    def params_offset(self) -> int:
        return self.targets_offset + self.target_history * self.motor_count

    @property
    def state_offset(self) -> int:
        return self.params_offset + len(MOTOR_LAW_FIELDS) * self.motor_count

    @property
    def signals_offset(self) -> int:
        return self.state_offset + len(MOTOR_STATE_FIELDS) * self.motor_count

    @property
    def motor_memory_offset(self) -> int:
        return self.signals_offset + self.signal_history * self.signal_width

    @property
    def force_offset(self) -> int:
        return self.motor_memory_offset + self.motor_history * 2 * self.motor_count

    @property
    def size(self) -> int:
        return self.force_offset + self.force_dofs

    def views(self, userdata: np.ndarray) -> dict[str, np.ndarray]:
        """Named live views of all worlds' userdata, (n, size)."""
        n, m = len(userdata), self.motor_count
        block = lambda start, rows, columns: userdata[:, start : start + rows * columns].reshape(n, rows, columns)  # noqa: E731
        params, state = (
            block(self.params_offset, len(MOTOR_LAW_FIELDS), m),
            block(self.state_offset, len(MOTOR_STATE_FIELDS), m),
        )
        return {
            "tick": userdata[:, TICK_START_SLOT],
            "last": userdata[:, LAST_UPDATE_SLOT],
            "action_delay": userdata[:, ACTION_DELAY_SLOT],
            "sensor_delay": userdata[:, SENSOR_DELAY_SLOT],
            "targets": block(self.targets_offset, self.target_history, m),
            "ring": block(self.signals_offset, self.signal_history, self.signal_width),
            "memory": block(self.motor_memory_offset, self.motor_history, 2 * m).reshape(n, self.motor_history, 2, m),
            "force": userdata[:, self.force_offset : self.force_offset + self.force_dofs],
            "params": params,
            **{f"motor.{name}": params[:, i] for i, name in enumerate(MOTOR_LAW_FIELDS)},
            **{f"state.{name}": state[:, i] for i, name in enumerate(MOTOR_STATE_FIELDS)},
        }

    def native_table(
        self,
        drive: str,
        flags: int,
        q: list[int],
        v: list[int],
        sources: SignalSources,
        forces: list[float],
    ) -> list[float]:
        """The description that motors.c reads from the model; signals as runs of consecutive columns, and learned forces."""
        runs = [(_SOURCE_ARRAY_CODES[array], *run) for array, columns in sources for run in _consecutive_runs(columns)]
        head = [
            TABLE_MAGIC,
            self.motor_count,
            _DRIVE_CODES[drive],
            flags,
            self.substeps,
            self.target_history,
            self.signal_history,
            self.signal_width,
        ]
        offsets = [
            self.targets_offset,
            self.params_offset,
            self.state_offset,
            self.signals_offset,
            self.motor_memory_offset,
            self.motor_history,
            self.force_offset,
        ]
        table = [*(x for run in runs for x in run), *q, *v]
        # Three numbers and the offset itself come between.
        learned = len(head) + len(offsets) + 4 + len(table) if forces else 0
        return [float(x) for x in (*head, *offsets, learned, STICTION_SPEED, ROTOR_SUBSTEPS, len(runs), *table, *forces)]


def _consecutive_runs(columns: list[int]) -> list[tuple[int, int]]:
    """Consecutive columns as (start, count)."""
    runs: list[tuple[int, int]] = []
    for c in columns:
        if runs and runs[-1][0] + runs[-1][1] == c:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((c, 1))
    return runs
