"""What is known about the loop of single tasks; all others go by their recipes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskBudget:
    training_ticks: tuple[int, int] = (0, 0)
    """Of control: that it takes to train a policy from nothing, and to go on with one. 0: by the clock."""
    recording_seconds: float = 10.0
    """Length of a recording."""
    horizon: float = 0.0
    """s of the predictions that a twin is fitted to: what is unstable makes a large mistake of a small one far ahead. 0: by the
    noise."""
    loop_minutes: int = 0
    """That a loop takes on two cores without other work, about; 0 where nobody has measured it."""

    @property
    def horizon_option(self) -> tuple[str, ...]:
        """The horizon as an option."""
        return ("--horizon", f"{self.horizon:g}") if self.horizon else ()


TASK_BUDGETS = {
    "pendulum/swingup": TaskBudget((240_000, 120_000), loop_minutes=2),
    "cartpole/balance": TaskBudget((400_000, 200_000)),
    "crazyflie/hover": TaskBudget((900_000, 500_000), recording_seconds=8.0, horizon=0.2, loop_minutes=4),
    "go1/walk": TaskBudget((2_600_000, 1_300_000), loop_minutes=10),
}


def task_budget(task: str) -> TaskBudget:
    return TASK_BUDGETS.get(task, TaskBudget())
