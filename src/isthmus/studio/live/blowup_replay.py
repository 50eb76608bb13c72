"""The last moments of a world whose physics failed, from the file that `sim/blowup.py` wrote, over and over."""

from __future__ import annotations

import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from isthmus.core.errors import BadInput, unreadable_file
from isthmus.robots import get_robot
from isthmus.sim.robot import Robot, compile_spec
from isthmus.studio.live.parameter_sliders import format_quantity
from isthmus.studio.live.scene import LiveScene
from isthmus.studio.live.server import close_server, open_server, run_page, server_url
from isthmus.tasks.task import Task

MAX_BYTES = 64 * 2**20
DUMP_KEYS = ("robot", "model_hash", "tick", "e", "names", "qpos", "qvel", "target")
END_PAUSE = 0.6
"""s that the last moment stays before the loop starts again."""
SPEEDS = ("0.1×", "0.25×", "0.5×", "1×")


@dataclass(frozen=True)
class BlowUpDump:
    robot: Robot
    tick: float
    """s between rows."""
    e: np.ndarray
    """The world's numbers, (d,)."""
    qpos: np.ndarray
    """(ticks, nq), and likewise qvel, (ticks, nv), and target, (ticks, m): before each tick, the failing one last."""
    qvel: np.ndarray
    target: np.ndarray


def load_dump(path: Path, robot: Robot | None = None) -> BlowUpDump:
    """Read a blow-up; `robot` is needed only for one that the catalogue does not know by name."""
    path = Path(path)
    data = _read_arrays(path)
    name = str(data["robot"])
    if robot is not None and robot.name != name:
        raise BadInput(f"{path} is of robot {name!r}, not {robot.name!r}.")
    robot = robot or get_robot(name)
    if str(data["model_hash"]) != robot.model_hash:
        raise BadInput(f"{path} was recorded with another model of {name} than this version has; it cannot be shown.")
    if tuple(str(n) for n in np.atleast_1d(data["names"])) != robot.space.names:
        raise BadInput(f"{path} has other parameters than {name} has now.")
    ticks = len(data["qpos"]) if data["qpos"].ndim else 0
    model, m = robot.model, robot.contract.target.size
    shapes = {"tick": (), "e": (len(robot.space),), "qpos": (ticks, model.nq), "qvel": (ticks, model.nv), "target": (ticks, m)}
    for key, shape in shapes.items():
        if data[key].shape != shape or data[key].dtype.kind not in "fiu":
            raise BadInput(f"{path}: {key!r} has shape {data[key].shape}, not {shape} numbers.")
    if not ticks:
        raise BadInput(f"{path} holds no moment to show.")
    tick = float(data["tick"])
    if not 0 < tick < 10:
        raise BadInput(f"{path}: a tick of {tick:g} s is not possible.")
    good = np.isfinite(data["qpos"]).all(axis=1)
    last = ticks if good.all() else int(np.argmin(good))
    if not last:
        raise BadInput(f"{path} holds no moment whose pose is a number.")
    return BlowUpDump(robot, tick, data["e"], data["qpos"][:last], data["qvel"][:last], data["target"][:last])


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    broken = f"{path} is not a blow-up dump (a .npz file with {', '.join(DUMP_KEYS)})"
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(i.file_size for i in archive.infolist()) > MAX_BYTES:
                raise BadInput(f"{path} holds more than {MAX_BYTES // 2**20} MiB and is not read.")
        with np.load(path, allow_pickle=False) as file:
            missing = [k for k in DUMP_KEYS if k not in file.files]
            if missing:
                raise BadInput(f"{broken}: {missing[0]!r} is missing.")
            return {k: file[k] for k in DUMP_KEYS}
    except BadInput:
        raise
    except (zipfile.BadZipFile, ValueError, EOFError, KeyError, NotImplementedError, zlib.error) as error:
        raise BadInput(f"{broken}: {' '.join(str(error).split())[:120]}.") from None
    except OSError as error:
        raise unreadable_file(path, error) from None


