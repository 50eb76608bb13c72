"""`isthmus loop`: which robot its options mean, and errors that name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.cli.loop_ import Args, _robot_and_folder
from isthmus.cli.main import main
from isthmus.robots import get_robot


def test_a_drawn_reality_is_the_same_robot_by_either_option():
    robot = get_robot("pendulum")
    drawn = _robot_and_folder(Args("pendulum/swingup", hidden=3, family="mixed"), robot)
    assert drawn == _robot_and_folder(Args("pendulum/swingup", reality=Path("hidden:3:mixed")), robot)
    assert drawn[0] == "sim:hidden:3:mixed"


def test_the_reality_that_ships_with_a_task_is_kept_in_the_folder():
    link, folder, shipped = _robot_and_folder(Args("pendulum/swingup"), get_robot("pendulum"))
    assert link == f"sim:{folder / 'hidden.toml'}"
    assert shipped is not None
    assert shipped.exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["pendulum/swingup", "--hidden", "3", "--link", "zenoh"], "only one of them"),
        (["pendulum/swingup", "--family", "mixed"], "--hidden"),
        (["pendulum/swingup", "--rounds", "0"], "rounds"),
        (["pendulum/swingup", "--seconds", "1"], "seconds"),
        (["pendulum/swngup"], "pendulum/swingup"),
        (["pendulum/swingup", "--link", "zenho"], "zenoh"),
        (["pendulum/swingup", "--reality", "nowhere.toml"], "nowhere.toml"),
        (["pendulum/swingup", "--hidden", "3", "--family", "mixd"], "mixed"),
    ],
)
def test_bad_options_are_named(capsys, args, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["loop", *args]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
