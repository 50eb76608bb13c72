"""Laws of a comparison: everyone meets the same worlds, and differences are differences."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from isthmus.core.errors import BadInput
from isthmus.learn.evaluate import paired_results
from isthmus.learn.evaluate import sweep as sweeping
from isthmus.learn.evaluate.contenders import Contender, load_contenders, methods_from_names, short_names
from isthmus.learn.evaluate.world_sets import covered_fraction, covered_range, parametric_world_sets, sample_outside
from isthmus.robots.twin import Twin
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.env import Env
from isthmus.tasks.task import RewardTerm
from support.command_line import call
from support.short_tasks import PENDULUM

# The same worlds for all -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["crazyflie/hard", "go1/hard"])
def test_two_policies_meet_the_same_worlds_commands_and_forces(name):
    """Also where one of them fails early and begins again, and where the world changes on the way."""
    base = get_task(name)
    assert base.parameter_shift is not None
    soon = replace(base.parameter_shift, interval=(0.05, 0.2))
    clumsy = RewardTerm(
        "clumsy", 0.0, lambda s: (s.target - s.default).abs().amax(1) > 0.8 * (s.limits[1] - s.limits[0]).amax() / 2
    )
    task = replace(base, parameter_shift=soon, terminations=(clumsy,), episode=0.5)
    n, seen = 6, []
    for size in (0.0, 1.0):
        env, g, over, rows = Env(task, n, seed=3, training=False), torch.Generator().manual_seed(0), np.zeros(n, bool), []
        for _ in range(env.horizon):
            spread = torch.rand(n, len(env.default), generator=g) * 2 - 1
            forces = env.disturbances.force.copy()
            rows.append((env.sim.e.copy(), env.command.numpy().copy(), forces, over.copy()))
            step = env.step(env.default + size * spread * (env.limits[1] - env.limits[0]) / 2)
            over |= step.terminated.numpy()
        seen.append(rows)
    changed, ended = 0, 0
    for (e, command, force, _), (e2, command2, force2, over) in zip(*seen, strict=True):
        assert np.array_equal(e[~over], e2[~over])
        assert np.array_equal(command[~over], command2[~over])
        assert np.array_equal(force, force2)
        changed, ended = changed + (e != seen[0][0][0]).any(), over.sum()
    assert changed
    assert ended > 0


@pytest.mark.slow
def test_a_twin_brings_its_motors_and_no_run_does(capsys, tiny, short, tmp_path):
    """Which run is named first, or what it trained on, changes nothing; the twin that is asked for does."""
    robot = get_task(PENDULUM).robot
    Twin("pendulum", robot.model_hash, robot.prior, UnitPhysics(motors={"stribeck": (3.0,)})).save(tmp_path / "u.twin")
    again = tmp_path / "again"
    options = ["--belief", tmp_path / "u.twin", "--steps", "100", "--worlds", "8", "-o", again]
    assert call(capsys, "train", PENDULUM, *options)[0] == 0
    found = []
    for runs, more in (
        ([tiny["ppo-0"]], []),
        ([again, tiny["ppo-0"]], []),
        ([tiny["ppo-0"]], ["--belief", tmp_path / "u.twin"]),
    ):
        code, out, err = call(capsys, "compare", *runs, "--worlds", "5", "--grounds", "inside", *more, "--json")
        assert code == 0, err
        found.append(json.loads(out)["sets"]["inside"]["runs"][-1]["means"]["return"]["mean"])
    assert found[0] == found[1] != found[2]


def test_episodes_need_a_ground_and_a_place(capsys, tiny, tmp_path):
    (tmp_path / "file").write_text("")
    for options, why in (
        (["--grounds", "--sweep", "payload", "--episodes", tmp_path / "lists"], "give sets or a reality"),
        (["--episodes", tmp_path / "file"], "cannot write"),
    ):
        code, _, err = call(capsys, "compare", tiny["ppo-0"], "--worlds", "2", *options)
        assert code == 2
        assert why in err


def test_falls_are_counted_by_method(capsys, tiny, short):
    code, out, _ = call(capsys, "compare", tiny["ppo-0"], "--worlds", "5", "--grounds", "inside", "--json")
    assert code == 0
    method = json.loads(out)["sets"]["inside"]["methods"][0]
    assert set(method["failed"]) == {"rate", "low", "high", "n"}


def test_a_run_compared_with_itself_differs_by_exactly_nothing(capsys, tiny, short):
    code, out, err = call(capsys, "compare", tiny["ppo-0"], tiny["ppo-0"], "--worlds", "5", "--grounds", "inside", "--json")
    assert code == 0, err
    first, again = json.loads(out)["sets"]["inside"]["runs"]
    assert first["name"] != again["name"]
    assert first["means"] == again["means"]
    for name in ("score", "return", "power"):
        assert again["difference"][name] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert again["difference"]["success"]["mean"] == 0.0


def test_all_runs_of_a_comparison_end_in_the_same_e(entries, short):
    task = get_task(PENDULUM)
    found, _ = parametric_world_sets(("inside", "outside", "nominal"), task.robot.prior, 5, 1)
    for tables in paired_results.evaluate_contenders(task, entries, found, lambda f, note: None).values():
        for rows in tables[1:]:
            assert np.array_equal(rows["e"], tables[0]["e"])
            assert not np.array_equal(rows["return"], tables[0]["return"])


@pytest.mark.parametrize("name", ["pendulum/swingup", "cartpole/balance", "crazyflie/hard", "go1/hard"])
def test_worlds_outside_have_one_or_two_numbers_beyond_the_belief_and_all_within_hard_bounds(name):
    belief = get_task(name).robot.prior
    e = sample_outside(belief, 200, seed=1)
    belief.space.check(e)
    ends = np.array([belief.interval(p, 1.0) for p in belief.space.names]).T
    slack = 1e-9 * (belief.space.high - belief.space.low)
    beyond = (e < ends[0] - slack) | (e > ends[1] + slack)
    assert set(np.unique(beyond.sum(axis=1))) == {1, 2}
    sensors = [any(t.startswith("signal:") for t in p.targets) for p in belief.space.params]
    assert not beyond[:, sensors].any()
    assert beyond.any(axis=0).sum() >= 4
    assert np.array_equal(e, sample_outside(belief, 200, seed=1))


# Methods and timidity ----------------------------------------------------------------------------------------------------


def table(scores, returns=None) -> paired_results.EpisodeTable:
    scores = np.asarray(scores, dtype=float)
    zeros = {name: np.zeros(len(scores)) for name in get_task(PENDULUM).metrics}
    own = {"score": scores, "return": scores if returns is None else np.asarray(returns, dtype=float)}
    return zeros | own | {"success": scores > 0.5, "failed": scores < 0}


def test_seeds_of_one_method_are_taken_together(entries):
    assert [e.method for e in entries] == ["ppo", "ppo", "teacher", "student"]
    rng = np.random.default_rng(2)
    worlds = rng.uniform(0.2, 0.8, 30)
    tables = [table(worlds + gain) for gain in (0.0, 0.002, 0.201, 0.161)]
    ppo, teacher, student = paired_results.method_results(get_task(PENDULUM), entries, tables)
    assert ppo.runs == 2
    assert ppo.means["score"].mean == pytest.approx(worlds.mean() + 0.001)
    assert ppo.spread["score"] == pytest.approx(0.002 / np.sqrt(2))
    assert np.isnan(teacher.spread["score"])
    assert student.difference["score"].mean == pytest.approx(0.16)
    ((method, start, goal, found),) = paired_results.gaps_closed(entries, tables)
    assert (method, start, goal) == ("student", "ppo", "teacher")
    assert found.gap.mean == pytest.approx(0.2)
    assert found.fraction.mean == pytest.approx(0.8)
    assert found.fraction.low < 0.8 < found.fraction.high


def test_what_is_recovered_is_told_against_the_ppo_that_is_most_like_the_teacher(entries):
    """Not against one that trained in the nominal world only, even if that one is named first."""
    nominal = replace(entries[0].run, belief=entries[0].run.belief.nominal())
    four = [replace(entries[0], run=nominal, method="ppo, range 0 %"), *entries[1:]]
    worlds = np.linspace(0.2, 0.8, 30)
    ((_, start, _, found),) = paired_results.gaps_closed(four, [table(worlds + gain) for gain in (-0.5, 0.0, 0.2, 0.05)])
    assert start == "ppo"
    assert found.fraction.mean == pytest.approx(0.25)


def test_a_method_that_always_succeeds_is_not_certain_to(entries):
    good = [table(np.full(20, 0.9))] * 4
    for group in paired_results.method_results(get_task(PENDULUM), entries, good):
        assert group.success.rate == 1.0
        assert group.success.low < 0.9


def test_runs_can_be_methods_by_their_names(tiny):
    """Folders that differ in a number at the end are seeds of one method, even where more was asked differently."""
    found = load_contenders(tuple(tiny[n] for n in ("ppo-0", "ppo-1", "teacher", "student")), get_task(PENDULUM), by_name=True)
    assert [entry.method for entry in found] == ["ppo", "ppo", "teacher", "student"]
    one, other = found[0].run, found[2].run
    assert methods_from_names(["a2", "a3", "b-1"], [one, one, other]) == ["a2", "a3", "b"]
    with pytest.raises(BadInput, match=r"is one of a, but its method is ppo, not teacher"):
        methods_from_names(["a-0", "a_1"], [one, other])


def test_realities_count_once_each_however_many_episodes_they_have():
    rows = [
        {"score": np.array([a, a]), "success": np.array([True, False]), "failed": np.array([False, True])} for a in (0.2, 0.6)
    ]
    whole = paired_results._pool_realities(rows)
    assert whole["score"].tolist() == [0.2, 0.6]
    assert len(whole["success"]) == len(whole["failed"]) == 4


def test_runs_that_differ_in_more_than_their_seed_say_in_what(tiny):
    from isthmus.learn import runs
    from isthmus.learn.evaluate.contenders import methods_from_configs

    a, b = runs.load(tiny["ppo-0"]), runs.load(tiny["ppo-1"])
    assert methods_from_configs([a, b]) == ["ppo", "ppo"]
    longer = replace(b, config=replace(b.config, steps=800))
    assert methods_from_configs([a, longer]) == ["ppo, steps 400", "ppo, steps 800"]
    narrow = replace(b, belief=b.belief.scaled(0.0))
    first, second = methods_from_configs([a, narrow])
    assert first == f"ppo, range {100 * covered_fraction(a.belief):.0f} %"
    assert second == "ppo, range 0 %"
    some = b.belief.factors
    other = replace(b, belief=b.belief.replace(replace(some[0], high=some[0].high * (1 + 1e-9))))
    assert len(set(methods_from_configs([a, other]))) == 2
    nearly = replace(b, config=replace(b.config, settings=replace(b.config.settings, clip_range=0.2 * (1 + 1e-12))))
    assert len(set(methods_from_configs([a, nearly]))) == 2


def test_runs_are_seeds_of_one_method_only_if_the_runs_before_them_are(tiny):
    from isthmus.learn import runs
    from isthmus.learn.evaluate.contenders import methods_from_configs

    ppo, teacher, student = (runs.load(tiny[n]) for n in ("ppo-0", "teacher", "student"))
    assert student.config.parent == runs.experiment_hash(teacher)

    def pooled(one, **changes) -> bool:
        return len(set(methods_from_configs([one, replace(one, config=replace(one.config, seed=9, **changes))]))) == 1

    again = replace(teacher, config=replace(teacher.config, seed=5))
    longer = replace(teacher, config=replace(teacher.config, steps=800))
    narrow = replace(teacher, belief=teacher.belief.scaled(0.5))
    for kind in ("teacher", "initial_run"):
        child = replace(ppo, config=replace(ppo.config, **{kind: "a" * 64}, parent=runs.experiment_hash(teacher)))
        assert pooled(child, **{kind: "b" * 64}, parent=runs.experiment_hash(again))
        for other in (longer, narrow, child):
            assert not pooled(child, **{kind: "b" * 64}, parent=runs.experiment_hash(other))
        grandchild = replace(child, config=replace(child.config, seed=3, **{kind: "c" * 64}))
        assert runs.experiment_hash(grandchild) == runs.experiment_hash(child)
        changed = replace(child, config=replace(child.config, parent=runs.experiment_hash(narrow)))
        assert runs.experiment_hash(changed) != runs.experiment_hash(child)
    assert not pooled(ppo, initial_run="a" * 64)
    assert not pooled(ppo, failures="a" * 64)
    assert not pooled(replace(ppo, config=replace(ppo.config, failures="b" * 64)), failures="a" * 64)
    on = lambda run, **options: runs.BaseController(config=ppo.config, run=run, **options)
    residual = replace(ppo, config=replace(ppo.config, base=on("a" * 64)))
    assert pooled(residual)
    assert not pooled(residual, base=on("b" * 64))
    assert not pooled(residual, base=on("a" * 64, residual_scale=0.25))
    assert methods_from_configs([residual, ppo]) == ["ppo, base aaaaaa, residual_scale 0.5", "ppo"]


def test_a_run_that_did_not_note_its_parent_finds_it_among_the_others(tiny):
    from isthmus.learn import runs
    from isthmus.learn.evaluate.contenders import methods_from_configs

    teacher, student = runs.load(tiny["teacher"]), runs.load(tiny["student"])
    second = replace(teacher, config=replace(teacher.config, seed=5), record={"hash": "5" * 64})
    old = [replace(student, config=replace(student.config, parent="", teacher=t.initial_hash)) for t in (teacher, second)]
    assert methods_from_configs([*old, teacher, second, student]) == ["student"] * 2 + ["teacher"] * 2 + ["student"]
    assert len(set(methods_from_configs(old))) == 2


def test_a_fine_tuned_run_notes_what_was_asked_of_the_one_before(tiny, tmp_path):
    from isthmus.learn import runs
    from isthmus.learn.algorithms.finetune import finetune_config
    from isthmus.learn.training import TrainingInputs, train

    start = runs.load(tiny["ppo-1"])
    plan = replace(finetune_config(start, start.task, 0.1), steps=100)
    train(tmp_path / "tuned", plan, start.task, start.belief, TrainingInputs(initial_run=start), lambda trainer: None)
    tuned = runs.load(tmp_path / "tuned").config
    assert (tuned.initial_run, tuned.parent) == (start.initial_hash, runs.experiment_hash(runs.load(tiny["ppo-0"])))


def test_what_a_widening_run_trained_on_is_what_its_newest_policy_met(tiny, tmp_path):
    """Whatever lies in adr.json: it is written at the end, and stays behind if the run is killed later on."""
    from isthmus.learn import checkpoint, runs
    from isthmus.learn.evaluate.contenders import load_training_belief
    from isthmus.tasks.samplers.adr import ADR

    plain = replace(runs.load(tiny["ppo-0"]), folder=tmp_path)
    plain.belief.scaled(0.1).save(tmp_path / "adr.json")
    assert load_training_belief(plain) == plain.belief
    widening = replace(plain, config=replace(plain.config, adr=True))
    adr = ADR(plain.belief, plain.config.settings.worlds, plain.task.success_threshold)
    adr.range_steps[0] = 7, 3
    adr.restore(adr.state())
    for name, state in (("100", ADR(plain.belief, 8, 0.5).state()), ("200", adr.state())):
        arrays = {f"env.sampler.{key}": value for key, value in state.items()}
        checkpoint.write(tmp_path / "checkpoints" / f"{name}.safetensors", arrays, {})
    assert load_training_belief(widening) == adr.as_belief()
    (tmp_path / "adr.json").unlink()
    assert load_training_belief(widening) == adr.as_belief()
    checkpoint.write(tmp_path / "checkpoints" / "300.safetensors", {"x": np.zeros(1)}, {})
    with pytest.raises(BadInput, match=r"300\.safetensors"):
        load_training_belief(widening)


def test_names_are_short_and_differ(tmp_path):
    folders = tuple(tmp_path / p for p in ("a/x", "b/x", "b/y", "b/y"))
    assert short_names(folders) == ["a/x", "b/x", "y", "y (2)"]


def ranged(entry: Contender, method: str, part: float, **plan) -> Contender:
    """The same entry as a run of another method, trained over part of the ranges."""
    belief = entry.run.belief.scaled(part)
    run = replace(entry.run, belief=belief, config=replace(entry.run.config, **plan))
    return replace(entry, method=method, run=run, training_belief=belief)


def test_a_loss_in_the_nominal_world_is_told_with_its_reason(entries):
    rng = np.random.default_rng(3)
    best = rng.uniform(0.7, 0.9, 40)
    narrow, wide = ranged(entries[0], "narrow", 0.2), ranged(entries[1], "wide", 1.0, seed=7)
    four = [narrow, wide, *entries[2:]]
    found = paired_results.nominal_losses(
        four, [table(best), table(best - 0.08), table(best - 0.01), table(best - rng.uniform(-3, 3.4, 40))], 0.05
    )
    assert [t.reference for t in found] == ["narrow"] * 3
    assert [t.caused_by_wide_ranges for t in found] == [True, False, False]
    assert found[0].loss.mean == pytest.approx(0.08)
    told = found[0].describe()
    assert "wide loses 0.08 (0.08 to 0.08, over worlds) of score in the nominal world against narrow" in told
    assert (
        f"{100 * covered_fraction(wide.training_belief):.0f} % of the space, the other on "
        f"{100 * covered_fraction(narrow.training_belief):.0f} %" in told
    )
    assert "timid" in told
    held = paired_results.nominal_losses(four[:2], [table(best), table(best - 0.08)], 0.05, reference="wide")
    assert held[0].loss.mean == pytest.approx(-0.08)


def test_wide_ranges_are_the_cause_only_if_nothing_else_differs(entries):
    best = np.linspace(0.7, 0.9, 40)
    narrow = ranged(entries[0], "narrow", 0.2)

    def told(other: Contender) -> paired_results.NominalLoss:
        return paired_results.nominal_losses([narrow, other], [table(best), table(best - 0.08)], 0.05)[0]

    assert told(ranged(entries[0], "wide", 1.0, seed=4, adr=True)).caused_by_wide_ranges
    for other in (
        ranged(entries[0], "narrower", 0.1),
        ranged(entries[0], "longer", 1.0, steps=800),
        ranged(entries[0], "tuned", 1.0, initial_run="a" * 64),
        ranged(entries[2], "teacher", 1.0),
    ):
        assert told(other).significant
        assert not told(other).caused_by_wide_ranges
        assert "timid" not in told(other).describe()


def test_one_lucky_seed_makes_no_reference(entries):
    rng = np.random.default_rng(6)
    worlds = rng.uniform(-0.05, 0.05, 40)
    lucky = [ranged(entries[0], "lucky", 0.2), ranged(entries[1], "lucky", 0.2)]
    steady = [ranged(entries[0], "steady", 1.0), ranged(entries[1], "steady", 1.0)]
    (found,) = paired_results.nominal_losses([*lucky, *steady], [table(worlds + m) for m in (0.95, 0.55, 0.8, 0.81)], 0.05)
    assert (found.method, found.reference, found.uncertainty_over) == ("lucky", "steady", "worlds and seeds")
    assert found.loss.mean == pytest.approx(0.055)
    # Two seeds that are 0.4 apart leave everything open.
    assert not found.significant
    alone = paired_results.nominal_losses([lucky[0], *steady], [table(worlds + m) for m in (0.95, 0.8, 0.81)], 0.05)
    assert [t.reference for t in alone] == ["steady"]


# Sweeps ------------------------------------------------------------------------------------------------------------------


def test_a_sweep_goes_from_bound_to_bound_and_changes_nothing_else(entries, monkeypatch):
    task, asked = get_task(PENDULUM), []

    def noted(task, entry, ground, report):
        asked.append((entry.name, ground))
        return table(np.full(ground.worlds, 0.6))

    monkeypatch.setattr(sweeping, "evaluate_contender", noted)
    name = "weight_mass"
    found = sweeping.sweep_parameter(task, entries[:2], name, task.robot.prior, 20, 7, lambda f, note: None)
    param, column = task.robot.space[name], task.robot.space.index(name)
    assert (found.values[0], found.values[-1]) == (param.low, param.high)
    assert len(asked) == 2 * sweeping.GRID_SIZE
    assert found.curves[0].training_range == covered_range(task.robot.prior, name)
    rest = np.delete(asked[0][1].e, column, axis=1)
    for (_, ground), value in zip(asked, found.values * 2, strict=True):
        assert ground.seed == 7
        assert (ground.e[:, column] == value).all()
        assert np.array_equal(np.delete(ground.e, column, axis=1), rest)
