"""Options that cannot be read: one sentence that says what, where and what would be right; and help that fits its window."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from isthmus.cli import asked
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
]


@pytest.mark.parametrize(("argv", "what", "right"), WRONG, ids=[" ".join(w[0]) for w in WRONG])
def test_options_that_cannot_be_read_are_told_in_one_sentence(capsys, argv, what, right):
    code, out, err = called(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.startswith("isthmus: ")
    assert err.count("\n") == 1
    assert what in err
    assert right in err


@pytest.mark.parametrize("argv", [w[0] for w in WRONG[:3]], ids=" ".join)
def test_the_same_without_what_tyro_does_not_promise(capsys, monkeypatch, argv):
    monkeypatch.setitem(sys.modules, "tyro._errors", None)  # as if it were not there
    code, _, err = called(capsys, *argv)
    assert code == 2
    assert err.count("\n") == 1
    assert not set("│─|") & set(err)


def test_with_json_the_sentence_is_in_the_object(capsys):
    code, out, err = called(capsys, "eval", "--wrlds", "3", "--json")
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
    found = asked.wrapped(text, 60)
    assert found.split() == text.split()
    assert [line for line in found.splitlines() if len(line) > 60] == [
        line for line in text.splitlines() if line[:1] in "u╭e" and line
    ]


@pytest.mark.parametrize("argv", [["--help"], ["list", "--help"], ["list", "go1"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(argv):
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run(
        [sys.executable, "-m", "isthmus.cli.main", *argv], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (found.returncode, re.sub(r"\s", "", found.stderr)) == (0, "")
