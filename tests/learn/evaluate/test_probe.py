"""Laws of a probe: what was planted is read, noise is not, and nothing leaks from the worlds that it was fitted on."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.learn.algorithms.distillation import teacher_latent
from isthmus.learn.evaluate import probe
from isthmus.learn.evaluate.ridge import RIDGE_STRENGTHS, _left_out_errors, fit_ridge, r_squared
from isthmus.learn.policies.actor import Actor
from isthmus.learn.policies.actor_spec import ActorSpec
from isthmus.learn.policies.context import Context
from isthmus.studio.figures import probe as figure
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.env import Env

NAMES = ("a", "b", "c", "d")


def seen(rng, features: dict, n: int = 300, moments: int = 2) -> probe.PolicyFeatures:
    """Worlds with four uniform parameters; `features` maps e, (n, 4), to what is known of it."""
    e = rng.uniform(size=(n, 4))
    known = {name: np.stack([make(e, rng) for _ in range(moments)]) for name, make in features.items()}
    return probe.PolicyFeatures(e, known, np.ones((moments, n), dtype=bool))


def test_a_planted_parameter_is_read_as_well_as_its_noise_allows_and_the_others_are_not():
    """Noise of half the parameter's own spread in each of two moments leaves 1 / (1 + 0.25) = 0.8 to a reader of one moment."""
    rng = np.random.default_rng(0)
    spread = 1 / np.sqrt(12)
    plant = lambda e, rng: np.column_stack([
        3 * (e[:, 2] + 0.5 * spread * rng.standard_normal(len(e))) + 7,
        rng.standard_normal((len(e), 5)),
    ])  # fmt: skip
    report = probe.fit_probes(seen(rng, {"x": plant}, n=500), NAMES, [0, 1, 2, 3])
    found = report.features["x"]
    for reads in ({name: getattr(p, kind) for name, p in found.items()} for kind in ("linear", "nonlinear")):
        assert reads["c"].low <= 0.8 <= reads["c"].high
        assert reads["c"].high - reads["c"].low < 0.12
        for name in ("a", "b", "d"):
            assert reads[name].low <= 0.02
            assert reads[name].value < 0.05
    assert report.names[0] == "c"
    assert (report.train_worlds, report.held_out_worlds) == (350, 150)


def test_what_is_bent_needs_the_curved_regression():
    rng = np.random.default_rng(1)
    bent = lambda e, rng: np.column_stack([np.cos(2 * np.pi * e[:, 0]), e[:, 1]]) + 0.05 * rng.standard_normal((len(e), 2))
    # cos tells how far a is from the middle, not on which side; its distance from the middle is what can be read.
    given = seen(rng, {"x": bent})
    given.e[:, 0] = np.abs(given.e[:, 0] - 0.5) ** 3
    found = probe.fit_probes(given, NAMES, [0, 1, 2, 3]).features["x"]
    assert found["a"].nonlinear.value > found["a"].linear.value + 0.05
    assert found["a"].best_model == "nonlinear"
    assert found["a"].best is found["a"].nonlinear


def test_nothing_leaks_from_the_worlds_that_it_was_fitted_on():
    """Each world has a mark of its own, the same at all moments: it tells all about worlds that were seen, and nothing else."""
    rng = np.random.default_rng(2)
    marks = rng.standard_normal((120, 200))
    given = seen(rng, {"x": lambda e, rng: marks + 1e-3 * rng.standard_normal(marks.shape)}, n=120)
    found = probe.fit_probes(given, NAMES, [0, 1, 2, 3]).features["x"]
    for name in NAMES:
        assert found[name].best.value < 0.1
        assert found[name].best.low <= 0


