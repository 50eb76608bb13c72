"""The store of episodes: nothing is lost, nothing is there twice, nothing is altered unnoticed, and questions only read."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_data_export import episode

from isthmus.cli.main import main
from isthmus.data.exporters import write_parquet
from isthmus.data.recording import write
from isthmus.data.store import Store, lists
from isthmus.errors import BadInput

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")
N = 600


def worlds(path: Path, n: int = N, seed: int = 0) -> dict[str, np.ndarray]:
    """A list of n episodes, some of whose scores are not known."""
    rng = np.random.default_rng(seed)
    columns = {
        "world": np.arange(n, dtype=float),
        "success": (rng.random(n) < 0.7).astype(float),
        "score": np.where(rng.random(n) < 0.1, np.nan, rng.random(n)),
        "e.payload": rng.uniform(0, 3, n),
        "e.friction": rng.uniform(0.2, 1, n),
        "metrics.power": rng.random(n),
    }
    lists.write_list(path, {"source": "sim", "robot": "go1", "run": "a" * 64, "belief": "b" * 64, "seed": seed}, columns)
    return columns


def one(store: Store, sql: str):
    answer = store.query(sql)
    assert len(answer.rows) == 1
    return answer.rows[0]


def whole(store: Store) -> None:
    """The chain holds, and no episode is there twice."""
    assert Store.open(store.folder).chain.verify() == ""
    total, distinct = one(store, "select count(*), count(distinct hash) from episodes")
    assert total == distinct


def call(capsys, *argv: str) -> tuple[int, dict]:
    code = main([*argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


# What goes in comes out -------------------------------------------------------------------------------------------


def test_a_list_is_answered_as_it_was_written(tmp_path):
    c = worlds(tmp_path / "a.parquet")
    store = Store(tmp_path / "store")
    assert store.add([tmp_path / "a.parquet"]).episodes == N
    n, rate, score = one(store, "select count(*), avg(success), avg(score) from episodes where source = 'sim'")
    assert (n, rate) == (N, pytest.approx(c["success"].mean()))
    assert score == pytest.approx(np.nanmean(c["score"]))
    back = store.query("select e['payload'], e.friction, metrics.power, score from episodes order by world").rows
    found = np.array([[np.nan if v is None else v for v in row] for row in back])
    wanted = np.stack([c["e.payload"], c["e.friction"], c["metrics.power"], c["score"]], axis=1)
    np.testing.assert_array_equal(found, wanted)


def test_a_recording_is_there_with_signals_and_events_whatever_file_it_comes_in(tmp_path):
    mine = episode(origin={"source": "real", "unit": "seven", "controller_hash": "c" * 64, "started": 1.7e9, "e": {"m": 2.0}})
    write(tmp_path / "a.mcap", mine)
    write_parquet(tmp_path / "b.parquet", mine)
    store = Store(tmp_path / "store")
    added = store.add([tmp_path / "a.mcap", tmp_path / "b.parquet"], tags=["mat"])
    assert (added.episodes, added.there) == (1, 1)
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
    assert store.add([path]).problems == []
    worlds(tmp_path / "b.parquet", 3)
    store.add([tmp_path / "b.parquet"])
    rows = store.query("select robot, e.mass, e.wind, e['odd \" name'] from episodes where robot < 'd' order by 1").rows
    assert rows == [("a", 2.0, None, 1.0), ("b", None, 3.0, None), ("c", None, None, None)]
    with pytest.raises(BadInput, match="payloud"):
        store.query("select e.payloud from episodes")
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
    write(tmp_path / "x" / "a.mcap", episode())
    (tmp_path / "x" / "metrics.jsonl").write_text('{"iteration": 1}\n')
    (tmp_path / "x" / "notes.txt").write_text("hello")
    store = Store(tmp_path / "x" / "store")
    for there in (0, 12):
        added = store.add([tmp_path / "x"])
        assert (added.there, added.passed, added.problems) == (there, 2, [])
    assert one(store, "select count(*) from episodes") == (11,)


# Killed, together, altered ----------------------------------------------------------------------------------------

CHILD = """
import sys, time
from pathlib import Path
from isthmus.data.store import Store, store
store.BATCH = int(sys.argv[3])
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
    assert store.query("select seed, count(*) from episodes group by 1 order by 1").rows == [(0, N), (1, N), (2, N)]


@pytest.fixture
def three(tmp_path) -> Store:
    """A store of three entries."""
    store = Store(tmp_path / "store")
    for i in range(3):
        worlds(tmp_path / f"{i}.parquet", 5, seed=i)
        store.add([tmp_path / f"{i}.parquet"])
    return store


