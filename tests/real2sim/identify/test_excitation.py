"""Experiments: worth what a fit then finds, inside the limits, better than what one would try by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from isthmus.cli.main import main
from isthmus.data.mcap.reader import read_episode
from isthmus.data.mcap.writer import write_episode
from isthmus.deploy.command_schedule import CommandSchedule
from isthmus.deploy.onnx_controller import OnnxController
from isthmus.real2sim.identify.excitation import ExperimentEvaluator, excite
from isthmus.real2sim.identify.excitation_signals import CommandSteps, Multisine
from isthmus.real2sim.identify.fit import fit
from isthmus.real2sim.identify.identification import prepare_segments
from isthmus.robots import get_robot
from isthmus.sim.simulate_recording import record_targets
from isthmus.tasks.catalogue import get_task

RNG = np.random.default_rng


@pytest.fixture(scope="module")
def pendulum():
    return get_robot("pendulum")


NAMES = ("joint_damping", "joint_friction", "action_delay")


@pytest.fixture(scope="module")
def found(pendulum):
    return excite(ExperimentEvaluator(pendulum, pendulum.prior, Multisine(pendulum, 4.0), 0.3, NAMES, threads=1), tries=60)


def test_it_is_worth_more_than_a_chirp_and_keeps_inside_the_limits(pendulum, found):
    judge = ExperimentEvaluator(pendulum, pendulum.prior, Multisine(pendulum, 4.0), 0.3, NAMES, threads=1)
    assert found.limit_excess == 0
    assert found.information_gain_nats > judge.experiment(judge.excitation.baseline()).information_gain_nats + 0.5


def test_what_is_expected_is_what_a_fit_finds(pendulum, found):
    """The spread that was promised, within a factor of two, for a fit of the same parameters to a noisy recording."""
    belief = pendulum.prior.fix({n: float(pendulum.space[n].nominal) for n in pendulum.prior.free().names if n not in NAMES})
    expected = ExperimentEvaluator(pendulum, belief, Multisine(pendulum, 4.0), 0.3, NAMES, threads=1).experiment(found.targets)
    episode = record_targets(pendulum, belief.median(), found.targets, seed=3)
    parts = prepare_segments(pendulum, [episode], belief, horizon_seconds=0.3, threads=1)
    done = fit(pendulum, parts.train, belief, parts.noise_floor, NAMES, threads=1)
    promised, came = (np.sqrt(np.diag(c)) for c in (expected.covariance, done.covariance))
    assert np.all(came < 2.0 * promised)
    assert np.all(promised < 2.0 * came)


def test_what_a_model_lacks_makes_an_experiment_tell_less(pendulum, found):
    clear, dim = (
        ExperimentEvaluator(pendulum, pendulum.prior, Multisine(pendulum, 4.0), 0.3, NAMES, threads=1, unexplained_noise=left)
        for left in ({"joint_pos": 0.002, "joint_vel": 0.1}, {"joint_pos": 0.02, "joint_vel": 1.0})
    )
    told = [judge.information(found.targets[None])[0] for judge in (clear, dim)]
    # Not a hundredth of it: what is not known of the starts is more than the noise of a clear recording.
    assert np.all(np.diag(told[1]) < 0.2 * np.diag(told[0]))


def test_doing_it_twice_tells_more_and_standing_still_nothing(pendulum, found):
    judge = ExperimentEvaluator(pendulum, pendulum.prior, Multisine(pendulum, 4.0), 0.3, NAMES, threads=1)
    once = judge.information(found.targets[None])[0]
    both = judge.information(np.stack([found.targets, found.targets]))
    assert np.allclose(both[0], both[1])
    assert np.allclose(both[0], once)
    assert judge.information_gain_nats(2 * once) > judge.information_gain_nats(once)
    still = np.tile(pendulum.default, (len(found.targets), 1))
    assert judge.information_gain_nats(judge.information(still[None])[0]) < 0.1


@pytest.mark.parametrize("name", ["pendulum", "cartpole", "go1", "crazyflie"])
def test_waves_stay_inside_the_limits_and_begin_and_end_at_rest(name):
    robot = get_robot(name)
    waves = Multisine(robot, 3.0)
    targets = waves(3.0 * RNG(0).standard_normal((5, waves.coefficient_count)))
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
    controller = OnnxController.load(path)
    assert controller.manifest.robot == pendulum.contract
    assert main(["excite", "pendulum", *options, "-o", str(tmp_path / "probe.mcap"), "--json"]) == 0
    episode = read_episode(tmp_path / "probe.mcap")
    still = {"joint_pos": np.zeros(1, np.float32)}
    controller.reset()
    played = np.array([controller.tick(still) for _ in range(len(episode))])
    assert np.allclose(played, episode.target, atol=1e-6)
    assert set(episode.origin["expected"]) == {"joint_damping"}
    write_episode(tmp_path / "out.mcap", record_targets(pendulum, pendulum.space.nominal, episode.target, seed=1))
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
    from isthmus.learn.algorithms.algorithm import PPOTrainer
    from isthmus.learn.algorithms.ppo import PPOConfig

    task = get_task("go1/walk")
    small = PPOConfig(worlds=8, rollout_ticks=8, minibatch_size=32, hidden=(16,), critic_hidden=(16,))
    run = runs.create(
        tmp_path_factory.mktemp("walker") / "run", runs.RunConfig(task.name, settings=small), task, task.robot.prior
    )
    PPOTrainer(run).save()
    return run


def test_commands_hold_for_a_second_and_can_be_written_down(walker):
    from isthmus.learn.runs import load_actor

    walks = CommandSteps(load_actor(walker), walker.task, 3.0)
    orders = walks(RNG(0).standard_normal((1, walks.coefficient_count)))
    rate = round(walker.task.robot.contract.rate)
    assert orders.shape == (1, 3 * rate, 3)
    assert (orders == np.repeat(orders[:, ::rate], rate, axis=1)).all()
    signal = walker.task.command.signal
    operator = CommandSchedule((signal,), tuple(walks.command_entries(orders[0])))
    told = np.array([operator.row_at(tick / rate) for tick in range(3 * rate)])
    assert np.allclose(told, orders[0])
    assert np.ptp(walks.baseline(), axis=0)[0] > 0


@pytest.mark.slow
def test_a_walk_tells_of_load_and_gains(walker, capsys):
    robot = walker.task.robot
    from isthmus.learn.runs import load_actor

    judge = ExperimentEvaluator(
        robot, robot.prior, CommandSteps(load_actor(walker), walker.task, 1.0), 0.2, ("payload", "kp"), threads=1
    )
    found = judge.experiment(judge.excitation.baseline())
    assert found.targets.shape == (len(found.commands), 12)
    assert found.information_gain_nats > 1.0
    path = str(walker.folder)
    options = ["--policy", path, "--seconds", "1", "--horizon", "0.2", "--tries", "2", "--only", "payload", "--json"]
    assert main(["excite", "go1", *options]) == 0
    assert json.loads(capsys.readouterr().out)["commands"]
    assert main(["excite", "go1", *options, "-o", "probe.controller"]) == 2
    assert main(["excite", "pendulum", "--policy", path]) == 2
    assert "for go1, not for pendulum" in capsys.readouterr().err