def test_leaving_a_world_out_by_the_formula_is_leaving_it_out():
    rng = np.random.default_rng(3)
    worlds = np.array([0, 0, 1, 2, 2, 2, 3, 3, 4, 5])
    x, y = rng.standard_normal((10, 3)), rng.standard_normal((10, 2))
    k = x @ x.T + 0.1 * np.ones((10, 10))
    values, vectors = np.linalg.eigh(k)
    for strength in (RIDGE_STRENGTHS[2], 1.0):
        alpha = np.linalg.solve(k + strength * np.eye(10), y)
        found = _left_out_errors(vectors, values + strength, alpha, worlds)
        for w in range(6):
            out, rest = worlds == w, worlds != w
            fit = np.linalg.solve(k[np.ix_(rest, rest)] + strength * np.eye(rest.sum()), y[rest])
            assert np.allclose(found[out], y[out] - k[np.ix_(out, rest)] @ fit)


def test_the_strength_follows_the_noise():
    """Many useless features: the least squares fit would be worse than the mean, a strong ridge is not."""
    rng = np.random.default_rng(4)
    x, new = rng.standard_normal((60, 55)), rng.standard_normal((500, 55))
    y, true = x[:, :1] + 2 * rng.standard_normal((60, 1)), new[:, :1]
    plain = new @ np.linalg.lstsq(x, y, rcond=None)[0]
    ridge = fit_ridge(x, y, np.arange(60), new)["linear"].predicted
    assert ((ridge - true) ** 2).mean() < 0.2 * ((plain - true) ** 2).mean()


def test_r_squared_is_one_for_the_truth_zero_for_the_mean_and_resamples_worlds():
    rng = np.random.default_rng(5)
    worlds = np.repeat(np.arange(40), 3)
    y = rng.uniform(size=(40, 1)).repeat(3, axis=0)
    (truth,) = r_squared(y, y, worlds)
    assert (truth.value, truth.low, truth.high) == (1, 1, 1)
    (mean,) = r_squared(y, np.full_like(y, y.mean()), worlds)
    assert mean.value == pytest.approx(0)
    noisy = y + 0.2 * rng.standard_normal((40, 1)).repeat(3, axis=0)
    (whole,) = r_squared(y, noisy, worlds)
    (split,) = r_squared(y, noisy, np.arange(120))
    # Three copies of a world are no more than one.
    assert whole.high - whole.low > 1.4 * (split.high - split.low)


def test_a_constant_feature_says_nothing_and_breaks_nothing():
    rng = np.random.default_rng(6)
    given = seen(rng, {"x": lambda e, rng: np.ones((len(e), 3))}, n=60)
    found = probe.fit_probes(given, NAMES, [0, 1, 2, 3]).features["x"]
    assert all(found[name].best.value <= 1e-9 for name in NAMES)


def test_worlds_that_fell_are_left_out():
    rng = np.random.default_rng(7)
    given = seen(rng, {"x": lambda e, rng: e.copy()}, n=80)
    given.alive[:, 60:] = False
    given.alive[1, 40:] = False
    given.features["x"][:, 60:] = np.nan
    given.features["x"][1, 40:] = np.nan
    report = probe.fit_probes(given, NAMES, [0, 1, 2, 3])
    assert report.train_worlds + report.held_out_worlds == 60
    assert report.features["x"]["a"].best.value > 0.99
    given.alive[:, 10:] = False
    with pytest.raises(BadInput, match="10 of 80 worlds"):
        probe.fit_probes(given, NAMES, [0, 1, 2, 3])


@pytest.mark.parametrize("name", ["pendulum/swingup", "go1/hard"])
@pytest.mark.parametrize("source", ["none", "privileged", "convolution", "recurrent"])
def test_what_a_policy_knows_is_what_it_acts_on(name, source):
    task = get_task(name)
    context = Context(source, history=0.2) if source != "none" else Context()
    actor = Actor(ActorSpec.for_task(task, (16,), True, context)).eval()
    actor.normalize.mean += 0.3  # a normalizer that does something
    env, memory = Env(task, 3, seed=1, training=False), actor.memory(3)
    with torch.no_grad():
        for _ in range(4):
            signals, before = actor.read_signals(env), memory
            target, memory = actor(signals, before)
            env.step(target)
        known = probe.policy_features(actor, signals, before, memory)
        observation, _ = actor.observe(signals, before)
    wanted = {"none": ["ticks"], "privileged": ["ticks", "estimate"]}.get(source, ["ticks", "memory", "estimate"])
    assert list(known) == wanted
    assert torch.equal(known["ticks"], observation[:, : actor.history_size])
    sides = 2 if actor.spec.mirror else 1
    if "estimate" in known:
        assert known["estimate"].shape == (3, sides * context.latent_size)
    if source in ("convolution", "recurrent"):
        assert torch.equal(known["estimate"], observation[:, actor.history_size :])
        size = sides * context.hidden if source == "recurrent" else actor.spec.memory_frames * actor.frame_size
        assert known["memory"].shape == (3, size)
    if source == "privileged":
        assert not torch.equal(known["estimate"], teacher_latent(actor, observation))
        assert torch.equal(known["estimate"], teacher_latent(actor, actor.normalize(observation)))


