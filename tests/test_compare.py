"""Laws of a comparison: everyone meets the same worlds, differences are differences, and intervals cover the truth."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from isthmus.adapt.comparison import measure, recovery
from isthmus.adapt.comparison import sweep as sweeping
from isthmus.adapt.comparison.contend import Contender, contenders, named_methods, short_names
from isthmus.adapt.comparison.grounds import outside, parametric, reach, width
from isthmus.adapt.comparison.paired import Estimate, Z, estimate, rate_difference, share
from isthmus.cli.main import main
from isthmus.errors import BadInput
from isthmus.identify.twin import Twin
from isthmus.sim.unit import Unit
from isthmus.tasks import get_task
from isthmus.tasks.env import Env
from isthmus.tasks.task import Term

PENDULUM = "pendulum/swingup"


def call(capsys, *argv) -> tuple[int, str, str]:
    code = main([str(a) for a in argv])
    got = capsys.readouterr()
    return code, got.out, got.err


@pytest.fixture
def short(monkeypatch):
    """Episodes of a comparison end after 0.3 s."""
    whole, follow = measure.evaluate, recovery.follow
    monkeypatch.setattr(measure, "evaluate", lambda task, *rest: whole(replace(task, episode=0.3), *rest))
    monkeypatch.setattr(recovery, "follow", lambda task, *rest: follow(replace(task, episode=0.3), *rest))


def brief(name: str = PENDULUM, seconds: float = 0.6):
    return replace(get_task(name), episode=seconds)


# The same worlds for all -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["crazyflie/hard", "go1/hard"])
def test_two_policies_meet_the_same_worlds_commands_and_forces(name):
    """Also where one of them fails early and begins again, and where the world changes on the way."""
    base = get_task(name)
    assert base.change is not None
    soon = replace(base.change, every=(0.05, 0.2))
    clumsy = Term("clumsy", 0.0, lambda s: (s.target - s.default).abs().amax(1) > 0.8 * (s.limits[1] - s.limits[0]).amax() / 2)
    task = replace(base, change=soon, failures=(clumsy,), episode=0.5)
    n, seen = 6, []
    for size in (0.0, 1.0):
        env, g, over, rows = Env(task, n, seed=3, training=False), torch.Generator().manual_seed(0), np.zeros(n, bool), []
        for _ in range(env.horizon):
            spread = torch.rand(n, len(env.default), generator=g) * 2 - 1
            forces = env.disturber.force.copy()
            rows.append((env.engine.e.copy(), env.command.numpy().copy(), forces, over.copy()))
            step = env.step(env.default + size * spread * (env.limits[1] - env.limits[0]) / 2)
            over |= step.failed.numpy()
        seen.append(rows)
    changed, ended = 0, 0
    for (e, command, force, _), (e2, command2, force2, over) in zip(*seen, strict=True):
        assert np.array_equal(e[~over], e2[~over])
        assert np.array_equal(command[~over], command2[~over])
        assert np.array_equal(force, force2)
        changed, ended = changed + (e != seen[0][0][0]).any(), over.sum()
    assert changed
    assert ended > 0


def test_a_twin_brings_its_motors_and_no_run_does(capsys, tiny, short, tmp_path):
    """Which run is named first, or what it trained on, changes nothing; the twin that is asked for does."""
    robot = get_task(PENDULUM).robot
    Twin("pendulum", robot.model_hash, robot.prior, Unit(motors={"stribeck": (3.0,)})).save(tmp_path / "u.twin")
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
        found.append(json.loads(out)["grounds"]["inside"]["runs"][-1]["means"]["return"]["mean"])
    assert found[0] == found[1] != found[2]


def test_episodes_need_a_ground_and_a_place(capsys, tiny, tmp_path):
    (tmp_path / "file").write_text("")
    for options, why in (
        (["--grounds", "--sweep", "payload", "--episodes", tmp_path / "lists"], "give --grounds or --reality"),
        (["--episodes", tmp_path / "file"], "cannot write"),
    ):
        code, _, err = call(capsys, "compare", tiny["ppo-0"], "--worlds", "2", *options)
        assert code == 2
        assert why in err


def test_falls_are_counted_by_method(capsys, tiny, short):
    code, out, _ = call(capsys, "compare", tiny["ppo-0"], "--worlds", "5", "--grounds", "inside", "--json")
    assert code == 0
    method = json.loads(out)["grounds"]["inside"]["methods"][0]
    assert set(method["failed"]) == {"rate", "low", "high", "n"}


def test_a_run_compared_with_itself_differs_by_exactly_nothing(capsys, tiny, short):
    code, out, err = call(capsys, "compare", tiny["ppo-0"], tiny["ppo-0"], "--worlds", "5", "--grounds", "inside", "--json")
    assert code == 0, err
    first, again = json.loads(out)["grounds"]["inside"]["runs"]
    assert first["name"] != again["name"]
    assert first["means"] == again["means"]
    for name in ("score", "return", "power"):
        assert again["against_first"][name] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert again["against_first"]["success"]["mean"] == 0.0


def test_all_runs_of_a_comparison_end_in_the_same_e(entries, short):
    task = get_task(PENDULUM)
    found, _ = parametric(("inside", "outside", "nominal"), task.robot.prior, 5, 1)
    for tables in measure.measure(task, entries, found, lambda f, note: None).values():
        for rows in tables[1:]:
            assert np.array_equal(rows["e"], tables[0]["e"])
            assert not np.array_equal(rows["return"], tables[0]["return"])


@pytest.mark.parametrize("name", ["pendulum/swingup", "cartpole/balance", "crazyflie/hard", "go1/hard"])
def test_worlds_outside_have_one_or_two_numbers_beyond_the_belief_and_all_within_hard_bounds(name):
    belief = get_task(name).robot.prior
    e = outside(belief, 200, seed=1)
    belief.space.check(e)
    ends = np.array([belief.interval(p, 1.0) for p in belief.space.names]).T
    slack = 1e-9 * (belief.space.high - belief.space.low)
    beyond = (e < ends[0] - slack) | (e > ends[1] + slack)
    assert set(np.unique(beyond.sum(axis=1))) == {1, 2}
    sensors = [any(t.startswith("signal:") for t in p.targets) for p in belief.space.params]
    assert not beyond[:, sensors].any()
    assert beyond.any(axis=0).sum() >= 4
    assert np.array_equal(e, outside(belief, 200, seed=1))


# Intervals ---------------------------------------------------------------------------------------------------------------


def test_the_interval_of_a_paired_difference_of_rates_ends_where_the_score_test_says_so():
    """Against the likelihood, maximised numerically."""
    n, more, less = 60, 9, 3
    a, b = np.zeros((2, n), dtype=bool)
    a[:more] = b[more : more + less] = True
    a[20:40] = b[20:40] = True
    found = rate_difference(a, b)
    assert found.mean == pytest.approx((more - less) / n)
    for end in (found.low, found.high):
        lowest = max(0.0, -end)
        minus = lambda q, d=end: -(more * np.log(q + d) + less * np.log(q) + (n - more - less) * np.log(1 - 2 * q - d))
        q = minimize_scalar(minus, bounds=(lowest + 1e-9, (1 - end) / 2 - 1e-9), method="bounded", options={"xatol": 1e-10}).x
        assert abs(more - less - n * end) / np.sqrt(n * (2 * q + end * (1 - end))) == pytest.approx(Z, abs=1e-3)
    swapped = rate_difference(b, a)
    assert (swapped.low, swapped.high) == pytest.approx((-found.high, -found.low))


def test_equal_outcomes_still_leave_a_doubt_about_rates():
    same = np.ones(50, dtype=bool)
    found = rate_difference(same, same)
    assert found.mean == 0
    assert found.high == pytest.approx(-found.low)
    assert 0.03 < found.high < 0.1
    never = rate_difference(same, ~same)
    assert never.mean == never.high == 1


def planted(rng, runs: int, worlds: np.ndarray, mean: float, seeds: float = 0.3) -> np.ndarray:
    """(runs, worlds): a common difficulty per world, a level per run, and noise."""
    return mean + worlds + seeds * rng.standard_normal((runs, 1)) + 0.3 * rng.standard_normal((runs, len(worlds)))


def test_intervals_over_worlds_and_seeds_cover_the_truth():
    rng, hits, shares = np.random.default_rng(0), 0, 0
    for _ in range(300):
        worlds = rng.standard_normal(40)
        start, goal, reached = (planted(rng, 4, worlds, m) for m in (0.0, 2.0, 1.2))
        found = estimate((1.0, goal), (-1.0, start))
        hits += found.low <= 2.0 <= found.high
        got = share(start, goal, reached)
        assert got.over == "worlds and seeds"
        shares += got.share.low <= 0.6 <= got.share.high
    assert 0.92 < hits / 300 <= 1.0
    assert 0.92 < shares / 300 <= 1.0


def test_three_seeds_of_the_goal_leave_as_much_doubt_about_a_share_as_three_seeds_do():
    """Student's t with two degrees of freedom is 4.3; with those of the other methods, one interval in six misses."""
    rng, hits = np.random.default_rng(7), []
    for _ in range(300):
        worlds = rng.standard_normal(30)
        many = [planted(rng, 8, worlds, mean, seeds=0.1) for mean in (0.0, 27.0)]
        got = share(many[0], planted(rng, 3, worlds, 30.0, seeds=1.0), many[1])
        if got.clear:
            hits.append(got.share.low <= 0.9 <= got.share.high)
    assert len(hits) > 250
    assert np.mean(hits) > 0.91


