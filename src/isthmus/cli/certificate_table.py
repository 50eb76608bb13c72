"""Certificates as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.cli import render

if TYPE_CHECKING:
    from isthmus.validation.certificate import Certificate
    from isthmus.validation.prediction_agreement import AgreementResult
    from isthmus.validation.stage_result import StageResult

STAGE_COLUMNS = ["stage", "", "success", "bounds", "required", "expected", "trials", "fixed size"]


def print_certificate(made: Certificate, film_problem: str = "") -> None:
    from isthmus.validation.certificate import DECISION_WORDS

    render.print_line(f"{made.controller} ({made.task}) on {made.tested_on}, protocol {made.protocol}")
    render.out.print(render.table("", STAGE_COLUMNS, [_stage_row(s, DECISION_WORDS[s.decision]) for s in made.stages]))
    for s in made.stages:
        for text in s.omitted:
            render.print_line(f"{s.name}: omitted, because {text}.")
        if s.stop_reason:
            render.print_line(f"{s.name}: {s.stop_reason}")
        if s.predicted:
            render.print_line(f"{s.name}: the simulator predicts {s.predicted}.")
        if s.assisted:
            alone = s.assisted.alone
            render.print_line(
                f"{s.name}: outcomes and predictions correlate by {s.assisted.correlation:.2f}; without the simulator it is "
                f"{DECISION_WORDS[alone.decision]} after {alone.trials} trials."
            )
    if made.first_failed:
        _print_failure(made.first_failed)
    if film_problem:
        render.print_line(film_problem + ".")
    render.print_line("passed" if made.passed else "not passed", "bold green" if made.passed else "bold red")


def _stage_row(s: StageResult, decision: str) -> list[str]:
    r, whole = s.success, lambda x: f"{100 * x:.0f} %"
    bounds = f"{100 * r.low:.0f} to {100 * r.high:.0f} %"
    return [
        *(s.name, decision, whole(r.rate), bounds),
        *(whole(s.required), whole(s.expected), str(r.n), str(s.fixed_size_trials)),
    ]


def _print_failure(s: StageResult) -> None:
    for c in s.parameter_differences:
        render.print_line(f"{c.name}: mean {c.failures:.3g} {c.unit} without success, {c.successes:.3g} with success.")
    rows = [
        [str(w.trial), f"{w.score:.2f}", f"{w.length:.1f} s", ", ".join(f"{n} {w.e[n]:.3g}" for n in w.unusual)]
        for w in s.worst
    ]
    if rows:
        render.out.print(render.table("the worst worlds found", ["trial", "score", "length", "unusual parameters"], rows))


def print_agreement(found: AgreementResult) -> None:
    rows = [
        [p.controller, p.stage, f"{100 * p.predicted:.0f} %", f"{100 * p.observed:.0f} %", str(p.trials)] for p in found.pairs
    ]
    render.out.print(render.table("", ["controller", "stage", "predicted", "observed", "trials"], rows, right=(2, 3, 4)))
    for a in found.agreement:
        interval = f" ({a.low:.2f} to {a.high:.2f})" if a.low == a.low else ""
        render.print_line(
            f"{a.stage or 'all stages'}: {a.pairs} pairs, Pearson {a.pearson:.2f}{interval}, mean maximum rank violation "
            f"{a.mmrv:.3f}, predicted - observed {a.bias:+.3f}"
        )
