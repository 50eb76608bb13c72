"""Library calls one after the other, recorded as they finish, so that a loop that was killed resumes where it was.

The stages of a loop are a generator: it yields a `Call` and is sent its `CallRecord`. Calls that were finished before are not
repeated: their records are read. So stages that decide by nothing but records make the same calls again.

    journal/03-record.begun         arguments, written and synced before the call
    journal/03-record.json          verb, arguments, equivalent command, status, seconds, result, hash of each output
    journal/03-record.traceback     of an unexpected exception

A record counts only for the same verb and arguments, with status "done" or "no", and while its outputs have the hashes that
they had. A call that is repeated discards all later records.
"""

from __future__ import annotations

import hashlib
import shutil
import time
import traceback
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from isthmus.core.errors import BadInput, Interrupted
from isthmus.core.files import atomic_write, canonical_json, content_hash, read_json, write_json
from isthmus.core.plain import to_plain
from isthmus.core.progress import Progress, silent
from isthmus.core.results import Result
from isthmus.pipeline.command_line import command_line

T = TypeVar("T")
R = TypeVar("R", bound=Result)

Status = Literal["done", "no", "failed", "retry"]
"""done; no: the answer is negative; failed: no result; retry: the robot was not ready, a repeated loop tries again."""
FINISHED: tuple[Status, ...] = ("done", "no")
LOCK_TIMEOUT = 5.0
"""s to wait for a loop that was just killed to release its folder."""
FOLDER = "${FOLDER}"
"""Stands for the loop's folder in records, so that it may be moved."""
HASHED_SUFFIXES = (".json", ".safetensors")
"""Files of a run's folder that make up its hash; its logs do not."""


@dataclass(frozen=True)
class Call:
    """One call of a library function."""

    name: str
    """Short name, used in the file name of its record."""
    purpose: str
    """What it is for, for the user."""
    verb: str
    """Name of the function in `isthmus`."""
    arguments: Mapping[str, Any]
    """Keyword arguments: JSON values, paths and tuples of them."""
    outputs: tuple[Path, ...] = ()
    """Files and folders that it writes."""


@dataclass(frozen=True)
class CallRecord:
    """What a call gave."""

    call: Call
    status: Status
    seconds: float
    result: Result | None = field(default=None, repr=False)
    error: str = ""
    """Why there is no result."""

    @property
    def failure(self) -> str:
        """Why the call has no result; empty if it has one."""
        return "" if self.result is not None else self.error or "it failed"

    def result_as(self, kind: type[R]) -> R | None:
        """The result, if there is one of this type."""
        return self.result if isinstance(self.result, kind) else None


class Library(Protocol):
    """Carries out calls."""

    def __call__(self, call: Call, progress: Progress) -> Result: ...

    def status(self, result: Result) -> Status: ...

    def read_result(self, verb: str, table: Mapping[str, Any], where: str) -> Result: ...


class Observer(Protocol):
    """Is told of each call: when it begins, and when it is finished or its record was read."""

    def began(self, number: int, call: Call) -> Progress:
        """Called before a call is carried out; returns what shows its progress."""
        ...

    def ended(self, number: int, record: CallRecord, replayed: bool) -> None: ...


class SilentObserver:
    """Shows nothing."""

    def began(self, number: int, call: Call) -> Progress:
        return silent

    def ended(self, number: int, record: CallRecord, replayed: bool) -> None:
        pass


silent_observer = SilentObserver()


class Journal:
    """The finished calls of a loop's folder."""

    def __init__(self, folder: Path):
        self.root, self.folder = folder, folder / "journal"

    def path(self, number: int, call: Call) -> Path:
        return self.folder / f"{number:02d}-{call.name}.json"

    def find(self, number: int, call: Call, library: Library) -> tuple[CallRecord, dict[str, str]] | None:
        """The record of this very call, whatever came of it, with the hashes of its outputs."""
        path = self.path(number, call)
        if not path.exists():
            return None
        found = read_json(path)
        try:
            if [found["verb"], found["arguments"]] != [call.verb, self.portable(call.arguments)]:
                return None
            table = found["result"]
            result = library.read_result(call.verb, self.expanded(table), str(path)) if table is not None else None
            record = CallRecord(call, found["status"], float(found["seconds"]), result, str(found["error"]))
            return record, dict(found["outputs"])
        except (KeyError, TypeError, ValueError, BadInput):
            raise BadInput(f"{path} is not the record of a call; remove it to have the call repeated.") from None

    def read(self, number: int, call: Call, library: Library) -> CallRecord | None:
        """The record of this very call, if it is finished and its outputs are as they were."""
        found = self.find(number, call, library)
        if found is None or found[0].status not in FINISHED:
            return None
        record, hashes = found
        if record.status == "done" and len(hashes) < len(call.outputs):
            return None
        return record if hashes == self._output_hashes(call) else None

    def begin(self, number: int, call: Call) -> bool:
        """Discard the records from this number on; returns whether this very call was begun before."""
        path = self.path(number, call).with_suffix(".begun")
        before = path.read_text() if path.exists() else ""
        for old in self.folder.glob("*"):
            if old.name.split("-")[0].isdecimal() and int(old.name.split("-")[0]) >= number:
                old.unlink()
        begun = canonical_json({"verb": call.verb, "arguments": self.portable(call.arguments)})
        atomic_write(path, begun.encode())
        return before == begun

    def write(self, number: int, record: CallRecord) -> None:
        call, path = record.call, self.path(number, record.call)
        table = {
            "verb": call.verb,
            "arguments": self.portable(call.arguments),
            "command": self.portable(["isthmus", *command_line(call.verb, call.arguments)]),
            "status": record.status,
            "seconds": round(record.seconds, 3),
            "result": self.portable(record.result.to_dict()) if record.result is not None else None,
            "error": record.error,
            "outputs": self._output_hashes(call),
        }
        write_json(path, table)
        path.with_suffix(".begun").unlink(missing_ok=True)

    def write_traceback(self, number: int, call: Call) -> None:
        atomic_write(self.path(number, call).with_suffix(".traceback"), traceback.format_exc().encode())

    def _output_hashes(self, call: Call) -> dict[str, str]:
        return {self.portable(p): output_hash(p) for p in call.outputs if p.exists()}

    def portable(self, value: Any) -> Any:
        return _replaced(to_plain(value), str(self.root), FOLDER)

    def expanded(self, value: Any) -> Any:
        return _replaced(value, FOLDER, str(self.root))


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {k: _replaced(v, old, new) for k, v in value.items()}
    return [_replaced(v, old, new) for v in value] if isinstance(value, list) else value


