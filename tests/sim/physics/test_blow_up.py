"""A world that blows up is reset alone, and a dump keeps what led to it."""

from __future__ import annotations

import numpy as np
import pytest

from isthmus.sim.engines.batch.engine import BatchEngines
from isthmus.sim.physics.blow_up import HISTORY_TICKS, BlowUpRecorder
from isthmus.sim.simulation import DIVERGED_SPEED, Simulation


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e6 * DIVERGED_SPEED])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_world_that_blows_up_is_reset_alone(robot, targets, tmp_path, bad, compiled):
    runs = {}
    for hurt in (False, True):
        engine = Simulation(robot, 4, engine=BatchEngines(native_motor_law=compiled))
        engine.apply(robot.prior.sample(np.random.default_rng(0), 4), engine.all_ids)
        engine.reset(engine.all_ids)
        recorder, rng, lost, seen = BlowUpRecorder(engine, tmp_path / str(hurt)), np.random.default_rng(1), [], []
        for tick in range(8):
            u = targets(robot, rng, 4, size=0.05)
            recorder.note(u)
            if hurt and tick == 4:
                engine.qvel[2, -1] = bad
            engine.step(u)
            lost.append(recorder.rescue())
            seen.append(np.concatenate([engine.qpos, engine.qvel], axis=1))
        runs[hurt] = np.array(seen), np.array(lost), recorder
    clean, hurt = runs[False], runs[True]
    assert not clean[1].any()
    assert not clean[2].dumps
    assert np.argwhere(hurt[1]).tolist() == [[4, 2]]
    assert np.array_equal(hurt[0][:, [0, 1, 3]], clean[0][:, [0, 1, 3]])
    assert np.isfinite(hurt[0]).all()
    assert np.array_equal(hurt[0][4, 2, : len(robot.home)], robot.home)

    with np.load(hurt[2].dumps[0], allow_pickle=False) as dump:
        assert len(hurt[2].dumps) == 1
        assert str(dump["robot"]) == robot.name
        assert str(dump["model_hash"]) == robot.model_hash
        assert dump["qpos"].shape == (5, engine.model.nq)
        assert dump["target"].shape == (5, robot.contract.target.size)
        assert np.array_equal(dump["qpos"][1:5], clean[0][:4, 2, : engine.model.nq].astype(np.float32))
        assert np.array_equal(dump["e"], engine.e[2])
        assert tuple(dump["names"]) == robot.space.names


def test_a_dump_keeps_the_last_ticks_of_its_own_episode(tmp_path):
    from isthmus.robots.pendulum import pendulum

    engine = Simulation(pendulum(), 2)
    recorder = BlowUpRecorder(engine, tmp_path)
    for tick in range(HISTORY_TICKS + 9):
        if tick == 5:
            recorder.clear(np.array([1]))
        recorder.note(np.full((2, 1), float(tick)))
    engine.diverged[:] = True
    assert recorder.rescue().all()
    first = np.load(recorder.dumps[0], allow_pickle=False)["target"][:, 0]
    assert first.tolist() == list(range(9, HISTORY_TICKS + 9))
    engine.reset(engine.all_ids)
    recorder.clear(engine.all_ids)
    for tick in range(3):
        recorder.note(np.full((2, 1), float(tick)))
    engine.diverged[1] = True
    recorder.rescue()
    assert np.load(recorder.dumps[2], allow_pickle=False)["target"][:, 0].tolist() == [0.0, 1.0, 2.0]
