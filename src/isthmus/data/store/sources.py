"""From files and folders to what a store takes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isthmus.data.exporters import is_episode, read_parquet
from isthmus.data.recording import is_recording, read
from isthmus.data.store import artifacts, chain, lists
from isthmus.data.store.rows import Item, of_episode
from isthmus.errors import BadInput

INSIDE = ("checkpoints", "events", "blowups")
"""Folders within a run that hold nothing to be found."""


@dataclass
class Sources:
    """Files to read, in order, and what came of it."""

    files: list[Path]
    passed: int = 0
    """Files in folders that are none of ours."""
    problems: list[str] = field(default_factory=list)
    """A sentence about each file that could not be read."""

    @staticmethod
    def of(paths: Sequence[Path]) -> Sources:
        """Files as named; of folders, all files in them that are ours."""
        found, passed = [], 0
        for path in paths:
            if not path.exists():
                raise BadInput(f"there is no {path}.")
            if not path.is_dir():
                found.append(path)
                continue
            for file in walk(path):
                ours = is_ours(file)
                found += [file] * ours
                passed += not ours
        return Sources(list(dict.fromkeys(found)), passed)

    def items(self) -> Iterator[tuple[Item, float]]:
        """Everything in the files, and the part of them that has been read. A file that cannot be read is noted."""
        for i, path in enumerate(self.files):
            try:
                for item in read_items(path):
                    yield item, (i + item.done) / len(self.files)
            except (BadInput, OSError) as error:
                self.problems.append(str(error))


def walk(folder: Path) -> Iterator[Path]:
    """All files below, in the order of their names; neither what is hidden, nor the inside of runs and stores."""
    for here, folders, files in os.walk(folder):
        place = Path(here)
        if chain.FILE in files and chain.PARTS in folders:
            folders.clear()
            continue
        inside = INSIDE if "run.json" in files else ()
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in inside)
        yield from (place / f for f in sorted(files) if not f.startswith(".") and (place / f).is_file())


def is_ours(path: Path) -> bool:
    if path.suffix == ".mcap":
        return is_recording(path)
    if path.suffix in (".parquet", ".pq"):
        return lists.is_list(path) or is_episode(path)
    return lists.is_list(path) if path.suffix == ".jsonl" else artifacts.is_artifact(path)


def read_items(path: Path) -> Iterator[Item]:
    """What a file holds: one artifact, one recording, or a list with its episodes. A folder is a run."""
    path = path / "run.json" if path.is_dir() else path
    file = str(path.resolve())
    if path.suffix == ".jsonl" or (path.suffix in (".parquet", ".pq") and lists.is_list(path)):
        yield from lists.read_list(path, file)
    elif path.suffix in (".parquet", ".pq"):
        yield of_episode(read_parquet(path), file)
    elif path.suffix == ".mcap" or is_recording(path):
        yield of_episode(read(path), file)
    else:
        yield artifacts.read_artifact(path, file)
