"""Runs that correct another controller: the base is kept with them, and what is no base is refused in a sentence."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from isthmus.cli.main import main
from isthmus.core.errors import BadInput
from isthmus.core.files import content_hash
from isthmus.learn import checkpoint, runs, training
from isthmus.learn.policies.base_controller import read_base
from isthmus.learn.policies.context import Context
from isthmus.learn.runs import BaseController, RunConfig
from isthmus.learn.training import TrainingInputs
from isthmus.tasks.catalogue import get_task
from support.paths import DOCS
from support.short_training import FILE, PENDULUM, SMALL, work

# Runs -----------------------------------------------------------------------------------------------------------------


def policy_run(folder: Path, name: str = "pendulum/swingup", **fields) -> Path:
    """A run with a policy that was hardly trained."""
    task = get_task(name)
    training.train(
        folder, RunConfig(name, steps=1, settings=SMALL, **fields), task, task.robot.prior, TrainingInputs(), work(1)
    )
    return folder


def residual_run(folder: Path, base: Path, name: str = "pendulum/swingup", iterations: int = 3):
    task = get_task(name)
    found, weights = read_base(base, task, 0.4)
    plan = RunConfig(name, steps=1, settings=SMALL, base=found)
    return training.train(folder, plan, task, task.robot.prior, TrainingInputs(base=weights), work(iterations))


def test_a_run_keeps_its_base_and_trains_on_top_of_it(tmp_path):
    """Also when the base is itself a residual, and when the folder that it came from is gone."""
    policy_run(tmp_path / "a")
    first = runs.load_actor(runs.load(tmp_path / "a"))
    residual_run(tmp_path / "b", tmp_path / "a")
    trainer = residual_run(tmp_path / "c", tmp_path / "b")
    middle = runs.load_actor(runs.load(tmp_path / "b"))
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    run = runs.load(tmp_path / "c")
    assert run.config == trainer.run.config
    assert run.config.base.config.base.residual_scale == 0.4
    found = runs.load_actor(run)
    same = lambda a, b: all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())
    assert same(trainer.actor, found)
    assert same(middle, found.base)
    assert same(first, found.base.base)
    assert list(found.net.parameters())[-2].abs().max() > 0


def test_stopped_and_resumed_equals_uninterrupted(tmp_path):
    policy_run(tmp_path / "a")
    whole = residual_run(tmp_path / "whole", tmp_path / "a", iterations=4).arrays()
    residual_run(tmp_path / "parts", tmp_path / "a", iterations=2)
    again = training.resume(tmp_path / "parts", 0, 0.0, work(2)).arrays()
    assert whole.keys() == again.keys()
    for name in whole:
        assert np.array_equal(whole[name], again[name], equal_nan=True), name


def test_a_run_that_lost_its_base_is_not_resumed(tmp_path):
    policy_run(tmp_path / "a")
    residual_run(tmp_path / "b", tmp_path / "a", iterations=0)
    shutil.rmtree(tmp_path / "b" / "checkpoints")
    with pytest.raises(BadInput, match="start again"):
        training.resume(tmp_path / "b", 0, 0.0, work(1))


def test_the_base_of_a_record_is_read_strictly(tmp_path):
    residual_run(tmp_path / "b", _law(tmp_path, FILE), iterations=0)
    record = json.loads((tmp_path / "b" / "run.json").read_text())
    for change, hint in (
        ({"law": None}, "one of the two"),
        ({"residual_scale": 1.5}, "reach"),
        ({"residual_scal": 0.5}, "residual_scale"),
        ({"law": {"constant": [0.0, 0.0], "gains": {}}}, "constants"),
        ({"law": None, "config": {"task": "cartpole/balance"}}, "other targets"),
    ):
        plan = record["plan"] | {"base": record["plan"]["base"] | change}
        rest = {k: v for k, v in record.items() if k != "hash"} | {"plan": plan}
        (tmp_path / "b" / "run.json").write_text(json.dumps(rest | {"hash": content_hash(rest)}))
        with pytest.raises(BadInput, match=hint):
            runs.load_actor(runs.load(tmp_path / "b"))
    deep: dict = {"task": "pendulum/swingup"}
    for _ in range(300):
        deep = {"task": "pendulum/swingup", "base": {"config": deep}}
    rest |= {"plan": deep}
    (tmp_path / "b" / "run.json").write_text(json.dumps(rest | {"hash": content_hash(rest)}))
    with pytest.raises(BadInput, match="bases"):
        runs.load(tmp_path / "b")


def _law(folder: Path, text: str) -> Path:
    (folder / "law.toml").write_text(text)
    return folder / "law.toml"


def test_a_policy_of_another_space_is_no_base(tmp_path):
    policy_run(tmp_path / "a")
    task = get_task("pendulum/swingup")
    other = replace(task.robot, space=replace(task.robot.space, params=task.robot.space.params[1:]))
    with pytest.raises(BadInput, match="another Space"):
        read_base(tmp_path / "a", replace(task, robot=other), 0.5)


def test_checkpoints_hold_the_base(tmp_path):
    """Its weights, and what it asked for before the first tick."""
    policy_run(tmp_path / "a")
    kept = residual_run(tmp_path / "b", tmp_path / "a", iterations=0).collector.memory
    base = runs.load_actor(runs.load(tmp_path / "a"))
    with torch.no_grad():
        asked = base.target(base.act(kept["base.frames"].flatten(1)), {})
    assert torch.equal(kept["base_target"], asked)
    above, _ = checkpoint.read(checkpoint.newest(tmp_path / "b"))
    below, _ = checkpoint.read(checkpoint.newest(tmp_path / "a"))
    for name, array in below.items():
        if name.startswith("actor."):
            assert np.array_equal(above["actor.base." + name.removeprefix("actor.")], array)


# The command ----------------------------------------------------------------------------------------------------------


def test_a_residual_is_trained_from_the_command_line(tmp_path, capsys, quick):
    law, out = str(_law(tmp_path, FILE)), str(tmp_path / "r")
    options = ["--reach", "0.25", "--steps", "300", "--worlds", "8", "--json"]
    assert main(["train", "pendulum/swingup", "--base", law, "-o", out, *options]) == 0
    capsys.readouterr()
    run = runs.load(tmp_path / "r")
    assert run.config.base == BaseController(law=PENDULUM, residual_scale=0.25)
    actor = runs.load_actor(run)
    assert actor.reach.tolist() == [0.25 * run.task.policy.action_scale]
    assert torch.equal(actor.base.gain, torch.tensor([[-0.4, 3.0, 0.5]]))


def test_the_laws_in_the_guide_are_laws(tmp_path):
    guide = DOCS / "guides" / "residual-and-fine-tuning.md"
    found = re.findall(r"```toml\n(.*?)```", guide.read_text(), re.DOTALL)
    tasks = {"cartpole": "cartpole/balance", "pendulum": "pendulum/swingup"}
    for text in found:
        task = get_task(tasks[re.findall(r'robot = "(.*)"', text)[0]])
        base, weights = read_base(_law(tmp_path, text), task, 0.5)
        assert base.law is not None
        assert weights is None
    assert len(found) == 2


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (FILE.replace('"pendulum"', '"cartpole"'), "for 'cartpole', not for pendulum"),
        (FILE.replace('robot = "pendulum"\n', ""), 'write robot = "pendulum"'),
        (FILE.replace("joint_vel", "joint_velocity"), "'joint_vel'"),
        (FILE.replace(":angle", ":angel"), "'angle'"),
        (FILE.replace(":angle", ":gravity"), "only a quaternion"),
        (FILE.replace("[0.1]", "[0.1, 0.2]"), "2 constants, but joint_torque has 1"),
        (FILE.replace("3.0, 0.5", "3.0"), "'joint_pos:angle' must have 1 rows of 2 numbers"),
        (FILE.replace("[[-0.4]]", "[[-0.4], [1.0]]"), "'joint_vel' must have 1 rows of 1 numbers"),
        (FILE.replace("-0.4", '"a"'), "must be a number"),
        (FILE.replace("-0.4", "nan"), "finite"),
        (FILE.replace("constant", "constnat"), "'constant'"),
        (FILE.split("[gains]", maxsplit=1)[0], "no gains"),
        ("robot = ", "not valid TOML"),
    ],
)
def test_a_law_that_does_not_fit_is_one_sentence(tmp_path, capsys, text, hint):
    law = _law(tmp_path, text)
    assert main(["train", "pendulum/swingup", "--base", str(law), "-o", str(tmp_path / "r")]) == 2
    err = capsys.readouterr().err
    assert hint in err
    assert str(law) in err
    assert err.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_bases_and_options_that_do_not_fit_are_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _law(tmp_path, FILE)
    policy_run(tmp_path / "a")
    policy_run(tmp_path / "cart", "cartpole/balance")
    policy_run(tmp_path / "teacher", method="teacher", context=Context("privileged", 3, 8))
    runs.create(
        tmp_path / "new", RunConfig("pendulum/swingup"), get_task("pendulum/swingup"), get_task("pendulum/swingup").robot.prior
    )
    before = sorted(tmp_path.rglob("*"))
    for options, hint in (
        (["--base", "absent"], "absent"),
        (["--base", "cart"], "for cartpole, not for pendulum"),
        (["--base", "teacher"], "is a teacher"),
        (["--base", "new"], "no checkpoint"),
        (["--base", "a/checkpoints"], "not a run"),
        (["--base", "a", "--method", "student", "--teacher", "teacher"], "only ppo"),
        (["--base", "law.toml", "--method", "rma"], "only ppo"),
        (["--base", "a", "--reach", "0"], "above 0 and up to 1"),
        (["--base", "a", "--reach", "1.5"], "above 0 and up to 1"),
        (["--base", "a", "--reach", "nan"], "above 0 and up to 1"),
        (["--reach", "0.2"], "residual_scale goes with base"),
        (["--base", "a", "--from", "a"], "base does not go with start"),
    ):
        assert main(["train", "pendulum/swingup", "-o", "r", *options]) == 2, options
        err = capsys.readouterr().err
        assert hint in err, options
        assert err.count("\n") == 1, options
    assert main(["train", "-o", "a", "--resume", "--base", "law.toml"]) == 2
    assert "base cannot change" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
