"""Compile motors.c against the installed MuJoCo, once, and install it as MuJoCo's control callback.

Where there is no C compiler the engine runs the same law in NumPy, a tenth slower.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

import mujoco

SOURCE = Path(__file__).with_name("motors.c")
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC", "-ffp-contract=off")
"""No fused multiply-add: the numbers must equal NumPy's."""


def compiler() -> str | None:
    wanted = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(wanted) or shutil.which("cc") or shutil.which("gcc")


def _cache_folders() -> list[Path]:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return [home / "isthmus", Path(tempfile.gettempdir()) / f"isthmus-{os.getuid()}"]


@cache
def control_callback() -> ctypes.CDLL | None:
    """The compiled motor law, installed; or None where it cannot be built."""
    if os.environ.get("ISTHMUS_NO_NATIVE"):
        return None
    library = _build()
    if library is None:
        return None
    loaded = ctypes.CDLL(str(library))
    mujoco.set_mjcb_control(loaded.isthmus_control)
    mujoco.set_mju_user_warning(loaded.isthmus_warning)
    return loaded


def _build() -> Path | None:
    include = Path(mujoco.__file__).parent / "include"
    key = hashlib.sha256(SOURCE.read_bytes() + mujoco.__version__.encode() + " ".join(FLAGS).encode()).hexdigest()[:16]
    for folder in _cache_folders():
        library = folder / f"motors-{key}.so"
        if library.is_file() and library.stat().st_uid == os.getuid():
            return library
    cc = compiler()
    if cc is None:
        return None
    for folder in _cache_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if folder.stat().st_uid != os.getuid():
                continue
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                made = Path(scratch) / "motors.so"
                command = [cc, *FLAGS, f"-I{include}", str(SOURCE), "-o", str(made), "-lm"]
                if subprocess.run(command, capture_output=True, timeout=60).returncode:
                    return None
                library = folder / f"motors-{key}.so"
                made.replace(library)
                return library
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None
