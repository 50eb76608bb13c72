"""A comparison as tables that fit the terminal."""

from __future__ import annotations

import math

from isthmus.adapt.comparison.contend import Contender
from isthmus.adapt.comparison.grounds import KINDS, TOTAL, width
from isthmus.adapt.comparison.measure import ENERGY, Group, Result, Timidity, label
from isthmus.adapt.comparison.paired import Estimate, Share
from isthmus.adapt.comparison.recovery import BACK, Recovery
from isthmus.adapt.comparison.report import Report, changes
from isthmus.adapt.comparison.sweep import Sweep
from isthmus.cli import show
from isthmus.data.rate import Rate
from isthmus.tasks.task import Task

NONE = "–"


def digits(half: float) -> int:
    """Decimals that show two digits of an uncertainty."""
    return 3 if not math.isfinite(half) or half <= 0 else min(3, max(0, 1 - math.floor(math.log10(half))))


def plus_minus(m: Estimate, sign: str = "") -> str:
    half = (m.high - m.low) / 2
    if not math.isfinite(half):
        return f"{m.mean:{sign}.3g}"
    k = digits(half)
    return f"{m.mean:{sign}.{k}f} ± {half:.{k}f}"


def percent(r: Rate) -> str:
    return f"{100 * r.rate:.1f} % ({100 * r.low:.1f} to {100 * r.high:.1f})"


def points(m: Estimate) -> str:
    """A difference of rates, in points of percent; its interval is not even to both sides."""
    return f"{100 * m.mean:+.1f} ({100 * m.low:+.1f} to {100 * m.high:+.1f})"


