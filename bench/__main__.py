"""Speed and memory, as ratios measured within one run, and the time to learn each task.

    python -m bench                 ratios and memory of training, then the runtime on the robot, about four minutes
    python -m bench --deploy        the runtime only
    python -m bench --goals         also time to each task's goal over three seeds, about half an hour
    python -m bench -o FILE         write the table to FILE as well

Timings on a shared machine are noisy. Every ratio compares two things that were measured alternately in the same
run, and is the median over many pairs.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # as the command line does, before torch is loaded

from bench import deploy, goals, speed


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deploy", action="store_true", help="measure the runtime on the robot only")
    parser.add_argument("--goals", action="store_true", help="measure the time to each task's goal")
    parser.add_argument("--task", action="append", help="with --goals: only these tasks")
    parser.add_argument("--seeds", type=int, default=3, help="with --goals: seeds per task")
    parser.add_argument("-o", "--out", type=Path, help="file for the table")
    args = parser.parse_args()
    text = [f"Measured at commit {commit()} on {os.cpu_count()} cores, {platform.machine()}.", ""]
    if not args.deploy:
        text += [*speed.table(speed.measure()), ""]
    rows, late = deploy.measure()
    text += [*speed.table(rows), "", *late]
    print("\n".join(text), flush=True)
    if args.goals:
        learnt = goals.table(goals.measure(args.task, args.seeds))
        print("\n".join(["", *learnt]), flush=True)
        text += ["", *learnt]
    if args.out:
        args.out.write_text("\n".join(text) + "\n")
    return 0


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
