"""Install motor_law.c as MuJoCo's control callback, compiled against the installed MuJoCo.

Where there is no C compiler, motors run the same law in NumPy, a tenth slower.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import mujoco

from isthmus.core.native_build import NativeLibrary, build_library

_SOURCE = Path(__file__).with_name("motor_law.c")
MOTOR_LAW_LIBRARY = NativeLibrary(
    name="motor_law",
    source=_SOURCE,
    headers=(_SOURCE.with_name("learned_forces.h"),),
    include_folders=(Path(mujoco.__file__).parent / "include",),
    version=mujoco.__version__,
)


@cache
def install_control_callback() -> ctypes.CDLL | None:
    """The compiled motor law; None where it cannot be built, or if ISTHMUS_NO_NATIVE is set.

    It becomes the control callback of every MuJoCo simulation in this process, and does nothing in models without our table
    (`UserdataLayout.native_table`). MuJoCo's warnings are no longer printed.
    """
    if os.environ.get("ISTHMUS_NO_NATIVE"):
        return None
    path = build_library(MOTOR_LAW_LIBRARY)
    if path is None:
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    mujoco.set_mjcb_control(library.isthmus_control)
    mujoco.set_mju_user_warning(library.isthmus_warning)
    return library
