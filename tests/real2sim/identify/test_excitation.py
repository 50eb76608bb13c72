"""Experiments: worth what a fit then finds, inside the limits, better than what one would try by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.data.reader import read
from isthmus.data.recording import write
from isthmus.deploy.controller import Controller
from isthmus.deploy.operator import Operator
from isthmus.identify.courses import Walks, Waves
from isthmus.identify.excite import Judge, excite
from isthmus.identify.fit import fit
from isthmus.identify.plant import record
from isthmus.identify.study import prepare
from isthmus.robots import get_robot
from isthmus.tasks import get_task

RNG = np.random.default_rng


@pytest.fixture(scope="module")
def pendulum():
    return get_robot("pendulum")


NAMES = ("joint_damping", "joint_friction", "action_delay")


@pytest.fixture(scope="module")
def found(pendulum):
    return excite(Judge(pendulum, pendulum.prior, Waves(pendulum, 4.0), 0.3, NAMES, threads=1), tries=60)


def test_it_is_worth_more_than_a_chirp_and_keeps_inside_the_limits(pendulum, found):
    judge = Judge(pendulum, pendulum.prior, Waves(pendulum, 4.0), 0.3, NAMES, threads=1)
    assert found.beyond == 0
    assert found.worth > judge.experiment(judge.course.by_hand()).worth + 0.5


def test_what_is_expected_is_what_a_fit_finds(pendulum, found):
    """The spread that was promised, within a factor of two, for a fit of the same parameters to a noisy recording."""
    belief = pendulum.prior.fix({n: float(pendulum.space[n].nominal) for n in pendulum.prior.free().names if n not in NAMES})
    expected = Judge(pendulum, belief, Waves(pendulum, 4.0), 0.3, NAMES, threads=1).experiment(found.targets)
    episode = record(pendulum, belief.median(), found.targets, seed=3)
    parts = prepare(pendulum, [episode], belief, ahead=0.3, threads=1)
    done = fit(pendulum, parts.train, belief, parts.floor, NAMES, threads=1)
    promised, came = (np.sqrt(np.diag(c)) for c in (expected.covariance, done.covariance))
    assert np.all(came < 2.0 * promised)
    assert np.all(promised < 2.0 * came)


def test_what_a_model_lacks_makes_an_experiment_tell_less(pendulum, found):
    clear, dim = (
        Judge(pendulum, pendulum.prior, Waves(pendulum, 4.0), 0.3, NAMES, threads=1, left=left)
        for left in ({"joint_pos": 0.002, "joint_vel": 0.1}, {"joint_pos": 0.02, "joint_vel": 1.0})
    )
    told = [judge.information(found.targets[None])[0] for judge in (clear, dim)]
    # Not a hundredth of it: what is not known of the starts is more than the noise of a clear recording.
    assert np.all(np.diag(told[1]) < 0.2 * np.diag(told[0]))


def test_doing_it_twice_tells_more_and_standing_still_nothing(pendulum, found):
    judge = Judge(pendulum, pendulum.prior, Waves(pendulum, 4.0), 0.3, NAMES, threads=1)
    once = judge.information(found.targets[None])[0]
    both = judge.information(np.stack([found.targets, found.targets]))
    assert np.allclose(both[0], both[1])
    assert np.allclose(both[0], once)
    assert judge.worth(2 * once) > judge.worth(once)
    still = np.tile(pendulum.default, (len(found.targets), 1))
    assert judge.worth(judge.information(still[None])[0]) < 0.1


@pytest.mark.parametrize("name", ["pendulum", "cartpole", "go1", "crazyflie"])
def test_waves_stay_inside_the_limits_and_begin_and_end_at_rest(name):
    robot = get_robot(name)
    waves = Waves(robot, 3.0)
    targets = waves(3.0 * RNG(0).standard_normal((5, waves.size)))
    target = robot.contract.target
    assert (targets >= np.array(target.low)).all()
    assert (targets <= np.array(target.high)).all()
    assert np.allclose(targets[:, 0], robot.default)


@pytest.mark.slow
def test_the_command_writes_targets_that_a_robot_can_play(pendulum, tmp_path, capsys):
    path = tmp_path / "probe.controller"
    options = ["--seconds", "3", "--tries", "8", "--horizon", "0.3", "--only", "joint_damping"]
    assert main(["excite", "pendulum", *options, "-o", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["parameters"]["joint_damping"]["expected"][0] > told["parameters"]["joint_damping"]["before"][0]
    controller = Controller.load(path)
    assert controller.manifest.robot == pendulum.contract
    assert main(["excite", "pendulum", *options, "-o", str(tmp_path / "probe.mcap"), "--json"]) == 0
    episode = read(tmp_path / "probe.mcap")
    still = {"joint_pos": np.zeros(1, np.float32)}
    controller.reset()
    played = np.array([controller.tick(still) for _ in range(len(episode))])
    assert np.allclose(played, episode.target, atol=1e-6)
    assert set(episode.origin["expected"]) == {"joint_damping"}
    write(tmp_path / "out.mcap", record(pendulum, pendulum.space.nominal, episode.target, seed=1))
    identify = ["identify", "pendulum", str(tmp_path / "out.mcap"), "--only", "joint_damping", "--expected"]
    assert main([*identify, str(tmp_path / "probe.mcap")]) == 0
    assert "came out" in capsys.readouterr().out
    assert main([*identify, str(tmp_path / "out.mcap")]) == 2
    capsys.readouterr()
    for wrong in (["--seconds", "0"], ["--tries", "0"], ["--only", "joint_dampin"], ["-o", str(tmp_path / "a.txt")]):
        assert main(["excite", "pendulum", *wrong]) == 2
    assert "joint_damping" in capsys.readouterr().err


# Commands to a policy -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def walker(tmp_path_factory):
    """A run of a policy that has hardly learnt to walk."""
    from isthmus.learn import runs
    from isthmus.learn.ppo import PPO
    from isthmus.learn.trainer import PPOTrainer

    task = get_task("go1/walk")
    small = PPO(worlds=8, ticks=8, minibatch=32, hidden=(16,), critic_hidden=(16,))
    run = runs.create(tmp_path_factory.mktemp("walker") / "run", runs.Plan(task.name, settings=small), task, task.robot.prior)
    PPOTrainer(run).save()
    return run


def test_commands_hold_for_a_second_and_can_be_written_down(walker):
    from isthmus.learn.runs import load_actor

    walks = Walks(load_actor(walker), walker.task, 3.0)
    orders = walks(RNG(0).standard_normal((1, walks.size)))
    rate = round(walker.task.robot.contract.rate)
    assert orders.shape == (1, 3 * rate, 3)
    assert (orders == np.repeat(orders[:, ::rate], rate, axis=1)).all()
    signal = walker.task.command.signal
    operator = Operator((signal,), tuple(walks.entries(orders[0])))
    told = np.array([operator.row(tick / rate) for tick in range(3 * rate)])
    assert np.allclose(told, orders[0])
    assert np.ptp(walks.by_hand(), axis=0)[0] > 0


@pytest.mark.slow
def test_a_walk_tells_of_load_and_gains(walker, capsys):
    robot = walker.task.robot
    from isthmus.learn.runs import load_actor

    judge = Judge(robot, robot.prior, Walks(load_actor(walker), walker.task, 1.0), 0.2, ("payload", "kp"), threads=1)
    found = judge.experiment(judge.course.by_hand())
    assert found.targets.shape == (len(found.orders), 12)
    assert found.worth > 1.0
    path = str(walker.folder)
    options = ["--policy", path, "--seconds", "1", "--horizon", "0.2", "--tries", "2", "--only", "payload", "--json"]
    assert main(["excite", "go1", *options]) == 0
    assert json.loads(capsys.readouterr().out)["commands"]
    assert main(["excite", "go1", *options, "-o", "probe.controller"]) == 2
    assert main(["excite", "pendulum", "--policy", path]) == 2
    assert "for go1, not for pendulum" in capsys.readouterr().err
