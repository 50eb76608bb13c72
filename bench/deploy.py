"""What a tick on the robot costs, what its guard adds, and how well a loop at 500 Hz keeps its deadlines over Zenoh."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from bench.speed import Row
from isthmus.data.mcap.writer import EpisodeWriter
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.guard.guard import Guard
from isthmus.deploy.links.link import Packet
from isthmus.deploy.onnx_controller import OnnxController, save_controller
from isthmus.deploy.preflight import preflight
from isthmus.deploy.recorder import STATUS_COLUMNS, Recorder
from isthmus.deploy.run_result import RunResult
from isthmus.deploy.runtime import ControlLoop

TICKS = 20_000
RATE, SECONDS = 500.0, 60.0
EDGES = (50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3)


def measure(seconds: float = SECONDS) -> tuple[list[Row], list[str]]:
    """The table's rows, and the histogram of how late the loop at 500 Hz woke."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.controller"
        export_at(RATE, path)
        tick, bare, guard = ticks(OnnxController.load(path))
        load, memory = loading(path)
        fast, slow = against_robot(RATE, seconds), against_robot(50.0, seconds / 3)
    us = lambda x, q: f"{np.quantile(x, q) * 1e6:.0f}"  # noqa: E731
    rows = [
        Row("controller tick, go1, median, µs", "< 100", us(tick, 0.5)),
        Row("controller tick, go1, 99.9th percentile, µs", "< 500", us(tick, 0.999)),
        Row("of which onnxruntime itself, median, share", "", f"{np.median(bare) / np.median(tick):.2f}"),
        Row("guard per tick, median, µs", "< 50", us(guard, 0.5)),
        Row("guard per tick, 99.9th percentile, µs", "", us(guard, 0.999)),
        Row("import isthmus.deploy and load a controller, s", "< 1", f"{load:.2f}"),
        Row("memory of that process, MB", "< 150", f"{memory / 1e6:.0f}"),
    ]
    for run, asked in ((fast, "< 0.1"), (slow, "")):
        o = run.outcome
        head = f"{run.rate:g} Hz for {run.seconds:g} s over Zenoh"
        rows += [
            Row(f"{head}: deadlines missed, %", asked, f"{100 * o.missed.rate:.3f}"),
            Row("… by a loop that does nothing, before and after, %", "", f"{100 * run.before:.3f}, {100 * run.after:.3f}"),
            Row("… time that the hypervisor took from this machine meanwhile, %", "", f"{100 * run.stolen:.1f}"),
            Row(
                "… woke late, median and 99.9th percentile, µs",
                "",
                f"{us(run.wake_latency, 0.5)}, {us(run.wake_latency, 0.999)}",
            ),
            Row(
                "… read, policy, guard, write, the same, µs", "", f"{us(run.compute_time, 0.5)}, {us(run.compute_time, 0.999)}"
            ),
            Row("… seconds of computing per second", "", f"{run.compute_time.sum() / run.seconds:.3f}"),
            Row("… ticks missing from its recording", "", f"{o.lost_ticks}"),
        ]
    return rows, histogram(fast.wake_latency)


@dataclass(frozen=True)
class Measured:
    rate: float
    seconds: float
    outcome: RunResult
    wake_latency: np.ndarray
    compute_time: np.ndarray
    """s per tick, (ticks,)."""
    before: float
    after: float
    """Share of deadlines missed by a loop that does nothing."""
    stolen: float


def against_robot(rate: float, seconds: float) -> Measured:
    """A run against a virtual robot in its own process, between two runs of a loop that does nothing."""
    endpoint = f"tcp/127.0.0.1:{7600 + os.getpid() % 300}"
    robot = subprocess.Popen([sys.executable, "-m", "bench.deploy", endpoint, str(rate)])
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bench.controller"
            export_at(rate, path)
            before, stolen = idle(rate, seconds / 4), _stolen()
            outcome, loop = over_zenoh(OnnxController.load(path), endpoint, Path(folder) / "bench.mcap", seconds)
            stolen = (_stolen() - stolen) / (seconds * (os.cpu_count() or 1))
            return Measured(
                rate, seconds, outcome, loop.wake_latency, loop.compute_time, before, idle(rate, seconds / 4), stolen
            )
    finally:
        robot.terminate()
        robot.wait()


