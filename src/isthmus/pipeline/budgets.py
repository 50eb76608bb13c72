"""Training steps, recording length and fit horizon of single tasks; all others go by their recipes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskBudget:
    training_steps: tuple[int, int] = (0, 0)
    """Control steps over all worlds to train a policy from scratch, and to continue one. 0: by the clock."""
    recording_seconds: float = 10.0
    """Length of a recording, s."""
    horizon: float = 0.0
    """Prediction horizon of a fit, s: an unstable robot amplifies small errors over long horizons. 0: by the noise."""
    loop_minutes: int = 0
    """Typical duration of a loop on two free cores; 0 where it was not measured."""

    @property
    def fit_options(self) -> dict[str, float]:
        """The horizon as an argument of `identify`, `fit_actuator` and `learn_residual`."""
        return {"horizon": self.horizon} if self.horizon else {}


TASK_BUDGETS = {
    "pendulum/swingup": TaskBudget((240_000, 120_000), loop_minutes=2),
    "cartpole/balance": TaskBudget((400_000, 200_000)),
    "crazyflie/hover": TaskBudget((900_000, 500_000), recording_seconds=8.0, horizon=0.2, loop_minutes=4),
    "go1/walk": TaskBudget((2_600_000, 1_300_000), loop_minutes=10),
}


def task_budget(task: str) -> TaskBudget:
    return TASK_BUDGETS.get(task, TaskBudget())
