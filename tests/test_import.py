"""Import: what was planted in somebody else's file comes back, and what cannot be right is said."""

from __future__ import annotations

import json
import math
import string
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcap.writer import Writer as PlainWriter

from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode
from isthmus.data.importers import load
from isthmus.data.layout import Layout
from isthmus.data.mapping import Map, import_file, read_map
from isthmus.data.recording import write
from isthmus.data.units import ALIASES, UNITS, factor
from isthmus.errors import BadInput

LEGS = ("FR_hip", "FL_hip", "RR_hip")
ROBOT = Contract(
    "threelegs",
    100.0,
    (Signal("joint_pos", "rad", LEGS, low=(-3.0,) * 3, high=(3.0,) * 3), Signal("gyro", "rad/s", ("x", "y", "z"), "body")),
    Signal("joint_target", "rad", LEGS),
)


def planted(ticks: int = 200, seed: int = 0) -> Episode:
    rng = np.random.default_rng(seed)
    layout = Layout(ROBOT, (Signal("command", "m/s", ("x",)),), ("temp",))
    rows = rng.uniform(-2, 2, (ticks, layout.width))
    rows[:, 0] = np.arange(ticks) / 100
    return layout.episode(rows)


def mapped(folder: Path, text: str) -> Map:
    (folder / "map.toml").write_text(text)
    return read_map(folder / "map.toml")


def close(a: Episode, b: Episode, tolerance: float = 1e-12) -> bool:
    return np.allclose(Layout.rows(a), Layout.rows(b), rtol=0, atol=tolerance, equal_nan=True)


# Units


@given(st.sampled_from([(a, b) for units in UNITS.values() for a in units for b in units]), st.floats(-1e6, 1e6))
def test_units_there_and_back(pair, value):
    there, back = factor(*pair, "test"), factor(*pair[::-1], "test")
    assert value * there * back == pytest.approx(value, rel=1e-15, abs=1e-300)


def test_units_are_exact_where_numbers_are():
    assert factor("deg", "rad", "") == math.pi / 180 == math.radians(1)
    assert factor("ms", "us", "") == 1000.0
    assert factor("rpm", "rad/s", "") == pytest.approx(2 * math.pi / 60, rel=1e-16)
    assert factor("km/h", "m/s", "") == 1000 / 3600
    assert factor("g", "m/s^2", "") == 9.80665
    assert factor("Nm", "N·m", "") == factor("N*m", "N·m", "") == factor("degrees", "deg", "") == 1.0
    assert factor("odd, mixed", "odd, mixed", "") == 1.0


def test_units_that_do_not_fit_are_refused_with_those_that_do():
    for alias, name in ALIASES.items():
        assert factor(alias, name, "") == 1.0
    with pytest.raises(BadInput, match=r"joint_pos: 'm' is a unit of length.*fitting: rad, deg"):
        factor("m", "rad", "joint_pos")
    with pytest.raises(BadInput, match="did you mean 'rad/s'"):
        factor("rads", "rad/s", "joint_vel")


# Plant and recover


PLANTED = """
[time]
column = "stamp (ms)"
unit = "ms"
[signals.joint_pos]
columns = { FR_hip = "a1", FL_hip = "a0", RR_hip = "a2" }
unit = "deg"
flip = ["FL_hip"]
offset = { RR_hip = 0.5 }
[signals.gyro]
columns = "w{i}"
unit = "rpm"
[target]
columns = "cmd_{label}"
unit = "mrad"
scale = 2.0
[wanted]
columns = ["u0", "u1", "u2"]
unit = "rad"
[operator.command]
columns = ["v"]
labels = ["x"]
unit = "m/s"
[status]
temp = "temp"
"""


def columns_of(made: Episode) -> dict[str, np.ndarray]:
    """The planted episode under other names, in other units, signs and offsets."""
    q, w = np.degrees(made.signals["joint_pos"] * [1, -1, 1] - [0, 0, 0.5]), made.signals["gyro"] * 30 / math.pi
    return {
        "a1": q[:, 0], "a0": q[:, 1], "a2": q[:, 2], **{f"w{i}": w[:, i] for i in range(3)},
        **{f"cmd_{x}": made.target[:, i] * 500 for i, x in enumerate(LEGS)},
        **{f"u{i}": made.wanted[:, i] for i in range(3)},
        "v": made.signals["command"][:, 0], "temp": made.status["temp"], "stamp (ms)": 5e8 + made.time * 1e3,
        "comment": np.full(len(made), np.nan),
    }  # fmt: skip


def csv_text(columns: dict[str, np.ndarray], delimiter: str = ",", comma: bool = False) -> str:
    lines = [delimiter.join(columns)]
    lines += [delimiter.join("" if np.isnan(v) else repr(float(v)) for v in row) for row in zip(*columns.values(), strict=True)]
    return "\n".join([lines[0], *((x.replace(".", ",") if comma else x) for x in lines[1:])]) + "\n"


