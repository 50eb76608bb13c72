"""The whole way: train, run on a robot that nobody has described, explain the gap, close it, train again, prove it.

python examples/07_the_loop.py

A minute or two; the report is runs/07/report.html. `isthmus loop` does the same with a drone, `isthmus loop go1/walk` with a
quadruped.
"""

from isthmus.cli.main import main

raise SystemExit(main(["loop", "pendulum/swingup", "-o", "runs/07"]))
