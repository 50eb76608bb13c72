"""Compile C sources of the package to a shared library, once per machine, and keep it in the user's cache.

The library's name holds a hash of sources, headers, flags, compiler and processor, so that a change of any of them builds anew
and a cache shared by machines never loads code for another processor.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BUILD_TIMEOUT_SECONDS = 60.0
BASE_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC", "-ffp-contract=off")
"""No fused multiply-add: results must equal NumPy's bit for bit."""


@dataclass(frozen=True)
class NativeLibrary:
    """What to build: one C file, the headers that it includes, folders of other headers."""

    name: str
    source: Path
    headers: tuple[Path, ...] = ()
    include_folders: tuple[Path, ...] = ()
    version: str = ""
    """Version of what the code is compiled against, part of the hash."""
    flags: tuple[str, ...] = BASE_FLAGS


def c_compiler() -> list[str] | None:
    """Command of the C compiler (CC, Python's own, cc or gcc), or None."""
    wanted = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    for command in (wanted, ["cc"], ["gcc"]):
        if command and shutil.which(command[0]):
            return command
    return None


def build_library(library: NativeLibrary) -> Path | None:
    """Path of the compiled library, built now if it is not in the cache; None without a compiler or if compiling fails."""
    compiler = c_compiler()
    file_name = f"{library.name}-{_build_key(library, compiler)}.so"
    for folder in _cache_folders():
        path = folder / file_name
        if _is_private_folder(folder) and path.is_file():
            return path
    if compiler is None:
        return None
    for folder in _cache_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not _is_private_folder(folder):
                continue
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                built = Path(scratch) / file_name
                if not _compile(library, compiler, built):
                    return None
                return built.replace(folder / file_name)
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None


def _compile(library: NativeLibrary, compiler: Sequence[str], output: Path) -> bool:
    include = [f"-I{folder}" for folder in library.include_folders]
    command = [*compiler, *library.flags, *include, str(library.source), "-o", str(output), "-lm"]
    return subprocess.run(command, capture_output=True, timeout=BUILD_TIMEOUT_SECONDS, check=False).returncode == 0


def _build_key(library: NativeLibrary, compiler: Sequence[str] | None) -> str:
    text = "|".join([library.version, *library.flags, _processor_features(), *(compiler or [])])
    files = b"".join(path.read_bytes() for path in (library.source, *library.headers))
    return hashlib.sha256(files + text.encode()).hexdigest()[:16]


def _processor_features() -> str:
    """Architecture and instruction sets: -march=native code for one processor may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return platform.machine() + next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _cache_folders() -> list[Path]:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return [home / "isthmus", Path(tempfile.gettempdir()) / f"isthmus-{os.getuid()}"]


def _is_private_folder(folder: Path) -> bool:
    """Whether the folder is ours and nobody else can write to it: only then is a library in it loaded."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
