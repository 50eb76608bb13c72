"""Import: what was planted in somebody else's file comes back, in our units."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcap.writer import Writer as PlainWriter

from isthmus.core.errors import BadInput
from isthmus.core.units import ALIASES, UNITS, conversion_factor
from isthmus.data.episode import Episode
from isthmus.data.importers import load_table
from isthmus.data.mapping import import_file
from isthmus.data.mcap.layout import Layout
from isthmus.data.mcap.writer import write_episode
from support.foreign_files import LEGS, ROBOT, csv_text, mapped, planted
from support.paths import DOCS


def close(a: Episode, b: Episode, tolerance: float = 1e-12) -> bool:
    return np.allclose(Layout.rows_from_episode(a), Layout.rows_from_episode(b), rtol=0, atol=tolerance, equal_nan=True)


# Units


@given(st.sampled_from([(a, b) for units in UNITS.values() for a in units for b in units]), st.floats(-1e6, 1e6))
def test_units_there_and_back(pair, value):
    there, back = conversion_factor(*pair, "test"), conversion_factor(*pair[::-1], "test")
    assert value * there * back == pytest.approx(value, rel=1e-15, abs=1e-300)


def test_units_are_exact_where_numbers_are():
    assert conversion_factor("deg", "rad", "") == math.pi / 180 == math.radians(1)
    assert conversion_factor("ms", "us", "") == 1000.0
    assert conversion_factor("rpm", "rad/s", "") == pytest.approx(2 * math.pi / 60, rel=1e-16)
    assert conversion_factor("km/h", "m/s", "") == 1000 / 3600
    assert conversion_factor("g", "m/s^2", "") == 9.80665
    assert (
        conversion_factor("Nm", "N·m", "")
        == conversion_factor("N*m", "N·m", "")
        == conversion_factor("degrees", "deg", "")
        == 1.0
    )
    assert conversion_factor("odd, mixed", "odd, mixed", "") == 1.0


def test_units_that_do_not_fit_are_refused_with_those_that_do():
    for alias, name in ALIASES.items():
        assert conversion_factor(alias, name, "") == 1.0
    with pytest.raises(BadInput, match=r"joint_pos: 'm' is a unit of length.*fitting: rad, deg"):
        conversion_factor("m", "rad", "joint_pos")
    with pytest.raises(BadInput, match="did you mean 'rad/s'"):
        conversion_factor("rads", "rad/s", "joint_vel")


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
    write_episode(tmp_path / "again.mcap", found)


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
        load_table(tmp_path / "log.parquet")["note"]


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
    write_episode(tmp_path / "a.mcap", made)
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
        assert np.array_equal(found.signals["joint_pos"][:, 0], ticks)
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
    table = load_table(tmp_path / "bag")
    assert np.allclose(table["/joints.header.stamp"].values, table["/joints.header.stamp"].stamps, atol=1e-9)
    with pytest.raises(BadInput, match=r"did you mean '/joints\.position"):
        table["/joint.position[0]"]


def test_the_mapping_of_the_guide_works_as_it_says(tmp_path):
    from isthmus.robots import get_robot

    contract, rng = get_robot("go1").contract, np.random.default_rng(0)
    guide = (DOCS / "guides/bring-your-recordings.md").read_text()
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
