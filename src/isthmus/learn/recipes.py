"""PPO settings per task and the training time they need, found by measurement (docs/lab-notes.md)."""

from __future__ import annotations

from isthmus.learn.algorithms.ppo import PPOConfig

WALK = PPOConfig(
    worlds=1024,
    rollout_ticks=16,
    minibatch_size=2048,
    hidden=(64, 64),
    critic_hidden=(64, 64),
    epochs=3,
    init_std=0.3,
    desired_kl=0.02,
    entropy_coef=0.002,
)

HOVER = PPOConfig(
    worlds=512,
    rollout_ticks=24,
    minibatch_size=2048,
    hidden=(64, 64),
    critic_hidden=(64, 64),
    gamma=0.98,
    init_std=0.5,
    desired_kl=0.03,
    entropy_coef=0.003,
    critic_sees_e=False,
)
SWINGUP = PPOConfig(
    worlds=128,
    rollout_ticks=32,
    minibatch_size=1024,
    hidden=(64, 64),
    critic_hidden=(64, 64),
    desired_kl=0.03,
    critic_sees_e=False,
)
BALANCE = PPOConfig(
    worlds=256,
    rollout_ticks=32,
    minibatch_size=1024,
    hidden=(64, 64),
    critic_hidden=(64, 64),
    desired_kl=0.015,
    learning_rate_range=(1e-4, 4e-3),
    entropy_coef=0.002,
)

RECIPES: dict[str, PPOConfig] = {
    "go1/walk": WALK,
    "go1/hard": WALK,
    "go1/terrain": WALK,
    "crazyflie/hard": HOVER,
    "crazyflie/hover": HOVER,
    "pendulum/swingup": SWINGUP,
    "cartpole/balance": BALANCE,
}
BUDGET_MINUTES: dict[str, float] = {
    "go1/walk": 3.0,
    "go1/hard": 5.0,
    "go1/terrain": 15.0,
    "crazyflie/hard": 3.0,
    "crazyflie/hover": 1.5,
    "pendulum/swingup": 0.5,
    "cartpole/balance": 0.5,
}


def recipe(task: str) -> PPOConfig:
    return RECIPES.get(task, PPOConfig())


STUDENT_TIME_FACTOR, SELF_TAUGHT_TIME_FACTOR = 0.5, 1.5
"""Time of a student or rma, against that of others: with a teacher that is there already, and with one to train first."""


def budget_minutes(task: str, method: str = "ppo", has_teacher: bool = False) -> float:
    """Training time that the recipe needs on two cores, minutes; `taught` if a teacher is given."""
    share = {"student": STUDENT_TIME_FACTOR, "rma": STUDENT_TIME_FACTOR if has_teacher else SELF_TAUGHT_TIME_FACTOR}.get(
        method, 1.0
    )
    return BUDGET_MINUTES.get(task, 5.0) * share
