"""Import: what cannot be right is said, with its line, and no bytes bring it down."""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.core.errors import BadInput
from isthmus.data.importers import load_table
from isthmus.data.mapping import ColumnMap, import_file
from isthmus.data.mcap.writer import write_episode
from support.foreign_files import ROBOT, csv_text, mapped, planted

# What is wrong is said


SIMPLE = """
absent = ["gyro"]
[time]
column = "t"
[signals.joint_pos]
columns = "q{i}"
unit = "rad"
[target]
columns = "u{i}"
unit = "rad"
"""


def simple(ticks: int = 40) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"t": np.arange(ticks) / 100, **{f"{x}{i}": rng.uniform(-1, 1, ticks) for x in "qu" for i in range(3)}}


def test_every_oddity_is_named_with_its_line(tmp_path):
    columns = simple()
    columns["t"][10], columns["t"][20] = columns["t"][9], columns["t"][5]
    columns["t"][30:] += 0.5
    columns["q0"][4] = 7.0
    columns["q1"][:] = 0.25
    columns["u2"][3] = np.nan
    (tmp_path / "log.csv").write_text("# a comment\n" + csv_text(columns))
    found, warnings = import_file(tmp_path / "log.csv", mapped(tmp_path, SIMPLE), ROBOT)
    assert len(found) == 38
    text = "\n".join(warnings)
    for said in (
        "2 rows dropped, because time did not go on (1 repeated, 1 backwards); the first at line 13",
        "1 gaps in time, the longest 0.51 s at line 32",
        "joint_pos.FR_hip is above the contract's limit of 3 rad in 1 ticks, up to 7, first at line 7",
        "joint_pos.FL_hip never changes: it is 0.25",
        "target.RR_hip is missing or not finite in 1 of 38 ticks, first at line 6",
    ):
        assert said in text
    assert len(warnings) == 5


def test_a_rate_that_is_not_the_robots_is_said_and_resampled(tmp_path):
    columns = simple(400)
    columns["t"] /= 4
    (tmp_path / "log.csv").write_text(csv_text(columns))
    _, warnings = import_file(tmp_path / "log.csv", mapped(tmp_path, SIMPLE), ROBOT)
    assert any("400 ticks per second, the robot's contract 100" in w for w in warnings)
    found, warnings = import_file(tmp_path / "log.csv", mapped(tmp_path, SIMPLE.replace('"t"', '"t"\nrate = 100.0')), ROBOT)
    assert not warnings
    assert np.array_equal(found.signals["joint_pos"][:, 0], columns["q0"][::4])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("[signals.joint_pos]", "[signals.joint_post]"), "unknown signal 'joint_post'.*did you mean 'joint_pos'"),
        (('"q{i}"', '"k{i}"'), "unknown column 'k0'"),
        (('"q{i}"', '"q0"'), "needs {label} or {i}"),
        (('"q{i}"', '["q0", "q1"]'), "3 labels .*lists 2 columns"),
        (('"q{i}"', '{ FR_hip = "q0" }'), "no column for FL_hip, RR_hip"),
        (('"q{i}"', '{ FR_hop = "q0" }'), "did you mean 'FR_hip'"),
        (('unit = "rad"', 'unit = "m"'), "'m' is a unit of length"),
        (('unit = "rad"', 'unit = "radd"'), "did you mean 'rad'"),
        (('absent = ["gyro"]', ""), r"nothing about gyro.*absent = \['gyro'\]"),
        (('absent = ["gyro"]', 'absent = ["gyros"]'), "did you mean 'gyro'"),
        (('absent = ["gyro"]', 'absent = ["gyro", "target"]'), "gives columns for 'target' and lists it as absent"),
        (('column = "t"', 'colum = "t"'), "unknown entry 'colum'"),
        (('column = "t"', ""), "no time stamps"),
        (('unit = "rad"', 'unit = "rad"\nflip = ["x"]'), "unknown component 'x'"),
        (('unit = "rad"', 'unit = "rad"\nscale = [1.0]'), "3 labels, but 1 numbers"),
        (("[time]", "[time"), "not valid TOML"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused_in_words(tmp_path, change, said):
    (tmp_path / "log.csv").write_text(csv_text(simple()))
    with pytest.raises(BadInput, match=said):
        import_file(tmp_path / "log.csv", mapped(tmp_path, SIMPLE.replace(*change, 1)), ROBOT)


def test_text_files_of_all_habits(tmp_path):
    path = tmp_path / "log.txt"
    cases = {
        "1 2\n3 4\n": ["0", "1"],
        "# t, x\n1,2\n3,4\n": ["t", "x"],
        "t;x\n1,0;2,0\n3,0;4,0\n": ["t", "x"],
        "\ufefft,x\r\n1,2\r\n3,4\r\n": ["t", "x"],
        't,"x, m"\n1,2\n3,4\n': ["t", "x, m"],
        "t,t\n1,2\n3,4": ["t", "t#2"],
        "t,x\n\n1,2\n# in between\n3,4\n5": ["t", "x"],
        "t,x,\n1,2,\n3,4,\n": ["t", "x", "2"],
    }
    for text, names in cases.items():
        path.write_text(text)
        table = load_table(path)
        assert list(table.columns) == names
        values = np.stack([c.values for c in table.columns.values()], axis=1)[:, :2]
        assert np.array_equal(values, [[1, 2], [3, 4]])
    assert "cut off" in " ".join(load_text(path, "t,x\n1,2\n3,4\n5").notes)
    assert load_text(path, "t,x,who\n1,,me\n2,true,you\n").columns["who"].kind == "text"
    assert np.array_equal(load_text(path, "t,x\n1,\n2,true\n")["x"].values, [np.nan, 1.0], equal_nan=True)
    with pytest.raises(BadInput, match="3 values in line 3, but 2 columns"):
        load_text(path, "t,x\n1,2\n1,2,3\n")


def load_text(path: Path, text: str):
    path.write_text(text)
    return load_table(path)


# No bytes bring it down


def never_crashes(path: Path, data: bytes, mapping: ColumnMap) -> None:
    path.write_bytes(data)
    try:
        found, _ = import_file(path, mapping, ROBOT)
        assert (np.diff(found.time) > 0).all()
    except BadInput:
        pass


ANY = ColumnMap(absent=("joint_pos", "gyro", "target"), status={"x": "0"})


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | st.text(string.digits + ',;.\t \n#-eE"naN', max_size=200).map(str.encode))
def test_random_text_never_crashes(tmp_path, data):
    never_crashes(tmp_path / "a.csv", data, ANY)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.floats() | st.text(string.printable, max_size=5), min_size=3, max_size=3), min_size=1, max_size=12),
    st.data(),
)
def test_random_tables_never_crash(tmp_path, rows, data):
    mapping = read_map_of(tmp_path, data.draw(st.sampled_from(["a", "b", "0", "1"])))
    text = "a,b,c\n" + "\n".join(",".join(str(v).replace("\n", " ") for v in row) for row in rows)
    never_crashes(tmp_path / "a.csv", text.encode(), mapping)


