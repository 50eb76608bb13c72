"""The part of `validate` that talks to an operator and a robot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from isthmus.cli import run_, show
from isthmus.errors import BadInput, Interrupted

if TYPE_CHECKING:
    from isthmus.cli.validate_ import Args
    from isthmus.deploy.controller import Controller
    from isthmus.sim.reality import Reality
    from isthmus.validate.campaign import Result
    from isthmus.validate.real import Conditions, Outcome
    from isthmus.validate.worlds import Family


def on_robot(args: Args, controller: Controller, families: list[Family], seeds: list[int]) -> tuple[list[Result], str]:
    """Results of the stages up to the first that does not pass, and the name of the unit."""
    from isthmus.validate import sheet
    from isthmus.validate.link import OverLink
    from isthmus.validate.real import try_out

    entered = sheet.read(args.results, families, seeds) if args.results else {}
    results: list[Result] = []
    unit = ""
    with run_.interruptible() as stopping:
        for own, seed in zip(families, seeds, strict=True):
            over = None
            if args.results:
                attempt: Any = _entered(entered[own.stage.name])
            else:
                attempt = over = OverLink(
                    own,
                    controller,
                    _connect(args, controller),
                    ready=lambda words: _ready(words, args.yes),
                    ask=lambda question: _ask(question, args.yes),
                    stopping=stopping,
                    record=_record(args, controller, own.stage.name),
                )
                if not _stage(own, args.yes):
                    break
            with show.bar(f"{own.stage.name}: simulating") as bar:
                results.append(try_out(own, controller, attempt, seed, args.sim_worlds, bar.update))
            unit = over.unit if over is not None else unit
            if not results[-1].passed:
                break
    if not results:
        raise Interrupted("no trial was made.")
    return results, unit


def _entered(outcomes: list[Outcome]):
    """An attempt that reads the next line."""
    return lambda asked: outcomes[asked.trial] if asked.trial < len(outcomes) else None


def _connect(args: Args, controller: Controller):
    def connect(asked: Conditions):
        def as_asked(reality: Reality) -> Reality:
            """A virtual robot takes on what the trial asks for, as an operator would see to it."""
            seed = (reality.seed + 7919 * (asked.trial + 1)) % 2**31
            return replace(reality, seed=seed, params={**reality.params, **asked.setup})

        return run_.link_of(args.link, args.speed, controller, as_asked)

    return connect


def _record(args: Args, controller: Controller, stage: str):
    from isthmus.validate.link import recording_path

    def record(flight, asked: Conditions):
        return run_.recorder_of(recording_path(args.record, stage, asked), controller, flight) if args.record else None

    return record


def _stage(own: Family, yes: bool) -> bool:
    if yes:
        return True
    show.err.print(f"\n{own.stage.name}: {own.stage.doc}\n{own.stage.steps}", markup=False, highlight=False)
    return _ask("is everything in place?")


def _ready(words: str, yes: bool) -> bool:
    return yes or _ask(f"{words}. Ready?")


def _ask(question: str, yes: bool = False) -> bool:
    """y or n, from the terminal."""
    if yes:
        raise BadInput(
            "this task cannot be judged from what the robot measures; leave out --yes, so that the operator can tell."
        )
    while True:
        print(f"{question} [y/n] ", end="", file=show.err.file, flush=True)
        try:
            said = input().strip().lower()
        except EOFError:
            raise BadInput("an answer of the operator is needed, but standard input has ended.") from None
        if said in ("y", "yes", "n", "no"):
            return said.startswith("y")