def test_the_share_of_a_gap_is_exact_without_noise_and_undefined_without_a_gap():
    rng = np.random.default_rng(1)
    start = rng.standard_normal((1, 50))
    assert share(start, start + 2, start + 1.5).share.mean == pytest.approx(0.75)
    whole = share(start, start + rng.uniform(1, 3, (1, 50)), start)
    assert (whole.share.mean, whole.share.low, whole.share.high) == pytest.approx((0, 0, 0), abs=1e-9)
    none = share(start, start + rng.standard_normal((1, 50)) * 0.1, start + 1)
    assert not none.clear
    assert np.isnan([none.share.mean, none.share.low, none.share.high]).all()
    worse = share(start, start - 1, start + 1)
    assert not worse.clear


# Methods and timidity ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def entries(tiny) -> list[Contender]:
    return contenders(tuple(tiny[n] for n in ("ppo-0", "ppo-1", "teacher", "student")), get_task(PENDULUM))


def table(scores, returns=None) -> measure.Rows:
    scores = np.asarray(scores, dtype=float)
    zeros = {name: np.zeros(len(scores)) for name in get_task(PENDULUM).metrics}
    own = {"score": scores, "return": scores if returns is None else np.asarray(returns, dtype=float)}
    return zeros | own | {"success": scores > 0.5, "failed": scores < 0}


