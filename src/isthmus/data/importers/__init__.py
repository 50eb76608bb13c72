"""Recordings of others, CSV, Parquet, MCAP and ROS 2 bags, as named columns of numbers.

    table = load(path)
    table["/joint_states.position[3]"].values

Everything is untrusted: sizes are bounded, nothing of a file is executed (but see `cdr` for definitions of ROS 2 messages), and
what cannot be read is a BadInput that says why.
"""

from __future__ import annotations

from pathlib import Path

from isthmus.data.importers.table import Column, Progress, Table, silent
from isthmus.errors import BadInput, unknown

__all__ = ["Column", "Progress", "Table", "load", "silent"]

TEXT = (".csv", ".tsv", ".txt", ".dat", ".log")
PARQUET = (".parquet", ".pq")


def load(path: str | Path, progress: Progress = silent) -> Table:
    """All columns of a file, or of a folder that is a ROS 2 bag. The name's ending says what it is."""
    path = Path(path)
    if not path.exists():
        raise BadInput(f"there is no file {path}.")
    suffix = path.suffix.lower()
    if path.is_dir():
        from isthmus.data.importers.ros2 import load_bag

        return load_bag(path, progress)
    if suffix in TEXT:
        from isthmus.data.importers.text import load_text

        return load_text(path, progress)
    if suffix in PARQUET:
        from isthmus.data.importers.parquet import load_parquet

        return load_parquet(path)
    if suffix == ".mcap":
        from isthmus.data.importers.messages import load_mcap

        return load_mcap(path, progress)
    if suffix == ".db3":
        from isthmus.data.importers.ros2 import load_db3

        return load_db3(path, progress)
    raise unknown("kind of file", suffix or path.name, (*TEXT, *PARQUET, ".mcap", ".db3"), f"{path}")