def output_hash(path: Path) -> str:
    """SHA-256 of a file; of a run's folder, that of the names and hashes of its files but for logs."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in HASHED_SUFFIXES and p.is_file())
        return content_hash({p.relative_to(path).as_posix(): output_hash(p) for p in files})
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run_calls(
    stages: Generator[Call, CallRecord, T],
    journal: Journal,
    library: Library,
    observer: Observer = silent_observer,
    first_number: int = 1,
) -> tuple[T, list[CallRecord]]:
    """Run stages to their end: what they return, and the records of their calls.

    Interrupted leaves everything that is finished in the journal.
    """
    record: CallRecord | None = None
    records: list[CallRecord] = []
    while True:
        try:
            call = stages.send(record) if record is not None else next(stages)
        except StopIteration as end:
            return end.value, records
        number = first_number + len(records)
        record = journal.read(number, call, library)
        replayed = record is not None
        if record is None:
            record = _carry_out(number, call, journal, library, observer.began(number, call))
            journal.write(number, record)
        observer.ended(number, record, replayed)
        records.append(record)


def _carry_out(number: int, call: Call, journal: Journal, library: Library, progress: Progress) -> CallRecord:
    began_before = journal.begin(number, call)
    began = time.monotonic()

    def ended(status: Status, result: Result | None = None, error: str = "") -> CallRecord:
        return CallRecord(call, status, time.monotonic() - began, result, error)

    try:
        result = library(_prepared(call, began_before), progress)
        return ended(library.status(result), result)
    except (Interrupted, KeyboardInterrupt):
        raise Interrupted(f"interrupted in {call.name!r}; the same command resumes there.") from None
    except BadInput as error:
        return ended("failed", error=str(error))
    except (ConnectionError, TimeoutError) as error:
        return ended("retry", error=f"{type(error).__name__}: {error}")
    except Exception as error:  # a defect in one call must not lose the work of the others
        journal.write_traceback(number, call)
        return ended("failed", error=f"{type(error).__name__}: {error}")


def _prepared(call: Call, began_before: bool) -> Call:
    """The call to make: a training that was begun resumes from its checkpoints, anything else starts without its outputs.

    Recordings of the robot are never deleted: an incomplete one is renamed NAME.partial-1.mcap.
    """
    out = call.outputs[0] if call.outputs else None
    if call.verb == "train" and began_before and out is not None and any(out.glob("**/checkpoints/*.safetensors")):
        return replace(call, arguments={"task": call.arguments["task"], "out": out, "resume": True})
    for path in call.outputs:
        if call.verb == "run" and path.exists():
            _set_aside(path, "partial" if began_before else "replaced")
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return call


def _set_aside(path: Path, word: str) -> None:
    number = 1
    while (kept := path.with_name(f"{path.stem}.{word}-{number}{path.suffix}")).exists():
        number += 1
    path.rename(kept)


def replay(stages: Generator[Call, CallRecord, T], journal: Journal, library: Library) -> tuple[T, list[CallRecord]]:
    """What stages returned that ran before, from their records alone; raises BadInput where a record is missing."""
    record: CallRecord | None = None
    records: list[CallRecord] = []
    while True:
        try:
            call = stages.send(record) if record is not None else next(stages)
        except StopIteration as end:
            return end.value, records
        found = journal.find(len(records) + 1, call, library)
        if found is None:
            raise BadInput(f"the loop in {journal.root} is not finished: it has no record of {call.name!r}; resume it first.")
        record = found[0]
        records.append(record)


@contextmanager
def exclusive_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, so that no other loop works in it at the same time."""
    import fcntl

    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; a loop needs a folder of its own.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise BadInput(f"cannot work in {folder}: {error.strerror or error}.") from error
    with lock:
        until = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > until:
                    raise BadInput(f"another loop is at work in {folder}; choose another folder with -o.") from None
                time.sleep(0.2)
        yield