def test_an_altered_part_is_found_by_its_entry(three, capsys):
    for number, entry in enumerate(three.chain.entries, 1):
        path = three.folder / entry.parts["episodes"].file
        data = path.read_bytes()
        for where in range(0, len(data), 97):
            path.write_bytes(data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :])
            assert f"entry {number} " in Store.open(three.folder).chain.verify()
        code, told = call(capsys, "data", "verify", "--store", str(three.folder))
        assert (code, told["first_altered"], told["entries"]) == (1, number, number - 1)
        path.unlink()
        with pytest.raises(BadInput, match=rf"entry {number}\) .* is gone"):
            three.query("select 1")
        path.write_bytes(data)
    assert main(["data", "verify", "--store", str(three.folder)]) == 0


def test_an_altered_chain_is_found_by_the_first_entry_that_does_not_fit(three, capsys):
    path, head = three.chain.path, three.chain.head
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        for where in range(0, len(line) - 1, 13):
            flipped = line[:where] + bytes([line[where] ^ 1]) + line[where + 1 :]
            if b"\n" in flipped[:-1]:
                continue
            path.write_bytes(b"".join([*lines[: number - 1], flipped, *lines[number:]]))
            assert f"entry {number} " in Store.open(three.folder).chain.verify()
    for changed, number in (([lines[0], lines[2]], 2), ([lines[1], lines[0], lines[2]], 1), ([lines[0], *lines], 2)):
        path.write_bytes(b"".join(changed))
        assert f"entry {number} " in Store.open(three.folder).chain.verify()
        with pytest.raises(BadInput, match=f"entry {number} "):
            Store.open(three.folder).query("select 1")
    path.write_bytes(b"".join(lines[:2]))
    assert Store.open(three.folder).chain.verify() == ""
    code, told = call(capsys, "data", "verify", "--head", head[:10], "--store", str(three.folder))
    assert (code, told["first_altered"]) == (1, None)
    assert "taken away" in told["problem"]


# Questions only read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "copy episodes to '{0}/x.csv'",
        "attach '{0}/x.db'",
        "create table t (a int)",
        "drop view episodes",
        "insert into marks (hash) values ('x')",
        "delete from artifacts",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "pragma database_list",
        "export database '{0}'",
        "call pragma_version()",
        "select 1; drop view episodes",
        "select * from '{0}/0.parquet'",
        "select * from read_parquet('{0}/0.parquet')",
        "select * from read_text('{0}/secret.txt')",
        "select * from read_csv('{0}/secret.txt')",
        "select * from glob('{0}/*')",
        "select * from 'https://example.org/a.parquet'",
        "select * from query('copy episodes to ''{0}/x.csv''')",
        "",
        "sel 1",
    ],
)
def test_a_question_can_neither_write_nor_read_anything_else(tmp_path, three, capsys, sql):
    (tmp_path / "secret.txt").write_text("secret")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    code, told = call(capsys, "data", "query", sql.format(tmp_path), "--store", str(three.folder))
    assert code == 2
    assert "\n" not in told["error"]
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_wrong_question_is_answered_with_the_right_names(three):
    with pytest.raises(BadInput, match='Did you mean "episodes"'):
        three.query("select * from episode")
    with pytest.raises(BadInput, match=r"DuckDB says: .*sucess"):
        three.query("select sucess from episodes")


def test_rows_beyond_the_limit_are_said_to_be_there(three):
    answer = three.query("select hash from episodes", 4)
    assert (len(answer.rows), answer.more) == (4, True)
    assert not three.query("select hash from episodes", 15).more


def test_query_prints_a_table_and_asks_for_a_store(three, capsys):
    sql = "select source, count(*) as n, null as nothing from episodes group by 1"
    assert main(["data", "query", sql, "--store", str(three.folder)]) == 0
    assert re.search(r"source +n +nothing\s+sim +15 +–", capsys.readouterr().out)
    assert main(["data", "query", sql, "--store", str(three.folder / "none")]) == 2
    assert "data add" in capsys.readouterr().err


# Labels -----------------------------------------------------------------------------------------------------------


def test_what_a_person_says_counts_until_it_is_withdrawn(tmp_path, capsys):
    path, where = tmp_path / "a.mcap", ["--store", str(tmp_path / "s")]
    write(path, episode(origin={"source": "real", "unit": "seven"}))
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


# Where things come from -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def family(tmp_path_factory) -> Path:
    """run -> controller -> recording -> twin -> run, as the commands leave them, but nothing was trained."""
    from exporting import small

    from isthmus.files import content_hash
    from isthmus.identify.twin import Twin
    from isthmus.learn import runs
    from isthmus.tasks import get_task
    from isthmus.world import Fixed

    folder = tmp_path_factory.mktemp("family")
    task = get_task("pendulum/swingup")
    plan = runs.Plan("pendulum/swingup")
    first = runs.create(folder / "first", plan, task, task.robot.prior)
    hashes = {"run_hash": first.record["hash"], "belief_hash": first.belief.hash, "model_hash": task.robot.model_hash}
    data = small(**hashes)
    (folder / "a.controller").write_bytes(data)
    swing = episode(origin={"source": "real", "controller_hash": content_hash(data), "parents": [content_hash(data)]})
    write(folder / "swing.mcap", swing)
    name = task.robot.prior.free().names[0]
    after = task.robot.prior.replace(Fixed(name, task.robot.space[name].nominal))
    twin = Twin("pendulum", task.robot.model_hash, task.robot.prior).fitted(after, {"recordings": [swing.hash]})
    twin.save(folder / "desk.twin")
    runs.create(folder / "second", replace(plan, start=first.origin), task, after)
    return folder


