"""PPO settings per task, found by measurement (docs/lab-notes.md)."""

from __future__ import annotations

from isthmus.learn.ppo import PPO

RECIPES: dict[str, PPO] = {
    "go1/walk": PPO(init_std=0.5),
    "go1/terrain": PPO(init_std=0.5),
}


def recipe(task: str) -> PPO:
    return RECIPES.get(task, PPO())


MINUTES: dict[str, float] = {"go1/walk": 5.0, "go1/terrain": 15.0}


def budget(task: str) -> float:
    """Training time that the recipe needs on two cores, minutes."""
    return MINUTES.get(task, 5.0)
