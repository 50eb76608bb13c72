"""Recordings: bit for bit there and back, open after any cut, and no bytes that bring the reader down."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from mcap.writer import CompressionType
from mcap.writer import Writer as PlainWriter

from isthmus.data import container, recording
from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode, Event
from isthmus.data.importers.messages import protobuf
from isthmus.data.layout import Layout, identifiers
from isthmus.data.reader import about_hash
from isthmus.data.recording import Writer, is_recording, read, write
from isthmus.errors import BadInput

COMMAND = (Signal("command", "m/s", ("x", "y", "yaw")),)
ORIGIN = {"source": "virtual", "unit": "seven", "started": 1_700_000_000.25, "parents": ["ab"]}


def contract(rate: float = 20.0) -> Contract:
    joints = ("FR_hip", "FR_thigh")
    return Contract(
        "twolegs",
        rate,
        (
            Signal("joint_pos", "rad", joints, low=(-1.0, -2.0), high=(1.0, 2.0)),
            Signal("gyro", "rad/s", ("x", "y", "z"), "body"),
        ),
        Signal("joint_target", "rad", joints),
    )


def episode(ticks: int = 60, seed: int = 0, rate: float = 20.0) -> Episode:
    rng = np.random.default_rng(seed)
    layout = Layout(contract(rate), COMMAND, ("late", "state"))
    rows = rng.normal(size=(ticks, layout.width))
    rows[:, 0] = np.cumsum(rng.uniform(0.5, 1.5, ticks)) / rate
    rows[rng.uniform(size=rows.shape) < 0.05 * (np.arange(layout.width) > 0)] = np.nan
    events = (
        Event(rows[ticks // 3, 0], "warning", "stale", "No signal for 40 ms."),
        Event(1.0, "info", "ramp", "Ramp ends — ok."),
    )
    return layout.episode(rows, events, ORIGIN)


def same(a: Episode, b: Episode) -> bool:
    """Bit for bit, also where NaN."""
    return a.hash == b.hash and Layout.rows(a).tobytes() == Layout.rows(b).tobytes() and a.events == b.events


text = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)


@st.composite
def episodes(draw) -> Episode:
    def signal(name: str, size: int) -> Signal:
        return Signal(name, draw(text), tuple(draw(st.lists(text, min_size=size, max_size=size, unique=True))))

    names = draw(
        st.lists(text.filter(lambda n: n not in ("time", "target", "wanted", "status", "events")), max_size=4, unique=True)
    )
    signals = tuple(signal(n, draw(st.integers(1, 20))) for n in names)
    split = draw(st.integers(0, len(signals)))
    target = signal("the target", draw(st.integers(1, 3)))
    status = tuple(draw(st.lists(text.filter(lambda n: n != "time"), max_size=3, unique=True)))
    layout = Layout(Contract(draw(text), draw(st.floats(1, 1000)), signals[:split], target), signals[split:], status)
    ticks = draw(st.integers(0, 5))
    # Any 64 bits: also infinities, denormals and NaNs of every kind.
    bits = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, 2**64, (ticks, layout.width), np.uint64)
    rows = bits.view(np.float64)
    rows[:, 0] = sorted(draw(st.lists(st.floats(-1e3, 1e6), min_size=ticks, max_size=ticks, unique=True)))
    moments = st.builds(Event, st.floats(-1e6, 1e6), st.sampled_from(["info", "warning", "error"]), text, text)
    origin = draw(st.dictionaries(text, st.recursive(text | st.integers() | st.booleans(), st.lists), max_size=3))
    origin.pop("started", None)
    return layout.episode(rows, tuple(draw(st.lists(moments, max_size=3))), origin)


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(made=episodes())
def test_what_was_written_is_read_bit_for_bit(tmp_path, made):
    path = tmp_path / "any.mcap"
    write(path, made)
    assert is_recording(path)
    assert same(read(path), made)


def test_blocks_of_any_size_give_the_same_file(tmp_path):
    made = episode(101)
    rows, files = Layout.rows(made), []
    for size in (1, 7, 101):
        with Writer(tmp_path / "a.mcap", made.contract, COMMAND, ("late", "state"), ORIGIN) as writer:
            for at in range(0, 101, size):
                writer.rows(rows[at : at + size])
            for event in made.events:
                writer.event(event)
        files.append((tmp_path / "a.mcap").read_bytes())
    assert files[0] == files[1] == files[2]


def test_viewers_see_names_values_and_times(tmp_path):
    """Decoded by the mcap package and by protobuf's own messages, as Foxglove and Rerun do."""
    made, path = episode(), tmp_path / "a.mcap"
    write(path, made)
    with open(path, "rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        assert summary is not None
        assert summary.statistics is not None
        topics = {c.topic: c for c in summary.channels.values()}
        assert set(topics) == {
            "/signals/joint_pos", "/signals/gyro", "/operator/command", "/target", "/wanted", "/status", "/events"
        }  # fmt: skip
        assert summary.statistics.message_count == 6 * len(made) + len(made.events)
        found = list(reader.iter_messages(topics=["/signals/joint_pos"]))
    schema = found[0][0]
    assert schema is not None
    decode = protobuf(schema.name, schema.data)
    values = np.array([list(decode(m.data).values()) for *_, m in found])
    assert np.array_equal(values, made.signals["joint_pos"], equal_nan=True)
    assert set(decode(found[0][2].data)) == {"FR_hip", "FR_thigh"}
    seconds = np.array([m.log_time for *_, m in found]) / 1e9
    assert np.allclose(seconds, ORIGIN["started"] + made.time, atol=1e-6)
    with open(path, "rb") as file:
        logs = list(make_reader(file).iter_messages(topics=["/events"]))
    assert logs[0][0] is not None
    assert logs[0][0].name == "foxglove.Log"
    first = protobuf("foxglove.Log", logs[0][0].data)(logs[0][2].data)
    by_time = sorted(made.events, key=lambda e: e.time)[0]
    assert first["message"] == by_time.text
    assert first["name"] == by_time.name
    assert first["timestamp"]["seconds"] == int(ORIGIN["started"] + by_time.time)


@given(labels=st.lists(text, min_size=1, max_size=30, unique=True))
def test_protobuf_names_are_valid_and_distinct(labels):
    names = identifiers(tuple(labels))
    assert all(n.isidentifier() and n.isascii() for n in names)
    assert len({n.replace("_", "").lower() for n in names}) == len(labels)


def test_names_that_stand_for_two_things_are_refused():
    robot = contract()
    for operator, status in (
        ((robot.signals[0],), ()),
        ((), ("a", "a")),
        ((Signal("target", "1", ("x",)),), ()),
        ((), ("time",)),
    ):
        with pytest.raises(BadInput, match="stands for two things"):
            Layout(robot, operator, status)


def test_rows_must_fit_and_time_must_go_on(tmp_path):
    made = episode()
    rows = Layout.rows(made)
    with Writer(tmp_path / "a.mcap", made.contract, COMMAND, ("late", "state")) as writer:
        writer.rows(rows[:5])
        with pytest.raises(BadInput, match="numbers, not"):
            writer.rows(rows[5:7, 1:])
        for bad in (rows[4:5], rows[[6, 5]], np.full_like(rows[:1], np.nan), rows[5:6] * np.inf):
            with pytest.raises(BadInput, match="increase"):
                writer.rows(bad)
        writer.rows(rows[5:])
    with pytest.raises(ValueError, match="closed"):
        writer.rows(rows[-1:])
    assert len(read(tmp_path / "a.mcap")) == len(made)


def attempt(path: Path) -> tuple[Episode | None, str]:
    """What a file holds, or the complaint about it."""
    try:
        return read(path), ""
    except BadInput as error:
        return None, str(error)


def chunk_ends(data: bytes) -> list[tuple[int, int]]:
    """(start, end) of every chunk in a file."""
    found, stream = [], io.BytesIO(data)
    stream.seek(8)
    while len(head := stream.read(9)) == 9:
        opcode, length = container.HEAD.unpack(head)
        if opcode == 0x06:
            found.append((stream.tell() - 9, stream.tell() + length))
        stream.seek(length, 1)
    return found


def test_cut_at_every_byte_of_the_last_chunk_and_after(tmp_path):
    made, path = episode(32), tmp_path / "a.mcap"
    write(path, made)
    data, rows = path.read_bytes(), Layout.rows(made)
    chunks = chunk_ends(data)
    assert len(chunks) == 4
    assert chunks[-1][1] - chunks[-1][0] > 500
    for end in (*range(chunks[-1][0], chunks[-1][1] + 10), *range(chunks[-1][1] + 10, len(data), 37), len(data) - 1):
        path.write_bytes(data[:end])
        found = read(path)
        kept = 32 if end >= chunks[-1][1] else 30
        assert not found.complete
        assert len(found) == kept
        assert Layout.rows(found).tobytes() == rows[:kept].tobytes()
        assert found.origin == made.origin
        assert found.contract == made.contract


def test_cut_before_the_metadata_ends_is_refused(tmp_path):
    write(tmp_path / "a.mcap", episode(35))
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
        write(path, made)
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
            read(path)


def test_metadata_of_others_is_refused_in_words(tmp_path):
    path = tmp_path / "a.mcap"
    good = recording._about(Layout(contract()), {})
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
            writer.add_metadata("isthmus.recording", changed | {"hash": about_hash(changed)})
            writer.finish()
        with pytest.raises(BadInput, match=r"a\.mcap"):
            read(path)


@pytest.mark.parametrize("compression", [CompressionType.ZSTD, CompressionType.LZ4])
def test_a_file_rewritten_by_another_tool_still_reads(tmp_path, compression):
    """Compressed, in other chunks, cut between the messages of a tick, and with a topic missing."""
    made, path = episode(), tmp_path / "a.mcap"
    write(path, made)
    with open(path, "rb") as source, open(tmp_path / "b.mcap", "wb") as sink:
        reader, writer = make_reader(source), PlainWriter(sink, chunk_size=2000, compression=compression)
        writer.start()
        for record in reader.iter_metadata():
            writer.add_metadata(record.name, record.metadata)
        known = {}
        for schema, channel, message in reader.iter_messages():
            if channel.topic == "/wanted" or schema is None:
                continue
            if channel.id not in known:
                number = writer.register_schema(schema.name, schema.encoding, schema.data)
                known[channel.id] = writer.register_channel(channel.topic, channel.message_encoding, number)
            writer.add_message(known[channel.id], message.log_time, message.data, message.publish_time, message.sequence)
        writer.finish()
    found = read(tmp_path / "b.mcap")
    assert np.isnan(found.wanted).all()
    assert same(replace(found, wanted=made.wanted, events=made.events), made)
    assert sorted(found.events, key=repr) == sorted(made.events, key=repr)


@pytest.mark.parametrize("kind", ["zstd", "lz4"])
def test_a_decompression_bomb_does_not_eat_memory(tmp_path, kind):
    import lz4.frame
    import zstandard
    from mcap.records import Chunk, Metadata

    bomb = bytes(512 * 2**20)
    packed = zstandard.compress(bomb) if kind == "zstd" else lz4.frame.compress(bomb)
    about = Metadata("isthmus.recording", recording._about(Layout(contract()), {}))
    chunk = Chunk(kind, packed, 0, 0, 0, len(bomb))
    path = tmp_path / "a.mcap"
    path.write_bytes(container.MCAP0_MAGIC + container.pack(about, chunk))
    del bomb
    import tracemalloc

    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="chunk"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 3 * container.MAX_RECORD
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
    rows = Layout.rows(made)
    writer = Writer(disk, made.contract, COMMAND, ("late", "state"), ORIGIN)
    with pytest.raises(OSError, match="No space"):
        deque(map(writer.rows, rows), 0)
    disk.room = 10**9
    for again in (lambda: writer.rows(rows[200:]), writer.close):
        with pytest.raises(OSError, match="No space"):
            again()
    writer.close()
    (tmp_path / "a.mcap").write_bytes(disk.getvalue())
    found = read(tmp_path / "a.mcap")
    assert not found.complete
    assert len(found) == writer.written > 0
    assert Layout.rows(found).tobytes() == rows[: len(found)].tobytes()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_dev_full_is_an_oserror():
    with pytest.raises(OSError, match="No space"):
        Writer("/dev/full", contract())


def test_kill_9_leaves_a_recording_that_opens(tmp_path):
    path = tmp_path / "a.mcap"
    script = f"""
import numpy as np, itertools, time
from isthmus.data.recording import Writer
from isthmus.data.contract import Contract, Signal
writer = Writer({str(path)!r}, Contract("r", 200.0, (Signal("a", "1", ("x",)),), Signal("t", "1", ("x",))))
for i in itertools.count():
    writer.rows(np.array([[i / 200, i, -i, np.nan]]))
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
    found = read(path)
    assert not found.complete
    assert len(found) >= 100
    assert np.array_equal(found.signals["a"][:, 0], np.arange(len(found)))
    assert np.array_equal(found.target, -found.signals["a"])


def test_parts_of_an_episode():
    made = episode(60)
    middle = made.time[20]
    early, late = made.part(-np.inf, middle), made.part(middle, np.inf)
    assert len(early) == 20
    assert len(early) + len(late) == 60
    assert np.array_equal(np.concatenate([early.target, late.target]), made.target, equal_nan=True)
    assert sorted(early.events + late.events, key=repr) == sorted(made.events, key=repr)
    assert early.origin["parents"] == [made.hash]
    assert len({early.hash, late.hash, made.hash}) == 3
    assert made.duration == made.time[-1] - made.time[0]
    assert len(made.part(5e3, 6e3)) == 0


def test_an_episode_is_checked_and_cannot_be_changed():
    made = episode()
    with pytest.raises(ValueError, match="read-only"):
        made.target[0] = 1.0
    for change in (
        {"time": made.time[::-1]},
        {"target": made.target[:, :1]},
        {"signals": {}},
        {"status": {"late": made.time[1:]}},
        {"origin": {"x": object()}},
        {"origin": {"x": float("nan")}},
    ):
        with pytest.raises(BadInput):
            replace(made, **change)


def test_the_hash_sees_every_bit():
    made = episode()
    changed = np.array(made.target)
    changed[3, 0] = np.nextafter(changed[3, 0], 9)
    others = [replace(made, target=changed), replace(made, complete=False), replace(made, events=()), replace(made, origin={})]
    assert len({made.hash, *(o.hash for o in others)}) == 5
    assert replace(made).hash == made.hash