def short(name: str, most: int = 24) -> str:
    return name if len(name) <= most else name[: most // 2 - 1] + "…" + name[-most // 2 :]


def packed(title: str, first: str, blocks: list[list[str]], rows: list[list[str]]) -> None:
    """One table if the terminal is wide enough, else several, each with the first column; a block of columns stays together."""
    heads = [first, *(head for block in blocks for head in block)]
    rows = [[short(row[0]), *row[1:]] for row in rows]
    widths = [max(len(cell) for cell in column) + 2 for column in zip(heads, *rows, strict=True)]
    fits = lambda columns: widths[0] + sum(widths[i] for i in columns) - 2 <= show.out.width  # noqa: E731
    chosen: list[list[int]] = [[]]
    start = 1
    for block in blocks:
        columns = list(range(start, start + len(block)))
        start += len(block)
        for part in [columns] if fits(columns) else [[i] for i in columns]:
            if chosen[-1] and not fits([*chosen[-1], *part]):
                chosen.append([])
            chosen[-1] += part
    show.say(title, "italic")
    for columns in chosen:
        keep = [0, *columns]
        cells = [[row[i] for i in keep] for row in rows]
        show.out.print(show.table("", [heads[i] for i in keep], cells, right=tuple(range(1, len(keep)))))
    show.out.print()


def everything(report: Report, by_method: bool, margin: float) -> None:
    task, entries = report.task, report.entries
    show.say(f"{task.name}, one episode of {task.episode:g} s in each world; intervals of 95 %")
    if len(entries) > 1:
        show.say(f"Δ: minus {entries[0].name}, world by world")
    show.out.print()
    runs(entries)
    by_method = by_method or len({e.method for e in entries}) < len(entries)
    for name, found in report.results.items():
        ground(task, f"{name}, {report.worlds_of(name)} worlds", entries, found)
        if by_method:
            methods(task, f"{name}, by method; spread is the standard deviation over runs", report.groups[name])
    told = [name for name in report.results if name in (*KINDS, TOTAL)]
    for text in [*report.left_out, *(recovered(name, *s) for name in told for s in report.shares[name])]:
        show.say(text)
    timid(report.timidity, margin)
    for one in report.sweeps:
        show.out.print()
        sweep(one)
    if report.event:
        title = f"after {report.at:g} s: {changes(task, report.event)}"
        recovery(title, "run", report.recoveries[0])
        if by_method:
            recovery(f"{title}; by method", "method", report.recoveries[1])


def runs(entries: list[Contender]) -> None:
    rows = [[e.name, e.run.plan.task, str(e.run.plan.seed), f"{100 * width(e.trained):.0f} %", e.method] for e in entries]
    heads = ["run", "trained on", "seed", "of the space", "method"]
    show.out.print(show.table("", heads, [[short(r[0]), *r[1:]] for r in rows], right=(2, 3)))
    show.out.print()


def ground(task: Task, title: str, entries: list[Contender], results: list[Result]) -> None:
    metrics = [name for name in results[0].means if name == next(iter(task.metrics)) or name in ENERGY]
    compared = len(entries) > 1
    blocks = [["success", "failed", "score", "return"], ["Δ success", "Δ score", "Δ return"] if compared else []]
    rows = []
    for k, (entry, r) in enumerate(zip(entries, results, strict=True)):
        row = [entry.name, percent(r.success), f"{100 * r.failed.rate:.1f} %", *(plus_minus(r.means[n]) for n in blocks[0][2:])]
        if compared and k == 0:
            row += [NONE] * 3
        elif compared:
            row += [points(r.against["success"]), *(plus_minus(r.against[n], "+") for n in ("score", "return"))]
        rows.append(row + [f"{r.means[name].mean:.3g}" for name in metrics])
    packed(title, "run", [*blocks, [label(name) for name in metrics]], rows)


def methods(task: Task, title: str, found: list[Group]) -> None:
    metrics = [name for name in found[0].means if name == next(iter(task.metrics)) or name in ENERGY]
    blocks = [
        ["runs", "success", "failed", "score", "spread"],
        ["return", "spread "],
        ["Δ score", "Δ return"],
        [label(name) for name in metrics],
    ]
    rows = []
    for k, g in enumerate(found):
        row = [g.method, str(g.runs), percent(g.success), f"{100 * g.failed.rate:.1f} %"]
        for name in ("score", "return"):
            spread = g.spread[name]
            row += [plus_minus(g.means[name]), f"{spread:.{digits(spread)}f}" if math.isfinite(spread) else NONE]
        row += [NONE] * 2 if k == 0 else [plus_minus(g.against[n], "+") for n in ("score", "return")]
        rows.append(row + [f"{g.means[name].mean:.3g}" for name in metrics])
    packed(title, "method", blocks, rows)


def recovered(where: str, method: str, start: str, goal: str, s: Share, what: str = "return") -> str:
    if not s.clear:
        return f"{where}: {goal} is not clearly better than {start} in {what}, so what {method} recovers cannot be told."
    ends = f"{s.share.low:.2f} to {s.share.high:.2f}" if math.isfinite(s.share.low) else "no bounds"
    return f"{where}: {method} recovers {s.share.mean:.2f} ({ends}) of the {what} between {start} and {goal}; over {s.over}."


def timid(found: list[Timidity], margin: float) -> None:
    flagged = [t for t in found if t.lost]
    for t in flagged:
        show.say(t.sentence(), "yellow")
    if found and not flagged:
        show.say(f"no method clearly loses more than {margin:g} of score in the nominal world against {found[0].against}.")


def sweep(one: Sweep) -> None:
    rows = []
    for k, value in enumerate(one.values):
        cells = []
        for c in one.curves:
            text = f"{100 * c.success[k].rate:.0f} %, {c.score[k].mean:.2f}"
            cells.append(text if c.trained[0] <= value <= c.trained[1] else f"({text})")
        rows.append([f"{value:.3g}", *cells])
    title = f"success and score against {one.param}, {one.worlds} worlds per value; (outside of what it trained on)"
    unit = "" if one.unit in ("", "1") else f", {one.unit}"
    packed(title, one.param + unit, [[short(c.name, 16)] for c in one.curves], rows)


def recovery(title: str, first: str, found: list[Recovery]) -> None:
    rows = []
    for r in found:
        failed, anyway = (f"{100 * rate.rate:.1f} %" if rate.n else NONE for rate in (r.failed, r.failed_anyway))
        worst, lost = (f"{r.worst:.2f}", plus_minus(r.lost)) if math.isfinite(r.worst) else (NONE, NONE)
        rows.append([r.name, back(r), worst, lost, failed, anyway])
    packed(title, first, [["back after", "worst loss", "lost at end"], ["failed", "unchanged"]], rows)


def back(r: Recovery) -> str:
    if not math.isfinite(r.worst):
        return "no world stood"
    if not math.isfinite(r.seconds.mean):
        return "not within the episode"
    if r.seconds.mean == 0 == r.seconds.high:
        return f"never below {100 * BACK:.0f} %"
    high = f"{r.seconds.high:.2f}" if math.isfinite(r.seconds.high) else "never"
    return f"{r.seconds.mean:.2f} s ({r.seconds.low:.2f} to {high})"
