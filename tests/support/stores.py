"""Lists of episodes for a store, and questions to it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from isthmus.cli.main import main
from isthmus.data.store import Store, episode_lists

N = 600


def worlds(path: Path, n: int = N, seed: int = 0) -> dict[str, np.ndarray]:
    """A list of n episodes, some of whose scores are not known."""
    rng = np.random.default_rng(seed)
    columns = {
        "world": np.arange(n, dtype=float),
        "success": (rng.random(n) < 0.7).astype(float),
        "score": np.where(rng.random(n) < 0.1, np.nan, rng.random(n)),
        "e.payload": rng.uniform(0, 3, n),
        "e.friction": rng.uniform(0.2, 1, n),
        "metrics.power": rng.random(n),
    }
    episode_lists.write_episode_list(
        path, {"source": "sim", "robot": "go1", "run": "a" * 64, "belief": "b" * 64, "seed": seed}, columns
    )
    return columns


def one(store: Store, sql: str):
    answer = store.select(sql)
    assert len(answer.rows) == 1
    return answer.rows[0]


def whole(store: Store) -> None:
    """The chain holds, and no episode is there twice."""
    assert Store.open(store.folder).chain.verify() == ""
    total, distinct = one(store, "select count(*), count(distinct hash) from episodes")
    assert total == distinct


def call(capsys, *argv: str) -> tuple[int, dict]:
    code = main([*argv, "--json"])
    return code, json.loads(capsys.readouterr().out)