@pytest.mark.parametrize(("delimiter", "comma"), [(",", False), (";", True), ("\t", False), ("|", False)])
def test_an_episode_planted_in_a_csv_file_is_recovered(tmp_path, delimiter, comma):
    made = planted()
    columns = columns_of(made)
    order = np.random.default_rng(1).permutation(list(columns))
    (tmp_path / "log.csv").write_text(csv_text({n: columns[n] for n in order}, delimiter, comma))
    found, warnings = import_file(tmp_path / "log.csv", mapped(tmp_path, PLANTED), ROBOT)
    assert close(found, made, 1e-9)
    assert warnings == ()
    assert found.origin["source"] == "import"
    write(tmp_path / "again.mcap", found)


def test_an_episode_planted_in_a_parquet_file_is_recovered(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = planted()
    q = made.signals["joint_pos"]
    table = pa.table({
        "robot": pa.array([{"q": list(row), "w": list(g)} for row, g in zip(q, made.signals["gyro"], strict=True)]),
        "goal": pa.array(list(made.target), pa.list_(pa.float64())),
        "at": pa.array((made.time * 1e6).round().astype(np.int64) + 1_700_000_000_000_000, pa.timestamp("us")),
        "note": ["x"] * len(made),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "log.parquet")
    mapping = mapped(
        tmp_path,
        """
[time]
column = "at"
[signals.joint_pos]
columns = "robot.q[{i}]"
unit = "rad"
[signals.gyro]
columns = "robot.w[{i}]"
unit = "rad/s"
[target]
columns = "goal[{i}]"
unit = "rad"
""",
    )
    found, _ = import_file(tmp_path / "log.parquet", mapping, ROBOT)
    assert np.array_equal(found.signals["joint_pos"], q)
    assert np.array_equal(found.target, made.target)
    assert np.allclose(found.time, made.time, atol=1e-9)
    with pytest.raises(BadInput, match="holds text"):
        load(tmp_path / "log.parquet")["note"]


TOPICS = """
absent = ["gyro"]
[time]
rate = 100.0
[signals.joint_pos]
columns = "/joints.position[{i}]"
unit = "rad"
[target]
columns = "/goal.data[{i}]"
unit = "rad"
"""


def test_our_own_recording_is_also_a_foreign_file(tmp_path):
    made = planted()
    write(tmp_path / "a.mcap", made)
    mapping = mapped(
        tmp_path,
        TOPICS.replace("/joints.position[{i}]", "/signals/joint_pos.{label}").replace("/goal.data[{i}]", "/target.{label}"),
    )
    found, warnings = import_file(tmp_path / "a.mcap", mapping, ROBOT)
    assert np.array_equal(found.signals["joint_pos"], made.signals["joint_pos"])
    assert np.array_equal(found.target, made.target)
    assert np.isnan(found.signals["gyro"]).all()
    assert not warnings


def test_topics_of_different_clocks_are_held(tmp_path):
    """Positions at 100 Hz, goals at 10 Hz and 3 ms late: each tick has the last goal that was said by then."""
    start = 1_700_000_000 * 10**9
    with open(tmp_path / "a.mcap", "wb") as file:
        writer = PlainWriter(file)
        writer.start()
        schema = writer.register_schema("any", "jsonschema", b"{}")
        joints, goal = (writer.register_channel(t, "json", schema) for t in ("/joints", "/goal"))
        for i in range(200):
            stamp = {"sec": 1_700_000_000 + i // 100, "nanosec": (i % 100) * 10**7}
            text = json.dumps({"position": [i, 0, 0], "stamp": stamp, "name": ["a", "b"]})
            writer.add_message(joints, start + i * 10**7, text.encode(), 0)
        for i in range(20):
            writer.add_message(goal, start + i * 10**8 + 3 * 10**6, json.dumps({"data": [i, i, -i]}).encode(), 0)
        writer.finish()
    for head in ("", 'column = "/joints.stamp"\n'):
        found, warnings = import_file(
            tmp_path / "a.mcap", mapped(tmp_path, TOPICS.replace("[time]\n", f"[time]\n{head}")), ROBOT
        )
        assert len(found) == 200
        assert np.allclose(found.time, np.arange(200) / 100, atol=1e-9)
        ticks = np.arange(200)
        assert np.array_equal(found.signals["joint_pos"][:, 0], np.clip(ticks, -3e9, 3e9))
        assert np.isnan(found.target[0, 0])
        assert np.array_equal(found.target[1:, 0], (ticks[1:] - 1) // 10)
        assert any("starts late" in w for w in warnings)
        assert any("name" in w and "left out" in w for w in warnings)
        assert found.origin["started"] == 1_700_000_000


@pytest.mark.parametrize("storage", ["sqlite3", "mcap"])
def test_a_ros_2_bag_is_imported(tmp_path, storage):
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    made, store = planted(50), get_typestore(Stores.ROS2_HUMBLE)
    state, array, layout = (
        store.types[t]
        for t in ("sensor_msgs/msg/JointState", "std_msgs/msg/Float64MultiArray", "std_msgs/msg/MultiArrayLayout")
    )
    stamp, header = store.types["builtin_interfaces/msg/Time"], store.types["std_msgs/msg/Header"]
    plugin = StoragePlugin.SQLITE3 if storage == "sqlite3" else StoragePlugin.MCAP
    with Writer(tmp_path / "bag", version=9, storage_plugin=plugin) as writer:
        joints = writer.add_connection("/joints", state.__msgtype__, typestore=store)
        goal = writer.add_connection("/goal", array.__msgtype__, typestore=store)
        for i, t in enumerate(made.time):
            now = 1_700_000_000 * 10**9 + round(t * 1e9)
            head = header(stamp(now // 10**9, now % 10**9), "base")
            message = state(head, list(LEGS), made.signals["joint_pos"][i], np.array([]), np.array([]))
            writer.write(joints, now, store.serialize_cdr(message, state.__msgtype__))
            writer.write(goal, now, store.serialize_cdr(array(layout([], 0), made.target[i]), array.__msgtype__))
    found, _ = import_file(tmp_path / "bag", mapped(tmp_path, TOPICS), ROBOT)
    assert np.array_equal(found.signals["joint_pos"], made.signals["joint_pos"])
    assert np.array_equal(found.target, made.target)
    assert np.allclose(found.time, made.time, atol=1e-9)
    table = load(tmp_path / "bag")
    assert np.allclose(table["/joints.header.stamp"].values, table["/joints.header.stamp"].stamps, atol=1e-9)
    with pytest.raises(BadInput, match=r"did you mean '/joints\.position"):
        table["/joint.position[0]"]


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
        table = load(path)
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
    return load(path)


def test_the_mapping_of_the_guide_works_as_it_says(tmp_path):
    from isthmus.robots import get_robot

    contract, rng = get_robot("go1").contract, np.random.default_rng(0)
    guide = (Path(__file__).parents[1] / "docs/guides/bring-your-recordings.md").read_text()
    labels = contract.target.labels
    names = [
        *(f"q_{x}" for x in labels),
        *(f"dq[{i}]" for i in range(12)),
        *(f"c{i}" for i in range(12)),
        "vx",
        "vy",
        "wz",
        "battery_V",
    ]
    columns = {"t_ms": 5.0 * np.arange(80), **{n: rng.uniform(-9, 9, 80) for n in names}}
    (tmp_path / "log.csv").write_text(csv_text(columns))
    found, _ = import_file(tmp_path / "log.csv", mapped(tmp_path, guide.split("```toml")[1].split("```")[0]), contract)
    signs = np.where([x in ("FR_hip", "RR_hip") for x in labels], -1, 1)
    q = np.radians(np.stack([columns[f"q_{x}"][::4] for x in labels], axis=1)) * signs
    assert np.allclose(found.signals["joint_pos"], q + 0.05 * np.array([x == "FL_calf" for x in labels]))
    assert np.allclose(found.signals["joint_vel"][:, 3], columns["dq[3]"][::4] * 2 * math.pi / 60)
    assert found.rate == pytest.approx(50)
    assert found.origin["unit"] == "lab robot 3"


# No bytes bring it down


def never_crashes(path: Path, data: bytes, mapping: Map) -> None:
    path.write_bytes(data)
    try:
        found, _ = import_file(path, mapping, ROBOT)
        assert (np.diff(found.time) > 0).all()
    except BadInput:
        pass


ANY = Map(absent=("joint_pos", "gyro", "target"), status={"x": "0"})


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


def read_map_of(folder: Path, column: str) -> Map:
    return mapped(folder, f'absent = ["joint_pos", "gyro", "target"]\n[time]\ncolumn = "{column}"\n[status]\nx = "b"\n')


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_broken_containers_never_crash(tmp_path, data):
    """MCAP, Parquet and sqlite files with flipped bits, and random bytes under their names."""
    samples = tmp_path / "samples"
    if not samples.exists():
        samples.mkdir()
        from isthmus.data.exporters import write_parquet

        write(samples / "a.mcap", planted(4))
        write_parquet(samples / "a.parquet", planted(4))
        make_db3(samples / "a.db3")
    name = data.draw(st.sampled_from(["a.mcap", "a.parquet", "a.db3"]))
    good = bytearray((samples / name).read_bytes())
    for at in data.draw(st.lists(st.integers(0, 8 * len(good) - 1), max_size=4)):
        good[at // 8] ^= 1 << at % 8
    cut = data.draw(st.integers(0, len(good)))
    broken = bytes(good[:cut]) if data.draw(st.booleans()) else data.draw(st.binary(max_size=100))
    never_crashes(
        tmp_path / name, bytes(good) if data.draw(st.booleans()) else broken, Map(absent=ANY.absent, status={"x": "/chat.data"})
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
    table = load(tmp_path / "a.db3")
    assert np.array_equal(table["/chat.data"].values, range(5))
    assert any("/odd left out" in note for note in table.notes)