def test_seeds_of_one_method_are_taken_together(entries):
    assert [e.method for e in entries] == ["ppo", "ppo", "teacher", "student"]
    rng = np.random.default_rng(2)
    worlds = rng.uniform(0.2, 0.8, 30)
    tables = [table(worlds + gain) for gain in (0.0, 0.002, 0.201, 0.161)]
    ppo, teacher, student = measure.groups(get_task(PENDULUM), entries, tables)
    assert ppo.runs == 2
    assert ppo.means["score"].mean == pytest.approx(worlds.mean() + 0.001)
    assert ppo.spread["score"] == pytest.approx(0.002 / np.sqrt(2))
    assert np.isnan(teacher.spread["score"])
    assert student.against["score"].mean == pytest.approx(0.16)
    ((method, start, goal, found),) = measure.recovered(entries, tables)
    assert (method, start, goal) == ("student", "ppo", "teacher")
    assert found.gap.mean == pytest.approx(0.2)
    assert found.share.mean == pytest.approx(0.8)
    assert found.share.low < 0.8 < found.share.high


def test_what_is_recovered_is_told_against_the_ppo_that_is_most_like_the_teacher(entries):
    """Not against one that trained in the nominal world only, even if that one is named first."""
    nominal = replace(entries[0].run, belief=entries[0].run.belief.nominal())
    four = [replace(entries[0], run=nominal, method="ppo, range 0 %"), *entries[1:]]
    worlds = np.linspace(0.2, 0.8, 30)
    ((_, start, _, found),) = measure.recovered(four, [table(worlds + gain) for gain in (-0.5, 0.0, 0.2, 0.05)])
    assert start == "ppo"
    assert found.share.mean == pytest.approx(0.25)


def test_a_method_that_always_succeeds_is_not_certain_to(entries):
    good = [table(np.full(20, 0.9))] * 4
    for group in measure.groups(get_task(PENDULUM), entries, good):
        assert group.success.rate == 1.0
        assert group.success.low < 0.9


def test_runs_can_be_methods_by_their_names(tiny):
    """Folders that differ in a number at the end are seeds of one method, even where more was asked differently."""
    found = contenders(tuple(tiny[n] for n in ("ppo-0", "ppo-1", "teacher", "student")), get_task(PENDULUM), by_name=True)
    assert [entry.method for entry in found] == ["ppo", "ppo", "teacher", "student"]
    one, other = found[0].run, found[2].run
    assert named_methods(["a2", "a3", "b-1"], [one, one, other]) == ["a2", "a3", "b"]
    with pytest.raises(BadInput, match=r"is one of a, but its method is ppo, not teacher"):
        named_methods(["a-0", "a_1"], [one, other])


def test_realities_count_once_each_however_many_episodes_they_have():
    rows = [
        {"score": np.array([a, a]), "success": np.array([True, False]), "failed": np.array([False, True])} for a in (0.2, 0.6)
    ]
    whole = measure._joined(rows)
    assert whole["score"].tolist() == [0.2, 0.6]
    assert len(whole["success"]) == len(whole["failed"]) == 4


