"""Parts by name: built in, from an installed package, from a module, from a file that a person named; nothing runs unasked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from isthmus.core import plugins
from isthmus.core.errors import BadInput
from isthmus.core.plugins import Registry, trust

SHAPES = Registry("shapes", {"path": "pathlib:Path", "none": "no_such_module_here:Thing", "gap": "pathlib:Pth"})


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with an entry point of its own, as pip would leave it."""
    (tmp_path / "shapely_robot.py").write_text("class Disc:\n    radius = 2.0\n")

    def package(name: str, points: str) -> None:
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(points)

    monkeypatch.syspath_prepend(str(tmp_path))
    yield package
    sys.modules.pop("shapely_robot", None)


def test_built_in_names_are_known_without_an_import():
    assert SHAPES.names()["none"] == "no_such_module_here:Thing"
    assert SHAPES.resolve("path") is Path
    assert "path" in SHAPES
    assert "disc" not in SHAPES


def test_an_installed_package_adds_its_own(installed):
    installed("shapely", "[isthmus.shapes]\ndisc = shapely_robot:Disc\n")
    assert SHAPES.names()["disc"] == "shapely_robot:Disc"
    assert "shapely_robot" not in sys.modules
    assert SHAPES.resolve("disc").radius == 2.0


def test_two_packages_with_one_name_are_both_told(installed):
    installed("shapely", "[isthmus.shapes]\ndisc = shapely_robot:Disc\n")
    installed("other", "[isthmus.shapes]\ndisc = pathlib:PurePath\n")
    with pytest.raises(BadInput, match=r"disc.*pathlib:PurePath.*shapely_robot:Disc"):
        SHAPES.names()


def test_a_package_cannot_take_a_built_in_name(installed):
    installed("shapely", "[isthmus.shapes]\npath = shapely_robot:Disc\n")
    with pytest.raises(BadInput, match="Isthmus itself"):
        SHAPES.resolve("path")


def test_a_broken_plugin_fails_only_when_it_is_asked_for():
    assert set(SHAPES.broken()) == {"none", "gap"}
    with pytest.raises(BadInput, match="no_such_module_here"):
        SHAPES.resolve("none")
    with pytest.raises(BadInput, match="'Path'"):
        SHAPES.resolve("gap")


def test_a_misspelt_name_gets_the_nearest():
    with pytest.raises(BadInput, match="did you mean 'path'"):
        SHAPES.resolve("pth")


def test_a_module_and_an_attribute_may_be_named(installed):
    assert SHAPES.resolve("shapely_robot:Disc.radius") == 2.0


def test_a_file_runs_only_if_a_person_named_it(tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "_trusted", set())
    file, ran = tmp_path / "mine.py", tmp_path / "ran"
    file.write_text(f"import pathlib\npathlib.Path({str(ran)!r}).touch()\nVALUE = 3\n")
    with pytest.raises(BadInput, match="--plugin"):
        SHAPES.resolve(f"{file}:VALUE")
    assert not ran.exists()
    trust(str(file))
    assert SHAPES.resolve(f"{file}:VALUE") == 3
    assert ran.exists()
    with pytest.raises(BadInput, match="VALUE"):
        SHAPES.resolve(f"{file}:VALU")


def test_a_file_that_fails_says_why_and_is_read_again_once_repaired(tmp_path):
    file = tmp_path / "broken.py"
    trust(str(file))
    with pytest.raises(BadInput, match="no file"):
        SHAPES.resolve(f"{file}:VALUE")
    file.write_text("1 / 0\n")
    with pytest.raises(BadInput, match="ZeroDivisionError"):
        SHAPES.resolve(f"{file}:VALUE")
    file.write_text("VALUE = 4\n")
    assert SHAPES.resolve(f"{file}:VALUE") == 4