def _stolen() -> float:
    """s that a hypervisor gave to others while this machine wanted to run, all cores together."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def histogram(late: np.ndarray) -> list[str]:
    counts = np.histogram(late, [-np.inf, *EDGES, np.inf])[0]
    names = [f"up to {1e6 * e:.0f} µs" for e in EDGES] + [f"over {1e6 * EDGES[-1]:.0f} µs"]
    lines = [f"| {n} | {c} | {100 * c / len(late):.2f} |" for n, c in zip(names, counts, strict=True)]
    return ["| woke late by | ticks | % |", "|---|---|---|", *lines]


def at_rate(rate: float):
    """go1 and its task, with a control loop at another rate."""
    from isthmus.tasks.catalogue import get_task

    task = get_task("go1/walk")
    robot = replace(task.robot, contract=replace(task.robot.contract, rate=rate))
    return replace(task, robot=robot)


def export_at(rate: float, path: Path) -> None:
    """A controller of the size that go1/walk trains, fresh: the arithmetic is the same."""
    from isthmus.learn.policies.actor import Actor, ActorSpec
    from isthmus.learn.policies.export import graph_bytes, make_manifest
    from isthmus.learn.recipes import recipe

    task = at_rate(rate)
    actor = Actor(ActorSpec.for_task(task, recipe("go1/walk").hidden)).eval()
    onnx = graph_bytes(actor)
    run = SimpleNamespace(task=task, belief=task.robot.prior, record={"hash": ""})
    save_controller(path, make_manifest(run, actor, onnx), onnx)


def ticks(controller: OnnxController) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds per tick of the controller, of its bare session, and of the guard around it, taking turns."""
    m = controller.manifest
    rng = np.random.default_rng(0)
    guard = Guard(m.robot, np.array(m.default))
    values = np.zeros(m.robot.width)
    at = m.robot.slices()
    values[at["joint_pos"]], values[at["quat"].start] = m.default, 1.0
    guard.receive([Packet(0, 0.0, "track", values)], 0.0)
    guard.start(0.0, 1 / RATE)
    wanted = np.array(m.default)
    found: list[list[float]] = [[], [], []]
    clock = time.perf_counter
    for k in range(1, TICKS + 1):
        noisy = values + rng.normal(0, 0.01, len(values))
        signals = {name: noisy[at[name]] for name in m.inputs} | {s.name: np.zeros(s.size) for s in m.operator}
        start = clock()
        controller.tick(signals)
        one = clock()
        controller._session.run_with_iobinding(controller._bindings[0])
        two = clock()
        guard.receive([Packet(k, k / RATE, "track", noisy)], k / RATE)
        guard.note_deadline(False)
        guard.decide(wanted, k / RATE)
        three = clock()
        for list_, spent in zip(found, (one - start, two - one, three - two), strict=True):
            list_.append(spent)
    return tuple(np.array(x[100:]) for x in found)  # type: ignore[return-value]


def loading(path: Path) -> tuple[float, int]:
    """Seconds and resident bytes of a fresh process that imports the runtime and loads a controller; median of five."""
    script = (
        "import time, os; t = time.perf_counter()\n"
        "from isthmus.deploy.onnx_controller import OnnxController; import isthmus.deploy.runtime\n"
        f"c = OnnxController.load({str(path)!r})\n"
        "print(time.perf_counter() - t, int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE'))"
    )
    found = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        seconds, memory = done.stdout.split()
        found.append((float(seconds), int(memory)))
    return float(np.median([s for s, _ in found])), int(np.median([m for _, m in found]))


def idle(rate: float, seconds: float) -> float:
    """Share of deadlines that a loop which only sleeps meets too late by a whole period: what the machine itself costs."""
    clock, start, late, k = time.perf_counter, time.perf_counter(), 0, 0
    while k < seconds * rate:
        due = start + k / rate
        time.sleep(max(0.0, due - clock()))
        passed = int((clock() - due) * rate)
        # Its own deadline, and those that passed meanwhile, as the runtime counts them.
        late += passed + (passed > 0)
        k += 1 + passed
    return late / k


def over_zenoh(controller: OnnxController, endpoint: str, record: Path, seconds: float) -> tuple[RunResult, ControlLoop]:
    """A run against a virtual robot in its own process, recorded."""
    from isthmus.deploy.links.zenoh import ZenohLink

    link = ZenohLink(endpoint)
    try:
        link.identity(30.0)
        operator = CommandSchedule(controller.manifest.operator)
        checks, flight = preflight(controller, link, operator.values_at(0.0))
        assert flight is not None, [c for c in checks if not c.ok]
        recorder = Recorder(EpisodeWriter(record, flight.identity.contract, controller.manifest.operator, STATUS_COLUMNS, {}))
        loop = ControlLoop(controller, link, flight, operator, recorder)
        outcome = loop.run(seconds)
        assert outcome.status == "completed", outcome.reason
        return outcome, loop
    finally:
        link.close()


def serve(endpoint: str, rate: float) -> None:
    """The robot's process."""
    from isthmus.deploy.links.zenoh import ZenohRobot
    from isthmus.sim.reality import Reality, VirtualRobot

    robot = at_rate(rate).robot
    ZenohRobot(VirtualRobot(robot, Reality("go1")), endpoint).serve(lambda: True)


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]))
