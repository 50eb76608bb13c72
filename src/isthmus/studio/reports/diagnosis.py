"""The report of a gap: the verdict first if there is one, then the evidence with figures, then tables."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.real2sim.diagnose.diagnose import Diagnosis
from isthmus.real2sim.diagnose.wording import MIN_SENTENCE_PROBABILITY, format_percent
from isthmus.real2sim.measure.command_response import dead_zone_sentences
from isthmus.real2sim.measure.coverage import Coverage
from isthmus.real2sim.measure.measure import Gap
from isthmus.real2sim.measure.prediction_error import PredictionError
from isthmus.real2sim.measure.worst_prediction import WorstSegment
from isthmus.sim.robot import Robot
from isthmus.studio.figures import coverage_scatter
from isthmus.studio.figures.axes import Line, interval_chart, line_chart
from isthmus.studio.figures.motion_player import PLAYER_SCRIPT, player_html
from isthmus.studio.figures.poses import motion_from_states
from isthmus.studio.figures.solids import solid_scene
from isthmus.studio.reports.page import Section, collapsible, figure, html_page, paragraph, table

WINDOWS_SHOWN = 20
"""Uncovered windows in the open; all windows are below them, folded."""
MAX_DOT_DISTANCE = 8.0
"""Half-widths of the worlds' interval at which a dot is drawn at the edge."""


def diagnosis_page(found: Gap, record: dict[str, Any], verdict: Section | None = None, robot: Robot | None = None) -> str:
    """`record` is what `isthmus diagnose --json` prints; it goes into the file, too. `robot` is shown in its worst seconds."""
    sections = [verdict] if verdict is not None else []
    sections.append(Section("How far", _prediction_error_section(found), "far"))
    if robot is not None and found.worst_segment is not None:
        sections.append(Section("The worst seconds", _worst_seconds_section(robot, found.worst_segment, found.names), "worst"))
    if found.behaviour is not None:
        sections.append(Section("What the robot does", _behaviour_section(found), "behaviour"))
    if found.coverage is not None:
        sections.append(Section("What no simulated world covers", _coverage_section(found.coverage, found.names), "coverage"))
    if found.force_regions:
        sections.append(Section("Where learned forces were taught", _regions_table(found), "regions"))
    if found.findings:
        rows = [["refused" if f.refused else "handled", str(f)] for f in found.findings]
        sections.append(Section("What is wrong with the recordings", table(["", "finding"], rows), "findings"))
    sections.append(Section("Tables", _tables_section(found, record), "tables"))
    title = f"The gap of {record['robot']} in {', '.join(Path(name).name for name in found.names)}"
    data: dict[str, Any] = {"record": record}
    if found.coverage is not None:
        data["scatter"] = coverage_scatter.scatter_data(found.coverage, found.names)
    return html_page(title, sections, data, coverage_scatter.SCATTER_SCRIPT + PLAYER_SCRIPT)


def verdict_section(why: Diagnosis) -> Section:
    """What is wrong, and what to do."""
    parts = [f'<p class="verdict">{escape(why.headline)}</p>']
    if why.verdict is not None:
        if why.verdict.cause is not None:
            first = why.advice[0][1]
            parts.append(paragraph(f"What to do: {first.action.replace('`', '')}."))
            if first.gain:
                parts.append(paragraph(f"What to expect: {first.gain}."))
        rows = [
            [format_percent(h.probability), h.cause, text.sentence if h.probability >= MIN_SENTENCE_PROBABILITY else ""]
            for h, text in why.advice
        ]
        parts.append(table(["probability", "cause", "what speaks for it"], rows))
        clues = [[c.cause, c.name, f"{c.evidence:.1f}"] for c in why.evidence.explanations] if why.evidence else []
        heads = ["cause", "explanation", "log evidence"]
        parts.append(collapsible("The explanations that were tried, best first", table(heads, clues)))
    return Section("Why", "".join(parts), "why")


