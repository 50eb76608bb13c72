"""Runs of earlier versions: their settings and arrays under today's names; what is of today stays as it is."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from isthmus.core.errors import BadInput
from isthmus.core.from_plain import from_plain
from isthmus.learn.migrate import ARRAY_KEYS, migrate_arrays, migrate_config
from isthmus.learn.runs import RunConfig

OLD = {
    "task": "cartpole/balance",
    "method": "ppo",
    "seed": 3,
    "steps": 8000,
    "minutes": 0.0,
    "settings": {
        "worlds": 64, "ticks": 32, "epochs": 4, "minibatch": 1024, "hidden": [64, 64], "critic_hidden": [64, 64],
        "discount": 0.98,
        "trace": 0.94, "clip": 0.21, "entropy": 0.002, "value_weight": 0.9, "step_size": 0.002, "step_range": [0.0001, 0.004],
        "wanted_kl": 0.015, "max_norm": 0.7, "init_std": 1.0, "min_std": 0.05, "mirror": True, "asymmetric": False,
        "critic_told": True,
    },
    "context": {"source": "none", "size": 12, "hidden": 64, "history": 1.0, "every": 2},
    "teacher": "", "base": None, "start": "", "kl": 0.1, "adr": False, "revisit": 0.4, "failures": "", "parent": "", "unit": "",
}  # fmt: skip
"""The plan of a run.json that version 0.1.0 wrote before its names changed."""


def test_settings_of_an_old_run_are_read_under_their_new_names():
    found = from_plain(RunConfig, migrate_config(OLD), "run.json")
    s = found.settings
    assert (s.gamma, s.lam, s.clip_range, s.value_coef, s.learning_rate, s.max_grad_norm) == (0.98, 0.94, 0.21, 0.9, 0.002, 0.7)
    assert (s.rollout_ticks, s.minibatch_size, s.symmetry, s.asymmetric_critic) == (32, 1024, True, False)
    assert (found.context.latent_size, found.context.update_ticks) == (12, 2)
    assert (found.max_kl, found.revisit_fraction, found.initial_run) == (0.1, 0.4, "")


def test_a_base_below_a_base_is_migrated_too():
    outer = OLD | {"base": {"plan": OLD | {"kl": 0.3}, "run": "a" * 64, "law": None, "share": 0.25}}
    found = from_plain(RunConfig, migrate_config(outer), "run.json")
    assert found.base is not None
    assert found.base.residual_scale == 0.25
    assert found.base.config is not None
    assert found.base.config.max_kl == 0.3


def test_what_is_of_today_stays_as_it_is():
    today = asdict(from_plain(RunConfig, migrate_config(OLD), "run.json"))
    assert migrate_config(today) == today
    arrays = dict.fromkeys([*ARRAY_KEYS.values(), "env.sim.qpos"], 0)
    assert migrate_arrays(arrays) == arrays


def test_an_old_and_a_new_name_together_are_an_error():
    with pytest.raises(BadInput, match="kl"):
        from_plain(RunConfig, migrate_config(OLD | {"max_kl": 0.2}), "run.json")


def test_arrays_of_an_old_checkpoint():
    old = {"env.age": 1, "env.engine.qpos": 2, "env.disturber.push": 3, "actor.net.0.weight": 4}
    assert migrate_arrays(old) == {
        "env.episode_ticks": 1, "env.sim.qpos": 2, "env.disturbances.push": 3, "actor.net.0.weight": 4,
    }  # fmt: skip
