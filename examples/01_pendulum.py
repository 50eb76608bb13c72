"""Teach a pendulum to swing up in worlds that all differ a little, and see how well it does.

python examples/01_pendulum.py
"""

import tempfile
from pathlib import Path

from isthmus.learn.evaluate.evaluate import evaluate
from isthmus.learn.train import train

with tempfile.TemporaryDirectory() as folder:
    trained = train("pendulum/swingup", Path(folder) / "run", steps=400_000)
    result = evaluate(trained.run, worlds=100, seed=0)
assert result.success.rate > 0.8, "it should have learnt to swing up"
print(f"success in {100 * result.success.rate:.0f} % of 100 worlds after {trained.seconds:.0f} s of training")
