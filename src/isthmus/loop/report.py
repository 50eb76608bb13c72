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

from isthmus.data.rate import Rate
from isthmus.errors import BadInput
from isthmus.files import atomic_write, content_hash
from isthmus.identify.twin import Twin
from isthmus.loop.course import WIDE
from isthmus.loop.motions import animated, first_and_last, overlaid
from isthmus.loop.outcome import Found, Outcome, numbers
from isthmus.loop.steps import Done
from isthmus.loop.story import Settings, Story
from isthmus.progress import Report, part, silent
from isthmus.sim.robot import Robot
from isthmus.studio.report.page import Section, figure, folded, page, paragraph, table
from isthmus.studio.report.player import SCRIPT
from isthmus.studio.report.svg import Line, chart, intervals
from isthmus.tasks.task import Task
from isthmus.validate.certificate import WORDS

BINS, SWEPT = 6, 4
"""Shares of the worlds by a number, and numbers against which success is drawn in the open."""
REPLACED = {"stribeck": "friction", "ground_softness": "contact_time"}
"""Missing physics that takes the place of a number, which then has no true value."""
FEW = 0.75
"""Share of intervals of 90 % that hold the truth, below which the report says why that may be."""
LIVED = 0.8
"""Share of the time that it takes to live through the recordings again."""
PARAMETERS = 14
"""Numbers in the figure; all are in the table."""


def write_report(
    path: Path,
    story: Story,
    settings: Settings,
    task: Task,
    found: Outcome,
    steps: Sequence[Done],
    report: Report = silent,
) -> Path:
    robot = task.robot
    lived = first_and_last(robot, story, part(report, 0.0, LIVED))
    report(LIVED)
    sections = [
        Section("What happened", _happened(story, found), "happened"),
        *_optional("Before and after", animated(robot, lived), "motion"),
        *_optional("Recorded and simulated", overlaid(robot, lived), "overlaid"),
        *_optional("What was wrong", _wrong(story, path), "wrong"),
        *_optional("Its numbers", _numbered(story, robot, found), "numbers"),
        *_optional("What no number explains", _remaining(story), "remaining"),
        *_optional("Success against each number", _swept(story, robot, found), "swept"),
        *_optional("The proof", _proven(story, path), "proof"),
        Section("Where everything came from", _lineage(steps), "lineage"),
    ]
    record = found.to_dict() | {"task": settings.task, "link": settings.link, "seed": settings.seed}
    atomic_write(path, page(f"{settings.task}: from simulation to the robot", sections, {"record": record}, SCRIPT).encode())
    return path


def _optional(title: str, html: str, name: str) -> list[Section]:
    return [Section(title, html, name)] if html else []


def _happened(story: Story, found: Outcome) -> str:
    parts = []
    rates = [a.success for a in story.attempts if a.success is not None]
    if rates:
        words = " → ".join(f"{100 * r['rate']:.0f} %" for r in (rates[0], rates[-1])[: len(rates)])
        parts.append(f'<p class="big">{words} <small>of {rates[0]["n"]} episodes on the robot succeed</small></p>')
    for line in found.sentences:
        head, _, rest = line.partition(": ")
        parts.append(f"<p><b>{escape(head)}:</b> {escape(rest)}</p>")
    seconds = f"{found.robot_seconds:.0f} s of the robot's time were recorded."
    if rates:
        seconds += f" On top of that, {rates[0]['n']} episodes of each policy were watched, to judge it."
    return "".join(parts) + paragraph(seconds, "quiet")


# Why, and what was found ------------------------------------------------------------------------------------------


def _wrong(story: Story, path: Path) -> str:
    parts = []
    for a in story.attempts:
        why = a.why
        if not why.get("hypotheses"):
            continue
        rows = [[f"{100 * h['p']:.0f} %", h["cause"], h["sentence"]] for h in why["hypotheses"] if h["p"] >= 0.01]
        parts.append(f'<p class="verdict">{escape(why["headline"])}</p>')
        parts.append(table(["probability", "cause", "what speaks for it"], rows, right=(0,)))
        first = why["hypotheses"][0]
        parts.append(paragraph(f"What it recommends: {first['action'].replace('`', '')}."))
        if first.get("gain"):
            parts.append(paragraph(f"What it expects: {first['gain']}."))
    pages = [a.gap.step.made[0] for a in story.attempts if a.gap is not None and not a.gap.failed]
    links = ", ".join(_link(p, path) for p in pages)
    return "".join(parts) + (f'<p class="quiet">In full: {links}</p>' if links else "") if parts or links else ""


def _link(file: Path, page_: Path) -> str:
    where = os.path.relpath(file, page_.parent)
    return f'<a href="{escape(where)}">{escape(file.name)}</a>'


