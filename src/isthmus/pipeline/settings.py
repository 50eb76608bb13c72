"""What a loop was asked for, and the rules that it decides by. Success rates are between 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from isthmus.learn.recipes import budget_minutes
from isthmus.pipeline.budgets import task_budget


@dataclass(frozen=True)
class RecordingRules:
    """How long and how often a policy is recorded on the robot."""

    max_takes: int = 3  # of a robot that the guard stops early
    min_recorded_fraction: float = 0.5  # of the seconds asked for; less than that is recorded again
    command_hold: float = 4.0  # s for which an operator command is held
    experiment_seconds: float = 10.0  # s of an excitation


@dataclass(frozen=True)
class RetrainRules:
    """When a policy is retrained on a twin, and whether it is used. Success rates are over the twin's worlds."""

    good_success: float = 0.90  # no further training is needed
    min_success_to_deploy: float = 0.10  # compared with the upper end of the interval
    restart_from_scratch_below: float = 0.50  # fine-tuning from the prior's policy got stuck
    abandon_scratch_below: float = 0.01  # success grows slowly from little, but not from nothing
    max_trainings: int = 6
    max_trainings_in_budget: int = 2
    first_budget_share: float = 0.50  # of a budget, for the training on the prior
    later_budget_share: float = 0.25  # of a budget, for all later trainings together; the rest is for everything else
    wider_prior_scale: float = 1.6  # scale of the prior's ranges where no parameter could be identified


@dataclass(frozen=True)
class RepairRules:
    """When a robot counts as able, and when parameters alone do not explain a recording."""

    min_success: float = 0.90  # recorded success of a robot that performs its task
    unexplained_error: float = 1.8  # prediction error in units of the sensor noise
    protocol_stages: int = 2  # the other stages ask for more than this robot as it is


@dataclass(frozen=True)
class ReportRules:
    """Evaluations that only the report shows."""

    sweep_worlds: int = 256  # in which the first and the last policy are compared
    sweep_prior_scale: float = 2.0  # scale of the prior's ranges in them
    virtual_episodes: int = 64  # of a virtual robot, for each policy


RECORDING, RETRAIN, REPAIR, REPORT = RecordingRules(), RetrainRules(), RepairRules(), ReportRules()


@dataclass(frozen=True)
class LoopSettings:
    """What a loop was asked for; it resumes only under the same settings."""

    task: str
    link: str
    """Link to the robot, as `isthmus run` takes it."""
    seconds: float = 10.0
    """Length of a recording, s."""
    rounds: int = 1
    """Repairs, at most."""
    budget: float = 0.0
    """Minutes for the whole loop; 0 for what the task needs."""
    seed: int = 0
    run: str = ""
    """Folder of a run to start with; empty to train one."""

    @property
    def max_trainings(self) -> int:
        """Trainings of one repair, at most."""
        return RETRAIN.max_trainings_in_budget if self.budget else RETRAIN.max_trainings

    def training_length(self, which: Literal["first", "continued", "from scratch"]) -> dict[str, float]:
        """How long a policy is trained, as arguments of `train`: steps, or minutes."""
        if self.budget:
            later = RETRAIN.later_budget_share / (self.rounds * RETRAIN.max_trainings_in_budget)
            return {"minutes": float(f"{self.budget * (RETRAIN.first_budget_share if which == 'first' else later):.4g}")}
        if steps := task_budget(self.task).training_steps[which == "continued"]:
            return {"steps": steps}
        return {"minutes": float(f"{budget_minutes(self.task) * (0.5 if which == 'continued' else 1.0):.4g}")}
