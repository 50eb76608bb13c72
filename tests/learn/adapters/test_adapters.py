"""Other libraries train on our environments: the same observations, rewards and ends as our own learner sees."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from rsl_rl.runners import OnPolicyRunner
from stable_baselines3 import PPO as SB3PPO
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize
from tensordict import TensorDict
from torch import Tensor

from isthmus.core.errors import BadInput
from isthmus.learn.adapters import gymnasium as gym_adapter
from isthmus.learn.adapters import rsl_rl as rsl_adapter
from isthmus.learn.adapters import sb3 as sb3_adapter
from isthmus.learn.algorithms.ppo import Collector, Critic, PPOConfig
from isthmus.learn.policies.actor import Actor, ActorSpec
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.env import Env
from isthmus.tasks.state import State
from isthmus.tasks.task import RewardTerm, Task

N, TICKS, SEED = 12, 40, 4


@cache
def short(name: str) -> Task:
    """A task whose episodes are over soon."""
    return replace(get_task(name), episode=0.3)


class Native:
    """What our own learner collects in a task, and what the environment answered."""

    def __init__(self, task: Task):
        torch.manual_seed(0)
        self.env = Env(task, N, seed=SEED, threads=1)
        actor = Actor(ActorSpec.for_task(task, (8,)), init_std=2.0)
        critic = Critic(self.env.critic_size, (8,))
        config = PPOConfig(worlds=N, rollout_ticks=TICKS)
        self.steps: list = []
        step = self.env.step
        self.env.step = lambda target: self.steps.append(step(target)) or self.steps[-1]  # type: ignore[method-assign]
        batch, _ = Collector(self.env, actor, critic, config, torch.Generator().manual_seed(1)).collect()
        shaped = (x.reshape(TICKS, N, -1) for x in (batch.observation, batch.critic_input, batch.action))
        self.observation, self.critic, self.action = shaped


@pytest.fixture(params=["go1/walk", "pendulum/swingup", "cartpole/balance"])
def native(request) -> Native:
    return _native(request.param)


@cache
def _native(name: str) -> Native:
    return Native(short(name))


def test_collected_episodes_end_both_ways():
    """The comparisons below see failures and time-outs, and actions beyond the clip."""
    walk, cart = _native("go1/walk"), _native("cartpole/balance")
    assert any(s.timed_out.any() for s in walk.steps)
    assert any(s.terminated.any() for s in walk.steps + cart.steps)
    assert (walk.action.abs() > walk.env.task.policy.action_clip).any()


def test_gymnasium_sees_what_our_learner_sees(native):
    envs = gym_adapter.VectorEnv(native.env.task, N, seed=99, threads=1)
    observation, _ = envs.reset(seed=SEED)
    for t, step in enumerate(native.steps):
        assert np.array_equal(observation, native.observation[t].numpy())
        held = observation
        observation, reward, terminated, truncated, info = envs.step(native.action[t].numpy())
        assert np.array_equal(held, native.observation[t].numpy()), "what was handed out does not change later"
        assert np.array_equal(reward, step.reward.double().numpy())
        assert np.array_equal(terminated, step.terminated.numpy())
        assert np.array_equal(truncated, step.timed_out.numpy())
        ended = terminated | truncated
        assert ended.any() == bool(info)
        if ended.any():
            assert np.array_equal(info["_final_obs"], ended)
            assert np.array_equal(info["final_info"]["score"][ended], step.finished["score"])
            assert all(envs.single_observation_space.contains(o) for o in info["final_obs"][ended])


def test_sb3_sees_what_our_learner_sees(native):
    envs = sb3_adapter.VecEnv(native.env.task, N, seed=99, threads=1)
    envs.seed(SEED)
    observation = envs.reset()
    for t, step in enumerate(native.steps):
        assert np.array_equal(observation, native.observation[t].numpy())
        observation, reward, done, infos = envs.step(native.action[t].numpy())
        assert np.array_equal(reward, step.reward.numpy())
        assert np.array_equal(done, (step.terminated | step.timed_out).numpy())
        assert [bool(i) for i in infos] == done.tolist()
        assert [i.get("TimeLimit.truncated", False) for i in infos] == step.timed_out.tolist()
        assert [i["score"] for i in infos if i] == step.finished["score"].tolist()


def test_rsl_rl_sees_what_our_learner_sees(native):
    env = rsl_adapter.VecEnv(native.env.task, N, seed=SEED, threads=1)
    observation = env.get_observations()
    with torch.inference_mode():
        for t, step in enumerate(native.steps):
            assert torch.equal(observation["policy"], native.observation[t])
            assert torch.equal(observation["critic"], native.critic[t])
            observation, reward, done, extras = env.step(native.action[t])
            assert torch.equal(reward, step.reward)
            assert torch.equal(done.bool(), step.terminated | step.timed_out)
            assert torch.equal(extras["time_outs"], step.timed_out)
    env.step(native.action[0])
    assert env.episode_length_buf.max() < env.max_episode_length


@pytest.mark.parametrize("name", ["go1/walk", "pendulum/swingup"])
def test_an_end_delivers_the_observation_that_would_have_come(name):
    """Without noise the last observation is the one that the same worlds give when the episode is longer."""
    task = short(name)
    prior = task.robot.prior
    quiet = prior.fix({n: 0.0 for n in prior.space.names if n.endswith("_noise")})
    settings = {"seed": SEED, "belief": quiet, "threads": 1, "training": False}
    longer = gym_adapter.VectorEnv(replace(task, episode=5.0), N, **settings)
    envs = gym_adapter.VectorEnv(task, N, **settings)
    other, third = sb3_adapter.VecEnv(task, N, **settings), rsl_adapter.VecEnv(task, N, **settings)
    first = envs.reset()[0]
    other.reset(), longer.reset()
    rng = np.random.default_rng(0)
    for _ in range(envs.rl_env.env.horizon):
        action = (0.3 * rng.standard_normal((N, envs.rl_env.action_size))).astype(np.float32)
        expected = longer.step(action)[0]
        observation, _, _, truncated, info = envs.step(action)
        infos, extras = other.step(action)[3], third.step(torch.from_numpy(action))[3]
    assert truncated.all(), "every episode reaches its end in the same tick"
    assert np.array_equal(np.stack(info["final_obs"].tolist()), expected)
    assert np.array_equal(np.stack([i["terminal_observation"] for i in infos]), expected)
    assert np.array_equal(extras["final"].numpy(), expected)
    m = envs.rl_env.action_size
    assert (observation[:, -m:] == 0).all(), "a new episode has begun"
    assert not np.array_equal(observation, first)


def test_gymnasium_spaces_seeds_and_statistics():
    task = short("cartpole/balance")
    envs = gym_adapter.VectorEnv(task, N, seed=1, threads=1, training=False)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert envs.observation_space.shape == (N, envs.rl_env.observation_size)
    assert envs.single_action_space.high.max() == task.policy.action_clip
    first, _ = envs.reset()
    again, _ = envs.reset()
    assert not np.array_equal(first, again)
    assert np.array_equal(envs.reset(seed=1)[0], first)

    counted = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    counted.reset(seed=2)
    counted.action_space.seed(3)
    ends = 0
    for _ in range(40):
        observation, _, terminated, truncated, info = counted.step(counted.action_space.sample())
        assert envs.observation_space.contains(observation)
        ended = terminated | truncated
        if ended.any():
            ends += ended.sum()
            np.testing.assert_allclose(info["episode"]["r"][ended], info["final_info"]["return"][ended], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(
                info["episode"]["l"][ended] * envs.rl_env.env.sim.tick, info["final_info"]["length"][ended]
            )
    assert ends >= N


def test_gymnasium_restarts_only_the_masked_worlds():
    envs = gym_adapter.VectorEnv(get_task("cartpole/balance"), N, seed=1, threads=1, training=False)
    plain = gym_adapter.VectorEnv(get_task("cartpole/balance"), N, seed=1, threads=1, training=False)
    envs.reset(), plain.reset()
    action = np.full((N, 1), 0.1, dtype=np.float32)
    observation, *_ = envs.step(action)
    plain.step(action)
    mask = np.arange(N) < 5
    after, _ = envs.reset(options={"reset_mask": mask})
    assert np.array_equal(after[~mask], observation[~mask])
    assert not (after[mask] == observation[mask]).all(1).any()
    assert (envs.rl_env.env.episode_ticks.numpy()[mask] == 0).all()
    assert (envs.rl_env.env.episode_ticks.numpy()[~mask] == 1).all()
    envs.step(action), plain.step(action)
    kept = envs.rl_env.env.sim.qpos[~mask]
    assert np.array_equal(kept, plain.rl_env.env.sim.qpos[~mask]), "the others go on undisturbed"
    with pytest.raises(BadInput, match="reset_mask"):
        envs.reset(options={"reset_mask": np.zeros(N, dtype=bool)})
    with pytest.raises(BadInput, match="shape"):
        envs.step(np.zeros((N, 2), dtype=np.float32))


def _score(task: Task, act) -> float:
    """Mean score of whole episodes under a policy, observation -> action."""
    envs = gym_adapter.VectorEnv(task, 48, seed=7, threads=2, training=False)
    observation, _ = envs.reset()
    scores: list[float] = []
    for _ in range(envs.rl_env.env.horizon):
        observation, *_, info = envs.step(act(observation))
        if info:
            scores += info["final_info"]["score"][info["_final_obs"]].tolist()
    return float(np.mean(scores))


def _lean(s: State) -> Tensor:
    """Near 1 where the pendulum leans by half a radian."""
    return torch.exp(-((s.joint_pos[:, 0] - 0.5) / 0.2).square())


@pytest.fixture
def lean() -> Task:
    """Hold the pendulum out to one side: learnt in seconds, and never by chance."""
    return replace(get_task("pendulum/swingup"), episode=2.0, rewards=(RewardTerm("lean", 5.0, _lean),), score=_lean)


@pytest.mark.slow
def test_sb3_learns(lean):
    envs = VecMonitor(sb3_adapter.VecEnv(lean, 128, threads=2))
    model = SB3PPO(
        "MlpPolicy", envs, n_steps=16, batch_size=512, n_epochs=6, learning_rate=2e-3, gamma=0.95, seed=0,
        policy_kwargs={"log_std_init": -0.5}, device="cpu",
    )  # fmt: skip
    before = _score(lean, lambda o: model.predict(o, deterministic=True)[0])
    model.learn(16_384)
    after = _score(lean, lambda o: model.predict(o, deterministic=True)[0])
    assert before < 0.05
    assert after > 0.2


def test_sb3_wrappers_accept_it(lean):
    envs = VecNormalize(sb3_adapter.VecEnv(lean, N, threads=1))
    observation = envs.reset()
    for _ in range(20):
        observation, _, _, _ = envs.step(np.zeros((N, 1), dtype=np.float32))
    assert np.abs(observation).max() <= 10.0
    assert envs.get_attr("n") == [N] * N
    assert envs.env_is_wrapped(gymnasium.Wrapper) == [False] * N


@pytest.mark.slow
def test_rsl_rl_learns(lean, tmp_path, capsys):
    env = rsl_adapter.VecEnv(lean, 128, threads=2)
    network = {"class_name": "MLPModel", "hidden_dims": [32, 32], "activation": "elu", "obs_normalization": True}
    noise = {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.6}}
    algorithm = {"class_name": "PPO", "num_learning_epochs": 6, "num_mini_batches": 4, "gamma": 0.95, "entropy_coef": 0.0}
    config = {
        "num_steps_per_env": 16,
        "save_interval": 1000,
        "obs_groups": {"actor": ["policy"], "critic": ["critic"]},
        "algorithm": algorithm | {"learning_rate": 3e-3},
        "actor": network | noise,
        "critic": network,
    }
    torch.manual_seed(0)
    runner = OnPolicyRunner(env, config, log_dir=str(tmp_path), device="cpu")

    def act(observation: np.ndarray) -> np.ndarray:
        """The policy sees its own group alone: whatever the critic's group holds, its action is the same."""
        policy = runner.get_inference_policy()
        with torch.no_grad():
            groups = {"policy": torch.from_numpy(observation), "critic": torch.full((len(observation), 1), torch.nan)}
            return policy(TensorDict(groups, batch_size=[len(observation)])).numpy()

    before = _score(lean, act)
    runner.learn(8, init_at_random_ep_len=True)
    after = _score(lean, act)
    assert before < 0.05
    assert after > 0.2
    assert "/episode/score" in capsys.readouterr().out