def _numbered(story: Story, robot: Robot, found: Outcome) -> str:
    done = next((r.identified for r in reversed(story.repairs) if r.identified and not r.identified.failed), None)
    if done is None:
        return ""
    truth = _true_values(robot, found)
    rows = [_as_trained(n, story.twin) for n in numbers(done.result["parameters"])]
    inside = [truth[n.name] for n in rows if n.name in truth]
    held = sum(n.low <= truth[n.name] <= n.high for n in rows if n.name in truth)
    text = (
        "Grey: what training believed, scaled to one width. Blue: what the recordings say, with 90 % intervals; red where that "
        "is outside."
    )
    if inside:
        text += f" Diamonds: the truth, which was revealed after everything else. {held} of {len(inside)} intervals hold it."
        if held < FEW * len(inside):
            text += " Fewer than nine in ten: numbers that act alike here stand in for each other, or for what is missing."
    svg = intervals([_row(n, truth) for n in rows[:PARAMETERS]], "0: lower end of what was believed, 1: upper end", "numbers")
    columns = ["parameter", "unit", "believed", "found", "90 % interval", *(["truth"] if truth else [])]
    cells = [
        [n.name, n.unit, f"{n.before[0]:.3g} to {n.before[1]:.3g}", f"{n.value:.4g}", f"{n.low:.3g} to {n.high:.3g}"]
        + ([f"{truth[n.name]:.4g}" if n.name in truth else ""] if truth else [])
        for n in rows
    ]
    said = "".join(paragraph(d["text"]) for d in done.result.get("undetermined", [])[:4])
    more = folded("What the recordings do not determine", said) if said else ""
    return figure(svg, text) + folded("All numbers", table(columns, cells, right=(3,))) + more


def _as_trained(n: Found, twin: Path | None) -> Found:
    """A number as the twin has it that was trained on: a law of motors refits some."""
    try:
        belief = Twin.load(twin).belief if twin is not None else None
    except BadInput:
        belief = None  # it was taken away since
    if belief is None:
        return n
    value = float(belief.median()[belief.space.index(n.name)])
    return replace(n, value=value, low=belief.interval(n.name, 0.9)[0], high=belief.interval(n.name, 0.9)[1])


def _row(n: Found, truth: dict[str, float]) -> tuple[str, float, float, float, float | None, bool]:
    low, high = n.before
    scaled = lambda v: float(np.clip((v - low) / max(high - low, 1e-300), -3.0, 4.0))  # noqa: E731
    return n.name, scaled(n.low), scaled(n.value), scaled(n.high), scaled(truth[n.name]) if n.name in truth else None, n.out


def _true_values(robot: Robot, found: Outcome) -> dict[str, float]:
    """Of every number, if the truth was revealed: what a reality does not name is as its model says."""
    if found.truth is None:
        return {}
    named = {k: float(v) for k, v in (found.truth.get("params") or {}).items()}
    nominal = dict(zip(robot.space.names, map(float, robot.space.nominal), strict=True))
    gone = [word for law, word in REPLACED.items() if law in (found.truth.get("unmodelled") or {})]
    return {k: v for k, v in (nominal | named).items() if not any(word in k for word in gone)}


def _remaining(story: Story) -> str:
    """Errors of prediction of the first simulator and the last."""
    lines, rows = [], []
    for a in story.attempts:
        if a.gap is None or a.gap.failed or not a.gap.result.get("prediction"):
            continue
        name, p, score = ("prior" if a.name == "prior" else "twin"), a.gap.result["prediction"], a.gap.result["score"]
        table_ = np.array([[m["value"] for m in row] for row in p["signals"].values()], dtype=float)
        known = np.isfinite(table_)
        mean = np.where(known, table_**2, 0.0).sum(0) / np.where(known.any(0), known.sum(0), np.nan)
        lines.append(Line(name, p["horizons"], np.sqrt(mean)))
        rows.append([name, *(_number(score[k]) for k in ("value", "low", "high"))])
    learned = [d for r in story.repairs for d in r.learned]
    told = "".join(paragraph(_told_learned(d)) for d in learned)
    if not lines:
        return told
    svg = chart(lines, "seconds ahead", "error / noise", "what remains", marks=[(1.0, "right simulator")])
    caption = "How far each simulator's predictions are from the recordings of its own policy, in units of the sensors' noise."
    return told + figure(svg, caption) + table(["simulator", "score", "95 % from", "to"], rows, right=(1, 2, 3))


def _number(x: float | None) -> str:
    return "–" if x is None else f"{x:.3g}"


