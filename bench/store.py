"""The store of episodes at size: how fast episodes go in, and how long questions over all of them take.

    python -m bench.store                          100,000 episodes, about a minute
    python -m bench.store --episodes 1000000
    python -m bench.store -o runs/store.md

Episodes have 41 numbers e, as go1 has, and six metrics each. Every question starts from nothing: the chain is read, all parts
are looked for, and DuckDB starts anew. Processor time is beside elapsed time, because a busy machine changes the one more than
the other. As a reference, pyarrow computes the same mean over the same parts.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.__main__ import commit
from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode
from isthmus.data.mcap.writer import write_episode
from isthmus.data.store import Store
from isthmus.data.store.episode_lists import write_episode_list

QUESTIONS = {
    "count, success by source": "select source, count(*), avg(success), avg(score) from episodes group by 1",
    "success over e, in ten bins": "select floor(10 * e['p3']) as bin, count(*), avg(success) from episodes group by 1",
    "all columns of one episode": "select * from episodes where world = 7",
    "mean of all 41 numbers of e": "select " + ", ".join(f"avg(e.p{i})" for i in range(41)) + " from episodes",
}
ROUNDS = 5
RECORDINGS = 200


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Elapsed s, processor s, and what came of it."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return time.perf_counter() - wall, time.process_time() - cpu, found


def row(name: str, work: Callable[[], Any]) -> tuple[str, str, str]:
    """Medians over a few rounds."""
    found = [timed(work) for _ in range(ROUNDS)]
    return name, f"{median(f[0] for f in found):.2f} s", f"{median(f[1] for f in found):.2f} s"


def episodes(path: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    columns = {"world": np.arange(n), "success": rng.random(n) < 0.9, "failed": rng.random(n) < 0.05}
    columns |= {"score": rng.random(n), "seconds": np.full(n, 20.0)}
    columns |= {f"e.p{i}": rng.random(n) for i in range(41)} | {f"metrics.m{i}": rng.random(n) for i in range(6)}
    common = {"source": "sim", "robot": "go1", "task": "go1/walk", "run": "a" * 64, "belief": "b" * 64, "seed": 1}
    write_episode_list(path, common, columns)


def recordings(folder: Path, n: int) -> None:
    """Recordings of ten seconds with 24 signals at 50 Hz."""
    labels = tuple(f"j{i}" for i in range(12))
    contract = Contract(
        "legs", 50.0, (Signal("joint_pos", "rad", labels), Signal("joint_vel", "rad/s", labels)), Signal("t", "rad", labels)
    )
    rng = np.random.default_rng(1)
    for i in range(n):
        x = rng.normal(size=(500, 12))
        origin = {"source": "real", "unit": f"u{i % 3}"}
        signals = {"joint_pos": x, "joint_vel": x}
        write_episode(folder / f"{i:04d}.mcap", Episode(contract, np.arange(500) / 50, signals, x, x, origin=origin))


def by_arrow(store: Store) -> float:
    """The mean success over all parts, without DuckDB."""
    import pyarrow.compute
    import pyarrow.dataset

    files = [str(store.folder / e.parts["episodes"].file) for e in store.chain.read() if "episodes" in e.parts]
    return pyarrow.compute.mean(pyarrow.dataset.dataset(files).to_table(columns=["success"])["success"]).as_py()


def measure(folder: Path, n: int) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    path, place = folder / "worlds.parquet", folder / "store"
    episodes(path, n)
    wall, cpu, added = timed(lambda: Store(place).add([path]))
    assert added.episodes == n
    rows.append((f"import {n:,} episodes", f"{wall:.1f} s, {n / wall:,.0f}/s", f"{cpu:.1f} s, {n / cpu:,.0f}/s"))
    wall, cpu, added = timed(lambda: Store(place).add([path]))
    assert added.episodes == 0
    rows.append(("the same again: nothing to add", f"{wall:.1f} s", f"{cpu:.1f} s"))
    Store(place).query("select 1")
    for name, sql in QUESTIONS.items():
        rows.append(row(name, lambda sql=sql: Store(place).query(sql)))
    rows.append(row("mean success by pyarrow alone", lambda: by_arrow(Store(place))))
    wall, cpu, problem = timed(Store(place).chain.verify)
    assert problem == ""
    rows.append(("verify every byte", f"{wall:.2f} s", f"{cpu:.2f} s"))
    (folder / "real").mkdir()
    recordings(folder / "real", RECORDINGS)
    wall, cpu, added = timed(lambda: Store(place).add([folder / "real"]))
    assert added.episodes == RECORDINGS
    rate = f"{wall:.1f} s, {RECORDINGS / wall:,.0f}/s", f"{cpu:.1f} s, {RECORDINGS / cpu:,.0f}/s"
    rows.append((f"import {RECORDINGS} recordings of 10 s", *rate))
    return rows + _small_parts(folder)


def _small_parts(folder: Path) -> list[tuple[str, str, str]]:
    """A store that was filled one recording at a time."""
    store = Store(folder / "small")
    for path in sorted((folder / "real").iterdir()):
        store.add([path])
    sql = "select unit, count(*) from episodes group by 1"
    return [row(f"count by unit, {RECORDINGS} entries of one recording", lambda: Store(folder / "small").query(sql))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.store", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("-o", "--out", type=Path, help="file for the table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), args.episodes)
        size = sum(p.stat().st_size for p in (Path(folder) / "store").rglob("*.parquet"))
    text = [f"Measured at commit {commit()} on {os.cpu_count()} cores, {platform.machine()}; {size / 1e6:.0f} MB on disk.", ""]
    text += ["| what | elapsed | processor |", "|---|---|---|", *(f"| {a} | {b} | {c} |" for a, b, c in rows)]
    print("\n".join(text))
    if args.out:
        args.out.write_text("\n".join(text) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
