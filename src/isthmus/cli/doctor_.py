"""What this machine can do, how fast, and what is missing.

example: isthmus doctor
"""

from __future__ import annotations

import os
import platform
import shutil
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from isthmus.cli import render

BENCH_WORLDS, BENCH_TICKS = 256, 40
ROBOT_PACKAGES = ("numpy", "onnxruntime", "eclipse-zenoh", "mcap", "protobuf")
"""What a robot's own computer needs."""
LAB_PACKAGES = (
    *("mujoco", "torch", "safetensors", "onnx", "viser"),
    *("tensorboard", "scipy", "matplotlib", "pyarrow", "rosbags"),
)
ADAPTER_PACKAGES = {"gymnasium": "gymnasium", "stable_baselines3": "stable-baselines3", "rsl_rl": "rsl-rl-lib"}


@dataclass(frozen=True)
class Args:
    quick: bool = False
    """Leave out the speed of each robot."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    machine = {
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    packages = {name: _package_version(name) for name in (*ROBOT_PACKAGES, *LAB_PACKAGES, *ADAPTER_PACKAGES.values())}
    checks = _checks(packages)
    speeds: dict[str, dict[str, float]] = {}
    if not args.quick and packages["mujoco"]:
        with render.progress_bar("measuring") as bar:
            speeds = _measure_speeds(bar)
    missing = [c for c in checks if not c["ok"]]
    if args.json:
        render.emit({"machine": machine, "packages": packages, "checks": checks, "speed": speeds})
    else:
        render.out.print(
            f"{machine['cores']} cores, {machine['memory_gib']:.0f} GiB, Python {machine['python']}, {machine['system']}\n"
        )
        rows = [["yes" if c["ok"] else "no", c["what"], "" if c["ok"] else c["fix"]] for c in checks]
        render.out.print(render.table("", ["", "can", "to fix it"], rows))
        if speeds:
            rows = [[n, f"{s['ticks_per_second']:,.0f}", f"{s['times_real_time']:,.0f}"] for n, s in speeds.items()]
            render.out.print(
                render.table(
                    f"\nspeed with {BENCH_WORLDS} worlds", ["robot", "ticks/s", "worlds in real time"], rows, right=(1, 2)
                )
            )
    return 1 if any(c["needed"] for c in missing) else 0


def _checks(packages: dict[str, str]) -> list[dict[str, Any]]:
    lab = all(packages[p] for p in LAB_PACKAGES)
    have_compiler = lab and _motor_law_compiles()
    browser = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("firefox")
    extras = all(packages[p] for p in ADAPTER_PACKAGES.values())
    row = lambda what, ok, fix, needed=False: {"what": what, "ok": bool(ok), "fix": fix, "needed": needed}  # noqa: E731
    return [
        row("run a controller on a robot", all(packages[p] for p in ROBOT_PACKAGES), "pip install isthmus", needed=True),
        row("run it in real time (--realtime)", _realtime_allowed(), "ulimit -r 50, or a line in /etc/security/limits.d"),
        row("simulate, train and export", lab, "pip install 'isthmus[lab]'"),
        row("compile the motor law (10 % faster)", have_compiler, "install a C compiler, e.g. apt-get install gcc"),
        row("open `isthmus play` here", browser, "any browser on this machine, or an ssh tunnel to it"),
        row("train with Stable-Baselines3 and rsl-rl", extras, "pip install 'isthmus[adapters]'"),
        row(
            "download Menagerie robots or use a local copy",
            _menagerie_available(),
            "pip install mujoco-menagerie, or set MENAGERIE_ROOT",
        ),
    ]


def _motor_law_compiles() -> bool:
    from isthmus.sim.engines.batch import control_callback

    return control_callback.install_control_callback() is not None


def _realtime_allowed() -> bool:
    """Whether this process may ask for real-time priority."""
    try:
        policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
        os.sched_setscheduler(0, policy, parameter)
    except (OSError, AttributeError):
        return False
    return True


def _menagerie_available() -> bool:
    return bool(os.environ.get("MENAGERIE_ROOT")) or bool(_package_version("mujoco-menagerie"))


def _measure_speeds(bar: render.ProgressBar) -> dict[str, dict[str, float]]:
    """Control ticks per second of each robot, randomised, holding its default target."""
    import numpy as np

    from isthmus.robots import ROBOTS
    from isthmus.sim.simulation import Simulation

    found = {}
    for i, (name, make) in enumerate(ROBOTS.items()):
        robot = make()
        engine = Simulation(robot, BENCH_WORLDS)
        engine.apply(robot.prior.sample(np.random.default_rng(0), BENCH_WORLDS), engine.all_ids)
        target = np.tile(np.array(robot.default), (BENCH_WORLDS, 1))
        engine.step(target)
        start = time.perf_counter()
        for _ in range(BENCH_TICKS):
            engine.step(target)
        rate = BENCH_WORLDS * BENCH_TICKS / (time.perf_counter() - start)
        found[name] = {"ticks_per_second": rate, "times_real_time": rate * engine.tick}
        bar.update((i + 1) / len(ROBOTS))
    return found


def _package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _memory_gib() -> float:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError):
        return float("nan")
