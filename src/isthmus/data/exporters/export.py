"""Write recordings for other tools: Parquet, a LeRobot dataset, or MCAP (which repairs a cut recording)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from isthmus.core.errors import BadInput
from isthmus.core.results import Result
from isthmus.data.episode import Episode
from isthmus.data.exporters.lerobot import write_lerobot
from isthmus.data.exporters.parquet import write_parquet
from isthmus.data.recordings import check_overwrite, read_any, write_recording

Format = Literal["parquet", "lerobot", "mcap"]


@dataclass(frozen=True)
class DataExportResult(Result, kind="data-export"):
    out: str
    format: Format
    episodes: int
    ticks: int
    parents: tuple[str, ...]
    """Hashes of the episodes."""
    warnings: tuple[str, ...]


def export_recordings(
    files: Sequence[Path],
    out: Path,
    *,
    format: Format | Literal["auto"] = "auto",
    task: str = "",
    overwrite: bool = False,
) -> DataExportResult:
    """Write recordings to `out`: one to a .parquet or .mcap file, any number to the new or empty folder of a LeRobot dataset.

    `task` says in words what the robot did, for a LeRobot dataset.
    """
    if out == Path() or not files:
        raise BadInput("say what to export and where it goes: isthmus data export FILE.mcap -o FILE.parquet.")
    form: Format | None = format if format != "auto" else {".parquet": "parquet", ".mcap": "mcap"}.get(out.suffix)  # type: ignore[assignment]
    if form is None:
        raise BadInput(f"{out} could be anything; name it .parquet or .mcap, or add --format lerobot.")
    if len(files) > 1 and form != "lerobot":
        raise BadInput("a file holds one recording; export them one by one, or all with --format lerobot.")
    if form != "lerobot":
        check_overwrite(out, files, overwrite)
    episodes = [read_any(f) for f in files]
    incomplete = [f for f, e in zip(files, episodes, strict=True) if not e.complete]
    warnings: tuple[str, ...] = tuple(f"{f} is cut; what came before is exported." for f in incomplete)
    if form == "lerobot":
        warnings += write_lerobot(out, episodes, task)
    elif form == "parquet":
        write_parquet(out, episodes[0])
    else:
        write_recording(out, repaired(episodes[0]))
    hashes = tuple(e.hash for e in episodes)
    return DataExportResult(str(out), form, len(episodes), sum(map(len, episodes)), hashes, warnings)


def repaired(episode: Episode) -> Episode:
    """The same episode as a complete one; its origin says that it was cut."""
    if episode.complete:
        return episode
    return replace(episode, origin={**episode.origin, "parents": [episode.hash], "cut": True}, complete=True)
