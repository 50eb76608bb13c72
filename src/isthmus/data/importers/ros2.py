"""ROS 2 bags: a folder with sqlite3 or MCAP storage, or one file of either. Message types come from the bag, or from ROS."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from mcap.records import Channel, Schema

from isthmus.core.errors import BadInput
from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.data.importers.columns import Table, table_from_topics
from isthmus.data.importers.mcap import MessageCollector, read_mcap

MAX_BYTES = 16 * 2**30
MAX_MESSAGE = 64 * 2**20
BAG_TABLES = ("sqlite_master", "topics", "messages", "message_definitions")


def load_bag(folder: Path, progress: Progress = silent) -> Table:
    """All storage files in a folder. What metadata.yaml says about them is not needed, and not trusted."""
    files = sorted(f for f in folder.iterdir() if f.suffix in (".db3", ".mcap") and f.is_file() and not f.is_symlink())
    if not (folder / "metadata.yaml").is_file():
        raise BadInput(f"{folder} is not a ROS 2 bag: it has no metadata.yaml.")
    if not files:
        packed = any(f.suffix == ".zstd" for f in folder.iterdir())
        hint = "; it is compressed as a whole: unpack it with `ros2 bag convert`" if packed else ""
        raise BadInput(f"{folder} has no .db3 or .mcap file{hint}.")
    messages, notes = MessageCollector(str(folder)), []
    for i, file in enumerate(files):
        part = sub_progress(progress, i / len(files), (i + 1) / len(files))
        if file.suffix == ".db3":
            _read_db3(file, messages, part)
        elif not read_mcap(file, messages, part):
            notes.append(f"{file.name} is cut; this is what came before.")
    return table_from_topics(str(folder), "ros2", messages.topics.values(), [*messages.notes, *notes])


def load_db3(path: Path, progress: Progress = silent) -> Table:
    messages = MessageCollector(str(path))
    _read_db3(path, messages, progress)
    return table_from_topics(str(path), "ros2", messages.topics.values(), messages.notes)


def _read_db3(path: Path, messages: MessageCollector, progress: Progress) -> None:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"{path} is larger than {MAX_BYTES // 2**30} GiB and is not read.")
        link = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    except (OSError, sqlite3.Error) as error:
        raise BadInput(f"cannot read {path}: {error}.") from None
    try:
        link.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_MESSAGE)
        # What a file says about its tables can call functions; no bag needs that.
        link.execute("PRAGMA trusted_schema = OFF")
        link.execute("PRAGMA cell_size_check = ON")
        link.set_authorizer(_authorize)
        _read_topics(link, path, messages, progress)
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
        raise BadInput(f"{path} is not a ROS 2 bag that can be read: {error}.") from None
    finally:
        link.close()


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Reading the tables of a bag, counting, and asking for their columns is all that is done here."""
    fine = (
        action == sqlite3.SQLITE_SELECT
        or (action == sqlite3.SQLITE_READ and first in BAG_TABLES)
        or (action == sqlite3.SQLITE_FUNCTION and second == "count")
        or (action == sqlite3.SQLITE_PRAGMA and first == "table_xinfo")
    )
    return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY


def _read_topics(link: sqlite3.Connection, path: Path, messages: MessageCollector, progress: Progress) -> None:
    # Only real tables, which have a page: a view could be made to compute for ever, a virtual table runs code of a module.
    tables = {name for (name,) in link.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")}
    if not {"topics", "messages"} <= tables:
        raise BadInput(f"{path} is not a ROS 2 bag: it lacks the tables `topics` and `messages`.")
    for name in tables & set(BAG_TABLES):
        # The last entry is 0 for a column that is stored, not computed.
        if any(column[-1] for column in link.execute(f"PRAGMA table_xinfo({name})")):
            raise BadInput(f"{path} is not a ROS 2 bag: its table `{name}` has columns that are computed.")
    definitions: dict[str, tuple[str, str]] = {}
    if "message_definitions" in tables:
        query = "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
        definitions = {str(name): (str(encoding), str(text)) for name, encoding, text in link.execute(query)}
    for key, name, kind, form in link.execute("SELECT id, name, type, serialization_format FROM topics"):
        encoding, text = definitions.get(str(kind), ("", ""))
        messages.schemas[key] = Schema(key, text.encode(), encoding, str(kind))
        messages.add_channel(Channel(key, str(name), str(form), {}, key))
    (count,) = link.execute("SELECT count(*) FROM messages").fetchone()
    for i, (key, stamp, data) in enumerate(link.execute("SELECT topic_id, timestamp, data FROM messages")):
        if i % 1024 == 0:
            progress(i / max(1, count))
        if not isinstance(stamp, int) or not isinstance(data, bytes):
            raise BadInput(f"{path} has a message without a time stamp or without data.")
        messages.add_message(key, stamp, data)
