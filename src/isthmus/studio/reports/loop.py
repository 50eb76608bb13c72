"""The report of a loop: what the robot could do before, what was wrong, what was done, what it can do now, and the proof.

One page that needs no network. It is made from the artifacts of the steps: recordings, twins, records.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
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
from isthmus.pipeline.evidence import LoopHistory, LoopSettings
from isthmus.pipeline.journal import CallRecord
from isthmus.pipeline.outcome import IdentifiedParameter, LoopResult, identified_parameters
from isthmus.pipeline.stages import SWEEP_PRIOR_SCALE
from isthmus.robots.twin import Twin
from isthmus.sim.robot import Robot
from isthmus.studio.figures.axes import Line, estimate_chart, line_chart
from isthmus.studio.figures.motion_player import PLAYER_SCRIPT
from isthmus.studio.reports.loop_motions import motion_section, overlay_section, replay_first_and_last
from isthmus.studio.reports.page import Section, collapsible, figure, html_page, paragraph, table
from isthmus.tasks.task import Task
from isthmus.validation.certificate import DECISION_WORDS

SWEEP_BINS, PARAMETERS_UNFOLDED = 6, 4
"""Shares of the worlds by a number, and numbers against which success is drawn in the open."""
PARAMETERS_REPLACED_BY_PHYSICS = {"stribeck": "friction", "ground_softness": "contact_time"}
"""Missing physics that takes the place of a number, which then has no true value."""
LOW_INTERVAL_COVERAGE = 0.75
"""Share of intervals of 90 % that hold the truth, below which the report says why that may be."""
REPLAY_PROGRESS_SHARE = 0.8
"""Share of the time that it takes to live through the recordings again."""
MAX_FIGURE_PARAMETERS = 14
"""Numbers in the figure; all are in the table."""


def write_loop_report(
    path: Path,
    history: LoopHistory,
    settings: LoopSettings,
    task: Task,
    outcome: LoopResult,
    steps: Sequence[CallRecord],
    progress: Progress = silent,
) -> Path:
    robot = task.robot
    lived = replay_first_and_last(robot, history, sub_progress(progress, 0.0, REPLAY_PROGRESS_SHARE))
    progress(REPLAY_PROGRESS_SHARE)
    sections = [
        Section("What happened", _summary_section(history, outcome), "happened"),
        *_section_if("Before and after", motion_section(robot, lived), "motion"),
        *_section_if("Recorded and simulated", overlay_section(robot, lived), "overlaid"),
        *_section_if("What was wrong", _diagnosis_section(history, path), "wrong"),
        *_section_if("Its numbers", _parameters_section(history, robot, outcome), "numbers"),
        *_section_if("What no number explains", _prediction_error_section(history), "remaining"),
        *_section_if("Success against each number", _success_by_parameter_section(history, robot, outcome), "swept"),
        *_section_if("The proof", _certificate_section(history, path), "proof"),
        Section("Where everything came from", _lineage_table(steps), "lineage"),
    ]
    record = outcome.to_dict() | {"task": settings.task, "link": settings.link, "seed": settings.seed}
    atomic_write(
        path, html_page(f"{settings.task}: from simulation to the robot", sections, {"record": record}, PLAYER_SCRIPT).encode()
    )
    return path


def _section_if(title: str, html: str, name: str) -> list[Section]:
    return [Section(title, html, name)] if html else []


def _summary_section(history: LoopHistory, outcome: LoopResult) -> str:
    parts = []
    rates = [a.watched_success for a in history.attempts if a.watched_success is not None]
    if rates:
        words = " → ".join(f"{100 * r['rate']:.0f} %" for r in (rates[0], rates[-1])[: len(rates)])
        parts.append(f'<p class="big">{words} <small>of {rates[0]["n"]} episodes on the robot succeed</small></p>')
    for line in outcome.sentences:
        head, _, rest = line.partition(": ")
        parts.append(f"<p><b>{escape(head)}:</b> {escape(rest)}</p>")
    seconds = f"{outcome.robot_seconds:.0f} s of the robot's time were recorded."
    if rates:
        seconds += f" On top of that, {rates[0]['n']} episodes of each policy were watched, to judge it."
    return "".join(parts) + paragraph(seconds, "quiet")


# Why, and what was found ------------------------------------------------------------------------------------------


def _diagnosis_section(history: LoopHistory, path: Path) -> str:
    parts = []
    for a in history.attempts:
        why = a.diagnosis
        if not why.get("hypotheses"):
            continue
        rows = [[f"{100 * h['p']:.0f} %", h["cause"], h["sentence"]] for h in why["hypotheses"] if h["p"] >= 0.01]
        parts.append(f'<p class="verdict">{escape(why["headline"])}</p>')
        parts.append(table(["probability", "cause", "what speaks for it"], rows, right=(0,)))
        first = why["hypotheses"][0]
        parts.append(paragraph(f"What it recommends: {first['action'].replace('`', '')}."))
        if first.get("gain"):
            parts.append(paragraph(f"What it expects: {first['gain']}."))
    pages = [a.gap_record.call.outputs[0] for a in history.attempts if a.gap_record is not None and not a.gap_record.failure]
    links = ", ".join(_relative_link(p, path) for p in pages)
    return "".join(parts) + (f'<p class="quiet">In full: {links}</p>' if links else "") if parts or links else ""


def _relative_link(file: Path, page_: Path) -> str:
    where = os.path.relpath(file, page_.parent)
    return f'<a href="{escape(where)}">{escape(file.name)}</a>'


def _parameters_section(history: LoopHistory, robot: Robot, outcome: LoopResult) -> str:
    done = next(
        (r.identify_record for r in reversed(history.repairs) if r.identify_record and not r.identify_record.failure), None
    )
    if done is None:
        return ""
    truth = _true_values(robot, outcome)
    rows = [_twin_estimate(n, history.last_twin) for n in identified_parameters(done.result["parameters"])]
    inside = [truth[n.name] for n in rows if n.name in truth]
    held = sum(n.low <= truth[n.name] <= n.high for n in rows if n.name in truth)
    text = (
        "Grey: what training believed, scaled to one width. Blue: what the recordings say, with 90 % intervals; red where that "
        "is outside."
    )
    if inside:
        text += f" Diamonds: the truth, which was revealed after everything else. {held} of {len(inside)} intervals hold it."
        if held < LOW_INTERVAL_COVERAGE * len(inside):
            text += " Fewer than nine in ten: numbers that act alike here stand in for each other, or for what is missing."
    svg = estimate_chart(
        [_interval_row(n, truth) for n in rows[:MAX_FIGURE_PARAMETERS]],
        "0: lower end of what was believed, 1: upper end",
        "numbers",
    )
    columns = ["parameter", "unit", "believed", "found", "90 % interval", *(["truth"] if truth else [])]
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
    said = "".join(paragraph(d["text"]) for d in done.result.get("undetermined", [])[:4])
    more = collapsible("What the recordings do not determine", said) if said else ""
    return figure(svg, text) + collapsible("All numbers", table(columns, cells, right=(3,))) + more


def _twin_estimate(n: IdentifiedParameter, twin: Path | None) -> IdentifiedParameter:
    """A number as the twin has it that was trained on: a law of motors refits some."""
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


def _true_values(robot: Robot, outcome: LoopResult) -> dict[str, float]:
    """Of every number, if the truth was revealed: what a reality does not name is as its model says."""
    if outcome.truth is None:
        return {}
    named = {k: float(v) for k, v in (outcome.truth.get("params") or {}).items()}
    nominal = dict(zip(robot.space.names, map(float, robot.space.nominal), strict=True))
    gone = [word for law, word in PARAMETERS_REPLACED_BY_PHYSICS.items() if law in (outcome.truth.get("unmodelled") or {})]
    return {k: v for k, v in (nominal | named).items() if not any(word in k for word in gone)}


def _prediction_error_section(history: LoopHistory) -> str:
    """Errors of prediction of the first simulator and the last."""
    lines, rows = [], []
    for a in history.attempts:
        if a.gap_record is None or a.gap_record.failure or not a.gap_record.result.get("prediction"):
            continue
        name, p, score = (
            ("prior" if a.name == "prior" else "twin"),
            a.gap_record.result["prediction"],
            a.gap_record.result["score"],
        )
        table_ = np.array([[m["value"] for m in row] for row in p["signals"].values()], dtype=float)
        known = np.isfinite(table_)
        mean = np.where(known, table_**2, 0.0).sum(0) / np.where(known.any(0), known.sum(0), np.nan)
        lines.append(Line(name, p["horizons"], np.sqrt(mean)))
        rows.append([name, *(_format_number(score[k]) for k in ("value", "low", "high"))])
    learned = [d for r in history.repairs for d in r.learning_records]
    told = "".join(paragraph(_describe_learned(d)) for d in learned)
    if not lines:
        return told
    svg = line_chart(lines, "seconds ahead", "error / noise", "what remains", marks=[(1.0, "right simulator")])
    caption = "How far each simulator's predictions are from the recordings of its own policy, in units of the sensors' noise."
    return told + figure(svg, caption) + table(["simulator", "score", "95 % from", "to"], rows, right=(1, 2, 3))


def _format_number(x: float | None) -> str:
    return "–" if x is None else f"{x:.3g}"


def _describe_learned(done: CallRecord) -> str:
    if done.failure:
        return f"What numbers do not explain could not be learned: {done.failure}"
    if done.call.arguments[0] == "actuator":
        tried = ", ".join(f"{t['law']} {_format_number(t['held_out'])}" for t in done.result.get("tried", []))
        return f"Laws of the motors, with their error on held-out pieces / noise: {tried}. Kept: {done.result.get('law')}."
    kept = "kept" if done.result.get("kept") else "not kept"
    tried = done.result.get("tried")
    if tried:
        laws = ", ".join(f"{law} {_format_number(error.get('held_out'))}" for law, error in tried.items())
        return f"Grounds, with their error on held-out pieces / noise: {laws}. Soft ground was {kept}."
    error = done.result.get("error", {})
    before, after = ((error.get(k) or {}).get("held_out") for k in ("before", "after"))
    if before is None or after is None:
        return "A learned force: not tried."
    return f"A learned force: error on held-out pieces {before:.3g} without and {after:.3g} with it, {kept}."


def _success_by_parameter_section(history: LoopHistory, robot: Robot, outcome: LoopResult) -> str:
    """Success of the first and the last policy against those numbers that matter most to either."""
    files = [d.call.outputs[0] for d in history.sweep_records if not d.failure and d.call.outputs[0].exists()]
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
        f"{len(wins[0])} worlds, {SWEEP_PRIOR_SCALE:g} times as wide as the prior; numbers that success hangs "
        "on most come first. "
        "With 95 % intervals. Each policy is in its own simulator: the one after has what was learned of this robot. All "
        "numbers vary at once: a line is a mean over many robots, most of them odder than this one."
    )
    truth = _true_values(robot, outcome)
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
        collapsible(f"{len(parts) - PARAMETERS_UNFOLDED} other numbers", "".join(parts[PARAMETERS_UNFOLDED:]))
        if len(parts) > PARAMETERS_UNFOLDED
        else ""
    )
    return paragraph(text) + "".join(parts[:PARAMETERS_UNFOLDED]) + rest


def _equal_bins(x: np.ndarray) -> list[np.ndarray]:
    """Rows of each of a few equal shares, by size."""
    return np.array_split(np.argsort(x, kind="stable"), SWEEP_BINS)


def _success_spread(x: np.ndarray, w: np.ndarray) -> float:
    """How much success differs between shares of a number."""
    rates = [w[b].mean() for b in _equal_bins(x)]
    return float(max(rates) - min(rates))


def _certificate_section(history: LoopHistory, path: Path) -> str:
    done = next((a.certificate_record for a in reversed(history.attempts) if a.certificate_record is not None), None)
    if done is None:
        return ""
    if done.failure:
        return paragraph(f"It could not be validated: {done.failure}")
    rows = []
    for stage in done.result.get("stages", []):
        r = stage["success"]
        bounds = f"{100 * r['low']:.0f} to {100 * r['high']:.0f} %"
        asked = f"{100 * stage['required']:.0f} %"
        rows.append([stage["name"], DECISION_WORDS[stage["decision"]], f"{100 * r['rate']:.0f} %", bounds, asked, str(r["n"])])
    heads = ["stage", "", "success", "bounds", "required", "trials"]
    verdict = "Passed." if done.exit_code == 0 else "Not passed."
    where = f" on {done.result.get('tested_on')}" if done.result.get("tested_on") else ""
    links = f'<p class="quiet">Certificate: {_relative_link(done.call.outputs[0], path)}</p>'
    told = paragraph(f"Protocol {done.result.get('protocol')}{where}, its first stages.")
    return f'<p class="verdict">{verdict}</p>' + told + table(heads, rows, right=(2, 5)) + links


def _lineage_table(steps: Iterable[CallRecord]) -> str:
    rows = []
    for done in steps:
        files = [p for p in done.call.outputs if p.is_file()]
        own = content_hash(files[0].read_bytes()) if files else str(done.result.get("run_hash") or "")
        own = own[:12]
        rows.append([done.call.name, " ".join(["isthmus", *done.call.arguments]), f"{done.seconds:.0f} s", own])
    text = paragraph(
        "Each step is an ordinary command, in this order, with its time and the hash of what it made: of a file its SHA-256, "
        "of training that of the run."
    )
    return text + table(["step", "command", "time", "hash"], rows, right=(2,))