def test_runs_that_differ_in_more_than_their_seed_say_in_what(tiny):
    from isthmus.adapt.comparison.contend import method_names
    from isthmus.learn import runs

    a, b = runs.load(tiny["ppo-0"]), runs.load(tiny["ppo-1"])
    assert method_names([a, b]) == ["ppo", "ppo"]
    longer = replace(b, plan=replace(b.plan, steps=800))
    assert method_names([a, longer]) == ["ppo, steps 400", "ppo, steps 800"]
    narrow = replace(b, belief=b.belief.scaled(0.0))
    first, second = method_names([a, narrow])
    assert first == f"ppo, range {100 * width(a.belief):.0f} %"
    assert second == "ppo, range 0 %"
    some = b.belief.factors
    other = replace(b, belief=b.belief.replace(replace(some[0], high=some[0].high * (1 + 1e-9))))
    assert len(set(method_names([a, other]))) == 2
    nearly = replace(b, plan=replace(b.plan, settings=replace(b.plan.settings, clip=0.2 * (1 + 1e-12))))
    assert len(set(method_names([a, nearly]))) == 2


def test_runs_are_seeds_of_one_method_only_if_the_runs_before_them_are(tiny):
    from isthmus.adapt.comparison.contend import method_names
    from isthmus.learn import runs

    ppo, teacher, student = (runs.load(tiny[n]) for n in ("ppo-0", "teacher", "student"))
    assert student.plan.parent == runs.seedless_hash(teacher)

    def pooled(one, **changes) -> bool:
        return len(set(method_names([one, replace(one, plan=replace(one.plan, seed=9, **changes))]))) == 1

    again = replace(teacher, plan=replace(teacher.plan, seed=5))
    longer = replace(teacher, plan=replace(teacher.plan, steps=800))
    narrow = replace(teacher, belief=teacher.belief.scaled(0.5))
    for kind in ("teacher", "start"):
        child = replace(ppo, plan=replace(ppo.plan, **{kind: "a" * 64}, parent=runs.seedless_hash(teacher)))
        assert pooled(child, **{kind: "b" * 64}, parent=runs.seedless_hash(again))
        for other in (longer, narrow, child):
            assert not pooled(child, **{kind: "b" * 64}, parent=runs.seedless_hash(other))
        grandchild = replace(child, plan=replace(child.plan, seed=3, **{kind: "c" * 64}))
        assert runs.seedless_hash(grandchild) == runs.seedless_hash(child)
        changed = replace(child, plan=replace(child.plan, parent=runs.seedless_hash(narrow)))
        assert runs.seedless_hash(changed) != runs.seedless_hash(child)
    assert not pooled(ppo, start="a" * 64)
    assert not pooled(ppo, failures="a" * 64)
    assert not pooled(replace(ppo, plan=replace(ppo.plan, failures="b" * 64)), failures="a" * 64)
    on = lambda run, **options: runs.Base(plan=ppo.plan, run=run, **options)
    residual = replace(ppo, plan=replace(ppo.plan, base=on("a" * 64)))
    assert pooled(residual)
    assert not pooled(residual, base=on("b" * 64))
    assert not pooled(residual, base=on("a" * 64, share=0.25))
    assert method_names([residual, ppo]) == ["ppo, base aaaaaa, share 0.5", "ppo"]


def test_a_run_that_did_not_note_its_parent_finds_it_among_the_others(tiny):
    from isthmus.adapt.comparison.contend import method_names
    from isthmus.learn import runs

    teacher, student = runs.load(tiny["teacher"]), runs.load(tiny["student"])
    second = replace(teacher, plan=replace(teacher.plan, seed=5), record={"hash": "5" * 64})
    old = [replace(student, plan=replace(student.plan, parent="", teacher=t.origin)) for t in (teacher, second)]
    assert method_names([*old, teacher, second, student]) == ["student"] * 2 + ["teacher"] * 2 + ["student"]
    assert len(set(method_names(old))) == 2


def test_a_fine_tuned_run_notes_what_was_asked_of_the_one_before(tiny, tmp_path):
    from isthmus.adapt.methods import Parents, begin
    from isthmus.learn import runs
    from isthmus.learn.finetune import plan_from

    start = runs.load(tiny["ppo-1"])
    plan = replace(plan_from(start, start.task, 0.1), steps=100)
    begin(tmp_path / "tuned", plan, start.task, start.belief, Parents(start=start), lambda trainer: None)
    tuned = runs.load(tmp_path / "tuned").plan
    assert (tuned.start, tuned.parent) == (start.origin, runs.seedless_hash(runs.load(tiny["ppo-0"])))


