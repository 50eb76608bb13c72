"""Compile motors.c against the installed MuJoCo, once, and install it as MuJoCo's control callback.

Where there is no C compiler the engine runs the same law in NumPy, a tenth slower.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

import mujoco

MOTOR_LAW_SOURCE = Path(__file__).with_name("motor_law.c")
LEARNED_FORCES_HEADER = MOTOR_LAW_SOURCE.with_name("learned_forces.h")
COMPILER_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC", "-ffp-contract=off")
"""No fused multiply-add: the numbers must equal NumPy's."""


def c_compiler() -> list[str] | None:
    """The C compiler's command, or None."""
    wanted = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    for command in (wanted, ["cc"], ["gcc"]):
        if command and shutil.which(command[0]):
            return command
    return None


def _cache_folders() -> list[Path]:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return [home / "isthmus", Path(tempfile.gettempdir()) / f"isthmus-{os.getuid()}"]


def _is_private_folder(folder: Path) -> bool:
    """A folder of our own that nobody else can write to: what lies in it may be loaded."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


@cache
def install_control_callback() -> ctypes.CDLL | None:
    """The compiled motor law; or None where it cannot be built, or ISTHMUS_NO_NATIVE is set.

    It becomes the control callback of every MuJoCo simulation in this process, and leaves models that are not ours
    alone. MuJoCo's warnings are no longer printed.
    """
    if os.environ.get("ISTHMUS_NO_NATIVE"):
        return None
    library = _build_library()
    if library is None:
        return None
    try:
        loaded = ctypes.CDLL(str(library))
    except OSError:
        return None
    mujoco.set_mjcb_control(loaded.isthmus_control)
    mujoco.set_mju_user_warning(loaded.isthmus_warning)
    return loaded


def _processor_features() -> str:
    """What the compiler tunes for: code for one processor may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return platform.machine() + next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _build_library() -> Path | None:
    include = Path(mujoco.__file__).parent / "include"
    cc = c_compiler()
    text = [mujoco.__version__, *COMPILER_FLAGS, _processor_features(), *(cc or [])]
    key = hashlib.sha256(
        MOTOR_LAW_SOURCE.read_bytes() + LEARNED_FORCES_HEADER.read_bytes() + "|".join(text).encode()
    ).hexdigest()[:16]
    for folder in _cache_folders():
        library = folder / f"motors-{key}.so"
        if _is_private_folder(folder) and library.is_file():
            return library
    if cc is None:
        return None
    for folder in _cache_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not _is_private_folder(folder):
                continue
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                made = Path(scratch) / "motors.so"
                command = [*cc, *COMPILER_FLAGS, f"-I{include}", str(MOTOR_LAW_SOURCE), "-o", str(made), "-lm"]
                if subprocess.run(command, capture_output=True, timeout=60, check=False).returncode:
                    return None
                library = folder / f"motors-{key}.so"
                made.replace(library)
                return library
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None
