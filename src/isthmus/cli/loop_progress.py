"""Tells of each call of a loop as it begins and ends, with the time that is left."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack

from isthmus.cli import render
from isthmus.core.progress import Progress
from isthmus.pipeline.budgets import task_budget
from isthmus.pipeline.command_line import command_line, shell_text
from isthmus.pipeline.journal import Call, CallRecord
from isthmus.pipeline.outcome import describe_call
from isthmus.pipeline.settings import LoopSettings
from isthmus.pipeline.time_left import TYPICAL_CALLS, remaining_seconds


class LoopProgress:
    """Observer of a loop that prints each call, its equivalent command, and what it found."""

    def __init__(self, quiet: bool, settings: LoopSettings):
        self.quiet, self.settings = quiet, settings
        self.finished: list[tuple[str, float]] = []
        self.name, self.start = "", 0.0
        self.bar = ExitStack()

    def __enter__(self) -> LoopProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def remaining_seconds(self, own: float | None = None) -> float | None:
        """Seconds that the loop may still take, from what the call at work says it still needs."""
        return remaining_seconds(self.finished, self.name, time.monotonic() - self.start, own)

    def began(self, number: int, call: Call) -> Progress:
        self.name, self.start = call.name, time.monotonic()
        more = self.remaining_seconds()
        note = f"about {render.format_duration(more)} left in all" if more else expected_duration(self.settings)
        self._print_line(f"{number:>2}  {call.purpose}  ({note})", "bold")
        self._print_line(f"    {shell_text(['isthmus', *command_line(call.verb, call.arguments)])}", "dim")
        bar = self.bar.enter_context(render.deferred_progress_bar(call.purpose))
        return lambda fraction, note="", /: bar(fraction, note)

    def ended(self, number: int, record: CallRecord, replayed: bool) -> None:
        self.bar.close()
        self.finished.append((record.call.name, record.seconds))
        text = f"failed: {record.failure}" if record.failure else describe_call(record)
        found = ", ".join(
            part for part in (text, "done before" if replayed else render.format_duration(record.seconds)) if part
        )
        self._print_line(f"{number:>2}  {record.call.purpose}: {found}" if replayed else f"    {found}")

    def _print_line(self, text: str, style: str = "") -> None:
        if self.quiet:
            print(render.printable(text), file=sys.stderr, flush=True)
        else:
            render.print_line(text, style)


def expected_duration(settings: LoopSettings) -> str:
    """How long a loop usually takes, before anything of it is known."""
    minutes = settings.budget or settings.rounds * task_budget(settings.task).loop_minutes
    calls = f"usually about {len(TYPICAL_CALLS)} calls"
    return calls + (f", {minutes:.0f} min in all on two free cores" if minutes else "")
