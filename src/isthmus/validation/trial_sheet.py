"""Trials on paper: a table of conditions to print or fill in (CSV), and its outcomes read back.

stage,trial,payload,forward,sideways,yaw,success
indoor-mats,1,1.0,0.35,0.1,-0.6,y
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from isthmus.core.errors import BadInput, unknown_name
from isthmus.core.files import atomic_write, read_bytes
from isthmus.validation.robot_trials import TrialOutcome, draw_conditions
from isthmus.validation.sequential_test import SequentialTest
from isthmus.validation.stage import StageSetup

MAX_BYTES = 2**22
YES_WORDS, NO_WORDS = ("y", "yes", "1", "true"), ("n", "no", "0", "false")


def write_trial_sheet(path: Path, stage_setups: list[StageSetup], seeds: list[int]) -> int:
    """As many trials of each stage as it may take; returns how many in all."""
    setups = sorted({name for own in stage_setups for name in own.setup_values})
    labels = stage_setups[0].task.command.signal.labels if stage_setups[0].task.command else ()
    out = io.StringIO()
    sheet = csv.writer(out, lineterminator="\n")
    sheet.writerow(["stage", "trial", *setups, *labels, "success"])
    count = 0
    for own, seed in zip(stage_setups, seeds, strict=True):
        for trial in range(SequentialTest(own.stage.goal, own.stage.most).max_trials):
            asked = draw_conditions(own, seed, trial)
            row = [f"{asked.setup[name]:g}" if name in asked.setup else "" for name in setups]
            sheet.writerow([own.stage.name, trial + 1, *row, *(f"{x:g}" for x in asked.command), ""])
            count += 1
    atomic_write(path, out.getvalue().encode())
    return count


def read_trial_sheet(path: Path, stage_setups: list[StageSetup], seeds: list[int]) -> dict[str, list[TrialOutcome]]:
    """Outcomes by stage, from the first trial on. Conditions must be those of the plan: others would bias the result."""
    try:
        rows = list(csv.DictReader(io.StringIO(read_bytes(path, MAX_BYTES).decode("utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is not a table of comma-separated values: {error}.") from None
    if not rows or not {"stage", "success"} <= set(rows[0]):
        raise BadInput(f"{path} needs the columns 'stage' and 'success', as --plan writes them.")
    by_name = {own.stage.name: (own, seed) for own, seed in zip(stage_setups, seeds, strict=True)}
    found: dict[str, list[TrialOutcome]] = {name: [] for name in by_name}
    seen = dict.fromkeys(by_name, 0)
    for number, row in enumerate(rows, start=2):
        where, name, said = f"line {number} of {path}", (row["stage"] or "").strip(), (row["success"] or "").strip().lower()
        if name not in by_name:
            raise unknown_name("stage", name, by_name, where)
        own, seed = by_name[name]
        asked = draw_conditions(own, seed, seen[name])
        seen[name] += 1
        if not said:
            continue
        if said not in YES_WORDS + NO_WORDS:
            raise BadInput(f"{where}: success is y or n, not {said!r}.")
        if seen[name] != len(found[name]) + 1:
            raise BadInput(f"{where}: trials are entered in their order, but the one before it in {name} has no outcome.")
        labels = own.task.command.signal.labels if own.task.command else ()
        planned = {**asked.setup, **dict(zip(labels, asked.command.tolist(), strict=True))}
        for key, value in planned.items():
            if abs(_required_number(row, key, where) - value) > 1e-6 * max(1.0, abs(value)):
                raise BadInput(
                    f"{where}: {key} is {row[key]}, but the plan of this seed has {value:g}; trials under other conditions "
                    "than drawn would bias the result."
                )
        found[name].append(TrialOutcome(said in YES_WORDS, "file"))
    return found


def _required_number(row: dict[str, str], name: str, where: str) -> float:
    try:
        value = float(row[name])
    except (KeyError, TypeError, ValueError):
        raise BadInput(f"{where} needs a number in the column {name!r}.") from None
    return value
