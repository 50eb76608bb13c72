"""Commands one after the other, written down as they finish, so that work that was stopped goes on where it was.

A course is a generator: it yields a `Step` and gets back what that gave. Steps that were finished before are not carried
out again, their results are read; so a course that decides by nothing but results takes the same way again.

    steps/03-record.json      one file per finished step, with its command, exit code, seconds and result

A record counts only for the very command that it was made by, and where that did its work; a step that is carried out anew
takes all later ones with it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from isthmus.core.errors import BadInput, Interrupted
from isthmus.core.files import atomic_write, read_json, write_json

T = TypeVar("T")

INTERRUPTED_EXIT_CODE = 3
LOCK_TIMEOUT = 5.0
"""s to wait for a loop that was just killed to let go of its folder."""


@dataclass(frozen=True)
class Call:
    """One command."""

    name: str
    purpose: str
    """What it is for, for whoever watches."""
    arguments: tuple[str, ...]
    """Verb and options, without --json."""
    outputs: tuple[Path, ...] = ()
    """Files and folders that it makes."""
    done_exit_codes: tuple[int, ...] = (0, 1)
    """Exit codes with which it has done its work."""


@dataclass(frozen=True)
class CallRecord:
    """What a step gave."""

    call: Call
    exit_code: int
    seconds: float
    result: dict[str, Any] = field(repr=False)

    @property
    def failure(self) -> str:
        """Why it could not do its work; empty if it could."""
        return (
            ""
            if self.exit_code in self.call.done_exit_codes
            else str(self.result.get("error") or f"it ended with code {self.exit_code}")
        )


CommandRunner = Callable[[tuple[str, ...]], tuple[int, dict[str, Any]]]
"""Runs a command and gives its exit code and the JSON object that it prints."""
CallObserver = Callable[[int, Call, CallRecord | None], None]
"""Told when a step, by number, begins (None) and when it is done."""


class Journal:
    """The finished steps of a loop's folder."""

    def __init__(self, folder: Path):
        self.root, self.folder = folder, folder / "steps"

    def path(self, number: int, call: Call) -> Path:
        return self.folder / f"{number:02d}-{call.name}.json"

    def read(self, number: int, call: Call) -> CallRecord | None:
        """What this very command gave, if it has done its work and what it made is still there."""
        path = self.path(number, call)
        if not path.exists():
            return None
        found = read_json(path)
        try:
            done = CallRecord(call, int(found["exit"]), float(found["seconds"]), dict(found["result"]))
            same = list(found["command"]) == self._portable_command(call)
        except (KeyError, TypeError, ValueError):
            raise BadInput(f"{path} is not the record of a step; remove it to have the step carried out again.") from None
        # A force that does not help is an answer without a file.
        there = all(p.exists() for p in call.outputs) or (done.exit_code == 1 and call.arguments[0] == "residual")
        return done if same and there and not done.failure and done.result.get("status") != "refused" else None

    def begin(self, number: int, call: Call) -> bool:
        """Forget this step and all after it; whether this very command was begun before, so that it may go on."""
        path = self.path(number, call).with_suffix(".begun")
        before = path.read_text() if path.exists() else ""
        for old in self.folder.glob("*"):
            if old.name[:2].isdecimal() and int(old.name.split("-")[0]) >= number:
                old.unlink()
        atomic_write(path, "\n".join(self._portable_command(call)).encode())
        return before == "\n".join(self._portable_command(call))

    def write(self, number: int, done: CallRecord) -> None:
        record = {"command": self._portable_command(done.call), "exit": done.exit_code, "seconds": round(done.seconds, 3)}
        write_json(self.path(number, done.call), record | {"result": done.result})
        self.path(number, done.call).with_suffix(".begun").unlink(missing_ok=True)

    def _portable_command(self, call: Call) -> list[str]:
        """As it was typed, wherever the folder is."""
        return ["isthmus", *(arg.replace(str(self.root), "FOLDER") for arg in call.arguments)]


def run_calls(
    stages: Generator[Call, CallRecord, T], journal: Journal, run_command: CommandRunner, observer: CallObserver
) -> tuple[T, list[CallRecord]]:
    """Take a course to its end; what it returns, and its steps. Interrupted leaves all that is finished in the journal."""
    done: CallRecord | None = None
    all_done: list[CallRecord] = []
    while True:
        try:
            step = stages.send(done) if done is not None else next(stages)
        except StopIteration as end:
            return end.value, all_done
        number = len(all_done) + 1
        done = journal.read(number, step)
        if done is None:
            observer(number, step, None)
            done = _run_call(step, run_command, journal.begin(number, step))
            journal.write(number, done)
        observer(number, step, done)
        all_done.append(done)


def _run_call(call: Call, run_command: CommandRunner, begun: bool) -> CallRecord:
    began = time.monotonic()
    code, result = run_command(_resume_arguments(call) if begun else _discard_outputs(call))
    if code == INTERRUPTED_EXIT_CODE:
        raise Interrupted(f"interrupted in {call.name!r}; the same command goes on from there.")
    return CallRecord(call, code, time.monotonic() - began, result)


def _resume_arguments(call: Call) -> tuple[str, ...]:
    """The command of a step that was begun before: training goes on, anything else starts anew."""
    out = call.outputs[0] if call.outputs else None
    if call.arguments[0] == "train" and out is not None and any(out.glob("**/checkpoints/*.safetensors")):
        return ("train", "--resume", "-o", str(out))
    return _discard_outputs(call)


def _discard_outputs(call: Call) -> tuple[str, ...]:
    for path in call.outputs:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return call.arguments


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