def farthest_parameters(dump: BlowUpDump, count: int = 6) -> list[tuple[str, str, str]]:
    """Name, value and nominal value of the parameters farthest from nominal, in the even coordinate."""
    space = dump.robot.space
    away = np.abs(space.unit(dump.e) - space.unit(space.nominal))
    order = [int(i) for i in np.argsort(-away)[:count] if away[i] > 0]
    return [
        (p.name, format_quantity(float(dump.e[i]), p.unit), format_quantity(p.nominal, p.unit))
        for i in order
        for p in (space.params[i],)
    ]


class ReplaySession:
    """A page with a timeline. `show` draws one moment; `run` plays them in a loop."""

    def __init__(self, path: Path, port: int, host: str, robot: Robot | None, task: Task | None):
        self.dump = load_dump(path, task.robot if task is not None else robot)
        d = self.dump
        spec = d.robot.spec()
        if task is not None and task.terrain is not None:
            task.terrain.edit(spec)
        self.model = compile_spec(spec, d.robot.name)
        self.data = mujoco.MjData(self.model)
        self.server = open_server(port, host, f"{d.robot.name}: {Path(path).name}")
        try:
            self.scene = LiveScene(self.server, self.model, d.robot.morphology.base, d.robot.home)
            gui = self.server.gui
            self._text = gui.add_markdown("")
            self.playing = gui.add_checkbox("play", True)
            self.speed = gui.add_dropdown("speed", SPEEDS, initial_value="0.25×")
            self.timeline = gui.add_slider("tick", 0, max(len(d.qpos) - 1, 1), 1, 0, hint="drag to look at one moment")
            with gui.add_folder("this world"):
                rows = "".join(f"\n| {n} | {v} | {nominal} |" for n, v, nominal in farthest_parameters(d))
                gui.add_markdown(f"| parameter | here | nominal |\n|:--|--:|--:|{rows}" if rows else "Every number is nominal.")
        except BaseException:
            close_server(self.server)
            raise
        self.url = server_url(self.server)
        self.frame, self.running = 0, True
        self.draw(0, jump=True)

    def draw(self, frame: int, jump: bool = False) -> None:
        d = self.dump
        self.frame = frame
        self.data.qpos[:] = d.qpos[frame]
        mujoco.mj_kinematics(self.model, self.data)
        self.scene.update(self.data.xpos, self.data.xquat, jump=jump)
        left = (len(d.qpos) - frame) * d.tick
        fastest = float(np.abs(d.qvel[frame]).max())
        self._text.content = f"**{left:.2f} s** before the failure · fastest joint **{fastest:.3g}** (rad/s or m/s)"

    def stop(self) -> None:
        self.running = False

    def run(self, seconds: float | None = None) -> None:
        last = len(self.dump.qpos) - 1
        start = due = time.monotonic()
        while self.running and (seconds is None or time.monotonic() - start < seconds):
            asked = min(int(self.timeline.value), last)
            if asked != self.frame:
                # The user has the timeline in hand.
                self.playing.value = False
                self.draw(asked)
            elif self.playing.value and time.monotonic() >= due:
                frame = self.frame + 1 if self.frame < last else 0
                self.timeline.value = frame
                self.draw(frame, jump=frame == 0)
                wait = self.dump.tick / float(self.speed.value.rstrip("×"))
                due = time.monotonic() + wait + (END_PAUSE if frame == last else 0.0)
            time.sleep(0.01)


def replay(
    path: Path,
    port: int = 8080,
    host: str = "127.0.0.1",
    seconds: float | None = None,
    robot: Robot | None = None,
    task: Task | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Show a blow-up dump until Ctrl-C or for `seconds`. `task` gives its terrain to the picture, if it has one."""
    run_page(ReplaySession(path, port, host, robot, task), seconds, on_ready)
