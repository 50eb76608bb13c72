"""Train a policy over thousands of worlds.

example: isthmus train go1/walk -o runs/a --minutes 5
example: isthmus train go1/hard --method student --teacher runs/teacher -o runs/student
"""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from isthmus.cli import show
from isthmus.errors import BadInput, unknown


@dataclass(frozen=True)
class Args:
    task: Annotated[str, tyro.conf.Positional] = ""
    """Task to train, as in `isthmus list`; not needed with --resume."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path()
    """Folder of the run."""
    method: str = "ppo"
    """How to learn: ppo, teacher, student or rma."""
    teacher: Path | None = None
    """Run of the teacher that a student imitates; rma trains its own without one."""
    memory: Literal["convolution", "recurrent"] = "recurrent"
    """How a student or rma looks back: over a window of the past, or with a memory that each tick updates."""
    history: float = 1.0
    """Seconds of the past that a convolution sees."""
    every: int = 1
    """Ticks from one estimate of the world to the next; the policy still acts at every tick."""
    belief: Path | None = None
    """File with the distribution of worlds to train over; by default the robot's prior."""
    minutes: float = 0.0
    """Training time. Without --minutes and --steps, the task's own budget."""
    steps: int = 0
    """Control ticks over all worlds."""
    seed: int = 0
    """Seed of everything random."""
    worlds: int = 0
    """Worlds at once; 0 takes the task's own number."""
    save_every: float = 15.0
    """Seconds between checkpoints."""
    resume: bool = False
    """Go on with the run in the folder, exactly where it was."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    if args.out == Path():
        raise BadInput("say where the run goes: -o FOLDER.")
    for name in ("minutes", "steps", "worlds", "seed", "save_every"):
        if not 0 <= getattr(args, name) < math.inf:
            raise BadInput(f"--{name.replace('_', '-')} must be a finite number, not negative.")
    from isthmus.adapt import methods
    from isthmus.learn.evaluate import evaluate
    from isthmus.learn.train import Progress, train
    from isthmus.learn.trainer import Trainer

    def work(trainer: Trainer) -> None:
        plan = trainer.run.plan
        with show.bar(f"training {plan.task}" + ("" if plan.method == "ppo" else f", {plan.method}")) as bar:

            def report(p: Progress) -> None:
                score = p.metrics.get("episode/score")
                note = f"[{p.level}] score {score:.2f}" if score is not None else f"[{p.level}]"
                bar.update(p.fraction, note + f", {p.metrics['time/steps_per_second'] / 1e3:.1f}k ticks/s")

            train(trainer, report, args.save_every)

    if args.resume:
        _check_resumed(args)
        trainer = methods.resume(args.out, args.steps, args.minutes, work)
    else:
        plan, task, belief, teacher = _new(args)
        trainer = methods.begin(args.out, plan, task, belief, work, teacher)
    found = trainer.run
    with show.bar("evaluating") as bar:
        result = evaluate(
            found.task, trainer.actor.eval(), worlds=200, seed=found.plan.seed + 1, belief=found.belief, report=bar.update
        )
    if args.json:
        show.emit({
            "run": str(args.out),
            "task": found.plan.task,
            "run_hash": found.record["hash"],
            "belief_hash": found.belief.hash,
            "steps": trainer.steps,
            "seconds": trainer.seconds,
            "level": trainer.env.curriculum.level.name,
            "evaluation": result.to_dict(),
        })  # fmt: skip
    else:
        show.out.print(f"trained {found.plan.task} for {trainer.seconds:.0f} s, {trainer.steps / 1e6:.1f} million ticks")
        show.out.print(f"success in {show.rate(result.success)} of worlds")
        for name, (mean, error) in result.metrics.items():
            show.out.print(f"{name.replace('_', ' ')} {mean:.3f} ± {1.96 * error:.3f}")
        show.out.print(f"see it: {Path(sys.argv[0]).with_name('isthmus')} play {args.out}")
    return 0


def _new(args: Args):
    """Plan, task, belief and teacher of a new run, as the options ask for them."""
    from isthmus.adapt import methods
    from isthmus.learn import runs
    from isthmus.learn.recipes import budget, recipe
    from isthmus.tasks import get_task
    from isthmus.world import Belief, adopt

    if not args.task:
        raise BadInput("say which task to train; `isthmus list` shows them.")
    task = get_task(args.task)
    if args.method not in methods.METHODS:
        raise unknown("method", args.method, methods.METHODS)
    if args.teacher is not None and args.method not in ("student", "rma"):
        raise BadInput(f"--teacher goes with --method student or rma, not with {args.method}.")
    belief = task.robot.prior
    if args.belief is not None:
        belief = adopt(Belief.load(args.belief), task.robot.space, str(args.belief))
    teacher = runs.load(args.teacher) if args.teacher is not None else None
    settings = teacher.plan.settings if teacher else recipe(args.task)
    if args.worlds:
        settings = dataclasses.replace(settings, worlds=args.worlds)
    minutes = args.minutes if args.minutes or args.steps else budget(args.task, args.method)
    context = methods.context_of(args.method, args.memory, args.history, args.every, teacher)
    return runs.Plan(args.task, args.method, args.seed, args.steps, minutes, settings, context), task, belief, teacher


def _check_resumed(args: Args) -> None:
    """A resumed run may be given a new budget; everything else stays as it was."""
    from isthmus.learn import runs

    free = ("task", "out", "minutes", "steps", "save_every", "resume", "json")
    for field in dataclasses.fields(Args):
        if field.name not in free and getattr(args, field.name) != field.default:
            raise BadInput(f"--{field.name.replace('_', '-')} cannot change in a resumed run.")
    trained = runs.load(args.out).plan.task
    if args.task and args.task != trained:
        raise BadInput(f"{args.out} is a run of {trained}, not of {args.task}.")
