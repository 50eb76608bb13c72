"""Options that cannot be read: one sentence that says what, where and what would be right; and help that fits its window."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from isthmus.cli import options
from isthmus.cli.main import VERBS, main, usage


def called(capsys, *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    got = capsys.readouterr()
    return code, got.out, got.err


WRONG = [
    (["identify"], "ROBOT", "example: isthmus identify"),
    (["identify", "--onlyy", "mass"], "'--onlyy'", "'--only'?"),
    (["identify", "pendulum", "a.mcap", "--seed", "x"], "--seed", "a whole number"),
    (["identify", "pendulum", "a.mcap", "--seed", "1e3"], "'1e3'", "1000"),
    (["identify", "pendulum", "a.mcap", "--horizon", "far"], "--horizon", "a number"),
    (["identify", "pendulum", "a.mcap", "--search", "allways"], "--search", "'always'"),
    (["identify", "pendulum", "a.mcap", "--search", "zzz"], "--search", "auto, always, never"),
    (["identify", "pendulum", "a.mcap", "--seed"], "--seed needs a value", "example:"),
    (["train", "pendulum/swingup", "too", "many"], "'too'", "example:"),
    (["data"], "subcommand", "import, export"),
    (["data", "imprt", "x"], "'imprt'", "'import'"),
    (["data", "import", "x"], "--map", "example: isthmus data import"),
    (["data", "import", "x", "--rbot", "y"], "'--rbot'", "'--robot'"),
    (["data", "export", "x", "--format", "parket"], "'parket'", "'parquet'"),
    (["data", "label", "x", "--success", "maybe"], "--success", "takes yes, no,"),
    (["identify", "pendulum", "a.mcap", "--seed", "a'b"], "a'b", "a whole number"),
]


@pytest.mark.parametrize(("argv", "what", "right"), WRONG, ids=[" ".join(w[0]) for w in WRONG])
def test_options_that_cannot_be_read_are_told_in_one_sentence(capsys, argv, what, right):
    code, out, err = called(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.startswith("isthmus: ")
    assert err.count("\n") == 1
    assert what in err
    assert right in err


@pytest.mark.parametrize("width", ["20", "200"])
def test_the_window_does_not_change_what_is_wrong(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    code, _, err = called(capsys, "actuator", "go1", "a.csv", "--torque-constant", "x")
    assert code == 2
    assert "--torque-constant takes a number, not 'x'" in err


def test_what_stands_behind_two_dashes_is_no_option(capsys):
    code, _, err = called(capsys, "evaluate", "run", "--worlds", "x", "--", "-z")
    assert code == 2
    assert "option '-z'" not in err


@pytest.mark.parametrize("argv", [w[0] for w in WRONG[:3]], ids=" ".join)
def test_the_same_without_what_tyro_does_not_promise(capsys, monkeypatch, argv):
    monkeypatch.setitem(sys.modules, "tyro._errors", None)  # as if it were not there
    code, _, err = called(capsys, *argv)
    assert code == 2
    assert err.count("\n") == 1
    assert not set("│─|") & set(err)


def test_with_json_the_sentence_is_in_the_object(capsys):
    code, out, err = called(capsys, "evaluate", "--wrlds", "3", "--json")
    assert code == 2
    assert json.loads(out) == {"error": err.removeprefix("isthmus: ").strip(), "exit": 2}


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("verb", VERBS)
def test_help_is_as_wide_as_the_window(capsys, monkeypatch, verb, width):
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert not stop.value.code
    lines = capsys.readouterr().out.splitlines()
    # A command stays one line, to be copied.
    assert all(len(line) <= width for line in lines if not line.startswith(("example:", "usage:")))


@pytest.mark.parametrize("width", [60, 100])
def test_the_list_of_verbs_is_as_wide_as_the_window_and_breaks_no_word(width):
    text = usage(width)
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    assert all(word in words for about in VERBS.values() for word in about.split())


def test_prose_is_broken_between_words_and_nothing_else_is_touched():
    text = "usage: " + "a " * 60 + "\n\n" + "some words " * 20 + "\n╭" + "─" * 90 + "╮\nexample: " + "b " * 60 + "\n"
    found = options.wrap_prose(text, 60)
    assert found.split() == text.split()
    assert [line for line in found.splitlines() if len(line) > 60] == [
        line for line in text.splitlines() if line[:1] in "u╭e" and line
    ]


@pytest.mark.parametrize("argv", [["--help"], ["list", "--help"], ["list", "go1"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(argv):
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run(
        [sys.executable, "-m", "isthmus", *argv], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (found.returncode, re.sub(r"\s", "", found.stderr)) == (0, "")


def test_without_a_reader_the_work_goes_on_and_the_answer_is_the_same(tmp_path):
    """A gate that fails is no success because nobody read on, and what a command makes is made."""
    text = """
import sys
from pathlib import Path
from isthmus.cli import main, render

def run(verb, rest):
    for i in range(3):
        render.emit({"line": i})
        render.out.print("words " * 5000)
    Path("made").touch()
    return 1

main._run_verb = run
sys.exit(main.main(["validate"]))
"""
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run([sys.executable, "-c", text], stdout=write, stderr=subprocess.PIPE, check=False, cwd=tmp_path)
    os.close(write)
    assert (found.returncode, found.stderr) == (1, b"")
    assert (tmp_path / "made").exists()
