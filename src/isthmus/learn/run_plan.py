"""From what a caller asks of a training run to its configuration, task, belief and parents; contradictions are errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from isthmus.core.errors import BadInput, unknown_name
from isthmus.learn import runs
from isthmus.learn.algorithms.finetune import finetune_config
from isthmus.learn.policies.base_controller import read_base
from isthmus.learn.recipes import budget_minutes, recipe
from isthmus.learn.run_samplers import with_sampler_options
from isthmus.learn.runs import Run, RunConfig
from isthmus.learn.training import METHODS, TrainingInputs, make_context
from isthmus.robots.dynamics import resolve_dynamics
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.task import Task
from isthmus.world import Belief

if TYPE_CHECKING:
    from isthmus.robots.dynamics import DynamicsSource


@dataclass(frozen=True)
class TrainOptions:
    """Arguments of `train` that say what is trained; see there."""

    method: str = "ppo"
    dynamics: DynamicsSource | None = None
    width: float = 1.0
    teacher: Run | Path | str | None = None
    memory: Literal["convolution", "recurrent"] = "recurrent"
    history: float = 1.0
    update_ticks: int = 1
    base: Path | str | None = None
    residual_scale: float = 0.5
    start: Run | Path | str | None = None
    max_kl: float = 0.05
    blind_critic: bool = False
    adr: bool = False
    revisit_fraction: float = 0.0
    failures: Sequence[Path | str] = ()
    worlds: int = 0
    minutes: float = 0.0
    steps: int = 0
    seed: int = 0

    def given(self, *names: str) -> list[str]:
        """Which of these differ from their default."""
        defaults = {f.name: f.default for f in fields(self)}
        return [name for name in names if getattr(self, name) != defaults[name]]

    def check(self) -> None:
        """Raise BadInput for arguments that say nothing or contradict each other."""
        self.check_numbers()
        if self.method not in METHODS:
            raise unknown_name("method", self.method, METHODS)
        if self.adr and self.width != 1.0:
            raise BadInput("adr finds its own ranges; width does not go with it.")
        looking_back = ("memory", "history", "update_ticks")
        if self.start is not None:
            fixed = ("teacher", "base", "residual_scale", "blind_critic", *looking_back)
            for name in self.given(*fixed, *(() if self.method == "teacher" else ("method",))):
                raise BadInput(f"{name} does not go with start: a fine-tuned policy stays of the kind that it is.")
            return
        if self.method not in ("student", "rma"):
            for name in self.given(*looking_back):
                raise BadInput(f"{name} goes with method student or rma, which look back; {self.method} does not.")
        elif self.memory != "convolution":
            for name in self.given("history"):
                raise BadInput(f"{name} goes with memory convolution; a recurrent memory looks back as far as it can.")
        for name in self.given("max_kl"):
            raise BadInput(f"{name} goes with start, the run to fine-tune.")
        if self.base is None:
            for name in self.given("residual_scale"):
                raise BadInput(f"{name} goes with base, the controller that the policy corrects.")
        elif self.method != "ppo":
            raise BadInput(f"base does not go with method {self.method}: only ppo learns to correct another controller.")
        if self.blind_critic and self.method != "ppo":
            raise BadInput(f"blind_critic goes with method ppo, not with {self.method}.")
        if self.teacher is not None and self.method not in ("student", "rma"):
            raise BadInput(f"teacher goes with method student or rma, not with {self.method}.")

    def check_numbers(self) -> None:
        for name in ("minutes", "steps", "worlds", "seed", "max_kl", "width"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInput(f"{name} must be a finite number, not negative.")

    def check_resume(self) -> None:
        """Raise BadInput unless only the budget is given: everything else of a resumed run stays as it was."""
        self.check_numbers()
        for name in self.given(*(f.name for f in fields(self) if f.name not in ("minutes", "steps"))):
            raise BadInput(f"{name} cannot change in a resumed run.")


def plan_run(task: str | Task, options: TrainOptions) -> tuple[RunConfig, Task, Belief, TrainingInputs]:
    """Configuration, task, belief and parents of a new run."""
    if not task:
        raise BadInput("say which task to train; `isthmus list` shows them.")
    name = task if isinstance(task, str) else task.name
    task = get_task(task) if isinstance(task, str) else task
    options.check()
    robot, belief = resolve_dynamics(options.dynamics, task.robot)
    task, belief = task.on(robot), belief.scaled(options.width)
    teacher = runs.as_run(options.teacher) if options.teacher is not None else None
    initial_run = runs.as_run(options.start) if options.start is not None else None
    taken = initial_run or teacher
    changes: dict[str, Any] = {"worlds": options.worlds} if options.worlds else {}
    changes |= {"asymmetric_critic": False} if options.blind_critic else {}
    settings = replace(taken.config.settings if taken else recipe(name), **changes)
    own_budget = not (options.minutes or options.steps)
    minutes = budget_minutes(name, options.method, teacher is not None) if own_budget else options.minutes
    weights = None
    if initial_run:
        config = finetune_config(initial_run, task, options.max_kl, as_teacher=options.method == "teacher")
    else:
        context = make_context(options.method, options.memory, options.history, options.update_ticks, teacher)
        base = None
        if options.base is not None:
            base, weights = read_base(Path(options.base), task, options.residual_scale)
        config = RunConfig(name, options.method, context=context, base=base)
    config = replace(
        config, unit=task.robot.unit.hash, seed=options.seed, steps=options.steps, minutes=minutes, settings=settings
    )
    read_belief = lambda path: resolve_dynamics(path, task.robot)[1]  # noqa: E731
    failures = [Path(path) for path in options.failures]
    config, known = with_sampler_options(config, options.adr, options.revisit_fraction, failures, task.robot, read_belief)
    return config, task, belief, TrainingInputs(teacher, weights, initial_run, known)
