"""PPO settings per task and the training time they need, found by measurement (docs/lab-notes.md)."""

from __future__ import annotations

from isthmus.learn.ppo import PPO

WALK = PPO(
    worlds=1024,
    ticks=16,
    minibatch=2048,
    hidden=(64, 64),
    critic_hidden=(64, 64),
    epochs=3,
    init_std=0.3,
    wanted_kl=0.02,
    entropy=0.002,
)

HOVER = PPO(
    worlds=512,
    ticks=24,
    minibatch=2048,
    hidden=(64, 64),
    critic_hidden=(64, 64),
    discount=0.98,
    init_std=0.5,
    wanted_kl=0.03,
    entropy=0.003,
    critic_told=False,
)
SWINGUP = PPO(
    worlds=128,
    ticks=32,
    minibatch=1024,
    hidden=(64, 64),
    critic_hidden=(64, 64),
    wanted_kl=0.03,
    critic_told=False,
)
BALANCE = PPO(
    worlds=256,
    ticks=32,
    minibatch=1024,
    hidden=(64, 64),
    critic_hidden=(64, 64),
    wanted_kl=0.015,
    step_range=(1e-4, 4e-3),
    entropy=0.002,
)

RECIPES: dict[str, PPO] = {
    "go1/walk": WALK,
    "go1/hard": WALK,
    "go1/terrain": WALK,
    "crazyflie/hard": HOVER,
    "crazyflie/hover": HOVER,
    "pendulum/swingup": SWINGUP,
    "cartpole/balance": BALANCE,
}
MINUTES: dict[str, float] = {
    "go1/walk": 3.0,
    "go1/hard": 5.0,
    "go1/terrain": 15.0,
    "crazyflie/hard": 3.0,
    "crazyflie/hover": 1.5,
    "pendulum/swingup": 0.5,
    "cartpole/balance": 0.5,
}


def recipe(task: str) -> PPO:
    return RECIPES.get(task, PPO())


TAUGHT, SELF_TAUGHT = 0.5, 1.5
"""Time of a student or rma, against that of others: with a teacher that is there already, and with one to train first."""


def budget(task: str, method: str = "ppo", taught: bool = False) -> float:
    """Training time that the recipe needs on two cores, minutes; `taught` if a teacher is given."""
    share = {"student": TAUGHT, "rma": TAUGHT if taught else SELF_TAUGHT}.get(method, 1.0)
    return MINUTES.get(task, 5.0) * share
