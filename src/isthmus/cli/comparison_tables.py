"""A comparison as tables that fit the terminal."""

from __future__ import annotations

import math

from isthmus.cli import render
from isthmus.core.statistics import Rate
from isthmus.learn.evaluate.compare import Comparison, describe_change
from isthmus.learn.evaluate.contenders import Contender
from isthmus.learn.evaluate.paired_results import ENERGY_METRICS, MethodResult, NominalLoss, RunResult, metric_label
from isthmus.learn.evaluate.recovery import RECOVERED_FRACTION, Recovery
from isthmus.learn.evaluate.statistics import Estimate, GapClosed
from isthmus.learn.evaluate.sweep import Sweep
from isthmus.learn.evaluate.world_sets import ALL_REALITIES, PARAMETRIC_SETS, covered_fraction
from isthmus.tasks.task import Task

NOT_AVAILABLE = "–"


def decimals_for(half: float) -> int:
    """Decimals that show two digits of an uncertainty."""
    return 3 if not math.isfinite(half) or half <= 0 else min(3, max(0, 1 - math.floor(math.log10(half))))


def plus_minus(m: Estimate, sign: str = "") -> str:
    half = (m.high - m.low) / 2
    if not math.isfinite(half):
        return f"{m.mean:{sign}.3g}"
    k = decimals_for(half)
    return f"{m.mean:{sign}.{k}f} ± {half:.{k}f}"


def percent_interval(r: Rate) -> str:
    return f"{100 * r.rate:.1f} % ({100 * r.low:.1f} to {100 * r.high:.1f})"


def percentage_points(m: Estimate) -> str:
    """A difference of rates, in points of percent; its interval is not even to both sides."""
    return f"{100 * m.mean:+.1f} ({100 * m.low:+.1f} to {100 * m.high:+.1f})"


