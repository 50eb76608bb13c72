"""A recording of a robot becomes a twin: its numbers with intervals, and what the recording cannot tell.

python examples/06_unit_from_recordings.py

Half a minute. The robot is a virtual pendulum, one whose hinge sticks more than anybody believed; the recording is the
experiment that `isthmus excite` has chosen.
"""

from pathlib import Path

from isthmus.cli.main import main

Path("runs").mkdir(exist_ok=True)
Path("runs/desk.toml").write_text('robot = "pendulum"\n[params]\njoint_friction = 0.35\npayload = 0.12\n')
main(["excite", "pendulum", "--seconds", "6", "--tries", "60", "-o", "runs/probe.controller"])
main(
    ["run", "runs/probe.controller", "--link", "sim:runs/desk.toml", "--seconds", "6", "--record", "runs/probe.mcap", "--force"]
)
main(["identify", "pendulum", "runs/probe.mcap", "-o", "runs/desk.twin"])
