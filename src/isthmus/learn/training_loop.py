"""The loop around every method: it can be stopped at any moment and goes on as if it never had been."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import Interrupted
from isthmus.core.files import atomic_write
from isthmus.learn.algorithms.algorithm import Trainer


@dataclass(frozen=True)
class TrainingProgress:
    """Where training stands after an iteration."""

    iteration: int
    steps: int
    seconds: float
    fraction: float
    """Of the budget, 0 to 1."""
    level: str
    metrics: dict[str, float]


def run_training_loop(trainer: Trainer, report: Callable[[TrainingProgress], None], save_every: float = 15.0) -> None:
    """Run to the end of the plan's budget, with a checkpoint every `save_every` seconds.

    Ctrl-C stops after the current iteration with everything saved.
    """
    run, plan = trainer.run, trainer.run.config
    with _metrics_log(run.folder, trainer.iteration) as log, _stop_requests() as stopped:
        last_save = time.perf_counter()
        if trainer.iteration == 0:
            trainer.save()
        while _budget_fraction(plan, trainer) < 1.0:
            metrics = trainer.iterate()
            log(trainer, metrics)
            fraction = _budget_fraction(plan, trainer)
            level = trainer.env.curriculum.level.name
            report(TrainingProgress(trainer.iteration, trainer.steps, trainer.seconds, fraction, level, metrics))
            if stopped() or fraction >= 1.0 or time.perf_counter() - last_save > save_every:
                trainer.save()
                last_save = time.perf_counter()
            if stopped() and fraction < 1.0:
                raise Interrupted(f"stopped at iteration {trainer.iteration}; go on with --resume.")


def _budget_fraction(config: Any, trainer: Trainer) -> float:
    """How much of the budget is used, 0 to 1."""
    parts = []
    if config.steps:
        parts.append(trainer.steps / config.steps)
    if config.minutes:
        parts.append(trainer.seconds / (60 * config.minutes))
    return min(max(parts), 1.0) if parts else 1.0


@contextmanager
def _stop_requests() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and termination into a request that the loop reads between iterations."""
    asked: list[int] = []
    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda n, _: asked.append(n))
    except ValueError:
        pass  # Not the main thread: whoever runs us decides about signals.
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _metrics_log(folder: Path, iteration: int) -> Iterator[Callable[[Trainer, dict[str, float]], None]]:
    """Curves as text and for TensorBoard; rows after the checkpoint that we go on from are dropped."""
    from torch.utils.tensorboard import SummaryWriter

    rows = folder / "metrics.jsonl"
    kept: list[str] = []
    if rows.exists():
        for line in rows.read_text().splitlines():
            try:
                if json.loads(line)["iteration"] <= iteration:
                    kept.append(line)
            except (ValueError, KeyError, TypeError):
                continue
        atomic_write(rows, "".join(f"{line}\n" for line in kept).encode())
    writer = SummaryWriter(str(folder / "events"), purge_step=iteration + 1, flush_secs=10)
    with rows.open("a", buffering=1) as file:

        def log(trainer: Trainer, metrics: dict[str, float]) -> None:
            row = {"iteration": trainer.iteration, "steps": trainer.steps, "seconds": round(trainer.seconds, 3)} | metrics
            file.write(json.dumps(row) + "\n")
            for name, value in metrics.items():
                writer.add_scalar(name if "/" in name else f"train/{name}", value, trainer.iteration)

        try:
            yield log
        finally:
            writer.close()