def test_what_a_widening_run_trained_on_is_what_its_newest_policy_met(tiny, tmp_path):
    """Whatever lies in adr.json: it is written at the end, and stays behind if the run is killed later on."""
    from isthmus.adapt.adr import ADR
    from isthmus.adapt.comparison.contend import trained
    from isthmus.learn import checkpoint, runs

    plain = replace(runs.load(tiny["ppo-0"]), folder=tmp_path)
    plain.belief.scaled(0.1).save(tmp_path / "adr.json")
    assert trained(plain) == plain.belief
    widening = replace(plain, plan=replace(plain.plan, adr=True))
    adr = ADR(plain.belief, plain.plan.settings.worlds, plain.task.success)
    adr.reach[0] = 7, 3
    adr.restore(adr.state())
    for name, state in (("100", ADR(plain.belief, 8, 0.5).state()), ("200", adr.state())):
        arrays = {f"env.sampler.{key}": value for key, value in state.items()}
        checkpoint.write(tmp_path / "checkpoints" / f"{name}.safetensors", arrays, {})
    assert trained(widening) == adr.as_belief()
    (tmp_path / "adr.json").unlink()
    assert trained(widening) == adr.as_belief()
    checkpoint.write(tmp_path / "checkpoints" / "300.safetensors", {"x": np.zeros(1)}, {})
    with pytest.raises(BadInput, match=r"300\.safetensors"):
        trained(widening)


def test_names_are_short_and_differ(tmp_path):
    folders = tuple(tmp_path / p for p in ("a/x", "b/x", "b/y", "b/y"))
    assert short_names(folders) == ["a/x", "b/x", "y", "y (2)"]


def ranged(entry: Contender, method: str, part: float, **plan) -> Contender:
    """The same entry as a run of another method, trained over part of the ranges."""
    belief = entry.run.belief.scaled(part)
    run = replace(entry.run, belief=belief, plan=replace(entry.run.plan, **plan))
    return replace(entry, method=method, run=run, trained=belief)


def test_a_loss_in_the_nominal_world_is_told_with_its_reason(entries):
    rng = np.random.default_rng(3)
    best = rng.uniform(0.7, 0.9, 40)
    narrow, wide = ranged(entries[0], "narrow", 0.2), ranged(entries[1], "wide", 1.0, seed=7)
    four = [narrow, wide, *entries[2:]]
    found = measure.timidity(
        four, [table(best), table(best - 0.08), table(best - 0.01), table(best - rng.uniform(-3, 3.4, 40))], 0.05
    )
    assert [t.against for t in found] == ["narrow"] * 3
    assert [t.timid for t in found] == [True, False, False]
    assert found[0].loss.mean == pytest.approx(0.08)
    told = found[0].sentence()
    assert "wide loses 0.08 (0.08 to 0.08, over worlds) of score in the nominal world against narrow" in told
    assert f"{100 * width(wide.trained):.0f} % of the space, the other on {100 * width(narrow.trained):.0f} %" in told
    assert "timid" in told
    held = measure.timidity(four[:2], [table(best), table(best - 0.08)], 0.05, reference="wide")
    assert held[0].loss.mean == pytest.approx(-0.08)


def test_wide_ranges_are_the_cause_only_if_nothing_else_differs(entries):
    best = np.linspace(0.7, 0.9, 40)
    narrow = ranged(entries[0], "narrow", 0.2)

    def told(other: Contender) -> measure.Timidity:
        return measure.timidity([narrow, other], [table(best), table(best - 0.08)], 0.05)[0]

    assert told(ranged(entries[0], "wide", 1.0, seed=4, adr=True)).timid
    for other in (
        ranged(entries[0], "narrower", 0.1),
        ranged(entries[0], "longer", 1.0, steps=800),
        ranged(entries[0], "tuned", 1.0, start="a" * 64),
        ranged(entries[2], "teacher", 1.0),
    ):
        assert told(other).lost
        assert not told(other).timid
        assert "timid" not in told(other).sentence()


def test_one_lucky_seed_makes_no_reference(entries):
    rng = np.random.default_rng(6)
    worlds = rng.uniform(-0.05, 0.05, 40)
    lucky = [ranged(entries[0], "lucky", 0.2), ranged(entries[1], "lucky", 0.2)]
    steady = [ranged(entries[0], "steady", 1.0), ranged(entries[1], "steady", 1.0)]
    (found,) = measure.timidity([*lucky, *steady], [table(worlds + m) for m in (0.95, 0.55, 0.8, 0.81)], 0.05)
    assert (found.method, found.against, found.over) == ("lucky", "steady", "worlds and seeds")
    assert found.loss.mean == pytest.approx(0.055)
    # Two seeds that are 0.4 apart leave everything open.
    assert not found.lost
    alone = measure.timidity([lucky[0], *steady], [table(worlds + m) for m in (0.95, 0.8, 0.81)], 0.05)
    assert [t.against for t in alone] == ["steady"]


# Sweeps ------------------------------------------------------------------------------------------------------------------


