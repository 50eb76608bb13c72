"""A file is the old one or the new one, whatever goes wrong in between."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import atomic_write, canonical_json, content_hash, read_json, write_json


def left_over(folder) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_written_is_read(tmp_path):
    data = {"b": [1, 2.5, "ü"], "a": {"x": None}}
    write_json(tmp_path / "deep" / "er" / "f.json", data)
    assert read_json(tmp_path / "deep" / "er" / "f.json") == data


@pytest.mark.parametrize("call", ["replace", "fsync", "chmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call, error):
    path = tmp_path / "f.json"
    atomic_write(path, b"old")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(BadInput if isinstance(error, OSError) else KeyboardInterrupt):
        atomic_write(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert left_over(tmp_path) == ["f.json"]


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path):
    path = tmp_path / "f.bin"
    atomic_write(path, b"old")
    script = """
import resource, signal, sys
from pathlib import Path
from isthmus.core.errors import BadInput
from isthmus.core.files import atomic_write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    atomic_write(Path(sys.argv[1]), bytes(5000))
except BadInput as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60)
    assert str(path) in done.stdout, done.stderr
    assert path.read_bytes() == b"old"
    assert left_over(tmp_path) == ["f.bin"]


def test_a_process_killed_while_writing_leaves_the_old_file(tmp_path):
    path = tmp_path / "f.bin"
    atomic_write(path, b"old")
    script = """
import os, signal, sys
from pathlib import Path
from isthmus.core.files import atomic_write
os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)
atomic_write(Path(sys.argv[1]), b"new")
"""
    done = subprocess.run([sys.executable, "-c", script, str(path)], timeout=60)
    assert done.returncode < 0
    assert path.read_bytes() == b"old"


def test_a_folder_that_cannot_be_written_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "f.json", tmp_path / "file" / "deeper" / "f.json"):
        with pytest.raises(BadInput, match="cannot write"):
            write_json(path, {})
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match="cannot write"):
        write_json(tmp_path / "folder", {})
    assert left_over(tmp_path) == ["file", "folder"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_bad_input(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(BadInput, match="cannot write"):
            write_json(tmp_path / "f.json", {})
    finally:
        tmp_path.chmod(0o700)


DEEP, LONG = b"[" * 100_000, b'{"a": 1' + b"0" * 5000 + b"}"


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"3", b"\xff\xfe", b"{'a': 1}", DEEP, LONG])
def test_a_file_that_is_no_json_object_is_bad_input(tmp_path, raw):
    (tmp_path / "f.json").write_bytes(raw)
    with pytest.raises(BadInput, match=r"f\.json"):
        read_json(tmp_path / "f.json")


def test_a_missing_file_or_a_folder_is_bad_input(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(BadInput, match="cannot read"):
            read_json(path)


@settings(max_examples=50)
@given(st.binary(max_size=40))
def test_any_bytes_are_an_object_or_bad_input(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(raw)
    with contextlib.suppress(BadInput):
        assert isinstance(read_json(path), dict)


def test_every_cut_of_a_file_is_bad_input(tmp_path):
    write_json(tmp_path / "f.json", {"a": [1.5, "x"], "b": {}})
    whole = (tmp_path / "f.json").read_bytes().rstrip()
    for size in range(len(whole)):
        (tmp_path / "cut.json").write_bytes(whole[:size])
        with pytest.raises(BadInput):
            read_json(tmp_path / "cut.json")


def test_one_text_per_value():
    assert canonical_json({"b": 1, "a": [0.1, "ü"]}) == '{"a":[0.1,"ü"],"b":1}'
    assert content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1}) != content_hash({"a": 1, "b": 2.5})
    with pytest.raises(ValueError):
        canonical_json(float("nan"))


def test_near_matches_come_first_then_all_choices():
    assert "'walk'" in str(unknown_name("task", "wlak", ["walk", "hover"]))
    assert "hover" not in str(unknown_name("task", "wlak", ["walk", "hover"]))
    assert "hover, walk" in str(unknown_name("task", "zzz", ["walk", "hover"]))