def _told_learned(done: Done) -> str:
    if done.failed:
        return f"What numbers do not explain could not be learned: {done.failed}"
    if done.step.args[0] == "actuator":
        tried = ", ".join(f"{t['law']} {_number(t['held_out'])}" for t in done.result.get("tried", []))
        return f"Laws of the motors, with their error on held-out pieces / noise: {tried}. Kept: {done.result.get('law')}."
    kept = "kept" if done.result.get("kept") else "not kept"
    tried = done.result.get("tried")
    if tried:
        laws = ", ".join(f"{law} {_number(error.get('held_out'))}" for law, error in tried.items())
        return f"Grounds, with their error on held-out pieces / noise: {laws}. Soft ground was {kept}."
    error = done.result.get("error", {})
    before, after = ((error.get(k) or {}).get("held_out") for k in ("before", "after"))
    if before is None or after is None:
        return "A learned force: not tried."
    return f"A learned force: error on held-out pieces {before:.3g} without and {after:.3g} with it, {kept}."


def _swept(story: Story, robot: Robot, found: Outcome) -> str:
    """Success of the first and the last policy against those numbers that matter most to either."""
    files = [d.step.made[0] for d in story.swept if not d.failed and d.step.made[0].exists()]
    if len(files) < 2:
        return ""
    columns = [f"e.{n}" for n in robot.prior.free().names]
    try:
        tables = [pq.read_table(f, columns=["success", *columns]).to_pydict() for f in files]
    except (pa.ArrowException, OSError):
        return ""
    wins = [np.array(t["success"], bool) for t in tables]
    names = sorted(columns, key=lambda c: -max(_spread(np.array(t[c]), w) for t, w in zip(tables, wins, strict=True)))
    text = (
        f"{len(wins[0])} worlds, {WIDE:g} times as wide as the prior; numbers that success hangs on most come first. "
        "With 95 % intervals. Each policy is in its own simulator: the one after has what was learned of this robot. All "
        "numbers vary at once: a line is a mean over many robots, most of them odder than this one."
    )
    truth = _true_values(robot, found)
    parts = []
    for c in names:
        name = c.removeprefix("e.")
        lines = []
        for label, t, w in zip(("before", "after"), tables, wins, strict=True):
            bins = _bins(np.array(t[c]))
            middles = [float(np.mean(np.array(t[c])[b])) for b in bins]
            rates = [Rate.of(int(w[b].sum()), len(b)) for b in bins]
            lines.append(Line(label, middles, [r.rate for r in rates], [r.low for r in rates], [r.high for r in rates]))
        unit = "" if robot.space[name].unit in ("", "1") else f", {robot.space[name].unit}"
        at = f" This robot: {truth[name]:.3g}." if name in truth else ""
        low, high = robot.prior.interval(name, 1.0)
        caption = f"The prior: {low:.3g} to {high:.3g}.{at}"
        parts.append(figure(chart(lines, f"{name}{unit}", "success", name, log=False), caption))
    rest = folded(f"{len(parts) - SWEPT} other numbers", "".join(parts[SWEPT:])) if len(parts) > SWEPT else ""
    return paragraph(text) + "".join(parts[:SWEPT]) + rest


def _bins(x: np.ndarray) -> list[np.ndarray]:
    """Rows of each of a few equal shares, by size."""
    return np.array_split(np.argsort(x, kind="stable"), BINS)


def _spread(x: np.ndarray, w: np.ndarray) -> float:
    """How much success differs between shares of a number."""
    rates = [w[b].mean() for b in _bins(x)]
    return float(max(rates) - min(rates))


def _proven(story: Story, path: Path) -> str:
    done = next((a.certificate for a in reversed(story.attempts) if a.certificate is not None), None)
    if done is None:
        return ""
    if done.failed:
        return paragraph(f"It could not be validated: {done.failed}")
    rows = []
    for stage in done.result.get("stages", []):
        r = stage["success"]
        bounds = f"{100 * r['low']:.0f} to {100 * r['high']:.0f} %"
        asked = f"{100 * stage['required']:.0f} %"
        rows.append([stage["stage"], WORDS[stage["decision"]], f"{100 * r['rate']:.0f} %", bounds, asked, str(r["n"])])
    heads = ["stage", "", "success", "bounds", "required", "trials"]
    verdict = "Passed." if done.code == 0 else "Not passed."
    where = f" on {done.result.get('on')}" if done.result.get("on") else ""
    links = f'<p class="quiet">Certificate: {_link(done.step.made[0], path)}</p>'
    told = paragraph(f"Protocol {done.result.get('protocol')}{where}, its first stages.")
    return f'<p class="verdict">{verdict}</p>' + told + table(heads, rows, right=(2, 5)) + links


def _lineage(steps: Iterable[Done]) -> str:
    rows = []
    for done in steps:
        files = [p for p in done.step.made if p.is_file()]
        own = content_hash(files[0].read_bytes()) if files else str(done.result.get("run_hash") or "")
        own = own[:12]
        rows.append([done.step.name, " ".join(["isthmus", *done.step.args]), f"{done.seconds:.0f} s", own])
    text = paragraph(
        "Each step is an ordinary command, in this order, with its time and the hash of what it made: of a file its SHA-256, "
        "of training that of the run."
    )
    return text + table(["step", "command", "time", "hash"], rows, right=(2,))
