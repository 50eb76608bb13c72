"""Files that are small and want to be large, or more than data: they are refused before they cost anything."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mcap.writer import Writer as PlainWriter

from isthmus.core.errors import BadInput
from isthmus.data.importers import load_table
from isthmus.data.importers.cdr import MAX_DEFINITION, MAX_UNROLLED, cdr_decoder, check_types
from isthmus.data.importers.columns import TopicRows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

MEASURE = """
import resource, sys
from isthmus.data import importers
from isthmus.data.importers import columns, load_table, parquet
from isthmus.core.errors import BadInput
if len(sys.argv) > 3:
    for module in (columns, parquet):
        module.MAX_VALUES = int(sys.argv[3])
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
load_table(sys.argv[1])
before = peak()
try:
    found = load_table(sys.argv[2])
    print("read", len(found.columns), *found.notes)
except BadInput as error:
    print("refused", error)
print(peak() - before)
"""


def cost(good: Path, path: Path, *most: int) -> tuple[str, int]:
    """What becomes of a file in a process of its own, and MiB that it took beyond a harmless one."""
    argv = [sys.executable, "-c", MEASURE, str(good), str(path), *map(str, most)]
    lines = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    return "\n".join(lines[:-1]), int(lines[-1])


def lists(lengths: np.ndarray, values: np.ndarray):
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32()), pa.array(values))


def write_lists(path: Path, lengths: np.ndarray) -> Path:
    values = np.zeros(int(lengths.sum()), np.int8)
    pq.write_table(pa.table({"t": np.arange(len(lengths)), "x": lists(lengths, values)}), path, compression="zstd")
    return path


def varint(value: int) -> bytes:
    """As Thrift writes a positive number."""
    value, out = value << 1, b""
    while value >= 128:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def lie(path: Path, count: int) -> Path:
    """The same file, but its metadata says 10 where it said `count`; the pages still have them all."""
    data = path.read_bytes()
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    said, small = varint(count), b"\x94" + b"\x80" * (len(varint(count)) - 2) + b"\x00"
    assert said in data[at:]
    out = path.with_name("lie.parquet")
    out.write_bytes(data[:at] + data[at:].replace(said, small))
    return out


def test_a_parquet_row_of_millions_is_left_out_unread_whatever_the_metadata_say(tmp_path):
    good = write_lists(tmp_path / "good.parquet", np.array([2, 3]))
    bomb = write_lists(tmp_path / "bomb.parquet", np.array([20_000_000]))
    assert bomb.stat().st_size < 4000
    liar = lie(bomb, 20_000_000)
    assert pq.ParquetFile(liar).metadata.row_group(0).column(1).num_values == 10
    for path in (bomb, liar):
        said, grown = cost(good, path)
        assert said.startswith("read 1 x left out: it has lists of more than 256")
        assert grown < 60


def test_parquet_values_beyond_the_bound_are_refused_unread(tmp_path):
    """Lists that are short on average: 20 values in each of a million rows, all in one of them."""
    good = write_lists(tmp_path / "good.parquet", np.array([2, 3]))
    lengths = np.zeros(1_000_000, np.int64)
    lengths[7] = 20_000_000
    path = write_lists(tmp_path / "bomb.parquet", lengths)
    for bomb in (path, lie(path, 20_000_000 + 999_999)):
        said, grown = cost(good, bomb, 2**21)
        assert said.startswith("refused")
        assert "more than 2097152 values" in said or "more than 134217728 values" in said
        assert grown < 60


def test_one_long_list_does_not_make_columns_for_millions_of_rows(tmp_path):
    good = write_lists(tmp_path / "good.parquet", np.array([2, 3]))
    lengths = np.zeros(400_000, np.int64)
    lengths[7] = 256
    said, grown = cost(good, write_lists(tmp_path / "bomb.parquet", lengths))
    assert "almost all missing" in said
    assert grown < 150


def test_pages_are_counted_as_the_writer_counts(tmp_path):
    """Both page versions, with and without dictionary, compression and nulls, in several row groups."""
    from isthmus.data.importers import pages

    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 5, 5000)
    values = pa.array(rng.integers(0, 50, lengths.sum()).astype(float), mask=rng.random(lengths.sum()) < 0.1)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    table = pa.table({"a": rng.normal(size=5000), "x": pa.ListArray.from_arrays(offsets, values)})
    for version in ("1.0", "2.0"):
        for packed in ("zstd", "snappy", "none"):
            for dictionary in (False, True):
                path = tmp_path / "a.parquet"
                pq.write_table(
                    table, path, 2000, compression=packed, use_dictionary=dictionary, data_page_version=version,
                    data_page_size=1000, write_page_index=True, write_page_checksum=True,
                )  # fmt: skip
                about = pq.ParquetFile(path).metadata
                with open(path, "rb") as file:
                    for i in range(about.num_row_groups):
                        for j in range(2):
                            column = about.row_group(i).column(j)
                            found = pages.count_values(file, column, "a", 10**9)
                            # A dictionary counts too; 50 numbers are few, normal ones never repeat.
                            assert column.num_values <= found <= column.num_values * (1 + dictionary)
                            assert dictionary or found == column.num_values
                found = load_table(path)
                assert np.array_equal(found["a"].values, table["a"].to_numpy())
                full = np.array([row[1] if len(row) > 1 else None for row in table["x"].to_pylist()], float)
                assert np.array_equal(found["x[1]"].values, full, equal_nan=True)


def test_columns_that_are_no_numbers_are_named_but_not_unpacked(tmp_path, monkeypatch):
    table = pa.table({
        "a.b": [1.0, 2.0],
        "a": pa.array([{"b": 3.0, "why": "x"}, {"b": 4.0, "why": "y"}]),
        "text": ["u", "v"],
        "map": pa.array([[("k", 1.0)], []], pa.map_(pa.string(), pa.float64())),
        "word": pa.array(["p", "q"]).dictionary_encode(),
        "wide": pa.array([[0.0] * 300] * 2, pa.list_(pa.float64(), 300)),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "a.parquet")
    from isthmus.data.importers import parquet

    asked, real = [], parquet._read_leaves
    monkeypatch.setattr(parquet, "_read_leaves", lambda pa, file, indices: asked.extend(indices) or real(pa, file, indices))
    found = load_table(tmp_path / "a.parquet")
    kinds = {name: column.kind for name, column in found.columns.items()}
    assert kinds == {"a.b": "number", "a.why": "text", "text": "text", "map": "text", "word": "text", "wide": "text"}
    assert asked == [0, 1]


# Messages


def write_messages(path: Path, messages: list[tuple[str, dict]]) -> Path:
    with open(path, "wb") as file:
        writer = PlainWriter(file)
        writer.start()
        schema = writer.register_schema("any", "jsonschema", b"{}")
        known: dict[str, int] = {}
        for i, (topic, message) in enumerate(messages):
            if topic not in known:
                known[topic] = writer.register_channel(topic, "json", schema)
            writer.add_message(known[topic], i * 10**6, json.dumps(message).encode(), 0)
        writer.finish()
    return path


@pytest.mark.parametrize("late", [False, True])
def test_fields_that_come_late_or_once_do_not_fill_the_memory(tmp_path, late):
    good = write_messages(tmp_path / "good.mcap", [("/a", {"x": 1})] * 100)
    many, wide = [("/a", {"x": 1})] * 40_000, [("/a", {f"f{i}": i for i in range(3000)})]
    path = write_messages(tmp_path / "bomb.mcap", many + wide if late else wide + many)
    said, grown = cost(good, path)
    assert said.startswith("refused")
    assert "almost all missing" in said
    assert grown < 60


def test_topics_are_bounded_together(tmp_path, monkeypatch):
    from isthmus.data.importers import columns as table

    monkeypatch.setattr(table, "MAX_VALUES", 3000)
    for topics, fine in ((2, True), (4, False)):
        path = write_messages(tmp_path / "a.mcap", [(f"/{k}", {f"f{i}": i for i in range(9)}) for k in range(topics)] * 100)
        if fine:
            assert len(load_table(path).columns) == 9 * topics
        else:
            with pytest.raises(BadInput, match="more than 3000 values"):
                load_table(path)


def test_the_size_of_a_topic_is_known_before_it_grows():
    rows = TopicRows("/a")
    rng = np.random.default_rng(0)
    for i in range(200):
        values = rows.message_values(i, {f"f{k}": 1.0 for k in rng.integers(0, 50, 5)})
        due = rows.size_with(values)
        rows.add(i, values)
        assert rows.size == due == len(rows.stamps) * (1 + len(rows.columns))


def test_fields_that_come_and_go_are_missing_in_between(tmp_path):
    path = write_messages(tmp_path / "a.mcap", [("/a", {"x": i} if i % 2 else {"y": i}) for i in range(100)])
    table, i = load_table(path), np.arange(100)
    assert np.array_equal(table["/a.x"].values, np.where(i % 2, i, np.nan), equal_nan=True)
    assert np.array_equal(table["/a.y"].values, np.where(i % 2, np.nan, i), equal_nan=True)


def test_half_a_character_in_a_name_is_spelled_out(tmp_path):
    table = load_table(write_messages(tmp_path / "a.mcap", [("/a", {"\ud800": 1, "a\udfff": "text"})]))
    assert list(table.columns) == ["/a.\\ud800"]
    json.dumps([list(table.columns), table.notes], ensure_ascii=False).encode()


# Definitions that become code


EVIL = "x: int = 0\n    import os; os.environ['ISTHMUS_EVIL'] = '1'\n    y"


@pytest.mark.parametrize(
    "types",
    [
        {"a/msg/B": ([], [(EVIL, (1, ("uint8", 0)))])},
        {"a/msg/B": ([(EVIL, "uint8", 1)], [])},
        {"a/msg/B:\n    import os; os.environ['ISTHMUS_EVIL'] = '1'\nclass C": ([], [])},
        {"a/msg/B": ([], [("x", (2, "a/msg/C' + __import__('os') + '"))])},
        {"a/msg/B": ([], [("x", (1, ("uint8", "__import__('os')")))])},
        {"a/msg/B": ([], [("x", (3, ((1, ("uint8", 0)), "__import__('os')")))])},
        {"a/msg/B": ([], [("x", (1, ("uint8] = __import__('os')", 0)))])},
        {"a/msg/B": ([("X", "uint8", [1])], [])},
        {"a/msg/B": ([], [("__class__", (1, ("uint8", 0)))])},
        {"a/msg/B": ([], [("é", (1, ("uint8", 0)))])},
        {"a/msg/B": ([], [("x" * 256, (1, ("uint8", 0)))])},
        {"a/msg/B": ([], [("x", (3, ((1, ("string", 0)), MAX_UNROLLED + 1)))])},
        {"a/msg/B": ([], [("x", (3, ((2, "a/msg/C"), MAX_UNROLLED + 1)))])},
    ],
)
def test_what_is_not_plain_never_becomes_code(types, monkeypatch):
    """Whatever the parser of rosbags lets through, now or later."""
    import os

    import rosbags.typesys
    from rosbags.typesys.store import Typestore

    monkeypatch.setattr(rosbags.typesys, "get_types_from_msg", lambda *_: types)
    made = []
    monkeypatch.setattr(Typestore, "register", lambda self, found: made.append(found))
    with pytest.raises(BadInput, match="is not read"):
        cdr_decoder("a/msg/B", "ros2msg", "uint8 x")
    assert not made
    assert "ISTHMUS_EVIL" not in os.environ


def test_every_definition_that_ros_ships_is_plain():
    from rosbags.typesys import Stores, get_typestore

    for store in Stores:
        for name, about in get_typestore(store).fielddefs.items():
            check_types(name, {name: about})
    store = get_typestore(Stores.ROS2_JAZZY)
    name = "nav_msgs/msg/Odometry"
    text, _ = store.generate_msgdef(name, ros_version=2)
    assert callable(cdr_decoder(name, "ros2msg", text))


IDL = """
module a {{ module msg {{
  module B_Constants {{ const int32 N = {size}; }};
  @verbatim (language="comment", text="a * b << (c)")
  struct B {{ @unit (value="m") double x; sequence<double, 3> y; {more} }};  // a * b << (c)
}}; }};
"""


def test_idl_is_read_unless_it_computes():
    decode = cdr_decoder("a/msg/B", "ros2idl", IDL.format(size="3", more=""))
    data = b"\0\1\0\0" + np.float64(2.5).tobytes() + b"\0\0\0\0"
    found = decode(data)
    assert found["x"] == 2.5
    for size in ("1 << 99999999999", "9 * 9", "((1))"):
        with pytest.raises(BadInput, match="computes its constants"):
            cdr_decoder("a/msg/B", "ros2idl", IDL.format(size=size, more=""))
    with pytest.raises(BadInput, match="sequences within"):
        cdr_decoder("a/msg/B", "ros2idl", IDL.format(size="1", more="sequence<" * 40 + "double" + ">" * 40 + " z;"))


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("# " + "x" * MAX_DEFINITION + "\nfloat64 x", "longer than"),
        ("string[1000000000] x", "ROS 2 does not allow"),
        ("string[100000] x", "texts or messages"),
    ],
)
def test_a_bag_whose_definitions_are_too_large_is_refused(tmp_path, definition, said):
    with open(tmp_path / "a.mcap", "wb") as file:
        writer = PlainWriter(file)
        writer.start()
        schema = writer.register_schema("a/msg/B", "ros2msg", definition.encode())
        writer.add_message(writer.register_channel("/a", "cdr", schema), 0, b"\0\1\0\0", 0)
        writer.finish()
    with pytest.raises(BadInput, match=said):
        load_table(tmp_path / "a.mcap")


# Databases that are more than tables

TOPICS = "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT);"
CHAT = "INSERT INTO topics VALUES (1, '/chat', 'std_msgs/msg/Float64', 'cdr');"
DATA = "x'000100000000000000000440'"


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (f"CREATE TABLE messages(topic_id, timestamp, data); INSERT INTO messages VALUES (1, 0, {DATA});", ""),
        ("CREATE VIRTUAL TABLE messages USING fts5(topic_id, timestamp, data);", "lacks the tables"),
        (f"CREATE VIEW messages AS SELECT 1 AS topic_id, 0 AS timestamp, {DATA} AS data;", "lacks the tables"),
        (
            f"CREATE TABLE messages(topic_id, timestamp, data AS (CAST({DATA} AS BLOB)));"
            "INSERT INTO messages VALUES (1, 0), (1, 1);",
            "columns that are computed",
        ),
    ],
)
def test_a_bag_in_sqlite_is_tables_and_nothing_else(tmp_path, messages, said):
    link = sqlite3.connect(tmp_path / "a.db3")
    try:
        link.executescript(TOPICS + CHAT + messages)
    except sqlite3.OperationalError as error:
        pytest.skip(f"this sqlite cannot make one: {error}")
    finally:
        link.close()
    if not said:
        assert load_table(tmp_path / "a.db3")["/chat.data"].values.tolist() == [2.5]
        return
    with pytest.raises(BadInput, match=said):
        load_table(tmp_path / "a.db3")
