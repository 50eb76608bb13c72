"""Put a controller through a protocol: stage by stage, with known error rates, in simulation or on a robot.

example: isthmus validate a.controller --on unit7.twin -o a.html

example: isthmus validate a.controller --on unit7.twin --link zenoh -o a.html

example: isthmus validate --history certificates/*.json
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from isthmus.cli import certificate_table, render
from isthmus.cli.terminal_operator import TerminalOperator
from isthmus.core.errors import BadInput

if TYPE_CHECKING:
    from isthmus.studio.film import Film
    from isthmus.validation.certificate import Certificate


@dataclass(frozen=True)
class Args:
    controller: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[CONTROLLER]")] = None
    """File of the controller."""
    on: str = ""
    """Dynamics of the robot: a twin, or the robot's name for the worlds that training assumes (the default)."""
    protocol: str = ""
    """Name of a protocol (legged, aerial, bench) or a file (TOML); by default the one for this kind of robot."""
    stages: tuple[str, ...] = ()
    """Only these stages of it."""
    link: str = ""
    """Try it on a robot over this link, as `isthmus run` does."""
    plan: Path | None = None
    """Write the conditions of all trials into this trial sheet (CSV) and do nothing else."""
    results: Path | None = None
    """Trial sheet with the outcomes of trials on a robot filled in."""
    sim_worlds: int = 1000
    """On a robot: simulated trials as control variates; 0 for real trials only."""
    through: bool = False
    """Go on after a stage that does not pass; in simulation only."""
    seed: int = 0
    """Seed of worlds and conditions."""
    yes: bool = False
    """Do not ask the operator before each trial; for virtual robots."""
    record: Path | None = None
    """Folder for a recording of each trial on a robot."""
    speed: float = 1.0
    """Speed of the virtual robot's process in multiples of real time; as its own --speed."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Certificate: NAME.html or NAME.json; both are written."""
    history: tuple[Path, ...] = ()
    """Certificates over which predicted and observed success are compared."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    if (args.controller is None) == (not args.history):
        raise BadInput("say which controller to validate, or --history with certificates to compare.")
    if args.yes and not args.link:
        raise BadInput("--record and --yes go with --link.")
    if args.history:
        return _compare_certificates(args)
    assert args.controller is not None
    from isthmus.deploy.run import never, stop_on_signals
    from isthmus.studio.reports.certificate import FailureFilm, check_certificate_path
    from isthmus.validation.validate import plan_trials, validate

    check_certificate_path(args.out)
    chosen = {"on": args.on, "protocol": args.protocol, "stages": args.stages, "seed": args.seed}
    if args.plan:
        plan = plan_trials(args.controller, args.plan, **chosen)
        if args.json:
            render.emit(plan.to_dict())
        else:
            render.print_line(f"wrote {plan.trials} trials to {args.plan}")
        return 0
    film = FailureFilm()
    on_robot = bool(args.link or args.results)
    operator = TerminalOperator() if args.link and not args.yes else None
    # On a robot an interrupt ends the trial in order; in simulation it ends the command.
    signals = stop_on_signals() if on_robot else nullcontext(never)
    with signals as stopping, render.deferred_progress_bar(f"validating {args.controller.name}") as progress:
        made = validate(
            args.controller,
            link=args.link,
            results=args.results,
            sim_worlds=args.sim_worlds,
            run_all=args.through,
            record=args.record,
            speed=args.speed,
            operator=operator,
            stopping=stopping,
            on_stage=film.on_stage,
            progress=progress,
            **chosen,
        )
    return _write_and_print(made, film.render(), args)


def _write_and_print(made: Certificate, film: Film, args: Args) -> int:
    from isthmus.studio.reports.certificate import write_certificate

    code = 0 if made.passed else 1
    files: list[Path] = []
    try:
        files = write_certificate(made, args.out, film) if args.out else []
    except BadInput as error:
        # The trials are not lost with the file.
        print(f"isthmus: {error}", file=sys.stderr)
        code = 2
    if args.json:
        render.emit(made.to_dict())
        return code
    certificate_table.print_certificate(made, film.problem)
    for file in files:
        render.print_line(f"wrote {file}")
    return code


def _compare_certificates(args: Args) -> int:
    from isthmus.validation.certificate import load_certificate
    from isthmus.validation.prediction_agreement import compare_certificates

    found = compare_certificates([load_certificate(path) for path in args.history])
    if args.json:
        render.emit(found.to_dict())
    else:
        certificate_table.print_agreement(found)
    return 0
