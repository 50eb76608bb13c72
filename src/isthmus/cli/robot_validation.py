"""The part of `validate` that talks to an operator and a robot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from isthmus.cli import render
from isthmus.core.errors import BadInput, Interrupted

if TYPE_CHECKING:
    from isthmus.cli.validate_ import Args
    from isthmus.deploy.controller import Controller
    from isthmus.sim.reality import Reality
    from isthmus.validation.robot_trials import TrialConditions, TrialOutcome
    from isthmus.validation.simulated_trials import StageResult
    from isthmus.validation.stage import StageSetup


def run_on_robot(
    args: Args, controller: Controller, stage_setups: list[StageSetup], seeds: list[int]
) -> tuple[list[StageResult], str]:
    """Results of the stages up to the first that does not pass, and the name of the unit."""
    from isthmus.deploy.run import stop_on_signals
    from isthmus.validation import trial_sheet
    from isthmus.validation.link_trials import LinkTrialRunner
    from isthmus.validation.robot_trials import run_stage

    entered = trial_sheet.read_trial_sheet(args.results, stage_setups, seeds) if args.results else {}
    results: list[StageResult] = []
    unit = ""
    with stop_on_signals() as stopping:
        for own, seed in zip(stage_setups, seeds, strict=True):
            over = None
            if args.results:
                attempt: Any = _outcomes_from_sheet(entered[own.stage.name])
            else:
                attempt = over = LinkTrialRunner(
                    own,
                    controller,
                    _link_factory(args, controller),
                    confirm_ready=lambda words: _confirm_ready(words, args.yes),
                    ask_operator=lambda question: _ask_yes_no(question, args.yes),
                    stopping=stopping,
                    make_recorder=_recorder_factory(args, controller, own.stage.name),
                )
                if not _confirm_stage(own, args.yes):
                    break
            with render.progress_bar(f"{own.stage.name}: simulating") as bar:
                results.append(run_stage(own, controller, attempt, seed, args.sim_worlds, bar.update))
            unit = over.unit if over is not None else unit
            if not results[-1].passed:
                break
    if not results:
        raise Interrupted("no trial was made.")
    return results, unit


def _outcomes_from_sheet(outcomes: list[TrialOutcome]):
    """An attempt that reads the next line."""
    return lambda asked: outcomes[asked.trial] if asked.trial < len(outcomes) else None


def _link_factory(args: Args, controller: Controller):
    from isthmus.deploy.links import registry
    from isthmus.robots import virtual_link

    def connect(asked: TrialConditions):
        def as_asked(reality: Reality) -> Reality:
            """A virtual robot takes on what the trial asks for, as an operator would see to it."""
            seed = (reality.seed + 7919 * (asked.trial + 1)) % 2**31
            return replace(reality, seed=seed, params={**reality.params, **asked.setup})

        if args.link.partition(":")[0] != "sim":
            return registry.connect(args.link, speed=args.speed)
        return virtual_link.open_link(
            args.link.partition(":")[2], speed=args.speed, contract=controller.manifest.robot, adjust=as_asked
        )

    return connect


def _recorder_factory(args: Args, controller: Controller, stage: str):
    from isthmus.deploy.recorder import recorder_for
    from isthmus.validation.link_trials import recording_path

    def record(flight, asked: TrialConditions):
        return recorder_for(recording_path(args.record, stage, asked), controller, flight) if args.record else None

    return record


def _confirm_stage(stage_setup: StageSetup, yes: bool) -> bool:
    if yes:
        return True
    render.err.print(
        f"\n{stage_setup.stage.name}: {stage_setup.stage.doc}\n{stage_setup.stage.steps}", markup=False, highlight=False
    )
    return _ask_yes_no("is everything in place?")


def _confirm_ready(words: str, yes: bool) -> bool:
    return yes or _ask_yes_no(f"{words}. Ready?")


def _ask_yes_no(question: str, yes: bool = False) -> bool:
    """y or n, from the terminal."""
    if yes:
        raise BadInput(
            "this task cannot be judged from what the robot measures; leave out --yes, so that the operator can tell."
        )
    while True:
        print(f"{question} [y/n] ", end="", file=render.err.file, flush=True)
        try:
            said = input().strip().lower()
        except EOFError:
            raise BadInput("an answer of the operator is needed, but standard input has ended.") from None
        if said in ("y", "yes", "n", "no"):
            return said.startswith("y")