def _prediction_error_section(found: Gap) -> str:
    parts = [paragraph(line) for line in found.limitations]
    f = found.prediction_error
    if f is None:
        return "".join(parts)
    s = f.score
    parts.insert(
        0, f'<p class="big">{s.value:.3g} <small>times the noise, {s.low:.3g} to {s.high:.3g} in 95 % of resamples</small></p>'
    )
    best, worst = f.world_scores.min(), np.quantile(f.world_scores, 0.95)
    parts.append(
        paragraph(
            "The score: how far the simulator's predictions are from the sensors, beyond what the noise of the sensors "
            f"explains, over horizons of {1e3 * f.horizons[0]:.0f} to {1e3 * f.horizons[-1]:.0f} ms and {s.n} pieces of the "
            "recordings. 1 is the right simulator. This is the world in the middle of what is believed; of "
            f"{len(f.world_scores)} others, the best has {best:.3g} and 95 % have less than {worst:.3g}."
        )
    )
    lines = [
        Line(name, f.horizons, [m.value for m in row], [m.low for m in row], [m.high for m in row])
        for name, row in f.signals.items()
        if np.isfinite([m.value for m in row]).all()
    ]
    svg = line_chart(lines, "seconds ahead", "error / noise", "error by horizon", marks=[(1.0, "right simulator")])
    parts.append(figure(svg, "Error of prediction by signal and horizon, with 95 % intervals over pieces of the recordings."))
    return "".join(parts) + _replay_figure(f)