def test_a_sweep_goes_from_bound_to_bound_and_changes_nothing_else(entries, monkeypatch):
    task, asked = get_task(PENDULUM), []

    def noted(task, entry, ground, report):
        asked.append((entry.name, ground))
        return table(np.full(ground.worlds, 0.6))

    monkeypatch.setattr(sweeping, "rows_of", noted)
    name = "weight_mass"
    found = sweeping.sweep(task, entries[:2], name, task.robot.prior, 20, 7, lambda f, note: None)
    param, column = task.robot.space[name], task.robot.space.index(name)
    assert (found.values[0], found.values[-1]) == (param.low, param.high)
    assert len(asked) == 2 * sweeping.VALUES
    assert found.curves[0].trained == reach(task.robot.prior, name)
    rest = np.delete(asked[0][1].e, column, axis=1)
    for (_, ground), value in zip(asked, found.values * 2, strict=True):
        assert ground.seed == 7
        assert (ground.e[:, column] == value).all()
        assert np.array_equal(np.delete(ground.e, column, axis=1), rest)


# Recovery ----------------------------------------------------------------------------------------------------------------


def test_a_change_shows_from_its_tick_on_and_not_before(entries):
    task, actor = brief(seconds=0.8), entries[0].actor
    event = recovery.Event.of(task, {"strength": task.robot.space["strength"].low}, {}, 0.4)
    assert event.before == {"strength": task.robot.space["strength"].nominal}
    e = np.tile(task.robot.space.nominal, (4, 1))
    changed, same = (recovery.follow(task, actor, e, 5, event, flag) for flag in (True, False))
    assert changed.score.shape == (round(0.8 * task.robot.contract.rate), 4)
    assert np.array_equal(changed.error[: event.tick], same.error[: event.tick])
    assert not np.array_equal(changed.error[event.tick :], same.error[event.tick :])
    assert changed.standing.all()
    nothing = replace(event, after=event.before)
    again = recovery.follow(task, actor, e, 5, nothing, True)
    assert np.array_equal(again.score, same.score)
    still = recovery.summary("x", again, same, event.tick, 0.02)
    assert still.seconds.high == still.lost.high == still.worst == 0


def test_the_last_tick_is_seen_before_the_world_begins_again(entries):
    """The sum over the trace is the score that the environment itself counts."""
    task, actor = brief(seconds=0.5), entries[0].actor
    event = recovery.Event.of(task, {"strength": 1.0}, {}, None)
    e = task.robot.prior.sample(np.random.default_rng(0), 3)
    from isthmus.learn.evaluate import evaluate

    trace = recovery.follow(task, actor, e, 5, event, False)
    assert trace.score.mean(axis=0) == pytest.approx(evaluate(task, actor, 3, 5, e=e).episodes["score"], abs=1e-6)


def trace(score: np.ndarray, standing: np.ndarray | None = None) -> recovery.Trace:
    return recovery.Trace(score, 1 - score, np.ones(score.shape, bool) if standing is None else standing)


def test_recovery_is_told_from_planted_curves():
    tick, at, n = 0.02, 100, 30
    rng = np.random.default_rng(4)
    same = 0.8 + 0.02 * rng.standard_normal((400, n))
    time = (np.arange(400) - at) * tick
    dip = np.where(time >= 0, 0.4 * np.exp(-np.maximum(time, 0) / 0.5), 0.0)[:, None]
    found = recovery.summary("x", trace(same - dip), trace(same), at, tick)
    # The dip passes 5 % of 0.8 after 0.5 s · ln 10; a mean over the last 0.2 s is up to that late.
    passed = 0.5 * np.log(0.4 / 0.04)
    assert passed <= found.seconds.mean <= passed + 0.22
    assert found.seconds.low <= found.seconds.mean <= found.seconds.high
    assert found.back == 1.0
    assert found.lost.mean == pytest.approx(dip[-50:].mean())
    assert found.before == pytest.approx(0.8, abs=0.01)
    lasting = recovery.summary("x", trace(same - 0.1 * (time >= 0)[:, None]), trace(same), at, tick)
    assert np.isinf(lasting.seconds.mean)
    assert lasting.back == 0.0
    assert lasting.lost.mean == pytest.approx(0.1)


def test_worlds_that_fail_are_counted_and_do_not_make_the_rest_look_recovered():
    tick, at, n = 0.02, 50, 20
    same = np.full((200, n), 0.8)
    score, standing = same.copy(), np.ones((200, n), dtype=bool)
    score[at:, :8] = 0.1
    standing[120:, :8] = False
    standing[:, 19] = np.arange(200) < 30
    found = recovery.summary("x", trace(score, standing), trace(same), at, tick)
    assert found.seconds.mean == 0
    assert (found.failed.rate, found.failed.n) == (8 / 19, 19)
    assert found.failed_anyway.rate == 0
    assert np.allclose(found.curves["score"], 0.8)
    gone = recovery.summary("x", trace(score, np.zeros_like(standing)), trace(same), at, tick)
    assert np.isinf(gone.seconds.mean)
    assert np.isnan(gone.lost.mean)


