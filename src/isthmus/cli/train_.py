"""Train a policy over thousands of worlds.

example: isthmus train go1/walk -o runs/a --minutes 5

example: isthmus train go1/hard --method student --teacher runs/teacher -o runs/student
example: isthmus train go1/hard --from runs/a --belief unit7.twin --kl 0.1 -o runs/unit7
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from isthmus.cli import render
from isthmus.core.errors import BadInput

if TYPE_CHECKING:
    from isthmus.learn.train import TrainResult


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
    update_ticks: Annotated[int, tyro.conf.arg(aliases=["--every"])] = 1
    """Ticks from one estimate of the world to the next; the policy still acts at every tick."""
    base: Path | None = None
    """Controller that the policy corrects: the folder of a run, or a TOML file with a linear law."""
    residual_scale: Annotated[float, tyro.conf.arg(aliases=["--reach"])] = 0.5
    """With --base, part of the task's action scale that the correction may use, above 0 and up to 1."""
    start: Annotated[Path | None, tyro.conf.arg(aliases=["--from"])] = None
    """Run to fine-tune: begin with its policy and its critic; with --method teacher one that ignored e becomes a teacher."""
    max_kl: Annotated[float, tyro.conf.arg(aliases=["--kl"])] = 0.05
    """With --start, how far the policy may move, nats per action vector; 0 sets no bound."""
    blind_critic: bool = False
    """Give the critic only what the policy observes, not the true state and e."""
    dynamics: Annotated[Path | None, tyro.conf.arg(aliases=["--belief"])] = None
    """Worlds to train over: a belief, or a twin with its motors, ground and forces; by default the robot's prior."""
    width: float = 1.0
    """Scale factor of the randomization ranges around nominal: 1 as given, 0 the nominal world alone."""
    adr: bool = False
    """Automatic domain randomization: begin near nominal and widen each parameter's range as far as the policy copes."""
    revisit_fraction: Annotated[float, tyro.conf.arg(aliases=["--revisit"])] = 0.0
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
    from isthmus.learn.train import train

    options = {f.name: getattr(args, f.name) for f in fields(args) if f.name not in ("task", "out", "json")}
    with render.progress_bar(f"training {args.task or args.out}") as bar:
        result = train(args.task, args.out, **options, progress=bar.update)
    if args.json:
        render.emit(result.to_dict())
    else:
        _print(result)
    return 0


def _print(result: TrainResult) -> None:
    render.out.print(f"trained {result.task} for {result.seconds:.0f} s, {result.steps / 1e6:.1f} million ticks")
    render.out.print(f"success in {result.evaluation.success} of worlds")
    for name, m in result.evaluation.metrics.items():
        render.out.print(f"{name.replace('_', ' ')} {m.value:.3f} ± {m.high - m.value:.3f}")
    if result.reached_ranges:
        rows = [
            [r.name, f"{r.middle:.4g}", f"{r.low:.4g} to {r.high:.4g}", r.unit, f"{100 * r.width:.0f} %"]
            for r in result.reached_ranges
        ]
        heads = ["parameter", "middle", "range", "unit", "of what is possible"]
        render.out.print(render.table("", heads, rows, right=(1, 4)))
        render.print_line(f"the same as a belief: {Path(result.run) / 'adr.json'}")
    here = Path(sys.argv[0]).with_name("isthmus")
    render.print_line(f"see it: {here if here.is_file() else 'isthmus'} play {result.run}")
