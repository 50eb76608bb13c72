"""The store of episodes: nothing is lost, nothing is there twice, and what a person says counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.data.exporters.parquet import write_parquet
from isthmus.data.mcap.writer import write_episode
from isthmus.data.store import Store
from support.episodes import regular_episode
from support.stores import N, call, one, whole, worlds

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")


# What goes in comes out -------------------------------------------------------------------------------------------


def test_a_list_is_answered_as_it_was_written(tmp_path):
    c = worlds(tmp_path / "a.parquet")
    store = Store(tmp_path / "store")
    assert store.add([tmp_path / "a.parquet"]).episodes == N
    n, rate, score = one(store, "select count(*), avg(success), avg(score) from episodes where source = 'sim'")
    assert (n, rate) == (N, pytest.approx(c["success"].mean()))
    assert score == pytest.approx(np.nanmean(c["score"]))
    back = store.select("select e['payload'], e.friction, metrics.power, score from episodes order by world").rows
    found = np.array([[np.nan if v is None else v for v in row] for row in back])
    wanted = np.stack([c["e.payload"], c["e.friction"], c["metrics.power"], c["score"]], axis=1)
    np.testing.assert_array_equal(found, wanted)


def test_a_recording_is_there_with_signals_and_events_whatever_file_it_comes_in(tmp_path):
    mine = regular_episode(
        origin={"source": "real", "unit": "seven", "controller_hash": "c" * 64, "started": 1.7e9, "e": {"m": 2.0}}
    )
    write_episode(tmp_path / "a.mcap", mine)
    write_parquet(tmp_path / "b.parquet", mine)
    store = Store(tmp_path / "store")
    added = store.add([tmp_path / "a.mcap", tmp_path / "b.parquet"], tags=["mat"])
    assert (added.episodes, added.already_there) == (1, 1)
    row = one(store, "select hash, source, unit, robot, controller, e.m, ticks, seconds, started, tags, success from episodes")
    assert row[:7] == (mine.hash, "real", "seven", "twolegs", "c" * 64, 2.0, 30)
    assert row[7:] == (mine.duration, "2023-11-14 22:13:20", ["mat"], None)
    low, rms = one(store, "select low, rms from signals where signal = 'joint_pos' and label = 'FR_thigh'")
    values = mine.signals["joint_pos"][:, 1]
    assert (low, rms) == (values.min(), pytest.approx(np.sqrt(np.mean(values**2))))
    assert one(store, "select level, name from events") == ("warning", "stale")


def test_rows_of_one_list_that_say_the_same_count_and_adding_again_adds_nothing(tmp_path):
    path, store = tmp_path / "log.jsonl", Store(tmp_path / "store")
    line = json.dumps({"source": "real", "unit": "a", "success": True})
    path.write_text("\n".join([line] * 5) + "\n")
    assert store.add([path]).episodes == 5
    assert Store(tmp_path / "store").add([path]).episodes == 0
    path.write_text("\n".join([line] * 7) + "\n")
    assert store.add([path]).episodes == 2
    assert one(store, "select count(*), avg(success) from episodes") == (7, 1.0)


def test_robots_with_other_numbers_share_a_table_and_a_name_that_none_has_is_an_error(tmp_path):
    path, store = tmp_path / "a.jsonl", Store(tmp_path / "store")
    path.write_text('{"robot": "a", "e": {"mass": 2, "odd \\" name": 1}}\n{"robot": "b", "e": {"wind": 3}}\n{"robot": "c"}\n')
    assert store.add([path]).problems == ()
    worlds(tmp_path / "b.parquet", 3)
    store.add([tmp_path / "b.parquet"])
    rows = store.select("select robot, e.mass, e.wind, e['odd \" name'] from episodes where robot < 'd' order by 1").rows
    assert rows == [("a", 2.0, None, 1.0), ("b", None, 3.0, None), ("c", None, None, None)]
    with pytest.raises(BadInput, match="payloud"):
        store.select("select e.payloud from episodes")
    path.write_text('{"e": {"Mass": 2}}\n')
    with pytest.raises(BadInput, match=r"e\.Mass .* as e\.mass"):
        store.add([path])
    assert one(store, "select count(*) from episodes") == (6,)
    whole(store)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ('{"succes": true}', "did you mean 'success'"),
        ('{"success": "yes"}', "success must be true or false"),
        ('{"e": {"m": "heavy"}}', "e must be a table"),
        ('{"started": -3}', "Unix time"),
        ("[1]", "not an object"),
        ("{", "not valid JSON"),
        ('{"unit": "\\ud800"}', "unit must be a text"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_added(tmp_path, capsys, line, hint):
    path = tmp_path / "a.jsonl"
    path.write_text('{"unit": "a"}\n' + line + "\n")
    code, told = call(capsys, "data", "add", str(path), "--store", str(tmp_path / "s"))
    assert (code, told["episodes"]) == (2, 1)
    assert "line 2" in told["problems"][0]
    assert hint in told["problems"][0]


def test_a_folder_is_looked_through_and_what_is_not_ours_is_passed_over(tmp_path):
    worlds(tmp_path / "x" / "a.parquet", 10)
    write_episode(tmp_path / "x" / "a.mcap", regular_episode())
    (tmp_path / "x" / "metrics.jsonl").write_text('{"iteration": 1}\n')
    (tmp_path / "x" / "notes.txt").write_text("hello")
    store = Store(tmp_path / "x" / "store")
    for there in (0, 12):
        added = store.add([tmp_path / "x"])
        assert (added.already_there, added.skipped_files, added.problems) == (there, 2, ())
    assert one(store, "select count(*) from episodes") == (11,)


# Killed, and together ----------------------------------------------------------------------------------------------

CHILD = """
import sys, time
from pathlib import Path
from isthmus.data.store import Store, store
store.BATCH_ROWS = int(sys.argv[3])
def report(fraction, episodes):
    print(episodes, flush=True)
    time.sleep(float(sys.argv[4]))