def test_runs_of_one_method_are_resampled_world_by_world():
    rng = np.random.default_rng(5)
    same, lost = np.full((100, 10), 0.8), 0.1 * rng.standard_normal(10)
    changed = same - np.where(np.arange(100) >= 50, 1, 0)[:, None] * lost
    one = recovery.summary("x", trace(changed), trace(same), 50, 0.02)
    twice = recovery.summary("x", trace(np.tile(changed, 2)), trace(np.tile(same, 2)), 50, 0.02, runs=2)
    assert vars(twice.lost) == pytest.approx(vars(one.lost))
    assert twice.back == one.back


def test_seeds_of_one_method_that_recover_differently_leave_a_doubt():
    """Worlds that are all alike leave none."""
    tick, at, n = 0.02, 50, 10
    same, ticks = np.full((250, n), 0.8), np.arange(250)[:, None]
    planted = {25: 0.01, 100: 0.03}
    runs = [same - np.where(ticks < at + k, 0.4, lost) * (ticks >= at) for k, lost in planted.items()]
    soon, late = (recovery.summary("x", trace(run), trace(same), at, tick) for run in runs)
    assert soon.seconds.low == soon.seconds.high < late.seconds.low == late.seconds.high
    joined, twice = np.concatenate(runs, axis=1), trace(np.tile(same, 2))
    both = recovery.summary("x", trace(joined), twice, at, tick, runs=2)
    assert (both.seconds.low, both.seconds.high) == (soon.seconds.low, late.seconds.high)
    lost = np.repeat([[0.01], [0.03]], n, axis=1)
    assert vars(both.lost) == pytest.approx(vars(estimate((1.0, lost))))
    assert both.lost.low < lost.min()
    assert both.lost.high > lost.max()
    fell = np.ones(joined.shape, dtype=bool)
    fell[-1, :4] = False
    some = recovery.summary("x", trace(joined, fell), twice, at, tick, runs=2)
    assert some.lost.mean == pytest.approx(0.02)  # worlds in which one run fell say nothing of the method
    fell[-1, :n] = False
    assert np.isnan(recovery.summary("x", trace(joined, fell), twice, at, tick, runs=2).lost.mean)


# At the command line -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def realities(tmp_path_factory):
    folder = tmp_path_factory.mktemp("realities")
    (folder / "plain.toml").write_text('robot = "pendulum"\n')
    (folder / "heavy.toml").write_text('robot = "pendulum"\n[params]\npayload = 0.1\n')
    return folder


def test_everything_is_in_the_record_and_fits_a_terminal_of_80_columns(capsys, tiny, realities, tmp_path, monkeypatch, short):
    from isthmus.cli import show

    monkeypatch.setattr(show.out, "_width", 80)
    monkeypatch.setattr(sweeping, "VALUES", 3)
    names = [tiny[n] for n in ("ppo-0", "ppo-1", "teacher", "student")]
    options = ["--worlds", "5", "--reality", realities, "--sweep", "payload", "--change", "payload=0.1", "--at", "0.1"]
    code, out, err = call(capsys, "compare", *names, *options, "-o", tmp_path / "out")
    assert code == 0, err
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"compare.json", "compare.png", "sweep.png", "recovery.png"}
    record = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert list(record["grounds"]) == ["inside", "outside", "nominal", "heavy", "plain", "realities"]
    assert record["grounds"]["heavy"]["worlds"] + record["grounds"]["plain"]["worlds"] == 5
    for ground in record["grounds"].values():
        assert [r["name"] for r in ground["runs"]] == ["ppo-0", "ppo-1", "teacher", "student"]
        assert [m["runs"] for m in ground["methods"]] == [2, 1, 1]
        assert set(ground["runs"][0]["success"]) == {"rate", "low", "high", "n"}
        assert {"score", "return", "angle_error", "power"} <= set(ground["runs"][0]["means"])
        assert ground["recovered"][0]["method"] == "student"
    assert len(record["sweep"][0]["curves"][0]["success"]) == 3
    assert record["change"]["at"] == 0.1
    assert len(record["change"]["runs"][0]["curves"]["score"]) == 15
    assert record["hash"]
    assert all(len(r["run_hash"]) == len(r["belief_hash"]) == 64 for r in record["runs"])
    tables = [line for line in out.splitlines() if line.startswith(("ppo-", "teacher ", "student ", "run "))]
    assert max(len(line) for line in tables) <= 80
    assert sum("Δ success" in line for line in tables) == 6
    assert all("ppo-0" in line.split()[0] for line in tables if line.startswith("ppo-0"))
    broken = [line for line in out.splitlines() if line.startswith("  ") and line.strip()]
    assert not broken


