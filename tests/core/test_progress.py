"""Long work tells how far it has come, and a loop what is left in all: both go on while a command is at work."""

from __future__ import annotations

import io
import time
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from isthmus.cli import render
from isthmus.cli.loop_progress import LoopProgress
from isthmus.cli.main import main
from isthmus.core.progress import step_progress, sub_progress
from isthmus.pipeline.journal import Call, CallRecord
from isthmus.pipeline.settings import LoopSettings
from isthmus.pipeline.time_left import TYPICAL_CALLS, remaining_seconds
from isthmus.studio.reports.loop_motions import _interval_90
from support.recordings import swung

FIRST = [("train", 60.0), ("export", 4.0), ("record", 2.0)]


def test_a_part_goes_from_its_beginning_to_its_end():
    told = []
    note = lambda fraction, text="", /: told.append(fraction)
    inner = sub_progress(sub_progress(note, 0.5, 1.0), 0.0, 0.5)
    for share in (-1.0, 0.0, 0.5, 1.0, 2.0):
        inner(share)
    assert told == [0.5, 0.5, 0.625, 0.75, 0.75]
    step_progress(note, 4)(0, 1.0)
    step_progress(note, 4)(9, 1.0)
    assert told[-2:] == [0.25, 1.0]


# What is left in all --------------------------------------------------------------------------------------------


def test_time_left_counts_down_inside_a_step_and_never_below_what_comes_after():
    seconds = [remaining_seconds(FIRST, "diagnose", t) for t in range(0, 200, 5)]
    after = remaining_seconds([*FIRST, ("diagnose", 30.0)])
    assert seconds[0] == pytest.approx(remaining_seconds(FIRST))
    assert all(a > b or b == pytest.approx(after) for a, b in pairwise(seconds))
    assert seconds[-1] == pytest.approx(after)


def test_a_step_that_says_how_long_it_needs_is_believed_where_that_is_longer():
    after = remaining_seconds([*FIRST, ("diagnose", 30.0)])
    assert remaining_seconds(FIRST, "diagnose", 10.0, 500.0) == pytest.approx(after + 500.0)
    assert remaining_seconds(FIRST, "diagnose", 10.0, 1.0) == pytest.approx(remaining_seconds(FIRST, "diagnose", 10.0))


def test_the_first_step_already_tells_what_is_left_in_all():
    assert remaining_seconds([]) is None
    assert remaining_seconds([], "train", 5.0) is None
    whole = sum(t for _, t in TYPICAL_CALLS)
    assert remaining_seconds([], "train", 15.0, 45.0) == pytest.approx(whole - 15.0)


def test_repeated_calls_do_not_shorten_what_is_left():
    assert remaining_seconds([*FIRST, ("record", 2.0)]) == pytest.approx(remaining_seconds(FIRST))


def test_a_loop_says_first_what_to_expect_and_then_what_is_left(capsys):
    watch = LoopProgress(True, LoopSettings("pendulum/swingup", "sim"))
    train = Call("train", "train it", "train", {"task": "pendulum/swingup"})
    watch.began(1, train)
    assert f"about {len(TYPICAL_CALLS)} calls" in capsys.readouterr().err
    watch.ended(1, CallRecord(train, "done", 60.0), False)
    watch.began(2, Call("export", "export it", "export", {"run": "a", "out": "b"}))
    said = capsys.readouterr().err
    assert "left in all" in said
    assert "isthmus export a --out b" in said


def test_bars_inside_a_loop_tell_both_times(monkeypatch, capsys):
    monkeypatch.setattr(render, "err", Console(file=io.StringIO(), width=80))
    with render.show_total_remaining(lambda own: 300.0 if own is None else 200.0), render.progress_bar("working") as bar:
        bar._next_line_time = 0.0
        bar.update(0.0)
        bar._next_line_time = 0.0
        bar._start -= 10.0
        bar.update(0.5, "hard")
    first, second = capsys.readouterr().err.splitlines()
    assert first == "working: 0 %, 5 min in all"
    assert second == "working hard: 50 %, about 10 s left, 3 min in all"


def test_a_bar_waits_where_a_search_begins_again(monkeypatch, capsys):
    monkeypatch.setattr(render, "err", Console(file=io.StringIO(), width=80))
    with render.progress_bar("working") as bar:
        for share in (0.1, 0.7, 0.2, 0.8):
            bar._next_line_time = 0.0
            bar.update(share)
    told = [line.partition(" %")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == ["working: 10", "working: 70", "working: 70", "working: 80"]


@pytest.mark.parametrize("width", [60, 100])
def test_on_a_terminal_the_time_in_all_is_whole_in_any_window(monkeypatch, width):
    file = io.StringIO()
    monkeypatch.setattr(render, "err", Console(file=file, width=width, force_terminal=True, color_system=None))
    with render.show_total_remaining(lambda own: 240.0), render.progress_bar("looking for the cause") as bar:
        bar.update(0.2, "comparing explanations of which there are many")
        time.sleep(0.6)
    assert "in all 4 min" in file.getvalue()


# What commands tell ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swing(tmp_path_factory):
    return swung(tmp_path_factory.mktemp("swing"))


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["diagnose", "p.controller", "swing.mcap", "--worlds", "8"], {"fitting numbers": 4}),
        (["identify", "pendulum", "swing.mcap", "--search", "never"], {"": 4, "covariance": 3, "held-out errors": 2}),
    ],
    ids=["diagnose", "identify"],
)
def test_a_bar_never_stands_still_in_the_longest_part_and_never_goes_back(swing, monkeypatch, capsys, argv, parts):
    told: dict[str, list[tuple[float, str]]] = {}
    monkeypatch.setattr(
        render.ProgressBar, "update", lambda bar, share, note="": told.setdefault(bar.what, []).append((share, note))
    )
    monkeypatch.chdir(swing)
    assert main(argv) == 0, capsys.readouterr().err
    for bar in told.values():
        shares = [share for share, _ in bar]
        assert shares == sorted(shares)
        assert shares[0] < 0.2
        assert 0.8 < shares[-1] <= 1.0
    last = list(told.values())[-1]
    for note, least in parts.items():
        assert len({share for share, what in last if what == note}) >= least


def test_bands_are_the_same_whether_or_not_a_world_failed():
    measured = np.random.default_rng(0).normal(size=(24, 50, 3))
    broken = np.concatenate([measured, np.full((2, 50, 3), np.nan)])
    for whole, less in zip(_interval_90(measured), _interval_90(broken), strict=True):
        np.testing.assert_allclose(whole, less)