def read_map_of(folder: Path, column: str) -> ColumnMap:
    return mapped(folder, f'absent = ["joint_pos", "gyro", "target"]\n[time]\ncolumn = "{column}"\n[status]\nx = "b"\n')


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_broken_containers_never_crash(tmp_path, data):
    """MCAP, Parquet and sqlite files with flipped bits, and random bytes under their names."""
    samples = tmp_path / "samples"
    if not samples.exists():
        samples.mkdir()
        from isthmus.data.exporters.parquet import write_parquet

        write_episode(samples / "a.mcap", planted(4))
        write_parquet(samples / "a.parquet", planted(4))
        make_db3(samples / "a.db3")
    name = data.draw(st.sampled_from(["a.mcap", "a.parquet", "a.db3"]))
    good = bytearray((samples / name).read_bytes())
    for at in data.draw(st.lists(st.integers(0, 8 * len(good) - 1), max_size=4)):
        good[at // 8] ^= 1 << at % 8
    cut = data.draw(st.integers(0, len(good)))
    broken = bytes(good[:cut]) if data.draw(st.booleans()) else data.draw(st.binary(max_size=100))
    never_crashes(
        tmp_path / name,
        bytes(good) if data.draw(st.booleans()) else broken,
        ColumnMap(absent=ANY.absent, status={"x": "/chat.data"}),
    )


def make_db3(path: Path) -> None:
    import sqlite3

    link = sqlite3.connect(path)
    link.execute("CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT)")
    link.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB)")
    link.execute("INSERT INTO topics VALUES (1, '/chat', 'std_msgs/msg/Float64', 'cdr'), (2, '/odd', 'my_msgs/msg/Odd', 'cdr')")
    for i in range(5):
        data = b"\0\1\0\0" + np.float64(i).tobytes()
        link.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?, ?)", (i * 10**7, data))
    link.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES (2, 0, x'00')")
    link.commit()
    link.close()


def test_a_type_that_nobody_knows_is_left_out_and_said(tmp_path):
    make_db3(tmp_path / "a.db3")
    table = load_table(tmp_path / "a.db3")
    assert np.array_equal(table["/chat.data"].values, range(5))
    assert any("/odd left out" in note for note in table.notes)