def _replay_figure(f: PredictionError) -> str:
    r = f.replay
    if r is None:
        return ""
    every = max(1, len(r.time) // 120)
    lines = [
        Line("recorded", r.time[::every], r.error[::every]),
        Line("right simulator", r.time[::every], r.expected_error[::every], dashed=True),
    ]
    svg = line_chart(lines, "seconds of replay", "error / spread of the signals", "replay", log=False, marks=[(0.5, "lost")])
    a = r.divergence_time
    text = (
        f"The recorded targets alone, replayed: half of {a.n} replays have lost the robot after {a.value:.2g} s "
        f"({a.low:.2g} to {a.high:.2g}); {r.diverged} lose it within {r.time[-1]:.2g} s. The noise of the start alone would "
        f"allow {r.achievable_time:.2g} s."
    )
    return figure(svg, "Typical distance of a replay from the recording.") + paragraph(text)


def _worst_seconds_section(robot: Robot, w: WorstSegment, names: tuple[str, ...]) -> str:
    drawn = solid_scene(robot.model, robot.morphology.base)
    if not drawn.framed_solids:
        return paragraph("The model has no solid part that could be drawn.")
    pair = (("recorded", w.recorded), ("simulated", w.simulated))
    motions = [motion_from_states(name, drawn, robot.model, w.time, qpos) for name, qpos in pair]
    end, name = w.start + float(w.time[-1]), Path(names[w.recording]).name
    text = (
        f"From {w.start:.2f} s to {end:.2f} s of {name} the simulator predicts worst: it is off by {w.error:.3g} "
        "times what the right one would be. It begins where the robot was, and gets the recorded targets and nothing else."
    )
    notes = [
        "Recorded: what the sensors tell of the robot. Simulated: the same seconds, with the recorded robot behind, paler."
    ]
    if w.position_from_feet:
        notes.append("Nothing measures where a walking robot is: its place is worked out from the feet on the ground.")
    elif w.unmeasured_joints:
        notes.append(f"No sensor measures {', '.join(w.unmeasured_joints)} in full: what is missing is drawn as simulated.")
    return paragraph(text) + player_html(motions, " ".join(notes), w.start)


def _behaviour_section(found: Gap) -> str:
    b = found.behaviour
    assert b is not None
    rows, cells = [], []
    for m in b.metrics:
        low, high = m.interval_90
        half = max((high - low) / 2, 1e-12)
        scaled = [
            float(np.clip((v - m.median) / half, -MAX_DOT_DISTANCE, MAX_DOT_DISTANCE))
            for v in (low, m.median, high, m.recorded)
        ]
        if high > low:
            rows.append((m.name, *scaled, m.outside))
        mark = "outside" if m.outside else ""
        numbers = [f"{m.recorded:.4g}", f"{m.median:.4g}", f"{low:.4g} to {high:.4g}", f"{100 * m.share_as_extreme.rate:.0f} %"]
        cells.append([m.group, m.name, m.unit, *numbers, mark])
    text = (
        f"The controller ran in {found.worlds} simulated worlds from where the recordings began, with the same commands. "
        f"A world would be so far out in some respect by chance with p = {b.p_value:.2g}."
    )
    svg = interval_chart(rows, "distance from the middle world, in half-widths of 90 % of worlds", "behaviour against worlds")
    columns = ["", "measure", "unit", "recorded", "simulated", "90 % of worlds", "worlds as far out", ""]
    caption = "Bars are 90 % of the worlds, dots the recordings; red where fewer than 5 % of worlds are as far from the middle."
    notes = "".join(paragraph(f"{line[:1].upper()}{line[1:]}.") for line in dead_zone_sentences(found.command_responses))
    return paragraph(text) + notes + figure(svg, caption) + table(columns, cells, right=(3, 4, 6))


def _coverage_section(c: Coverage, names: tuple[str, ...]) -> str:
    text = (
        f"{c.uncovered} of recorded windows are further from every simulated one than simulated ones are from each "
        f"other; {100 * c.false_alarm_rate:g} % would be by chance, and a world has as many with p = {c.p_uncovered:.2g}. "
        f"Recordings and worlds as a whole: energy distance {c.energy_distance:.3g}, p = {c.p_same_distribution:.2g}."
    )
    svg = coverage_scatter.scatter_svg(c, names)
    caption = "Windows of 0.2 s. Grey: simulated. Blue: recorded and covered. Red: recorded and covered by no simulated one."
    card = '<div class="screen"><p id="tools"></p><p id="card" class="quiet">Point at a window, or follow its link.</p></div>'
    where = lambda u: [names[u.recording], f"{u.second:.2f}", f"{u.distance:.2f}", ", ".join(u.why)]  # noqa: E731
    columns = ["recording", "second", "distance / threshold", "against the nearest simulated window"]
    listed = ""
    if c.uncovered_windows:
        listed = "<h3>To randomize or to record next</h3>" + table(
            columns, map(where, c.uncovered_windows[:WINDOWS_SHOWN]), right=(1, 2)
        )
    rows = [[names[r], f"{s:.2f}", f"{d:.2f}"] for r, s, d in zip(c.recording, c.second, c.distance, strict=True)]
    anchors = [f"window-{i}" for i in range(len(rows))]
    every = collapsible(f"All {len(rows)} windows", table(columns[:3], rows, right=(1, 2), names=anchors))
    return paragraph(text) + figure(svg, caption) + card + listed + every


def _regions_table(found: Gap) -> str:
    rows = []
    for r in found.force_regions:
        far = "; ".join(f"{found.names[i]} at {t:.2f} s ({d:.2f})" for i, t, d in r.furthest[:3])
        rows.append([r.kind, ", ".join(r.names), str(r.outside), str(r.silent), far])
    columns = ["force", "acts on", "outside its region", "where it is silent", "furthest out"]
    return table(columns, rows)


def _tables_section(found: Gap, record: dict[str, Any]) -> str:
    parts = []
    if found.prediction_error is not None:
        f = found.prediction_error
        columns = ["signal", "part", "unit", "noise", *(f"{1e3 * h:.0f} ms" for h in f.horizons)]
        rows = [
            [c.signal, c.label, c.unit, f"{f.noise[i]:.3g}", *(f"{x:.3g}" for x in f.error[:, i])]
            for i, c in enumerate(f.components)
        ]
        parts.append("<h3>Errors, in units of the noise</h3>" + table(columns, rows, right=tuple(range(3, len(columns)))))
    rows = []
    for what, value in record["inputs"].items():
        for one in value if isinstance(value, list) else [value]:
            if one:
                rows.append([what, str(one)])
    return "".join(parts) + "<h3>Inputs, by hash</h3>" + table(["", "SHA-256"], rows)