print(Store(sys.argv[2]).add([Path(p) for p in sys.argv[1].split(",")], report=report), flush=True)
"""


def child(paths: list[Path], store: Path, batch: int = 40, wait: float = 0.0) -> subprocess.Popen:
    argv = [",".join(map(str, paths)), str(store), str(batch), str(wait)]
    return subprocess.Popen([sys.executable, "-c", CHILD, *argv], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("reports", [1, 3])
def test_an_import_that_is_killed_loses_nothing_that_it_reported_and_goes_on(tmp_path, reports):
    worlds(tmp_path / "a.parquet")
    running = child([tmp_path / "a.parquet"], tmp_path / "store", wait=0.02)
    assert running.stdout
    told = [int(running.stdout.readline()) for _ in range(reports)][-1]
    running.send_signal(signal.SIGKILL)
    running.wait()
    store = Store.open(tmp_path / "store")
    whole(store)
    (there,) = one(store, "select count(*) from episodes")
    assert told <= there < N
    assert store.add([tmp_path / "a.parquet"]).episodes == N - there
    whole(store)
    assert one(store, "select count(*), count(distinct world) from episodes") == (N, N)


def test_every_moment_at_which_an_addition_can_be_cut_leaves_all_of_it_or_nothing(tmp_path):
    worlds(tmp_path / "a.parquet", 5)
    worlds(tmp_path / "b.parquet", 5, seed=1)
    store = Store(tmp_path / "store")
    store.add([tmp_path / "a.parquet"])
    before = store.chain.path.read_bytes()
    store.add([tmp_path / "b.parquet"])
    after = store.chain.path.read_bytes()
    for cut in [*range(len(before), len(after), 97), len(after) - 1, len(after)]:
        # A torn line may be longer than the one that takes its place.
        store.chain.path.write_bytes(after[:cut] + b"x" * (5_000 if cut == len(before) else 0))
        again = Store.open(store.folder)
        assert one(again, "select count(*) from episodes") == (10 if cut == len(after) else 5,)
        again.add([tmp_path / "b.parquet"])
        assert one(again, "select count(*) from episodes") == (10,)
        whole(again)


def test_writers_at_once_lose_nothing_and_double_nothing(tmp_path):
    for i in range(2):
        worlds(tmp_path / f"{i}.parquet", seed=i)
    worlds(tmp_path / "both.parquet", seed=2)
    both = tmp_path / "both.parquet"
    running = [child([tmp_path / f"{i}.parquet", both], tmp_path / "store") for i in range(2)]
    assert [p.wait() for p in running] == [0, 0]
    store = Store.open(tmp_path / "store")
    whole(store)
    assert store.select("select seed, count(*) from episodes group by 1 order by 1").rows == [(0, N), (1, N), (2, N)]


# Labels -----------------------------------------------------------------------------------------------------------


def test_what_a_person_says_counts_until_it_is_withdrawn(tmp_path, capsys):
    path, where = tmp_path / "a.mcap", ["--store", str(tmp_path / "s")]
    write_episode(path, regular_episode(origin={"source": "real", "unit": "seven"}))
    code, told = call(capsys, "data", "label", str(path), "fell", *where)
    assert code == 2
    main(["data", "add", str(path), *where])
    capsys.readouterr()
    code, told = call(capsys, "data", "label", str(path), "slipped", "--start", "0.1", "--stop", "0.3", *where, "--who", "ann")
    assert code == 0
    assert [(n["text"], n["start"], n["stop"], n["who"]) for n in told["labels"]] == [("slipped", 0.1, 0.3, "ann")]
    episode_hash, slipped = told["episode"], told["made"][0]
    code, told = call(capsys, "data", "label", episode_hash[:8], "--success", "no", "--tag", "wet", "mat", *where)
    assert code == 0
    store = Store.open(tmp_path / "s")
    ask = "select avg(success), any_value(list_sort(tags)) from episodes where source = 'real'"
    assert one(store, ask) == (0.0, ["mat", "wet"])
    call(capsys, "data", "label", str(path), "--success", "yes", *where)
    assert one(store, ask)[0] == 1.0
    assert one(store, "select count(*) from labels") == (1,)
    assert call(capsys, "data", "label", str(path), "--withdraw", slipped[:10], *where)[0] == 0
    assert one(store, "select count(*) from labels") == (0,)
    assert call(capsys, "data", "label", str(path), "--withdraw", slipped[:10], *where)[0] == 2
    for wrong in (["late", "--start", "99"], ["back", "--start", "0.3", "--stop", "0.1"], ["--start", "0.1"]):
        assert call(capsys, "data", "label", str(path), *wrong, *where)[0] == 2
    assert len(call(capsys, "data", "label", str(path), *where)[1]["labels"]) == 4
    whole(store)


# Without it --------------------------------------------------------------------------------------------------------


def test_the_base_install_does_without_duckdb_and_pyarrow():
    script = "import sys, isthmus.cli.data_, isthmus.data.store; sys.exit(any(m in sys.modules for m in ('duckdb', 'pyarrow')))"
    assert subprocess.run([sys.executable, "-c", script], check=False, env=os.environ).returncode == 0
