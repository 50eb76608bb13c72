"""Recordings: bit for bit there and back, also for other tools, and an episode cannot be changed unnoticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from mcap.writer import CompressionType
from mcap.writer import Writer as PlainWriter

from isthmus.core.errors import BadInput
from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode, Event
from isthmus.data.importers.mcap import protobuf_decoder
from isthmus.data.mcap.layout import Layout, protobuf_names
from isthmus.data.mcap.writer import EpisodeWriter, is_recording, read_episode, write_episode
from support.episodes import COMMAND, ORIGIN, contract, episode


def same(a: Episode, b: Episode) -> bool:
    """Bit for bit, also where NaN."""
    return (
        a.hash == b.hash
        and Layout.rows_from_episode(a).tobytes() == Layout.rows_from_episode(b).tobytes()
        and a.events == b.events
    )


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
    return layout.to_episode(rows, tuple(draw(st.lists(moments, max_size=3))), origin)


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(made=episodes())
def test_what_was_written_is_read_bit_for_bit(tmp_path, made):
    path = tmp_path / "any.mcap"
    write_episode(path, made)
    assert is_recording(path)
    assert same(read_episode(path), made)


def test_blocks_of_any_size_give_the_same_file(tmp_path):
    made = episode(101)
    rows, files = Layout.rows_from_episode(made), []
    for size in (1, 7, 101):
        with EpisodeWriter(tmp_path / "a.mcap", made.contract, COMMAND, ("late", "state"), ORIGIN) as writer:
            for at in range(0, 101, size):
                writer.write_rows(rows[at : at + size])
            for event in made.events:
                writer.write_event(event)
        files.append((tmp_path / "a.mcap").read_bytes())
    assert files[0] == files[1] == files[2]


def test_viewers_see_names_values_and_times(tmp_path):
    """Decoded by the mcap package and by protobuf's own messages, as Foxglove and Rerun do."""
    made, path = episode(), tmp_path / "a.mcap"
    write_episode(path, made)
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
    decode = protobuf_decoder(schema.name, schema.data)
    values = np.array([list(decode(m.data).values()) for *_, m in found])
    assert np.array_equal(values, made.signals["joint_pos"], equal_nan=True)
    assert set(decode(found[0][2].data)) == {"FR_hip", "FR_thigh"}
    seconds = np.array([m.log_time for *_, m in found]) / 1e9
    assert np.allclose(seconds, ORIGIN["started"] + made.time, atol=1e-6)
    with open(path, "rb") as file:
        logs = list(make_reader(file).iter_messages(topics=["/events"]))
    assert logs[0][0] is not None
    assert logs[0][0].name == "foxglove.Log"
    first = protobuf_decoder("foxglove.Log", logs[0][0].data)(logs[0][2].data)
    by_time = sorted(made.events, key=lambda e: e.time)[0]
    assert first["message"] == by_time.text
    assert first["name"] == by_time.name
    assert first["timestamp"]["seconds"] == int(ORIGIN["started"] + by_time.time)


@given(labels=st.lists(text, min_size=1, max_size=30, unique=True))
def test_protobuf_names_are_valid_and_distinct(labels):
    names = protobuf_names(tuple(labels))
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
    rows = Layout.rows_from_episode(made)
    with EpisodeWriter(tmp_path / "a.mcap", made.contract, COMMAND, ("late", "state")) as writer:
        writer.write_rows(rows[:5])
        with pytest.raises(BadInput, match="numbers, not"):
            writer.write_rows(rows[5:7, 1:])
        for bad in (rows[4:5], rows[[6, 5]], np.full_like(rows[:1], np.nan), rows[5:6] * np.inf):
            with pytest.raises(BadInput, match="increase"):
                writer.write_rows(bad)
        writer.write_rows(rows[5:])
    with pytest.raises(ValueError, match="closed"):
        writer.write_rows(rows[-1:])
    assert len(read_episode(tmp_path / "a.mcap")) == len(made)


@pytest.mark.parametrize("compression", [CompressionType.ZSTD, CompressionType.LZ4])
def test_a_file_rewritten_by_another_tool_still_reads(tmp_path, compression):
    """Compressed, in other chunks, cut between the messages of a tick, and with a topic missing."""
    made, path = episode(), tmp_path / "a.mcap"
    write_episode(path, made)
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
    found = read_episode(tmp_path / "b.mcap")
    assert np.isnan(found.wanted).all()
    assert same(replace(found, wanted=made.wanted, events=made.events), made)
    assert sorted(found.events, key=repr) == sorted(made.events, key=repr)


def test_parts_of_an_episode():
    made = episode(60)
    middle = made.time[20]
    early, late = made.time_slice(-np.inf, middle), made.time_slice(middle, np.inf)
    assert len(early) == 20
    assert len(early) + len(late) == 60
    assert np.array_equal(np.concatenate([early.target, late.target]), made.target, equal_nan=True)
    assert sorted(early.events + late.events, key=repr) == sorted(made.events, key=repr)
    assert early.origin["parents"] == [made.hash]
    assert len({early.hash, late.hash, made.hash}) == 3
    assert made.duration == made.time[-1] - made.time[0]
    assert len(made.time_slice(5e3, 6e3)) == 0


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
