"""Train a policy over thousands of worlds.

example: isthmus train go1/walk -o runs/a --minutes 5

example: isthmus train go1/hard --method student --teacher runs/teacher -o runs/student
example: isthmus train go1/hard --from runs/a --belief unit7.twin --kl 0.1 -o runs/unit7
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from isthmus.cli import render
from isthmus.cli.options import check_not_negative
from isthmus.core.errors import BadInput, unknown_name
from isthmus.robots.dynamics import resolve_dynamics


@dataclass(frozen=True)
class Args:
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]")] = ""
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
    base: Path | None = None
    """Controller that the policy corrects: the folder of a run, or a TOML file with a linear law."""
    reach: float = 0.5
    """With --base, part of the task's reach that the correction may use, above 0 and up to 1."""
    start: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Run to fine-tune: begin with its policy and its critic; with --method teacher one that ignored e becomes a teacher."""
    kl: float = 0.05
    """With --from, how far the policy may move, nats per action vector; 0 sets no bound."""
    blind_critic: bool = False
    """Give the critic only what the policy observes, not the true state and e."""
    belief: Path | None = None
    """Worlds to train over: a belief, or a twin with its motors, ground and forces; by default the robot's prior."""
    width: float = 1.0
    """Times as wide about nominal: 0 is the nominal world alone, 2 twice the ranges, as far as the hard bounds."""
    adr: bool = False
    """Begin near nominal and widen the range of each parameter by itself, as far as the policy copes."""
    revisit: float = 0.0
    """Share of episodes in worlds where the policy failed before; 0.3 if only --failures are given."""
    failures: tuple[Path, ...] = ()
    """Worlds known to fail: files of `isthmus evaluate --failures`, twins, beliefs, or recordings that know their e."""
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
    check_not_negative(args, "minutes", "steps", "worlds", "seed", "save_every", "kl", "width")
    from isthmus.learn import methods, run_samplers
    from isthmus.learn.algorithms.algorithm import Trainer
    from isthmus.learn.evaluate.evaluate import evaluate
    from isthmus.learn.train import TrainingProgress, run_training_loop

    def work(trainer: Trainer) -> None:
        plan = trainer.run.config
        with render.progress_bar(f"training {plan.task}" + ("" if plan.method == "ppo" else f", {plan.method}")) as bar:

            def report(p: TrainingProgress) -> None:
                score = p.metrics.get("episode/score")
                note = f"[{p.level}] score {score:.2f}" if score is not None else f"[{p.level}]"
                bar.update(p.fraction, note + f", {p.metrics['time/steps_per_second'] / 1e3:.1f}k ticks/s")

            run_training_loop(trainer, report, args.save_every)

    if args.resume:
        _check_resume_options(args)
        trainer = methods.resume(args.out, args.steps, args.minutes, work)
    else:
        trainer = methods.train(args.out, *_plan_new_run(args), work)
    found, reached = trainer.run, run_samplers.reached_ranges(trainer)
    with render.progress_bar("evaluating") as bar:
        result = evaluate(
            found.task, trainer.actor.eval(), worlds=200, seed=found.config.seed + 1, belief=found.belief, report=bar.update
        )
    if args.json:
        render.emit({
            "run": str(args.out),
            "task": found.config.task,
            "run_hash": found.record["hash"],
            "belief_hash": found.belief.hash,
            "steps": trainer.steps,
            "seconds": trainer.seconds,
            "level": trainer.env.curriculum.level.name,
            "evaluation": result.to_dict(),
            **({"adr": [dataclasses.asdict(row) for row in reached]} if reached else {}),
        })  # fmt: skip
    else:
        render.out.print(f"trained {found.config.task} for {trainer.seconds:.0f} s, {trainer.steps / 1e6:.1f} million ticks")
        render.out.print(f"success in {result.success} of worlds")
        for name, (mean, error) in result.metrics.items():
            render.out.print(f"{name.replace('_', ' ')} {mean:.3f} ± {1.96 * error:.3f}")
        if reached:
            _print_ranges(reached, args.out / run_samplers.ADR_FILE)
        here = Path(sys.argv[0]).with_name("isthmus")
        render.print_line(f"see it: {here if here.is_file() else 'isthmus'} play {args.out}")
    return 0


def _print_ranges(reached, path: Path) -> None:
    rows = [[r.name, f"{r.middle:.4g}", f"{r.low:.4g} to {r.high:.4g}", r.unit, f"{100 * r.width:.0f} %"] for r in reached]
    render.out.print(render.table("", ["parameter", "middle", "range", "unit", "of what is possible"], rows, right=(1, 4)))
    render.print_line(f"the same as a belief: {path}")


