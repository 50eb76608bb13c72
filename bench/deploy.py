"""What a tick on the robot costs, what its guard adds, and how well a loop at 500 Hz keeps its deadlines over Zenoh."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.speed import Row
from isthmus.data.recording import Writer
from isthmus.deploy.controller import Controller, Manifest, save
from isthmus.deploy.guard import Guard
from isthmus.deploy.link import Packet
from isthmus.deploy.operator import Operator
from isthmus.deploy.preflight import preflight
from isthmus.deploy.recorder import Recorder
from isthmus.deploy.runtime import STATUS, Loop
from isthmus.files import content_hash

TICKS = 20_000
RATE, SECONDS = 500.0, 60.0
EDGES = (50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3)


def measure(seconds: float = SECONDS) -> tuple[list[Row], list[str]]:
    """The table's rows, and the histogram of how late the loop woke."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.controller"
        export_at(RATE, path)
        controller = Controller.load(path)
        tick, bare, guard = ticks(controller)
        load, memory = loading(path)
        outcome = over_zenoh(controller, path, Path(folder) / "bench.mcap", seconds)
    us = lambda x, q: f"{np.quantile(x, q) * 1e6:.0f}"  # noqa: E731
    rows = [
        Row("controller tick, go1, median, µs", "< 100", us(tick, 0.5)),
        Row("controller tick, go1, 99.9th percentile, µs", "< 500", us(tick, 0.999)),
        Row("of which onnxruntime itself, median, share", "", f"{np.median(bare) / np.median(tick):.2f}"),
        Row("guard per tick, median, µs", "< 50", us(guard, 0.5)),
        Row("guard per tick, 99.9th percentile, µs", "", us(guard, 0.999)),
        Row("import isthmus.deploy and load a controller, s", "< 1", f"{load:.2f}"),
        Row("memory of that process, MB", "< 150", f"{memory / 1e6:.0f}"),
        Row(f"deadlines missed, {RATE:g} Hz for {seconds:g} s over Zenoh, %", "< 0.1", f"{100 * outcome.missed.rate:.3f}"),
        Row("ticks of that run", "", f"{outcome.ticks}"),
        Row("woke late, median and 99.9th percentile, µs", "", f"{us(outcome.late, 0.5)}, {us(outcome.late, 0.999)}"),
        Row("read, policy, guard, write, same", "", f"{us(outcome.compute, 0.5)}, {us(outcome.compute, 0.999)}"),
        Row("ticks missing from its recording", "", f"{outcome.lost}"),
    ]
    return rows, histogram(outcome.late)


def histogram(late: np.ndarray) -> list[str]:
    counts = np.histogram(late, [-np.inf, *EDGES, np.inf])[0]
    names = [f"up to {1e6 * e:.0f} µs" for e in EDGES] + [f"over {1e6 * EDGES[-1]:.0f} µs"]
    lines = [f"| {n} | {c} | {100 * c / len(late):.2f} |" for n, c in zip(names, counts, strict=True)]
    return ["| woke late by | ticks | % |", "|---|---|---|", *lines]


def at_rate(rate: float):
    """go1 and its task, with a control loop at another rate."""
    from isthmus.tasks import get_task

    task = get_task("go1/walk")
    robot = replace(task.robot, contract=replace(task.robot.contract, rate=rate))
    return replace(task, robot=robot)


def export_at(rate: float, path: Path) -> None:
    """A controller of the size that go1/walk trains, fresh: the arithmetic is the same."""
    from isthmus.learn.actor import Actor, Shape
    from isthmus.learn.export import graph_bytes
    from isthmus.learn.recipes import recipe

    task = at_rate(rate)
    actor = Actor(Shape.of(task, recipe("go1/walk").hidden)).eval()
    onnx = graph_bytes(actor)
    command = task.command.signal
    manifest = Manifest(
        task=task.name,
        robot=task.robot.contract,
        inputs=tuple(s.name for s in actor.shape.signals if s != command),
        operator=(command,),
        memory={k: tuple(v.shape[1:]) for k, v in actor.memory(1).items()},
        default=task.robot.default,
        model_hash=task.robot.model_hash,
        space_hash=task.robot.space.hash,
        belief_hash=task.robot.prior.hash,
        run_hash="",
        graph_hash=content_hash(onnx),
    )
    save(path, manifest, onnx)


def ticks(controller: Controller) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds per tick of the controller, of its bare session, and of the guard around it, taking turns."""
    m = controller.manifest
    rng = np.random.default_rng(0)
    guard = Guard(m.robot, np.array(m.default))
    values = np.zeros(m.robot.width)
    at = m.robot.slices()
    values[at["joint_pos"]], values[at["quat"].start] = m.default, 1.0
    guard.see([Packet(0, 0.0, "track", values)], 0.0)
    guard.begin(0.0, 1 / RATE)
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
        guard.see([Packet(k, k / RATE, "track", noisy)], k / RATE)
        guard.deadline(False)
        guard.decide(wanted, k / RATE)
        three = clock()
        for list_, spent in zip(found, (one - start, two - one, three - two), strict=True):
            list_.append(spent)
    return tuple(np.array(x[100:]) for x in found)  # type: ignore[return-value]


def loading(path: Path) -> tuple[float, int]:
    """Seconds and resident bytes of a fresh process that imports the runtime and loads a controller; median of five."""
    script = (
        "import time, os; t = time.perf_counter()\n"
        "from isthmus.deploy.controller import Controller; import isthmus.deploy.runtime\n"
        f"c = Controller.load({str(path)!r})\n"
        "print(time.perf_counter() - t, int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE'))"
    )
    found = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        seconds, memory = done.stdout.split()
        found.append((float(seconds), int(memory)))
    return float(np.median([s for s, _ in found])), int(np.median([m for _, m in found]))


def over_zenoh(controller: Controller, path: Path, record: Path, seconds: float):
    """A run against a virtual robot in its own process, recorded."""
    from isthmus.deploy.links.zenoh_link import ZenohLink

    endpoint = f"tcp/127.0.0.1:{7600 + os.getpid() % 300}"
    robot = subprocess.Popen([sys.executable, "-m", "bench.deploy", endpoint])
    link = ZenohLink(endpoint)
    try:
        link.identity(30.0)
        operator = Operator(controller.manifest.operator)
        checks, flight = preflight(controller, link, operator.at(0.0))
        assert flight is not None, [c for c in checks if not c.ok]
        recorder = Recorder(Writer(record, flight.identity.contract, controller.manifest.operator, STATUS, {}))
        outcome = Loop(controller, link, flight, operator, recorder).run(seconds)
        assert outcome.ended == "done", outcome.why
        return outcome
    finally:
        link.close()
        robot.terminate()
        robot.wait()


def serve(endpoint: str) -> None:
    """The robot's process."""
    from isthmus.deploy.links.zenoh_link import ZenohRobot
    from isthmus.sim.reality import Reality, VirtualRobot

    robot = at_rate(RATE).robot
    ZenohRobot(VirtualRobot(robot, Reality("go1")), endpoint).serve(lambda: True)


if __name__ == "__main__":
    serve(sys.argv[1])