def shorten(name: str, most: int = 24) -> str:
    return name if len(name) <= most else name[: most // 2 - 1] + "…" + name[-most // 2 :]


def print_fitted_tables(title: str, first: str, blocks: list[list[str]], rows: list[list[str]]) -> None:
    """One table if the terminal is wide enough, else several, each with the first column; a block of columns stays together."""
    heads = [first, *(head for block in blocks for head in block)]
    rows = [[shorten(row[0]), *row[1:]] for row in rows]
    widths = [max(len(cell) for cell in column) + 2 for column in zip(heads, *rows, strict=True)]
    fits = lambda columns: widths[0] + sum(widths[i] for i in columns) - 2 <= render.out.width  # noqa: E731
    chosen: list[list[int]] = [[]]
    start = 1
    for block in blocks:
        columns = list(range(start, start + len(block)))
        start += len(block)
        for part in [columns] if fits(columns) else [[i] for i in columns]:
            if chosen[-1] and not fits([*chosen[-1], *part]):
                chosen.append([])
            chosen[-1] += part
    render.print_line(title, "italic")
    for columns in chosen:
        keep = [0, *columns]
        cells = [[row[i] for i in keep] for row in rows]
        render.out.print(render.table("", [heads[i] for i in keep], cells, right=tuple(range(1, len(keep)))))
    render.out.print()


def print_comparison(report: Comparison, by_method: bool, margin: float) -> None:
    task, entries = report.task, report.contenders
    render.print_line(f"{task.name}, one episode of {task.episode:g} s in each world; intervals of 95 %")
    if len(entries) > 1:
        render.print_line(f"Δ: minus {entries[0].name}, world by world")
    render.out.print()
    print_runs(entries)
    by_method = by_method or len({e.method for e in entries}) < len(entries)
    for name, found in report.run_results.items():
        print_world_set(task, f"{name}, {report.world_count(name)} worlds", entries, found)
        if by_method:
            print_methods(task, f"{name}, by method; spread is the standard deviation over runs", report.method_results[name])
    told = [name for name in report.run_results if name in (*PARAMETRIC_SETS, ALL_REALITIES)]
    for text in [*report.omitted, *(recovered_share_text(name, *s) for name in told for s in report.gaps_closed[name])]:
        render.print_line(text)
    print_nominal_losses(report.nominal_losses, margin)
    for one in report.sweeps:
        render.out.print()
        print_sweep(one)
    if report.change:
        title = f"after {report.change_time:g} s: {describe_change(task, report.change)}"
        print_recovery(title, "run", report.recoveries[0])
        if by_method:
            print_recovery(f"{title}; by method", "method", report.recoveries[1])


def print_runs(entries: list[Contender]) -> None:
    rows = [
        [e.name, e.run.config.task, str(e.run.config.seed), f"{100 * covered_fraction(e.training_belief):.0f} %", e.method]
        for e in entries
    ]
    heads = ["run", "trained on", "seed", "of the space", "method"]
    render.out.print(render.table("", heads, [[shorten(r[0]), *r[1:]] for r in rows], right=(2, 3)))
    render.out.print()


def print_world_set(task: Task, title: str, entries: list[Contender], results: list[RunResult]) -> None:
    metrics = [name for name in results[0].means if name == next(iter(task.metrics)) or name in ENERGY_METRICS]
    compared = len(entries) > 1
    blocks = [["success", "failed", "score", "return"], ["Δ success", "Δ score", "Δ return"] if compared else []]
    rows = []
    for k, (entry, r) in enumerate(zip(entries, results, strict=True)):
        row = [
            entry.name,
            percent_interval(r.success),
            f"{100 * r.failed.rate:.1f} %",
            *(plus_minus(r.means[n]) for n in blocks[0][2:]),
        ]
        if compared and k == 0:
            row += [NOT_AVAILABLE] * 3
        elif compared:
            row += [
                percentage_points(r.difference["success"]),
                *(plus_minus(r.difference[n], "+") for n in ("score", "return")),
            ]
        rows.append(row + [f"{r.means[name].mean:.3g}" for name in metrics])
    print_fitted_tables(title, "run", [*blocks, [metric_label(name) for name in metrics]], rows)


def print_methods(task: Task, title: str, found: list[MethodResult]) -> None:
    metrics = [name for name in found[0].means if name == next(iter(task.metrics)) or name in ENERGY_METRICS]
    blocks = [
        ["runs", "success", "failed", "score", "spread"],
        ["return", "spread "],
        ["Δ score", "Δ return"],
        [metric_label(name) for name in metrics],
    ]
    rows = []
    for k, g in enumerate(found):
        row = [g.method, str(g.runs), percent_interval(g.success), f"{100 * g.failed.rate:.1f} %"]
        for name in ("score", "return"):
            spread = g.spread[name]
            row += [plus_minus(g.means[name]), f"{spread:.{decimals_for(spread)}f}" if math.isfinite(spread) else NOT_AVAILABLE]
        row += [NOT_AVAILABLE] * 2 if k == 0 else [plus_minus(g.difference[n], "+") for n in ("score", "return")]
        rows.append(row + [f"{g.means[name].mean:.3g}" for name in metrics])
    print_fitted_tables(title, "method", blocks, rows)


def recovered_share_text(where: str, method: str, start: str, goal: str, s: GapClosed, what: str = "return") -> str:
    if not s.significant:
        return f"{where}: {goal} is not clearly better than {start} in {what}, so what {method} recovers cannot be told."
    ends = f"{s.fraction.low:.2f} to {s.fraction.high:.2f}" if math.isfinite(s.fraction.low) else "no bounds"
    return (
        f"{where}: {method} recovers {s.fraction.mean:.2f} ({ends}) of the {what} between {start} and "
        f"{goal}; over {s.uncertainty_over}."
    )


def print_nominal_losses(found: list[NominalLoss], margin: float) -> None:
    flagged = [t for t in found if t.significant]
    for t in flagged:
        render.print_line(t.describe(), "yellow")
    if found and not flagged:
        render.print_line(
            f"no method clearly loses more than {margin:g} of score in the nominal world against {found[0].reference}."
        )


def print_sweep(one: Sweep) -> None:
    rows = []
    for k, value in enumerate(one.values):
        cells = []
        for c in one.curves:
            text = f"{100 * c.success[k].rate:.0f} %, {c.score[k].mean:.2f}"
            cells.append(text if c.training_range[0] <= value <= c.training_range[1] else f"({text})")
        rows.append([f"{value:.3g}", *cells])
    title = f"success and score against {one.param}, {one.worlds} worlds per value; (outside of what it trained on)"
    unit = "" if one.unit in ("", "1") else f", {one.unit}"
    print_fitted_tables(title, one.param + unit, [[shorten(c.name, 16)] for c in one.curves], rows)


def print_recovery(title: str, first: str, found: list[Recovery]) -> None:
    rows = []
    for r in found:
        failed, anyway = (
            f"{100 * rate.rate:.1f} %" if rate.n else NOT_AVAILABLE for rate in (r.failed, r.failed_without_change)
        )
        worst, lost = (
            (f"{r.worst_loss:.2f}", plus_minus(r.final_loss)) if math.isfinite(r.worst_loss) else (NOT_AVAILABLE, NOT_AVAILABLE)
        )
        rows.append([r.name, recovery_time_text(r), worst, lost, failed, anyway])
    print_fitted_tables(title, first, [["back after", "worst loss", "lost at end"], ["failed", "unchanged"]], rows)


def recovery_time_text(r: Recovery) -> str:
    if not math.isfinite(r.worst_loss):
        return "no world stood"
    if not math.isfinite(r.recovery_seconds.mean):
        return "not within the episode"
    if r.recovery_seconds.mean == 0 == r.recovery_seconds.high:
        return f"never below {100 * RECOVERED_FRACTION:.0f} %"
    high = f"{r.recovery_seconds.high:.2f}" if math.isfinite(r.recovery_seconds.high) else "never"
    return f"{r.recovery_seconds.mean:.2f} s ({r.recovery_seconds.low:.2f} to {high})"
