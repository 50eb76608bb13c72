"""Recordings that went wrong: open after any cut, whatever kills the writer, and no bytes that bring the reader down."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcap.writer import Writer as PlainWriter

from isthmus.core.errors import BadInput
from isthmus.data.episode import Episode
from isthmus.data.mcap import container
from isthmus.data.mcap import writer as recording
from isthmus.data.mcap.layout import Layout
from isthmus.data.mcap.reader import metadata_hash
from isthmus.data.mcap.writer import EpisodeWriter, is_recording, read_episode, write_episode
from support.episodes import COMMAND, ORIGIN, contract, episode


def attempt(path: Path) -> tuple[Episode | None, str]:
    """What a file holds, or the complaint about it."""
    try:
        return read_episode(path), ""
    except BadInput as error:
        return None, str(error)


def chunk_ends(data: bytes) -> list[tuple[int, int]]:
    """(start, end) of every chunk in a file."""
    found, stream = [], io.BytesIO(data)
    stream.seek(8)
    while len(head := stream.read(9)) == 9:
        opcode, length = container.RECORD_HEADER.unpack(head)
        if opcode == 0x06:
            found.append((stream.tell() - 9, stream.tell() + length))
        stream.seek(length, 1)
    return found


def test_cut_at_every_byte_of_the_last_chunk_and_after(tmp_path):
    made, path = episode(32), tmp_path / "a.mcap"
    write_episode(path, made)
    data, rows = path.read_bytes(), Layout.rows_from_episode(made)
    chunks = chunk_ends(data)
    assert len(chunks) == 4
    assert chunks[-1][1] - chunks[-1][0] > 500
    for end in (*range(chunks[-1][0], chunks[-1][1] + 10), *range(chunks[-1][1] + 10, len(data), 37), len(data) - 1):
        path.write_bytes(data[:end])
        found = read_episode(path)
        kept = 32 if end >= chunks[-1][1] else 30
        assert not found.complete
        assert len(found) == kept
        assert Layout.rows_from_episode(found).tobytes() == rows[:kept].tobytes()
        assert found.origin == made.origin
        assert found.contract == made.contract


def test_cut_before_the_metadata_ends_is_refused(tmp_path):
    write_episode(tmp_path / "a.mcap", episode(35))
    data = (tmp_path / "a.mcap").read_bytes()
    first = chunk_ends(data)[0][0]
    for end in range(0, first, 7):
        (tmp_path / "b.mcap").write_bytes(data[:end])
        found, problem = attempt(tmp_path / "b.mcap")
        assert "b.mcap" in problem if found is None else len(found) == 0


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bits_are_noticed_or_harmless(tmp_path, data):
    """Whatever bit of a recording flips: a BadInput, or what the intact chunks say, never other numbers."""
    made, path = episode(25), tmp_path / "a.mcap"
    if not path.exists():
        write_episode(path, made)
    good = bytearray(path.read_bytes())
    for at in data.draw(st.lists(st.integers(0, 8 * len(good) - 1), min_size=1, max_size=3, unique=True)):
        good[at // 8] ^= 1 << at % 8
    broken = tmp_path / "b.mcap"
    broken.write_bytes(good)
    is_recording(broken)
    found, problem = attempt(broken)
    if found is None:
        assert "b.mcap" in problem
        return
    assert found.contract == made.contract
    assert found.origin == made.origin
    known = {row.tobytes() for row in np.nan_to_num(made.signals["joint_pos"], nan=9.0)}
    assert {row.tobytes() for row in np.nan_to_num(found.signals.get("joint_pos", np.empty((0, 2))), nan=9.0)} <= known


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tail=st.binary(max_size=300), opcode=st.sampled_from([b"", *(bytes([c]) for c in range(1, 16))]), size=st.integers(0, 400)
)
def test_random_bytes_never_crash(tmp_path, tail, opcode, size):
    path = tmp_path / "a.mcap"
    for data in (tail, container.MCAP0_MAGIC + opcode + size.to_bytes(8, "little") + tail):
        path.write_bytes(data)
        assert not is_recording(path)
        with pytest.raises(BadInput):
            read_episode(path)


def test_metadata_of_others_is_refused_in_words(tmp_path):
    path = tmp_path / "a.mcap"
    good = recording._metadata_texts(Layout(contract()), {})
    cases = {
        "format": "2",
        "contract": "[" * 5000,
        "origin": '{"a": NaN}',
        "operator": '[{"name": 1}]',
        "status": '["\\ud800"]',
    }
    for name, bad in cases.items():
        with open(path, "wb") as file:
            writer = PlainWriter(file)
            writer.start()
            changed = {**good, name: bad}
            writer.add_metadata("isthmus.recording", changed | {"hash": metadata_hash(changed)})
            writer.finish()
        with pytest.raises(BadInput, match=r"a\.mcap"):
            read_episode(path)


@pytest.mark.parametrize("kind", ["zstd", "lz4"])
def test_a_decompression_bomb_does_not_eat_memory(tmp_path, kind):
    import lz4.frame
    import zstandard
    from mcap.records import Chunk, Metadata

    bomb = bytes(512 * 2**20)
    packed = zstandard.compress(bomb) if kind == "zstd" else lz4.frame.compress(bomb)
    about = Metadata("isthmus.recording", recording._metadata_texts(Layout(contract()), {}))
    chunk = Chunk(kind, packed, 0, 0, 0, len(bomb))
    path = tmp_path / "a.mcap"
    path.write_bytes(container.MCAP0_MAGIC + container.pack_records(about, chunk))
    del bomb
    import tracemalloc

    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="chunk"):
            read_episode(path)
        assert tracemalloc.get_traced_memory()[1] < 3 * container.MAX_RECORD_BYTES
    finally:
        tracemalloc.stop()


class Disk(io.BytesIO):
    """Takes so many bytes, the last write in part."""

    def __init__(self, room: int):
        super().__init__()
        self.room = room

    def write(self, data) -> int:
        free = self.room - self.tell()
        if free <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(bytes(data)[:free])


@pytest.mark.parametrize("room", [9_000, 12_345, 15_000])
def test_a_full_disk_is_an_oserror_and_what_was_written_opens(tmp_path, room):
    made, disk = episode(400), Disk(room)
    rows = Layout.rows_from_episode(made)
    writer = EpisodeWriter(disk, made.contract, COMMAND, ("late", "state"), ORIGIN)
    with pytest.raises(OSError, match="No space"):
        deque(map(writer.write_rows, rows), 0)
    disk.room = 10**9
    for again in (lambda: writer.write_rows(rows[200:]), writer.close):
        with pytest.raises(OSError, match="No space"):
            again()
    writer.close()
    (tmp_path / "a.mcap").write_bytes(disk.getvalue())
    found = read_episode(tmp_path / "a.mcap")
    assert not found.complete
    assert len(found) == writer.written_ticks > 0
    assert Layout.rows_from_episode(found).tobytes() == rows[: len(found)].tobytes()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_dev_full_is_an_oserror():
    with pytest.raises(OSError, match="No space"):
        EpisodeWriter("/dev/full", contract())


def test_kill_9_leaves_a_recording_that_opens(tmp_path):
    path = tmp_path / "a.mcap"
    script = f"""
import numpy as np, itertools, time
from isthmus.data.mcap.writer import EpisodeWriter
from isthmus.data.contract import Contract, Signal
writer = EpisodeWriter({str(path)!r}, Contract("r", 200.0, (Signal("a", "1", ("x",)),), Signal("t", "1", ("x",))))
for i in itertools.count():
    writer.write_rows(np.array([[i / 200, i, -i, np.nan]]))
    time.sleep(0.0005)
"""
    child = subprocess.Popen([sys.executable, "-c", script])
    try:
        deadline = time.monotonic() + 20
        while (not path.exists() or path.stat().st_size < 20_000) and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    found = read_episode(path)
    assert not found.complete
    assert len(found) >= 100
    assert np.array_equal(found.signals["a"][:, 0], np.arange(len(found)))
    assert np.array_equal(found.target, -found.signals["a"])
