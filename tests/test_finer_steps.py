"""Laws of a unit that is simulated in finer steps: nothing else changes, and play gets them if they predict better."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from isthmus.errors import BadInput
from isthmus.gap.segments import cut
from isthmus.gap.tracks import tracks
from isthmus.identify import actuator
from isthmus.identify.actuator import SPLIT, climb
from isthmus.identify.courses import Waves
from isthmus.identify.ladder import LADDER
from isthmus.identify.law import put_law, save_law
from isthmus.identify.missing import silent
from isthmus.identify.plant import record
from isthmus.robots import get_robot
from isthmus.sim.engine import Engine
from isthmus.sim.reality import RealEngine, Reality
from isthmus.sim.robot import FIGURES
from isthmus.sim.unit import FILE, Unit


def test_a_split_step_is_a_finer_model(robot, targets):
    """The same tick, the same numbers as those of a model that was written with the finer step."""
    step = float(robot.model.opt.timestep)
    split = replace(robot, unit=Unit(split=3))
    written = replace(robot, timestep=step / 3, substeps=3 * robot.substeps)
    engines = [Engine(r, 2, threads=1) for r in (split, written, robot)]
    assert engines[0].tick == pytest.approx(engines[2].tick, rel=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(20):
        u = targets(robot, rng, 2)
        for engine in engines:
            engine.step(u)
    assert np.array_equal(engines[0].qpos, engines[1].qpos)
    assert np.array_equal(engines[0].noiseless(), engines[1].noiseless())
    assert not np.array_equal(engines[0].qpos, engines[2].qpos)


def test_another_rate_keeps_steps_as_fine():
    fine = replace(get_robot("pendulum"), unit=Unit(split=4))
    step = float(fine.model.opt.timestep)
    other = fine.at_rate(73.0)
    assert other.model.opt.timestep <= step
    assert other.steps * other.model.opt.timestep == pytest.approx(1.0 / 73.0)


def test_a_reality_has_its_own_step_whatever_a_unit_has(targets):
    robot = get_robot("pendulum")
    plain, fine = (RealEngine(r, Reality("pendulum"), 1, tick=0.02) for r in (robot, replace(robot, unit=Unit(split=8))))
    assert plain.dt == fine.dt
    rng = np.random.default_rng(0)
    for _ in range(10):
        u = targets(robot, rng, 1)
        plain.step(u)
        fine.step(u)
    assert np.array_equal(plain.qpos, fine.qpos)


def test_a_split_survives_its_file_and_strangers_do_not_choose_any():
    unit = Unit(split=4)
    assert Unit.of(unit.parts(), FIGURES, "a.twin") == unit
    assert unit.hash != Unit(split=2).hash
    for wrong in (0, -1, 10**9, 2.5, "4", None, True):
        parts = {FILE: json.dumps({"motors": {}, "learned": [], "split": wrong}).encode()}
        with pytest.raises(BadInput, match="split"):
            Unit.of(parts, FIGURES, "a.twin")


@pytest.mark.slow
def test_play_that_the_designs_steps_can_follow_stays_in_them(monkeypatch, tmp_path):
    robot = get_robot("pendulum")
    truth = replace(robot, unit=Unit(motors={"backlash": (0.12,)}))
    own = ("joint_friction", "joint_damping", "weight_mass")
    held = robot.prior.fix({n: robot.space[n].nominal for n in robot.space.names if n not in own})
    episode = record(truth, truth.space.nominal, Waves(truth, 12.0).chirp(high=3.0, part=0.9), seed=2)
    segments, noise = cut(tracks([episode], robot.contract, 0.02), robot, 15), np.array([0.0015, 0.1])
    out = np.arange(len(segments)) % 3 == 1
    monkeypatch.setattr(actuator, "learn", lambda robot, *args, **named: silent(robot, "motor", ("hinge",)))
    gears = [r for r in LADDER if r.name == "backlash"]
    found = climb(robot, segments.take(~out), segments.take(out), held, noise, ("hinge",), threads=1, ladder=gears).actuator
    assert found.chosen == "backlash"
    assert found.split == 1
    assert found.motors["backlash"][0] == pytest.approx(0.12, rel=0.02)
    save_law(tmp_path / "hinge.actuator", robot, replace(found, split=SPLIT), [])
    assert put_law(tmp_path / "hinge.actuator", robot)[0].unit.split == SPLIT