def test_a_file_may_be_asked_for_instead_of_a_folder(capsys, tiny, tmp_path, short):
    for name in ("x.json", "y.png"):
        options = ["--worlds", "3", "--grounds", "nominal", "--json"]
        code, out, err = call(capsys, "compare", tiny["ppo-0"], *options, "-o", tmp_path / name)
        assert code == 0, err
        assert json.loads(out)["files"] == [str(tmp_path / name)]
    assert {p.name for p in tmp_path.iterdir()} == {"x.json", "y.png"}


def test_what_was_found_is_told_even_if_it_cannot_be_written(capsys, tiny, tmp_path, monkeypatch, short):
    from isthmus import files

    def full(path, data):
        raise BadInput(f"cannot write {path}: the disk is full.")

    monkeypatch.setattr(files, "atomic_write", full)
    options = ["compare", tiny["ppo-0"], "--worlds", "2", "--grounds", "nominal", "-o", tmp_path / "x.json"]
    code, out, err = call(capsys, *options)
    assert code == 2
    assert "nominal, 2 worlds" in out
    assert "the disk is full" in err
    assert "wrote" not in out
    code, out, err = call(capsys, *options, "--json")
    told = json.loads(out)
    assert (code, told["exit"], told["files"]) == (2, 2, [])
    assert "the disk is full" in told["error"]
    assert told["grounds"]["nominal"]["runs"]


def test_a_difference_of_rates_shows_both_ends_of_its_interval():
    from isthmus.cli.compared import points

    assert points(Estimate(0.02, -0.051, 0.03)) == "+2.0 (-5.1 to +3.0)"


def test_every_example_of_the_help_has_a_line_of_its_own(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    examples = [line for line in capsys.readouterr().out.splitlines() if "example:" in line]
    assert len(examples) == 3
    assert all(line.startswith("example: isthmus compare") and len(line) <= 80 for line in examples)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["ppo-0", "cart"], "pendulum"),
        (["ppo-0", "--task", "crazyflie/hover"], "crazyflie"),
        (["ppo-0", "--task", "pendulum/swing"], "pendulum/swingup"),
        (["ppo-0", "absent"], "absent"),
        (["ppo-0", "--sweep", "paylod"], "payload"),
        (["ppo-0", "--change", "paylod=1"], "payload"),
        (["ppo-0", "--change", "payload"], "NAME=VALUE"),
        (["ppo-0", "--change", "payload=1e9"], "hard bounds"),
        (["ppo-0", "--change", "payload=0.1", "--before", "strength=1"], "--change"),
        (["ppo-0", "--change", "payload=0.1", "--at", "10"], "episode"),
        (["ppo-0", "--change", "payload=0.1", "--at", "nan"], "episode"),
        (["ppo-0", "--at", "1"], "--change"),
        (["ppo-0", "--reality", "empty"], "no reality"),
        (["ppo-0", "--reality", "other"], "one.toml"),
        (["ppo-0", "--worlds", "0"], "--worlds"),
        (["ppo-0", "--seed", "-1"], "--seed"),
        (["ppo-0", "--grounds", "insight"], "inside"),
        (["ppo-0", "--grounds"], "nothing"),
        (["ppo-0", "--reference", "ppo-1"], "--reference"),
        (["ppo-0", "--reference", "ppo-0", "--grounds", "inside"], "--reference needs the nominal ground"),
        (["ppo-0", "--margin", "nan"], "--margin"),
        (["ppo-0", "--margin", "0.05", "--grounds", "inside"], "--margin needs the nominal ground"),
        (["ppo-0", "--sweep", "payload", "strength", "payload"], "'payload' more than once"),
        (["ppo-0", "--change", "payload=0.1", "payload=0.2"], "'payload' more than once"),
        (["ppo-0", "-o", "/proc/x"], "/proc/x"),
        (["ppo-0", "-o", "empty/../ppo-0/run.json/x"], "run.json"),
        (["ppo-0", "-o", "folder.json"], "folder.json"),
        (["ppo-0", "--belief", "b.json"], "b.json"),
        ([], "RUN"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_simulated(capsys, tiny, tmp_path, monkeypatch, options, hint):
    monkeypatch.chdir(tmp_path)
    for module, name in ((measure, "evaluate"), (recovery, "follow")):
        monkeypatch.setattr(module, name, lambda *args: pytest.fail("simulated"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "one.toml").write_text('robot = "go1"\n')
    for name, folder in tiny.items():
        (tmp_path / name).symlink_to(folder)
    code, _, err = call(capsys, "compare", *options, *([] if "--worlds" in options else ["--worlds", "2"]))
    assert code == 2
    assert hint in err
    assert err.count("\n") == 1


def test_a_run_that_sees_what_the_task_does_not_give_is_refused(tiny):
    from isthmus.adapt.comparison.contend import check_signals

    task = get_task("go1/walk")
    entry = contenders((tiny["ppo-0"],), get_task(PENDULUM))[0]
    with pytest.raises(BadInput, match="observes"):
        check_signals(entry.run, entry.actor, task)
