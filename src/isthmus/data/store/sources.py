"""From files and folders to what a store takes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isthmus.core.errors import BadInput
from isthmus.data.exporters.parquet import is_episode_parquet, read_parquet
from isthmus.data.mcap.writer import is_recording, read_episode
from isthmus.data.provenance import artifacts
from isthmus.data.store import episode_lists, hash_chain
from isthmus.data.store.rows import StoreItem, item_from_episode

SKIPPED_RUN_FOLDERS = ("checkpoints", "events", "blowups")
"""Folders within a run that hold nothing to be found."""


@dataclass
class Sources:
    """Files to read, in order, and what came of it."""

    files: list[Path]
    skipped_files: int = 0
    """Files in folders that are none of ours."""
    problems: list[str] = field(default_factory=list)
    """A sentence about each file that could not be read."""

    @staticmethod
    def from_paths(paths: Sequence[Path]) -> Sources:
        """Files as named; of folders, all files in them that are ours."""
        found, passed = [], 0
        for path in paths:
            if not path.exists():
                raise BadInput(f"there is no {path}.")
            if not path.is_dir():
                found.append(path)
                continue
            for file in walk_files(path):
                ours = is_storable(file)
                found += [file] * ours
                passed += not ours
        return Sources(list(dict.fromkeys(found)), passed)

    def items(self) -> Iterator[tuple[StoreItem, float]]:
        """Everything in the files, and the part of them that has been read. A file that cannot be read is noted."""
        for i, path in enumerate(self.files):
            try:
                for item in read_items(path):
                    yield item, (i + item.file_fraction) / len(self.files)
            except (BadInput, OSError) as error:
                self.problems.append(str(error))


def walk_files(folder: Path) -> Iterator[Path]:
    """All files below, in the order of their names; neither what is hidden, nor the inside of runs and stores."""
    for here, folders, files in os.walk(folder):
        place = Path(here)
        if hash_chain.CHAIN_FILE in files and hash_chain.PARTS_FOLDER in folders:
            folders.clear()
            continue
        inside = SKIPPED_RUN_FOLDERS if "run.json" in files else ()
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in inside)
        yield from (place / f for f in sorted(files) if not f.startswith(".") and (place / f).is_file())


def is_storable(path: Path) -> bool:
    if path.suffix == ".mcap":
        return is_recording(path)
    if path.suffix in (".parquet", ".pq"):
        return episode_lists.is_episode_list(path) or is_episode_parquet(path)
    return episode_lists.is_episode_list(path) if path.suffix == ".jsonl" else artifacts.is_artifact(path)


def read_items(path: Path) -> Iterator[StoreItem]:
    """What a file holds: one artifact, one recording, or a list with its episodes. A folder is a run."""
    path = path / "run.json" if path.is_dir() else path
    file = str(path.resolve())
    if path.suffix == ".jsonl" or (path.suffix in (".parquet", ".pq") and episode_lists.is_episode_list(path)):
        yield from episode_lists.read_episode_list(path, file)
    elif path.suffix in (".parquet", ".pq"):
        yield item_from_episode(read_parquet(path), file)
    elif path.suffix == ".mcap" or is_recording(path):
        yield item_from_episode(read_episode(path), file)
    else:
        yield artifacts.read_artifact(path, file)
