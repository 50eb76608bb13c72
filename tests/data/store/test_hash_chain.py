"""The store of episodes can be trusted: nothing is altered unnoticed, questions only read, and a trace goes all the way."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.data.mcap.writer import write_episode
from isthmus.data.store import Store
from support.episodes import regular_episode
from support.stores import call, one, worlds

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")


# Altered -----------------------------------------------------------------------------------------------------------


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


# Where things come from -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def family(tmp_path_factory) -> Path:
    """run -> controller -> recording -> twin -> run, as the commands leave them, but nothing was trained."""
    from isthmus.core.files import content_hash
    from isthmus.learn import runs
    from isthmus.robots.twin import Twin
    from isthmus.tasks.catalogue import get_task
    from isthmus.world import Fixed
    from support.controllers import small

    folder = tmp_path_factory.mktemp("family")
    task = get_task("pendulum/swingup")
    plan = runs.RunConfig("pendulum/swingup")
    first = runs.create(folder / "first", plan, task, task.robot.prior)
    hashes = {"run_hash": first.record["hash"], "belief_hash": first.belief.hash, "model_hash": task.robot.model_hash}
    data = small(**hashes)
    (folder / "a.controller").write_bytes(data)
    swing = regular_episode(origin={"source": "real", "controller_hash": content_hash(data), "parents": [content_hash(data)]})
    write_episode(folder / "swing.mcap", swing)
    name = task.robot.prior.free().names[0]
    after = task.robot.prior.replace(Fixed(name, task.robot.space[name].nominal))
    twin = Twin("pendulum", task.robot.model_hash, task.robot.prior).with_fit(after, {"recordings": [swing.hash]})
    twin.save(folder / "desk.twin")
    runs.create(folder / "second", replace(plan, initial_run=first.initial_hash), task, after)
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
    order = [tree.index(word) for word in ("run ", "belief ", "twin ", "recording ", "controller ", "model ")]
    assert order == sorted(order)
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
    from isthmus.learn import runs
    from isthmus.learn.evaluate.evaluate import write_episodes
    from isthmus.learn.evaluate.rollout import run_episodes
    from isthmus.learn.policies.actor import Actor
    from isthmus.tasks.catalogue import get_task

    task = get_task("pendulum/swingup")
    run = runs.create(tmp_path / "run", runs.RunConfig(task.name), task, task.robot.prior)
    rows = run_episodes(replace(task, episode=0.2), Actor(run.config.actor_spec(task)), 6, 5, run.belief)
    write_episodes(tmp_path / "a.parquet", run, task, rows, 5, ["inside"], belief=run.belief.hash)
    store = Store(tmp_path / "store")
    store.add([tmp_path / "a.parquet", tmp_path / "run"])
    n, score, tags = one(store, "select count(*), avg(score), any_value(tags) from episodes where task = 'pendulum/swingup'")
    assert (n, tags) == (6, ["inside"])
    assert score == pytest.approx(rows["score"].mean())
    name = task.robot.space.names[0]
    found = store.query(f"select e['{name}'] from episodes order by world").rows
    np.testing.assert_array_equal(np.array(found)[:, 0], rows["e"][:, 0])
    code, told = call(capsys, "data", "trace", str(tmp_path / "run"), "--store", str(tmp_path / "store"))
    assert code == 0
    assert ("list", "run", "run") in links(told)
    assert any("6 episodes" in n["about"] for n in told["nodes"])
