"""Recordings of others, CSV, Parquet, MCAP and ROS 2 bags, as named columns of numbers.

    table = load(path)
    table["/joint_states.position[3]"].values

Everything is untrusted: sizes are bounded, nothing of a file is executed (but see `cdr` for definitions of ROS 2 messages), and
what cannot be read is a BadInput that says why.
"""

from __future__ import annotations

from pathlib import Path

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.progress import Progress, silent
from isthmus.data.importers.columns import Column, Table

__all__ = ["Column", "Table", "load_table"]

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".log")
PARQUET_SUFFIXES = (".parquet", ".pq")


def load_table(path: str | Path, progress: Progress = silent) -> Table:
    """All columns of a file, or of a folder that is a ROS 2 bag. The name's ending says what it is."""
    path = Path(path)
    if not path.exists():
        raise BadInput(f"there is no file {path}.")
    suffix = path.suffix.lower()
    if path.is_dir():
        from isthmus.data.importers.ros2 import load_bag

        return load_bag(path, progress)
    if suffix in TEXT_SUFFIXES:
        from isthmus.data.importers.csv import load_csv

        return load_csv(path, progress)
    if suffix in PARQUET_SUFFIXES:
        from isthmus.data.importers.parquet import load_parquet

        return load_parquet(path)
    if suffix == ".mcap":
        from isthmus.data.importers.mcap import load_mcap

        return load_mcap(path, progress)
    if suffix == ".db3":
        from isthmus.data.importers.ros2 import load_db3

        return load_db3(path, progress)
    raise unknown_name("kind of file", suffix or path.name, (*TEXT_SUFFIXES, *PARQUET_SUFFIXES, ".mcap", ".db3"), f"{path}")
