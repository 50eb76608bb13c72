"""Files that are missing, misspelt, empty, of another kind, or cannot be written: one sentence, before any work is done."""

from __future__ import annotations

import shutil

import pytest

from isthmus.cli import render
from isthmus.core.errors import unreadable_file
from support.command_line import call
from support.recordings import swung


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    folder = swung(tmp_path_factory.mktemp("given"))
    (folder / "note.txt").write_text("hello\n")
    (folder / "empty.mcap").touch()
    (folder / "folder").mkdir()
    odd = folder / "größe ü [b]"
    odd.mkdir()
    shutil.copy(folder / "swing.mcap", odd / "Läufe 1.mcap")
    return folder


READ = [
    (["identify", "note.txt", "swing.mcap"], ("note.txt", "pendulum", ".urdf", ".twin")),
    (["identify", "folder", "swing.mcap"], ("folder", "pendulum", ".urdf", ".twin")),
    (["identify", "pendulm", "swing.mcap"], ("'pendulum'",)),
    (["identify", "pendulum", "note.txt"], ("note.txt", ".mcap", "isthmus data import", "CSV")),
    (["identify", "pendulum", "empty.mcap"], ("empty.mcap", ".mcap", "isthmus data import")),
    (["identify", "pendulum", "folder"], ("folder", ".mcap", "isthmus data import", "ROS 2")),
    (["identify", "pendulum", "swin.mcap"], ("'swing.mcap'?",)),
    (["identify", "pendulum", "nowhere/swing.mcap"], ("no folder nowhere",)),
    (["identify", "dsk.twin", "swing.mcap"], ("'desk.twin'?",)),
    (["diagnose", "p.contrller", "swing.mcap"], ("'p.controller'?",)),
    (["diagnose", "folder", "swing.mcap"], ("it is a folder",)),
    (["evaluate", "foldr"], ("'folder'?",)),
    (["list", "note.txt"], ("note.txt", "pendulum", ".urdf")),
]


@pytest.mark.parametrize(("argv", "said"), READ, ids=[" ".join(r[0]) for r in READ])
def test_what_cannot_be_read_is_named_with_what_would_be_right(there, monkeypatch, capsys, argv, said):
    monkeypatch.chdir(there)
    code, out, err = call(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert all(words in err for words in said), err


WRITTEN = [
    ["diagnose", "p.controller", "swing.mcap", "-o", "{}.html"],
    ["identify", "pendulum", "swing.mcap", "-o", "{}.twin"],
    ["actuator", "pendulum", "swing.mcap", "-o", "{}.twin"],
    ["residual", "desk.twin", "swing.mcap", "-o", "{}.twin"],
    ["drift", "desk.twin", "swing.mcap", "-o", "{}.json"],
    ["excite", "pendulum", "-o", "{}.controller"],
]


@pytest.mark.parametrize("place", ["note.txt/x", "taken"])
@pytest.mark.parametrize("argv", WRITTEN, ids=lambda a: a[0])
def test_what_cannot_be_written_is_known_before_the_work(there, monkeypatch, capsys, argv, place):
    def work(*_):
        raise AssertionError("the work was begun")

    monkeypatch.chdir(there)
    monkeypatch.setattr(render.ProgressBar, "update", work)
    out = argv[-1].format(place)
    if place == "taken":
        (there / out).mkdir(exist_ok=True)
    code, _, err = call(capsys, *argv[:-1], out)
    assert code == 2
    assert err.splitlines()[-1].startswith(f"isthmus: cannot write {out}: ")
    assert "Traceback" not in err


def test_names_of_any_language_and_with_brackets_are_read_and_shown_as_they_are(there, capsys):
    path = there / "größe ü [b]" / "Läufe 1.mcap"
    code, out, err = call(capsys, "data", "info", path)
    assert code == 0, err
    assert str(path) in out.replace("\n", "")


def test_names_are_compared_without_their_endings(tmp_path):
    for name in ("e.twin", "desk.twin", "desk.mcap"):
        (tmp_path / name).touch()
    said = lambda name: str(unreadable_file(tmp_path / name, FileNotFoundError(2, "No such file")))
    assert "did you mean" not in said("nope.twin")
    assert "desk.twin" in said("dekc.twin")
    assert "/e.twin" not in said("dekc.twin")
