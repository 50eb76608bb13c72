"""The report of a gap: the verdict first if there is one, then the evidence with figures, then tables."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.diagnose.whole import Diagnosis
from isthmus.diagnose.words import NAMED, percent
from isthmus.gap.answers import told
from isthmus.gap.coverage import Coverage
from isthmus.gap.far import Far
from isthmus.gap.whole import Gap
from isthmus.gap.worst import Worst
from isthmus.sim.robot import Robot
from isthmus.studio.report import scatter
from isthmus.studio.report.motion import motion
from isthmus.studio.report.page import Section, figure, folded, page, paragraph, table
from isthmus.studio.report.player import SCRIPT, player
from isthmus.studio.report.solids import scene
from isthmus.studio.report.svg import Line, chart, spans

LISTED = 20
"""Uncovered windows in the open; all windows are below them, folded."""
WIDEST = 8.0
"""Half-widths of the worlds' interval at which a dot is drawn at the edge."""


def gap_page(found: Gap, record: dict[str, Any], verdict: Section | None = None, robot: Robot | None = None) -> str:
    """`record` is what `isthmus gap --json` prints; it goes into the file, too. `robot` is to be seen in its worst seconds."""
    sections = [verdict] if verdict is not None else []
    sections.append(Section("How far", _far(found), "far"))
    if robot is not None and found.worst is not None:
        sections.append(Section("The worst seconds", _worst(robot, found.worst, found.names), "worst"))
    if found.behaviour is not None:
        sections.append(Section("What the robot does", _behaviour(found), "behaviour"))
    if found.coverage is not None:
        sections.append(Section("What no simulated world covers", _coverage(found.coverage, found.names), "coverage"))
    if found.regions:
        sections.append(Section("Where learned forces were taught", _regions(found), "regions"))
    if found.findings:
        rows = [["refused" if f.refused else "handled", str(f)] for f in found.findings]
        sections.append(Section("What is wrong with the recordings", table(["", "finding"], rows), "findings"))
    sections.append(Section("Tables", _tables(found, record), "tables"))
    title = f"The gap of {record['robot']} in {', '.join(Path(name).name for name in found.names)}"
    data: dict[str, Any] = {"record": record}
    if found.coverage is not None:
        data["scatter"] = scatter.data(found.coverage, found.names)
    return page(title, sections, data, scatter.SCRIPT + SCRIPT)


def verdict_section(why: Diagnosis) -> Section:
    """What is wrong, and what to do."""
    parts = [f'<p class="verdict">{escape(why.headline)}</p>']
    if why.verdict is not None:
        if why.verdict.cause is not None:
            first = why.advice[0][1]
            parts.append(paragraph(f"What to do: {first.action.replace('`', '')}."))
            if first.gain:
                parts.append(paragraph(f"What to expect: {first.gain}."))
        rows = [[percent(h.p), h.cause, text.sentence if h.p >= NAMED else ""] for h, text in why.advice]
        parts.append(table(["probability", "cause", "what speaks for it"], rows))
        clues = [[c.cause, c.name, f"{c.evidence:.1f}"] for c in why.evidence.clues] if why.evidence else []
        heads = ["cause", "explanation", "log evidence"]
        parts.append(folded("The explanations that were tried, best first", table(heads, clues)))
    return Section("Why", "".join(parts), "why")


def _far(found: Gap) -> str:
    parts = [paragraph(line) for line in found.cannot_tell]
    f = found.far
    if f is None:
        return "".join(parts)
    s = f.score
    parts.insert(
        0, f'<p class="big">{s.value:.3g} <small>times the noise, {s.low:.3g} to {s.high:.3g} in 95 % of resamples</small></p>'
    )
    best, worst = f.worlds.min(), np.quantile(f.worlds, 0.95)
    parts.append(
        paragraph(
            "The score: how far the simulator's predictions are from the sensors, beyond what the noise of the sensors "
            f"explains, over horizons of {1e3 * f.horizons[0]:.0f} to {1e3 * f.horizons[-1]:.0f} ms and {s.n} pieces of the "
            "recordings. 1 is the right simulator. This is the world in the middle of what is believed; of "
            f"{len(f.worlds)} others, the best has {best:.3g} and 95 % have less than {worst:.3g}."
        )
    )
    lines = [
        Line(name, f.horizons, [m.value for m in row], [m.low for m in row], [m.high for m in row])
        for name, row in f.signals.items()
        if np.isfinite([m.value for m in row]).all()
    ]
    svg = chart(lines, "seconds ahead", "error / noise", "error by horizon", marks=[(1.0, "right simulator")])
    parts.append(figure(svg, "Error of prediction by signal and horizon, with 95 % intervals over pieces of the recordings."))
    return "".join(parts) + _replay(f)