def links(told: dict) -> set[tuple[str, str, str]]:
    """Kind of child, role, kind of parent."""
    kinds = {n["hash"]: n["kind"] for n in told["nodes"]}
    return {(kinds[x["child"]], x["role"], kinds[x["parent"]]) for x in told["links"]}


WAY = {
    ("run", "belief", "belief"),
    ("run", "model", "model"),
    ("controller", "run", "run"),
    ("recording", "controller", "controller"),
    ("twin", "recording", "recording"),
    ("belief", "held in", "twin"),
    ("run", "fine-tunes", "run"),
}


def test_a_trace_goes_all_the_way_up_and_down_with_and_without_a_store(family, tmp_path, capsys):
    code, told = call(capsys, "data", "trace", str(family / "a.controller"))
    assert code == 0
    assert links(told) >= WAY
    assert told["missing"] == []
    main(["data", "add", str(family), "--store", str(tmp_path / "s")])
    capsys.readouterr()
    again = call(capsys, "data", "trace", told["start"][:10], "--store", str(tmp_path / "s"))[1]
    assert links(again) == links(told)
    assert main(["data", "trace", str(family / "second"), "--store", str(tmp_path / "s")]) == 0
    tree = capsys.readouterr().out
    order = [
        tree.index(word) for word in ("run ", "belief ", "twin ", "recording ", "controller ", "run ", "belief ", "model ")
    ]
    assert order[:5] == sorted(order[:5])
    assert tree.count("model ") == 1
    store = Store.open(tmp_path / "s")
    (run,) = one(store, "select run from episodes where source = 'real'")
    assert run == json.loads((family / "first" / "run.json").read_text())["hash"]


def test_a_link_that_is_missing_is_said_to_be_missing(family, tmp_path, capsys):
    (tmp_path / "desk.twin").write_bytes((family / "desk.twin").read_bytes())
    code, told = call(capsys, "data", "trace", str(tmp_path / "desk.twin"))
    assert code == 0
    assert [n["kind"] for n in told["nodes"] if n["hash"] in told["missing"]] == ["recording"]
    main(["data", "trace", str(tmp_path / "desk.twin")])
    assert re.search(r"recording \w{12} +missing", capsys.readouterr().out)


def test_an_altered_run_is_not_taken(family, tmp_path):
    record = json.loads((family / "first" / "run.json").read_text())
    record["robot"] = "go1"
    (tmp_path / "run.json").write_text(json.dumps(record))
    added = Store(tmp_path / "s").add([tmp_path / "run.json"])
    assert added.artifacts == 0
    assert "altered" in added.problems[0]


def test_an_evaluation_lists_its_episodes(tmp_path, capsys):
    from isthmus.cli.episodes import write_episodes
    from isthmus.learn import runs
    from isthmus.learn.actor import Actor
    from isthmus.learn.evaluate import evaluate
    from isthmus.tasks import get_task

    task = get_task("pendulum/swingup")
    run = runs.create(tmp_path / "run", runs.Plan(task.name), task, task.robot.prior)
    result = evaluate(replace(task, episode=0.2), Actor(run.plan.shape(task)), 6, 5, run.belief)
    write_episodes(tmp_path / "a.parquet", run, task, result.episodes, 5, ["inside"], belief=run.belief.hash)
    store = Store(tmp_path / "store")
    store.add([tmp_path / "a.parquet", tmp_path / "run"])
    n, score, tags = one(store, "select count(*), avg(score), any_value(tags) from episodes where task = 'pendulum/swingup'")
    assert (n, tags) == (6, ["inside"])
    assert score == pytest.approx(result.score)
    name = task.robot.space.names[0]
    found = store.query(f"select e['{name}'] from episodes order by world").rows
    np.testing.assert_array_equal(np.array(found)[:, 0], result.episodes["e"][:, 0])
    code, told = call(capsys, "data", "trace", str(tmp_path / "run"), "--store", str(tmp_path / "store"))
    assert code == 0
    assert ("list", "run", "run") in links(told)
    assert any("6 episodes" in n["about"] for n in told["nodes"])


def test_the_base_install_does_without_duckdb_and_pyarrow():
    script = "import sys, isthmus.cli.data_, isthmus.data.store; sys.exit(any(m in sys.modules for m in ('duckdb', 'pyarrow')))"
    assert subprocess.run([sys.executable, "-c", script], check=False, env=os.environ).returncode == 0
