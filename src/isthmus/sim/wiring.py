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

from isthmus.sim.actuators import FIELDS, SPRING_STEPS, STICTION_SPEED
from isthmus.sim.sources import Sources

MARK = 19150815.0
TICK, LAST, ACTION_DELAY, SENSOR_DELAY, HEAD = range(5)
STATES = ("lagged", "rotor", "rotor_speed", "touch")
_ARRAYS = {"qpos": 0, "qvel": 1, "sensordata": 2, "qacc": 3, "rotor": 4, "rotor_speed": 5}
_DRIVES = {"position": 0, "effort": 1, "native": 2}


@dataclass(frozen=True)
class Wiring:
    """Offsets into userdata, and what motors.c must know of the model."""

    motors: int
    substeps: int
    sent: int
    """Targets kept, newest first."""
    depth: int
    """Past physics steps of signals kept."""
    width: int
    """Signals side by side."""
    past: int = 0
    """Physics steps of errors and speeds of the motors kept, for learned forces."""
    dofs: int = 0
    """Degrees of freedom on which a force can be asked for, where learned forces write to all of them."""

    @property
    def targets(self) -> int:
        return HEAD

    @property
    def params(self) -> int:
        return self.targets + self.sent * self.motors

    @property
    def state(self) -> int:
        return self.params + len(FIELDS) * self.motors

    @property
    def ring(self) -> int:
        return self.state + len(STATES) * self.motors

    @property
    def memory(self) -> int:
        return self.ring + self.depth * self.width

    @property
    def force(self) -> int:
        return self.memory + self.past * 2 * self.motors

    @property
    def size(self) -> int:
        return self.force + self.dofs

    def views(self, userdata: np.ndarray) -> dict[str, np.ndarray]:
        """Named live views of all worlds' userdata, (n, size)."""
        n, m = len(userdata), self.motors
        block = lambda start, rows, columns: userdata[:, start : start + rows * columns].reshape(n, rows, columns)  # noqa: E731
        params, state = block(self.params, len(FIELDS), m), block(self.state, len(STATES), m)
        return {
            "tick": userdata[:, TICK],
            "last": userdata[:, LAST],
            "action_delay": userdata[:, ACTION_DELAY],
            "sensor_delay": userdata[:, SENSOR_DELAY],
            "targets": block(self.targets, self.sent, m),
            "ring": block(self.ring, self.depth, self.width),
            "memory": block(self.memory, self.past, 2 * m).reshape(n, self.past, 2, m),
            "force": userdata[:, self.force : self.force + self.dofs],
            "params": params,
            **{f"motor.{name}": params[:, i] for i, name in enumerate(FIELDS)},
            **{f"state.{name}": state[:, i] for i, name in enumerate(STATES)},
        }

    def numeric(
        self,
        drive: str,
        flags: int,
        q: list[int],
        v: list[int],
        sources: Sources,
        forces: list[float],
    ) -> list[float]:
        """The description that motors.c reads from the model; signals as runs of consecutive columns, and learned forces."""
        runs = [(_ARRAYS[array], *run) for array, columns in sources for run in _runs(columns)]
        head = [MARK, self.motors, _DRIVES[drive], flags, self.substeps, self.sent, self.depth, self.width]
        offsets = [self.targets, self.params, self.state, self.ring, self.memory, self.past, self.force]
        table = [*(x for run in runs for x in run), *q, *v]
        # Three numbers and the offset itself come between.
        learned = len(head) + len(offsets) + 4 + len(table) if forces else 0
        return [float(x) for x in (*head, *offsets, learned, STICTION_SPEED, SPRING_STEPS, len(runs), *table, *forces)]


def _runs(columns: list[int]) -> list[tuple[int, int]]:
    """Consecutive columns as (start, count)."""
    runs: list[tuple[int, int]] = []
    for c in columns:
        if runs and runs[-1][0] + runs[-1][1] == c:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((c, 1))
    return runs