def _replay(f: Far) -> str:
    r = f.replay
    if r is None:
        return ""
    every = max(1, len(r.time) // 120)
    lines = [
        Line("recorded", r.time[::every], r.error[::every]),
        Line("right simulator", r.time[::every], r.expected[::every], dashed=True),
    ]
    svg = chart(lines, "seconds of replay", "error / spread of the signals", "replay", log=False, marks=[(0.5, "lost")])
    a = r.lost_after
    text = (
        f"The recorded targets alone, replayed: half of {a.n} replays have lost the robot after {a.value:.2g} s "
        f"({a.low:.2g} to {a.high:.2g}); {r.lost} lose it within {r.time[-1]:.2g} s. The noise of the start alone would "
        f"allow {r.possible:.2g} s."
    )
    return figure(svg, "Typical distance of a replay from the recording.") + paragraph(text)


def _worst(robot: Robot, w: Worst, names: tuple[str, ...]) -> str:
    drawn = scene(robot.model, robot.base)
    if not drawn.own:
        return paragraph("The model has no solid part that could be drawn.")
    pair = (("recorded", w.recorded), ("simulated", w.simulated))
    motions = [motion(name, drawn, robot.model, w.time, qpos) for name, qpos in pair]
    end, name = w.start + float(w.time[-1]), Path(names[w.recording]).name
    text = (
        f"From {w.start:.2f} s to {end:.2f} s of {name} the simulator predicts worst: it is off by {w.error:.3g} "
        "times what the right one would be. It begins where the robot was, and gets the recorded targets and nothing else."
    )
    notes = [
        "Recorded: what the sensors tell of the robot. Simulated: the same seconds, with the recorded robot behind, paler."
    ]
    if w.walked:
        notes.append("Nothing measures where a walking robot is: its place is worked out from the feet on the ground.")
    elif w.unseen:
        notes.append(f"No sensor measures {', '.join(w.unseen)} in full: what is missing is drawn as simulated.")
    return paragraph(text) + player(motions, " ".join(notes), w.start)


def _behaviour(found: Gap) -> str:
    b = found.behaviour
    assert b is not None
    rows, cells = [], []
    for m in b.measures:
        low, high = m.ends
        half = max((high - low) / 2, 1e-12)
        scaled = [float(np.clip((v - m.middle) / half, -WIDEST, WIDEST)) for v in (low, m.middle, high, m.recorded)]
        if high > low:
            rows.append((m.name, *scaled, m.outside))
        mark = "outside" if m.outside else ""
        numbers = [f"{m.recorded:.4g}", f"{m.middle:.4g}", f"{low:.4g} to {high:.4g}", f"{100 * m.as_far.rate:.0f} %"]
        cells.append([m.group, m.name, m.unit, *numbers, mark])
    text = (
        f"The controller ran in {found.worlds} simulated worlds from where the recordings began, with the same commands. "
        f"A world would be so far out in some respect by chance with p = {b.p:.2g}."
    )
    svg = spans(rows, "distance from the middle world, in half-widths of 90 % of worlds", "behaviour against worlds")
    columns = ["", "measure", "unit", "recorded", "simulated", "90 % of worlds", "worlds as far out", ""]
    caption = "Bars are 90 % of the worlds, dots the recordings; red where fewer than 5 % of worlds are as far from the middle."
    notes = "".join(paragraph(f"{line[:1].upper()}{line[1:]}.") for line in told(found.answers))
    return paragraph(text) + notes + figure(svg, caption) + table(columns, cells, right=(3, 4, 6))


def _coverage(c: Coverage, names: tuple[str, ...]) -> str:
    text = (
        f"{c.uncovered} of recorded windows are further from every simulated one than simulated ones are from each "
        f"other; {100 * c.alarms:g} % would be by chance, and a world has as many with p = {c.p_uncovered:.2g}. "
        f"Recordings and worlds as a whole: energy distance {c.energy:.3g}, p = {c.p_alike:.2g}."
    )
    svg = scatter.scatter(c, names)
    caption = "Windows of 0.2 s. Grey: simulated. Blue: recorded and covered. Red: recorded and covered by no simulated one."
    card = '<div class="screen"><p id="tools"></p><p id="card" class="quiet">Point at a window, or follow its link.</p></div>'
    where = lambda u: [names[u.recording], f"{u.second:.2f}", f"{u.distance:.2f}", ", ".join(u.why)]  # noqa: E731
    columns = ["recording", "second", "distance / threshold", "against the nearest simulated window"]
    listed = ""
    if c.listed:
        listed = "<h3>To randomize or to record next</h3>" + table(columns, map(where, c.listed[:LISTED]), right=(1, 2))
    rows = [[names[r], f"{s:.2f}", f"{d:.2f}"] for r, s, d in zip(c.recording, c.second, c.distance, strict=True)]
    anchors = [f"window-{i}" for i in range(len(rows))]
    every = folded(f"All {len(rows)} windows", table(columns[:3], rows, right=(1, 2), names=anchors))
    return paragraph(text) + figure(svg, caption) + card + listed + every


def _regions(found: Gap) -> str:
    rows = []
    for r in found.regions:
        far = "; ".join(f"{found.names[i]} at {t:.2f} s ({d:.2f})" for i, t, d in r.furthest[:3])
        rows.append([r.kind, ", ".join(r.names), str(r.outside), str(r.silent), far])
    columns = ["force", "acts on", "outside its region", "where it is silent", "furthest out"]
    return table(columns, rows)


def _tables(found: Gap, record: dict[str, Any]) -> str:
    parts = []
    if found.far is not None:
        f = found.far
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
