"""The command that is printed for a call is the call: parsed back, it has the same arguments."""

from __future__ import annotations

import importlib
from dataclasses import fields
from pathlib import Path

import pytest

from isthmus.cli.options import parse_options
from isthmus.pipeline.command_line import COMMAND_FORMS, command_line
from isthmus.pipeline.loop import loop
from support.fake_library import FakeLibrary, verbs


def parsed(verb: str, arguments) -> dict:
    words = command_line(verb, arguments)
    module = importlib.import_module(f"isthmus.cli.{words[0]}_")
    args = parse_options(module.Args, f"isthmus {words[0]}", "", words[1:])
    defaults = {f.name: f.default for f in fields(module.Args)}
    return {name: value for name, value in vars(args).items() if value != defaults[name]}


def text(value):
    return tuple(map(text, value)) if isinstance(value, tuple | list) else str(value) if isinstance(value, Path) else value


LOOPS = {
    "physics": (FakeLibrary("physics", left=3.0), "pendulum/swingup", {"rounds": 2}),
    "experiment": (FakeLibrary(None), "crazyflie/hover", {"budget": 8.0}),
    "legged": (FakeLibrary("states"), "go1/walk", {"rounds": 2, "seconds": 12.5}),
}


@pytest.mark.parametrize("name", LOOPS)
def test_the_command_of_every_call_of_a_loop_parses_to_its_arguments(tmp_path, name):
    library, task, settings = LOOPS[name]
    loop(task, link="sim:hidden:3:mixed", out=tmp_path / "Zwilling Nº 7", library=library, **settings)
    assert len(set(verbs(library))) >= 7
    for call in library.calls:
        form = COMMAND_FORMS[call.verb]
        module = importlib.import_module(f"isthmus.cli.{form.verb}_")
        defaults = {f.name: f.default for f in fields(module.Args)}
        given = {form.fields.get(n, n): text(v) for n, v in call.arguments.items() if v is not None}
        given = {n: v for n, v in given.items() if v != text(defaults[n])}
        found = {n: text(v) for n, v in parsed(call.verb, call.arguments).items()}
        for flag in form.flags:
            found.pop(flag.removeprefix("--no-"))
        assert found == given, call


def test_a_resumed_training_is_a_command_too(tmp_path):
    words = command_line("train", {"task": "pendulum/swingup", "out": Path("a b"), "resume": True})
    assert words == ("train", "pendulum/swingup", "--out", "a b", "--resume")
