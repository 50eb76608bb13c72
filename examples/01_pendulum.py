"""Teach a pendulum to swing up in worlds that all differ a little, and see how well it does.

python examples/01_pendulum.py
"""

import tempfile
from pathlib import Path

from isthmus.learn import runs
from isthmus.learn.algorithms.algorithm import PPOTrainer
from isthmus.learn.evaluate.evaluate import evaluate
from isthmus.learn.recipes import recipe
from isthmus.learn.train import run_training_loop
from isthmus.tasks.catalogue import get_task

task = get_task("pendulum/swingup")
plan = runs.RunConfig("pendulum/swingup", steps=400_000, settings=recipe("pendulum/swingup"))
with tempfile.TemporaryDirectory() as folder:
    run = runs.create(Path(folder) / "run", plan, task, task.robot.prior)
    trainer = PPOTrainer(run)
    run_training_loop(trainer, report=lambda p: None)
result = evaluate(task, trainer.actor, worlds=100)
assert result.success.rate > 0.8, "it should have learnt to swing up"
print(f"success in {100 * result.success.rate:.0f} % of 100 worlds after {trainer.seconds:.0f} s of training")