def _plan_new_run(args: Args):
    """Plan, task, belief and parents of a new run, as the options ask for them."""
    from isthmus.learn import methods, run_samplers, runs
    from isthmus.learn.algorithms.finetune import finetune_config
    from isthmus.learn.policies.base_controller import read_base
    from isthmus.learn.recipes import budget_minutes, recipe
    from isthmus.tasks.catalogue import get_task

    if not args.task:
        raise BadInput("say which task to train; `isthmus list` shows them.")
    task = get_task(args.task)
    if args.method not in methods.METHODS:
        raise unknown_name("method", args.method, methods.METHODS)
    _check_option_combinations(args)
    if args.teacher is not None and args.method not in ("student", "rma"):
        raise BadInput(f"--teacher goes with --method student or rma, not with {args.method}.")
    robot, belief = resolve_dynamics(args.belief, task.robot)
    task, belief = task.on(robot), belief.scaled(args.width)
    teacher = runs.load(args.teacher) if args.teacher is not None else None
    start = runs.load(args.start) if args.start is not None else None
    taken = start or teacher
    settings = taken.config.settings if taken else recipe(args.task)
    if args.worlds:
        settings = dataclasses.replace(settings, worlds=args.worlds)
    if args.blind_critic:
        settings = dataclasses.replace(settings, asymmetric_critic=False)
    minutes = args.minutes if args.minutes or args.steps else budget_minutes(args.task, args.method, teacher is not None)
    weights = None
    if start:
        plan = finetune_config(start, task, args.kl, as_teacher=args.method == "teacher")
    else:
        context = methods.make_context(args.method, args.memory, args.history, args.every, teacher)
        base, weights = read_base(args.base, task, args.reach) if args.base is not None else (None, None)
        plan = runs.RunConfig(args.task, args.method, context=context, base=base)
    plan = dataclasses.replace(
        plan, unit=task.robot.unit.hash, seed=args.seed, steps=args.steps, minutes=minutes, settings=settings
    )
    believed = lambda path: resolve_dynamics(path, task.robot)[1]  # noqa: E731
    plan, known = run_samplers.with_sampler_options(plan, args.adr, args.revisit, args.failures, task.robot, believed)
    return plan, task, belief, methods.TrainingInputs(teacher, weights, start, known)


OPTION_NAMES = {"start": "from"}
"""Options that have another name on the command line."""


def _given_options(args: Args, *names: str) -> list[str]:
    """Which of these options were given, as they are written."""
    defaults = {field.name: field.default for field in dataclasses.fields(Args)}
    return [f"--{OPTION_NAMES.get(n, n).replace('_', '-')}" for n in names if getattr(args, n) != defaults[n]]


def _check_option_combinations(args: Args) -> None:
    """Options that say nothing, or contradict each other, are errors."""
    looking = ("memory", "history", "every")
    if args.adr and args.width != 1.0:
        raise BadInput("--adr finds its own ranges; --width does not go with it.")
    if args.start is not None:
        fixed = ("teacher", "base", "reach", "blind_critic", *looking)
        for option in _given_options(args, *fixed, *(() if args.method == "teacher" else ("method",))):
            raise BadInput(f"{option} does not go with --from: what a policy is stays as it is in {args.start}.")
        return
    if args.method not in ("student", "rma"):
        for option in _given_options(args, *looking):
            raise BadInput(f"{option} goes with --method student or rma, which look back; {args.method} does not.")
    elif args.memory != "convolution":
        for option in _given_options(args, "history"):
            raise BadInput(f"{option} goes with --memory convolution; a recurrent memory looks back as far as it can.")
    for option in _given_options(args, "kl"):
        raise BadInput(f"{option} goes with --from RUN.")
    if args.base is None:
        for option in _given_options(args, "reach"):
            raise BadInput(f"{option} goes with --base BASE.")
    elif args.method != "ppo":
        raise BadInput(f"--base does not go with --method {args.method}: only ppo learns to correct another controller.")
    if args.blind_critic and args.method != "ppo":
        raise BadInput(f"--blind-critic goes with --method ppo, not with {args.method}.")


def _check_resume_options(args: Args) -> None:
    """A resumed run may be given a new budget; everything else stays as it was."""
    from isthmus.learn import runs

    free = ("task", "out", "minutes", "steps", "save_every", "resume", "json")
    for field in dataclasses.fields(Args):
        if field.name not in free and getattr(args, field.name) != field.default:
            raise BadInput(f"{_given_options(args, field.name)[0]} cannot change in a resumed run.")
    trained = runs.load(args.out).config.task
    if args.task and args.task != trained:
        raise BadInput(f"{args.out} is a run of {trained}, not of {args.task}.")
