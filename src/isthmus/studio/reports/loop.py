"""The report of a loop: what the robot did before, what was wrong, the repair, what it does now, and the validation.

One page that needs no network, made from a LoopResult and the loop's folder: recordings, twins, records of calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from isthmus.core.errors import BadInput
from isthmus.core.files import atomic_write, content_hash
from isthmus.core.progress import Progress, silent, sub_progress
from isthmus.core.statistics import Rate
from isthmus.learn.train import TrainResult
from isthmus.pipeline.command_line import command_line, shell_text
from isthmus.pipeline.evidence import LoopHistory
from isthmus.pipeline.journal import CallRecord, Library
from isthmus.pipeline.library import isthmus_library
from isthmus.pipeline.loop import read_history
from isthmus.pipeline.outcome import IdentifiedParameter, LoopResult, describe_truth, identified_parameters
from isthmus.pipeline.settings import REPORT
from isthmus.real2sim.identify.fit_actuator import ActuatorResult
from isthmus.real2sim.identify.identify import IdentifyResult
from isthmus.real2sim.identify.learn_residual import ResidualResult
from isthmus.robots.twin import Twin
from isthmus.sim.robot import Robot
from isthmus.studio.figures.axes import Line, estimate_chart, line_chart
from isthmus.studio.figures.motion_player import PLAYER_SCRIPT
from isthmus.studio.reports.certificate import write_certificate
from isthmus.studio.reports.loop_motions import motion_section, overlay_section, replay_first_and_last
from isthmus.studio.reports.page import Section, collapsible, figure, html_page, paragraph, table
from isthmus.tasks.catalogue import get_task
from isthmus.validation.certificate import DECISION_WORDS

SWEEP_BINS, PARAMETERS_UNFOLDED = 6, 4
"""Bins of a parameter, and parameters against which success is drawn unfolded."""
PARAMETERS_REPLACED_BY_PHYSICS = {"stribeck": "friction", "ground_softness": "contact_time"}
"""Missing physics that replaces a parameter, which then has no true value."""
LOW_INTERVAL_COVERAGE = 0.75
"""Share of intervals of 90 % that hold the truth, below which the report says why that may be."""
REPLAY_PROGRESS_SHARE = 0.8
"""Share of the time that it takes to live through the recordings again."""
MIN_PROBABILITY_SHOWN = 0.01
"""Of a hypothesis."""
MAX_FIGURE_PARAMETERS = 14
"""Numbers in the figure; all are in the table."""


def write_loop_report(
    result: LoopResult, folder: Path, path: Path, progress: Progress = silent, library: Library = isthmus_library
) -> Path:
    """Write the page of a finished loop to `path`."""
    _, history, records = read_history(folder, library)
    robot = get_task(result.task).robot
    replays = replay_first_and_last(robot, history, sub_progress(progress, 0.0, REPLAY_PROGRESS_SHARE))
    progress(REPLAY_PROGRESS_SHARE)
    sections = [
        Section("What happened", _summary_section(result, robot), "happened"),
        *_section_if("Before and after", motion_section(robot, replays), "motion"),
        *_section_if("Recorded and simulated", overlay_section(robot, replays), "overlaid"),
        *_section_if("What was wrong", _diagnosis_section(history, path), "wrong"),
        *_section_if("Identified parameters", _parameters_section(history, robot, result), "numbers"),
        *_section_if("Prediction error", _prediction_error_section(history), "remaining"),
        *_section_if("Success against each parameter", _success_by_parameter_section(history, robot, result), "swept"),
        *_section_if("Validation", _certificate_section(history, path), "proof"),
        Section("Where everything came from", _lineage_table(records), "lineage"),
    ]
    title = f"{result.task}: from simulation to the robot"
    atomic_write(path, html_page(title, sections, {"record": result.to_dict()}, PLAYER_SCRIPT).encode())
    return path


def _section_if(title: str, html: str, name: str) -> list[Section]:
    return [Section(title, html, name)] if html else []


def _summary_section(result: LoopResult, robot: Robot) -> str:
    parts = []
    for line in result.sentences:
        head, _, rest = line.partition(": ")
        parts.append(f"<p><b>{escape(head)}:</b> {escape(rest)}</p>")
    if result.truth is not None:
        parts.append(f"<p><b>Truth:</b> {escape(describe_truth(result.truth, robot.space))}.</p>")
    parts.append(paragraph(f"{result.robot_seconds:.0f} s of robot time were recorded.", "quiet"))
    if scores := result.virtual_scores:
        rates = " → ".join(f"{100 * score.success.rate:.0f} %" for score in (scores[0], scores[-1])[: len(scores)])
        parts.append(
            f'<p class="big">{rates} <small>of {scores[0].success.n} episodes of the virtual robot succeed</small></p>'
        )
        text = "For this report only, after the last decision: hardware offers no such episodes, and the loop did not use them."
        parts.append(paragraph(text, "quiet"))
    return "".join(parts)


# Why, and what was found ------------------------------------------------------------------------------------------


def _diagnosis_section(history: LoopHistory, path: Path) -> str:
    parts = []
    for attempt in history.attempts:
        diagnosis = attempt.diagnosis
        if diagnosis is None or not diagnosis.hypotheses:
            continue
        rows = [
            [f"{100 * h.probability:.0f} %", h.cause, h.sentence]
            for h in diagnosis.hypotheses
            if h.probability >= MIN_PROBABILITY_SHOWN
        ]
        parts.append(f'<p class="verdict">{escape(diagnosis.headline)}</p>')
        parts.append(table(["probability", "cause", "what speaks for it"], rows, right=(0,)))
        first = diagnosis.hypotheses[0]
        parts.append(paragraph(f"What it recommends: {first.action.replace('`', '')}."))
        if first.gain:
            parts.append(paragraph(f"What it expects: {first.gain}."))
    pages = [p for a in history.attempts if a.measured and a.gap for p in a.measured.call.outputs if p.exists()]
    links = ", ".join(_relative_link(p, path) for p in pages)
    return "".join(parts) + (f'<p class="quiet">In full: {links}</p>' if links else "") if parts or links else ""


def _relative_link(file: Path, page_: Path) -> str:
    where = os.path.relpath(file, page_.parent)
    return f'<a href="{escape(where)}">{escape(file.name)}</a>'


def _parameters_section(history: LoopHistory, robot: Robot, result: LoopResult) -> str:
    records = [r.identification for r in reversed(history.repairs) if r.identification]
    found = next((f for record in records if (f := record.result_as(IdentifyResult)) is not None), None)
    if found is None:
        return ""
    truth = _true_values(robot, result)
    rows = [_twin_estimate(n, history.last_twin) for n in identified_parameters(found)]
    inside = [truth[n.name] for n in rows if n.name in truth]
    held = sum(n.low <= truth[n.name] <= n.high for n in rows if n.name in truth)
    text = (
        "Grey: the prior, scaled to one width. Blue: the posterior, with 90 % intervals; red where they are outside the prior."
    )
    if inside:
        text += f" Diamonds: the truth, revealed after the loop. {held} of {len(inside)} intervals hold it."
        if held < LOW_INTERVAL_COVERAGE * len(inside):
            text += (
                " Fewer than nine in ten: parameters with similar effects compensate for each other, or for missing physics."
            )
    svg = estimate_chart(
        [_interval_row(n, truth) for n in rows[:MAX_FIGURE_PARAMETERS]],
        "0: lower end of the prior, 1: upper end",
        "numbers",
    )
    columns = ["parameter", "unit", "prior", "identified", "90 % interval", *(["truth"] if truth else [])]
    cells = [
        [
            n.name,
            n.unit,
            f"{n.prior_interval[0]:.3g} to {n.prior_interval[1]:.3g}",
            f"{n.value:.4g}",
            f"{n.low:.3g} to {n.high:.3g}",
        ]
        + ([f"{truth[n.name]:.4g}" if n.name in truth else ""] if truth else [])
        for n in rows
    ]
    said = "".join(paragraph(d.text) for d in found.undetermined[:4])
    more = collapsible("What the recordings do not determine", said) if said else ""
    return figure(svg, text) + collapsible("All parameters", table(columns, cells, right=(3,))) + more


def _twin_estimate(n: IdentifiedParameter, twin: Path | None) -> IdentifiedParameter:
    """The estimate of the twin that was trained on: an actuator model refits some parameters."""
    try:
        belief = Twin.load(twin).belief if twin is not None else None
    except BadInput:
        belief = None  # it was taken away since
    if belief is None:
        return n
    value = float(belief.median()[belief.space.index(n.name)])
    return replace(n, value=value, low=belief.interval(n.name, 0.9)[0], high=belief.interval(n.name, 0.9)[1])


def _interval_row(n: IdentifiedParameter, truth: dict[str, float]) -> tuple[str, float, float, float, float | None, bool]:
    low, high = n.prior_interval
    scaled = lambda v: float(np.clip((v - low) / max(high - low, 1e-300), -3.0, 4.0))  # noqa: E731
    return (
        n.name,
        scaled(n.low),
        scaled(n.value),
        scaled(n.high),
        scaled(truth[n.name]) if n.name in truth else None,
        n.is_outside_prior,
    )


def _true_values(robot: Robot, result: LoopResult) -> dict[str, float]:
    """True value of every parameter, if the truth was revealed: what a reality does not name is nominal."""
    if result.truth is None:
        return {}
    named = {k: float(v) for k, v in (result.truth.get("params") or {}).items()}
    nominal = dict(zip(robot.space.names, map(float, robot.space.nominal), strict=True))
    gone = [word for law, word in PARAMETERS_REPLACED_BY_PHYSICS.items() if law in (result.truth.get("unmodelled") or {})]
    return {k: v for k, v in (nominal | named).items() if not any(word in k for word in gone)}


def _prediction_error_section(history: LoopHistory) -> str:
    """Prediction errors of the simulators that the policies were trained in."""
    lines, rows = [], []
    for attempt in history.attempts:
        gap = attempt.gap
        if gap is None or not gap.prediction or gap.score is None:
            continue
        table_ = np.array([[m["value"] for m in row] for row in gap.prediction["signals"].values()], dtype=float)
        known = np.isfinite(table_)
        mean = np.where(known, table_**2, 0.0).sum(0) / np.where(known.any(0), known.sum(0), np.nan)
        lines.append(Line(attempt.name, gap.prediction["horizons"], np.sqrt(mean)))
        rows.append([attempt.name, *(_format_number(x) for x in (gap.score.value, gap.score.low, gap.score.high))])
    learned = [d for r in history.repairs for d in r.learned]
    told = "".join(paragraph(_describe_learned(d)) for d in learned)
    if not lines:
        return told
    svg = line_chart(lines, "seconds ahead", "error / noise", "what remains", marks=[(1.0, "right simulator")])
    caption = "How far each simulator's predictions are from the recordings of its own policy, in units of the sensors' noise."
    return told + figure(svg, caption) + table(["simulator", "score", "95 % from", "to"], rows, right=(1, 2, 3))


def _format_number(x: float) -> str:
    return f"{x:.3g}" if np.isfinite(x) else "–"


def _describe_learned(record: CallRecord) -> str:
    match record.result:
        case ActuatorResult(law=law, candidates=candidates):
            tried = ", ".join(f"{c.law} {_format_number(c.held_out)}" for c in candidates)
            return f"Actuator models, with their error on held-out segments / noise: {tried}. Chosen: {law}."
        case ResidualResult(kept=kept, candidates=candidates, error=error):
            result = "kept" if kept else "not kept"
            if candidates:
                grounds = ", ".join(f"{name} {_format_number(e.held_out)}" for name, e in candidates.items())
                return f"Ground models, with their error on held-out segments / noise: {grounds}. Soft ground was {result}."
            before, after = error.before.held_out, error.after.held_out
            if not np.isfinite(before + after):
                return "Residual dynamics: not tried."
            return f"Residual dynamics: error on held-out segments {before:.3g} without and {after:.3g} with them, {result}."
    return f"What parameters do not explain could not be learned: {record.failure}"


def _success_by_parameter_section(history: LoopHistory, robot: Robot, result: LoopResult) -> str:
    """Success of the first and the last policy against each parameter, the most influential first."""
    files = [d.call.outputs[0] for d in history.sweeps if not d.failure and d.call.outputs[0].exists()]
    if len(files) < 2:
        return ""
    columns = [f"e.{n}" for n in robot.prior.free().names]
    try:
        tables = [pq.read_table(f, columns=["success", *columns]).to_pydict() for f in files]
    except (pa.ArrowException, OSError):
        return ""
    wins = [np.array(t["success"], bool) for t in tables]
    names = sorted(columns, key=lambda c: -max(_success_spread(np.array(t[c]), w) for t, w in zip(tables, wins, strict=True)))
    text = (
        f"{len(wins[0])} worlds, {REPORT.sweep_prior_scale:g} times as wide as the prior, with 95 % intervals; the most "
        "influential parameters come first. Each policy is in its own simulator: the one after has what was learned of this "
        "robot. All parameters vary at once: a line is a mean over many robots, most of them farther from nominal."
    )
    truth = _true_values(robot, result)
    parts = []
    for c in names:
        name = c.removeprefix("e.")
        lines = []
        for label, t, w in zip(("before", "after"), tables, wins, strict=True):
            bins = _equal_bins(np.array(t[c]))
            middles = [float(np.mean(np.array(t[c])[b])) for b in bins]
            rates = [Rate.from_counts(int(w[b].sum()), len(b)) for b in bins]
            lines.append(Line(label, middles, [r.rate for r in rates], [r.low for r in rates], [r.high for r in rates]))
        unit = "" if robot.space[name].unit in ("", "1") else f", {robot.space[name].unit}"
        at = f" This robot: {truth[name]:.3g}." if name in truth else ""
        low, high = robot.prior.interval(name, 1.0)
        caption = f"The prior: {low:.3g} to {high:.3g}.{at}"
        parts.append(figure(line_chart(lines, f"{name}{unit}", "success", name, log=False), caption))
    rest = (
        collapsible(f"{len(parts) - PARAMETERS_UNFOLDED} other parameters", "".join(parts[PARAMETERS_UNFOLDED:]))
        if len(parts) > PARAMETERS_UNFOLDED
        else ""
    )
    return paragraph(text) + "".join(parts[:PARAMETERS_UNFOLDED]) + rest


def _equal_bins(x: np.ndarray) -> list[np.ndarray]:
    """Rows of each of a few equal shares, by size."""
    return np.array_split(np.argsort(x, kind="stable"), SWEEP_BINS)


def _success_spread(x: np.ndarray, w: np.ndarray) -> float:
    """Largest difference of success between bins of a parameter."""
    rates = [w[b].mean() for b in _equal_bins(x)]
    return float(max(rates) - min(rates))


def _certificate_section(history: LoopHistory, path: Path) -> str:
    attempt = next((a for a in reversed(history.attempts) if a.validation is not None), None)
    if attempt is None or attempt.validation is None:
        return ""
    found = attempt.certificate
    if found is None:
        return paragraph(f"It could not be validated: {attempt.validation.failure}")
    rows = []
    for stage in found.stages:
        r = stage.success
        bounds = f"{100 * r.low:.0f} to {100 * r.high:.0f} %"
        cells = [stage.name, DECISION_WORDS[stage.decision], f"{100 * r.rate:.0f} %", bounds]
        rows.append([*cells, f"{100 * stage.required:.0f} %", str(r.n)])
    heads = ["stage", "", "success", "bounds", "required", "trials"]
    verdict = "Passed." if found.passed else "Not passed."
    where = f" on {found.tested_on}" if found.tested_on else ""
    page = write_certificate(found, path.with_name(attempt.controller.stem + ".certificate.html"))[1]
    links = f'<p class="quiet">Certificate: {_relative_link(page, path)}</p>'
    text = paragraph(f"Protocol {found.protocol}{where}, its first stages.")
    return f'<p class="verdict">{verdict}</p>' + text + table(heads, rows, right=(2, 5)) + links


def _lineage_table(records: Iterable[CallRecord]) -> str:
    rows = []
    for record in records:
        files = [p for p in record.call.outputs if p.is_file()]
        trained = record.result_as(TrainResult)
        own = content_hash(files[0].read_bytes()) if files else trained.run_hash if trained else ""
        command = shell_text(["isthmus", *command_line(record.call.verb, record.call.arguments)])
        rows.append([record.call.name, command, f"{record.seconds:.0f} s", own[:12]])
    text = paragraph(
        "The calls of the loop as equivalent commands, in order, with their time and the hash of what they wrote: SHA-256 of a "
        "file, or the hash of a run."
    )
    return text + table(["call", "command", "time", "hash"], rows, right=(2,))
