"""Records of runs that earlier versions wrote, under today's names: settings in run.json, arrays in checkpoints.

A record's hash is checked before it is migrated, over what was stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONFIG_KEYS = {"start": "initial_run", "kl": "max_kl", "revisit": "revisit_fraction"}
SETTINGS_KEYS = {
    "ticks": "rollout_ticks",
    "minibatch": "minibatch_size",
    "discount": "gamma",
    "trace": "lam",
    "clip": "clip_range",
    "entropy": "entropy_coef",
    "value_weight": "value_coef",
    "step_size": "learning_rate",
    "step_range": "learning_rate_range",
    "wanted_kl": "desired_kl",
    "max_norm": "max_grad_norm",
    "mirror": "symmetry",
    "asymmetric": "asymmetric_critic",
    "critic_told": "critic_sees_e",
}
CONTEXT_KEYS = {"size": "latent_size", "every": "update_ticks"}
BASE_KEYS = {"plan": "config", "share": "residual_scale"}
ARRAY_KEYS = {
    "env.age": "env.episode_ticks",
    "env.skipped": "env.initial_ticks",
    "env.begun": "env.start_level",
    "env.sent": "env.target_history",
    "env.hold": "env.command_seconds_left",
    "env.totals": "env.episode_sums",
    "env.joint_speed": "env.last_joint_vel",
    "env.feet_air": "env.feet_air_time",
    "env.worlds_lost": "env.diverged_worlds",
    "env.sampler.reach": "env.sampler.range_steps",
    "env.sampler.last": "env.sampler.last_move",
    "env.sampler.sent": "env.sampler.tests_started",
    "env.sampler.back": "env.sampler.tests_finished",
    "env.sampler.good": "env.sampler.tests_passed",
    "env.sampler.ended": "env.sampler.episode_ended",
    "env.sampler.store": "env.sampler.stored_e",
    "env.sampler.visits": "env.sampler.visited_serial",
    "env.sampler.held": "env.sampler.visited_e",
    "env.sampler.counts": "env.sampler.counts_as_test",
}
ARRAY_PREFIXES = {
    "env.engine.": "env.sim.",
    "env.disturber.": "env.disturbances.",
    "env.changes.": "env.parameter_shifts.",
}


def migrate_config(config: Any) -> Any:
    """The table of a run's config under today's names, bases of residual policies included; other values as they are."""
    if not isinstance(config, Mapping):
        return config
    found = _renamed(config, CONFIG_KEYS)
    for name, keys in (("settings", SETTINGS_KEYS), ("context", CONTEXT_KEYS), ("base", BASE_KEYS)):
        if isinstance(found.get(name), Mapping):
            found[name] = _renamed(found[name], keys)
    if isinstance(found.get("base"), dict) and "config" in found["base"]:
        found["base"]["config"] = migrate_config(found["base"]["config"])
    return found


def migrate_arrays(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of a checkpoint under today's names."""
    found = _renamed(arrays, ARRAY_KEYS)
    for old, new in ARRAY_PREFIXES.items():
        found = {new + k.removeprefix(old) if k.startswith(old) else k: v for k, v in found.items()}
    return found


def _renamed(table: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """With old keys renamed; a table that already has the new one is left as it is, so that both together are an error."""
    return {keys[k] if k in keys and keys[k] not in table else k: v for k, v in table.items()}