def test_a_teacher_that_passes_on_what_it_is_told_can_be_read(tiny, monkeypatch):
    """Its encoder is replaced by one that copies the first numbers of e."""
    from isthmus.learn import runs

    run = runs.load(tiny["teacher"])
    run = replace(run, task=replace(run.task, episode=0.3))
    names = run.belief.free().names
    actor = runs.load_actor(run)
    monkeypatch.setattr(probe, "teacher_latent", lambda actor, x: x[:, actor.history_size : actor.history_size + 2])
    monkeypatch.setattr(probe, "load_actor", lambda run: actor)
    found = probe.probe(run, worlds=60, seed=3).features["estimate"]
    space = run.task.robot.space
    for name in names:
        told = space.index(name) < 2
        assert (found[name].best.value > 0.95) == told
        assert told or found[name].best.low < 0.15


def full(*args):
    raise BadInput("the disk is full.")


def test_a_probe_at_the_command_line(capsys, tiny, tmp_path, monkeypatch):
    whole = probe.record_features
    monkeypatch.setattr(probe, "record_features", lambda task, *rest: whole(replace(task, episode=0.4), *rest))
    code = main(["probe", str(tiny["student"]), "--worlds", "40", "--json", "-o", str(tmp_path / "p.png")])
    got = capsys.readouterr()
    assert code == 0, got.err
    told = json.loads(got.out)
    names = set(get_task("pendulum/swingup").robot.prior.free().names)
    assert set(told["features"]) == {"ticks", "memory", "estimate"}
    for reads in told["features"].values():
        assert set(reads) == names
        for read in reads.values():
            assert read["linear"]["low"] <= read["linear"]["value"] <= read["linear"]["high"] <= 1
    assert (told["worlds"], told["train_worlds"], told["held_out_worlds"]) == (40, 28, 12)
    assert {role: len(found) for role, found in told["inputs"].items()} == {"run": 64, "belief": 64}
    assert (tmp_path / "p.png").stat().st_size > 10_000
    monkeypatch.setattr(figure, "probe_figure", full)
    assert main(["probe", str(tiny["ppo-0"]), "--worlds", "40", "-o", str(tmp_path / "q.png")]) == 2
    out, err = capsys.readouterr()
    assert "the disk is full" in err
    assert "cannot be read" in out
    rows = [float(line.split()[1]) for line in out.splitlines() if ", " in line and line.split()[0] in names]
    assert rows == sorted(rows, reverse=True)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["absent"], "absent"),
        (["RUN", "--worlds", "5"], "worlds must be at least 20"),
        (["RUN", "-o", "/proc/x.png"], "/proc/x.png"),
        (["RUN", "-o", "x.pdf"], "NAME.png"),
        (["RUN", "--seed", "-3"], "seed must"),
        (["RUN", "--belief", "absent.json"], "absent.json"),
        (["RUN", "--belief", "fixed.json"], "varies"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_simulated(capsys, tiny, tmp_path, monkeypatch, options, hint):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probe, "record_features", lambda *args: pytest.fail("simulated"))
    get_task("pendulum/swingup").robot.prior.nominal().save(tmp_path / "fixed.json")
    code = main(["probe", *(str(tiny["ppo-0"]) if o == "RUN" else o for o in options)])
    err = capsys.readouterr().err
    assert code == 2
    assert hint in err
    assert err.count("\n") == 1
