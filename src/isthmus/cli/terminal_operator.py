"""The operator of a validation on a robot, asked on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.cli import render
from isthmus.core.errors import BadInput

if TYPE_CHECKING:
    from isthmus.validation.protocol import Stage


class TerminalOperator:
    """Satisfies `validation.robot_trials.Operator`."""

    def confirm_stage(self, stage: Stage) -> bool:
        render.err.print(f"\n{stage.name}: {stage.doc}\n{stage.steps}", markup=False, highlight=False)
        return ask_yes_no("is everything in place?")

    def confirm_trial(self, conditions: str) -> bool:
        return ask_yes_no(f"{conditions}. Ready?")

    def succeeded(self) -> bool:
        return ask_yes_no("did it succeed?")


def ask_yes_no(question: str) -> bool:
    while True:
        print(f"{question} [y/n] ", end="", file=render.err.file, flush=True)
        try:
            answer = input().strip().lower()
        except EOFError:
            raise BadInput("an answer of the operator is needed, but standard input has ended.") from None
        if answer in ("y", "yes", "n", "no"):
            return answer.startswith("y")
