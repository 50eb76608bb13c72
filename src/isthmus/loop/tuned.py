"""What is known about the loop of single tasks; all others go by their recipes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuned:
    ticks: tuple[int, int] = (0, 0)
    """Of control: that it takes to train a policy from nothing, and to go on with one. 0: by the clock."""
    seconds: float = 10.0
    """Length of a recording."""
    horizon: float = 0.0
    """s of the predictions that a twin is fitted to: what is unstable makes a large mistake of a small one far ahead. 0: by the
    noise."""
    minutes: int = 0
    """That a loop takes on two cores without other work, about; 0 where nobody has measured it."""

    @property
    def ahead(self) -> tuple[str, ...]:
        """The horizon as an option."""
        return ("--horizon", f"{self.horizon:g}") if self.horizon else ()


TUNED = {
    "pendulum/swingup": Tuned((240_000, 120_000), minutes=2),
    "cartpole/balance": Tuned((400_000, 200_000)),
    "crazyflie/hover": Tuned((900_000, 500_000), seconds=8.0, horizon=0.2, minutes=4),
    "go1/walk": Tuned((2_600_000, 1_300_000), minutes=10),
}


def tuned(task: str) -> Tuned:
    return TUNED.get(task, Tuned())
