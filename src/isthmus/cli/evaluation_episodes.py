"""The episodes of an evaluation, world by world, as a list that `isthmus data add` takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.errors import BadInput

if TYPE_CHECKING:
    from isthmus.learn.runs import Run
    from isthmus.tasks.task import Task


def check_episode_list_path(path: Path | None) -> None:
    """Raise BadInput unless a list can have this name, before hours of work."""
    if path is not None and path.suffix != ".parquet":
        raise BadInput(f"--episodes takes a file NAME.parquet, not {path}.")


def write_episodes(
    path: Path, run: Run, task: Task, rows: dict[str, np.ndarray], seed: int, tags: list[str], **hashes: str | None
) -> dict[str, Any]:
    """One row per world: e, success, score, length and metrics; `hashes` of the belief or reality that the worlds are of."""
    from isthmus.data.store.episode_lists import write_episode_list
    from isthmus.tasks.samplers.sampler import succeeded

    robot = task.robot
    common = {"source": "sim", "robot": robot.name, "task": task.name, "run": run.record["hash"], "model": robot.model_hash}
    common |= {"seed": seed, "tags": tags, **{name: h for name, h in hashes.items() if h}}
    columns = {
        "world": np.arange(len(rows["score"])),
        "success": succeeded(rows, task.success_threshold),
        "failed": rows["failed"],
        "score": rows["score"],
        "seconds": rows["length"],
        "ticks": np.rint(rows["length"] * robot.contract.rate),
    }
    metrics = {f"metrics.{name}": rows[name] for name in ("return", *task.metrics)}
    e = {f"e.{name}": rows["e"][:, i] for i, name in enumerate(robot.space.names)}
    return {"file": str(path), "hash": write_episode_list(path, common, columns | metrics | e), "worlds": len(rows["score"])}
