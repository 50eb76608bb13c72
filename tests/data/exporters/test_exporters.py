"""Episodes for other tools: Parquet there and back, the LeRobot layout, and the command `isthmus data`."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Event
from isthmus.data.exporters.lerobot import write_lerobot
from isthmus.data.exporters.parquet import is_episode_parquet, read_parquet, write_parquet
from isthmus.data.mcap.layout import Layout
from isthmus.data.mcap.writer import read_episode, write_episode
from support.episodes import JOINTS, REGULAR, regular_episode

pq = pytest.importorskip("pyarrow.parquet")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), ticks=st.integers(0, 6), complete=st.booleans())
def test_parquet_there_and_back_is_the_same_episode(tmp_path, seed, ticks, complete):
    made = regular_episode(ticks, complete=complete)
    bits = np.random.default_rng(seed).integers(0, 2**64, made.target.shape, np.uint64).view(np.float64)
    made = replace(made, target=bits)
    write_parquet(tmp_path / "a.parquet", made)
    assert is_episode_parquet(tmp_path / "a.parquet")
    found = read_parquet(tmp_path / "a.parquet")
    assert found.hash == made.hash
    assert Layout.rows_from_episode(found).tobytes() == Layout.rows_from_episode(made).tobytes()


def test_parquet_columns_have_names_for_people(tmp_path):
    made = regular_episode()
    write_parquet(tmp_path / "a.parquet", made)
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == [
        "time", "joint_pos.FR_hip", "joint_pos.FR_thigh", "gyro.x", "command.x", "command.y", "target.FR_hip",
        "target.FR_thigh", "wanted.FR_hip", "wanted.FR_thigh", "status.late", "status.missed",
    ]  # fmt: skip
    assert np.array_equal(table["joint_pos.FR_thigh"].to_numpy(), made.signals["joint_pos"][:, 1])


def test_other_parquet_files_are_refused_in_words(tmp_path):
    import pyarrow as pa

    table = pa.table({"a": [1.0]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert not is_episode_parquet(tmp_path / "a.parquet")
    with pytest.raises(BadInput, match="not an episode"):
        read_parquet(tmp_path / "a.parquet")
    for about in (b"{}", b"[1]", b"\xff", b'{"contract": {}}', b"[" * 9999):
        pq.write_table(table.replace_schema_metadata({b"isthmus.episode": about}), tmp_path / "a.parquet")
        with pytest.raises(BadInput):
            read_parquet(tmp_path / "a.parquet")


def test_an_episode_in_parquet_is_columns_of_float64_and_nothing_else(tmp_path):
    """A list in the place of a number could stand for millions of them; it is not unpacked."""
    import pyarrow as pa

    write_parquet(tmp_path / "a.parquet", regular_episode(3))
    table = pq.read_table(tmp_path / "a.parquet")
    for odd in (pa.array([[0.0] * 9] * 3), pa.array(["1.0"] * 3), pa.array([1, 2, 3], pa.int8())):
        pq.write_table(table.set_column(3, "gyro.x", odd), tmp_path / "b.parquet")
        with pytest.raises(BadInput, match="not of float64"):
            read_parquet(tmp_path / "b.parquet")


def test_a_lerobot_dataset_has_the_layout_and_the_numbers(tmp_path):
    """The layout that LeRobot 0.4.4 reads: dataset v3.0."""
    made = [regular_episode(30, 0), regular_episode(20, 1)]
    assert write_lerobot(tmp_path / "set", made, "walk about") == ()
    files = sorted(str(f.relative_to(tmp_path / "set")) for f in (tmp_path / "set").rglob("*.*"))
    assert files == [
        "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet",
        "meta/info.json", "meta/stats.json", "meta/tasks.parquet",
    ]  # fmt: skip
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    assert (info["codebase_version"], info["fps"], info["total_frames"], info["total_episodes"]) == ("v3.0", 50, 50, 2)
    assert info["features"]["observation.state"]["names"] == ["joint_pos.FR_hip", "joint_pos.FR_thigh", "gyro.x"]
    assert info["features"]["action"] == {"dtype": "float32", "shape": [2], "names": list(JOINTS)}
    data = pq.read_table(tmp_path / "set/data/chunk-000/file-000.parquet").to_pydict()
    assert set(data) == set(info["features"])
    state = np.concatenate([np.concatenate([e.signals["joint_pos"], e.signals["gyro"]], axis=1) for e in made])
    assert np.array_equal(data["observation.state"], state.astype(np.float32))
    assert np.array_equal(data["action"], np.concatenate([e.target for e in made]).astype(np.float32))
    assert data["index"] == list(range(50))
    assert data["frame_index"] == [*range(30), *range(20)]
    assert np.allclose(data["timestamp"], np.array(data["frame_index"]) / 50)
    rows = pq.read_table(tmp_path / "set/meta/episodes/chunk-000/file-000.parquet").to_pylist()
    assert [(r["dataset_from_index"], r["dataset_to_index"], r["length"], r["tasks"]) for r in rows] == [
        (0, 30, 30, ["walk about"]),
        (30, 50, 20, ["walk about"]),
    ]
    stats = json.loads((tmp_path / "set/meta/stats.json").read_text())
    assert np.allclose(stats["action"]["mean"], np.mean(data["action"], axis=0))
    assert np.allclose(rows[1]["stats/action/max"], np.max(data["action"][30:], axis=0))
    assert stats["action"]["count"] == [50]


def test_what_a_lerobot_dataset_cannot_hold_is_refused(tmp_path):
    made = regular_episode()
    gap = np.array(made.time)
    gap[15:] += 1.0
    (said,) = write_lerobot(tmp_path / "gap", [replace(made, time=gap)])
    assert "1 steps" in said
    for wrong, text in (
        ([], "at least one tick"),
        ([made, replace(made, contract=replace(REGULAR, rate=51.0))], "same contract"),
        ([replace(made, target=made.target * np.nan)], "no targets"),
        ([made, replace(made, time=made.time * 2)], "one rate"),
    ):
        with pytest.raises(BadInput, match=text):
            write_lerobot(tmp_path / "no", wrong)
    with pytest.raises(BadInput, match="not empty"):
        write_lerobot(tmp_path / "gap", [made])


# The command


def call(capsys, *argv: str) -> tuple[int, dict]:
    code = main(["data", *map(str, argv), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_info_of_a_recording(tmp_path, capsys):
    made, path = regular_episode(), tmp_path / "a.mcap"
    write_episode(path, made)
    code, found = call(capsys, "info", path)
    assert code == 0
    assert (found["robot"], found["ticks"], found["hash"], found["complete"]) == ("twolegs", 30, made.hash, True)
    assert found["missed"]["rate"] == pytest.approx(0.1)
    assert found["signals"]["gyro"]["high"] == made.signals["gyro"].max()
    assert found["events"] == [{"time": 0.1, "level": "warning", "name": "stale", "text": "No signal for 40 ms."}]
    assert main(["data", "info", str(path)]) == 0
    text = capsys.readouterr().out
    for said in ("twolegs, 30 ticks", "unit seven", "joint_pos", "missed deadlines: 10.0 %", "stale", "2023-11-14"):
        assert said in text
    path.write_bytes(path.read_bytes()[:-100])
    assert main(["data", "info", str(path)]) == 0
    assert "cut" in capsys.readouterr().out


def test_import_info_and_export_in_a_row(tmp_path, capsys):
    made = regular_episode()
    log = tmp_path / "log.csv"
    columns = {
        "t": made.time * 1e3,
        "a": np.degrees(made.signals["joint_pos"][:, 0]),
        "b": np.degrees(made.signals["joint_pos"][:, 1]),
    }
    log.write_text(
        "\n".join([",".join(columns), *(",".join(map(repr, map(float, r))) for r in zip(*columns.values(), strict=True))])
    )
    write_episode(tmp_path / "robot.mcap", made)
    (tmp_path / "map.toml").write_text(
        'absent = ["gyro", "target"]\n[time]\ncolumn = "t"\nunit = "ms"\n'
        '[signals.joint_pos]\ncolumns = ["a", "b"]\nunit = "deg"\n'
    )
    code, found = call(capsys, "info", log)
    assert code == 0
    assert found["columns"]["t"] == {"kind": "number", "count": 30, "missing": 0, "low": 0.0, "high": made.time[-1] * 1e3}
    assert main(["data", "info", str(log)]) == 0
    assert "not a recording of ours" in capsys.readouterr().out
    out = tmp_path / "x.mcap"
    code, found = call(
        capsys, "import", log, "--robot", tmp_path / "robot.mcap", "--map", tmp_path / "map.toml", "-o", out
    )  # fmt: skip
    assert code == 0
    assert found["hash"] == read_episode(out).hash
    assert np.allclose(read_episode(out).signals["joint_pos"], made.signals["joint_pos"], atol=1e-12)
    code, found = call(capsys, "export", out, "-o", tmp_path / "x.parquet")
    assert (code, found["format"]) == (0, "parquet")
    assert read_parquet(tmp_path / "x.parquet").hash == read_episode(out).hash
    code, found = call(capsys, "info", tmp_path / "x.parquet")
    assert found["origin"]["file"] == "log.csv"
    code, found = call(capsys, "export", tmp_path / "robot.mcap", "--format", "lerobot", "-o", tmp_path / "set")
    assert (code, found["ticks"]) == (0, 30)


def test_a_cut_recording_can_be_mended(tmp_path, capsys):
    made, path = regular_episode(100), tmp_path / "a.mcap"
    write_episode(path, made)
    path.write_bytes(path.read_bytes()[:-5000])
    code, found = call(capsys, "export", path, "-o", tmp_path / "b.mcap")
    assert code == 0
    assert "is cut" in found["warnings"][0]
    mended = read_episode(tmp_path / "b.mcap")
    assert mended.complete
    assert mended.origin["cut"] is True
    assert mended.origin["parents"] == [read_episode(path).hash]
    assert np.array_equal(mended.target, read_episode(path).target)


def make_import(folder) -> list[str]:
    """Arguments of an import that works, to `folder`/x.mcap."""
    write_episode(folder / "robot.mcap", regular_episode())
    (folder / "log.csv").write_text("t,a\n0,1\n0.02,2\n0.04,3\n")
    (folder / "map.toml").write_text(
        'absent = ["gyro", "target", "joint_pos.FR_thigh"]\n[time]\ncolumn = "t"\n'
        '[signals.joint_pos]\ncolumns = { FR_hip = "a" }\nunit = "rad"\n'
    )
    robot, mapping, out = (str(folder / n) for n in ("robot.mcap", "map.toml", "x.mcap"))
    return ["import", str(folder / "log.csv"), "--robot", robot, "--map", mapping, "-o", out]


@pytest.mark.parametrize("verb", ["import", "x.parquet", "y.mcap"])
def test_nothing_is_written_over_unasked(tmp_path, capsys, verb):
    argv = make_import(tmp_path)
    if verb != "import":
        argv = ["export", str(tmp_path / "robot.mcap"), "-o", str(tmp_path / verb)]
    out = tmp_path / argv[-1]
    out.write_bytes(b"dear to me")
    code, found = call(capsys, *argv)
    assert (code, out.read_bytes()) == (2, b"dear to me")
    assert "exists" in found["error"]
    assert "--force" in found["error"]
    code, _ = call(capsys, *argv, "--force")
    assert code == 0
    assert len(read_parquet(out) if out.suffix == ".parquet" else read_episode(out)) > 0


def test_what_is_read_is_not_written_over_even_by_force(tmp_path, capsys, monkeypatch):
    argv = make_import(tmp_path)
    before = (tmp_path / "robot.mcap").read_bytes()
    (tmp_path / "link.mcap").symlink_to(tmp_path / "robot.mcap")
    monkeypatch.chdir(tmp_path)
    for wrong in (
        [*argv[:-1], tmp_path / "robot.mcap"],
        ["export", tmp_path / "robot.mcap", "-o", "robot.mcap"],
        ["export", tmp_path / "robot.mcap", "-o", tmp_path / "link.mcap"],
    ):
        code, found = call(capsys, *wrong, "--force")
        assert code == 2
        assert "written over while it is read" in found["error"]
        assert (tmp_path / "robot.mcap").read_bytes() == before


def test_a_dataset_does_not_go_into_a_folder_in_use_even_by_force(tmp_path, capsys):
    write_episode(tmp_path / "a.mcap", regular_episode())
    (tmp_path / "set").mkdir()
    (tmp_path / "set/mine").write_text("x")
    code, found = call(capsys, "export", tmp_path / "a.mcap", "--format", "lerobot", "-o", tmp_path / "set", "--force")
    assert code == 2
    assert "not empty" in found["error"]
    assert [f.name for f in (tmp_path / "set").iterdir()] == ["mine"]


ODD = ("[/7]", "[red]x", ":cat:", "a\x1b[2Jb", "c\x9b1md", "e\u202ef", "g\\", "h\rj")
SEEN = ("[/7]", "[red]x", ":cat:", "a\\x1b[2Jb", "c\\x9b1md", "e\\u202ef", "g\\", "h\\rj")


def said_plainly(text: str) -> None:
    assert not [c for c in text if not c.isprintable() and c != "\n"]


def test_names_in_a_recording_are_shown_as_they_are(tmp_path, capsys):
    """A name is neither markup nor emoji nor a command to the terminal."""
    for odd, seen in zip(ODD, SEEN, strict=True):
        contract = Contract(odd, 50.0, (Signal(odd, odd, (odd, "x")),), Signal("goal", odd, (odd,)))
        layout = Layout(contract, (Signal(f"op{odd}", odd, (odd,)),), (f"st{odd}",))
        rows = np.ones((3, layout.width))
        rows[:, 0] = np.arange(3) / 50
        origin = {"source": odd, "unit": odd, "task": odd, "file": odd}
        made = layout.to_episode(rows, (Event(0.0, "warning", odd, f"so {odd}"),), origin)
        write_episode(tmp_path / "a.mcap", made)
        assert main(["data", "info", str(tmp_path / "a.mcap")]) == 0
        text = capsys.readouterr().out
        said_plainly(text)
        for shown in (f"{seen}, 3 ticks", f"source {seen}, unit {seen}", f"op{seen}", f"status.st{seen}", f"so {seen}"):
            assert shown in text.replace("\n", "")
        assert text.count(seen) >= 12


def test_columns_of_a_file_are_shown_as_they_are(tmp_path, capsys, monkeypatch):
    from isthmus.data.importers import Column, Table

    columns = {odd: Column(odd, np.ones(3)) for odd in ODD}
    found = Table("a.csv", "csv", columns, notes=tuple(f"left out {odd}" for odd in ODD))
    monkeypatch.setattr("isthmus.data.importers.load_table", lambda *_: found)
    assert main(["data", "info", str(tmp_path / "a.csv")]) == 0
    text = capsys.readouterr().out
    said_plainly(text)
    for seen in SEEN:
        assert f"\n{seen} " in text
        assert f"- left out {seen}\n" in text


def test_errors_quote_names_of_a_file_as_they_are(tmp_path, capsys):
    argv = make_import(tmp_path)
    (tmp_path / "log.csv").write_text("t,\x1b[31mred\n0,1\n0.02,2\n")
    assert main(["data", *argv]) == 2
    text = capsys.readouterr().err
    said_plainly(text)
    assert "\\x1b[31mred" in text


@pytest.mark.parametrize(
    "argv",
    [
        ["info", "nothing.mcap"],
        ["info", "nothing.csv"],
        ["export", "nothing.mcap", "-o", "x.parquet"],
        ["export", "nothing.mcap", "-o", "x"],
        ["export", "nothing.mcap"],
        ["import", "nothing.csv", "--robot", "go1", "--map", "nothing.toml", "-o", "x.mcap"],
        ["import", "nothing.csv", "--robot", "nobody", "--map", "map.toml", "-o", "x.csv"],
        ["import", "nothing.csv", "--robot", "nothing.controller", "--map", "map.toml", "-o", "x.mcap"],
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(tmp_path, capsys, monkeypatch, argv):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "map.toml").write_text("")
    code, found = call(capsys, *argv)
    assert (code, found["exit"]) == (2, 2)
    assert found["error"]


def test_recordings_need_nothing_but_the_base_install():
    """On the robot's computer there is no pyarrow, rosbags, mujoco or torch; recording, reading and CSV work all the same."""
    script = """
import sys
for name in ("pyarrow", "rosbags", "mujoco", "torch", "scipy"):
    sys.modules[name] = None
import isthmus.data.mcap.writer, isthmus.data.mapping, isthmus.data.exporters.parquet, isthmus.data.importers
from isthmus.core.errors import BadInput
for call in (lambda: isthmus.data.exporters.parquet.read_parquet("x"), lambda: isthmus.data.importers.load_table(sys.argv[1])):
    try:
        call()
        raise SystemExit("no complaint")
    except BadInput as error:
        assert "pip install 'isthmus[lab]'" in str(error), error
"""
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        subprocess.run([sys.executable, "-c", script, file.name], check=True)
