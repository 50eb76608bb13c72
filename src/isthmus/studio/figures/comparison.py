"""Figures of a comparison, as PNG files."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from isthmus.core.files import atomic_write
from isthmus.core.statistics import Rate
from isthmus.learn.evaluate.compare import Comparison, describe_change
from isthmus.learn.evaluate.paired_results import RunResult, metric_label
from isthmus.learn.evaluate.recovery import Recovery
from isthmus.learn.evaluate.statistics import Estimate
from isthmus.learn.evaluate.sweep import Sweep
from isthmus.learn.evaluate.world_sets import ALL_REALITIES, PARAMETRIC_SETS
from isthmus.tasks.task import Task

COLORS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#a463f2", "#3ca951", "#ff8ab7", "#97bbf5", "#9498a0")
MARKERS = "oDs^vP<>X*"
STYLE: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
MAX_RUNS_WITH_BANDS = 6
"""Runs from which on intervals would hide the lines."""
GRID_STYLE: Any = {"color": "0.85", "linewidth": 0.6}


def save_figure(figure: Figure, path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    atomic_write(path, buffer.getvalue())


def make_figure(size: tuple[float, float], **grid: Any) -> tuple[Figure, np.ndarray]:
    """A figure and its axes, always a table of them."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(squeeze=False, **grid)
    for ax in axes.flat:
        ax.tick_params(labelsize=8)
    return figure, axes


def _method_styles(methods: list[str]) -> dict[str, tuple[str, str]]:
    """Colour and mark of each method."""
    names = list(dict.fromkeys(methods))
    return {name: (COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]) for i, name in enumerate(names)}


def _legend(figure: Figure, handles: list[Line2D]) -> None:
    """Below everything, in as few rows as have room, which are about equally long."""
    longest = max(len(str(h.get_label())) for h in handles)
    columns = max(1, min(len(handles), int(figure.get_figwidth() / (0.075 * longest + 0.6))))
    rows = math.ceil(len(handles) / columns)
    columns = math.ceil(len(handles) / rows)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)


def comparison_figure(methods: list[str], results: dict[str, list[RunResult]], title: str) -> Figure:
    """Per ground and method, a dot with its interval for each run: success, score and return."""
    looks = _method_styles(methods)
    slot, most = len(looks) + 0.6, max(methods.count(m) for m in looks)
    rows = slot * len(results)
    figure, axes = make_figure((10, min(24.0, 1.3 + (0.14 + 0.06 * most) * rows)), ncols=3, sharey=True)
    panels: list[tuple[str, str]] = [("success", "success, % of worlds"), ("score", "score, 0 to 1"), ("return", "return")]
    for g, found in enumerate(results.values()):
        for ax, (what, _) in zip(axes[0], panels, strict=True):
            if g % 2 == 0:
                ax.axhspan(g * slot - 0.8, (g + 1) * slot - 0.8, color="0.965", zorder=0)
            for k, method in enumerate(methods):
                (color, mark), (x, ends) = looks[method], _value_and_error(found[k], what)
                y = g * slot + list(looks).index(method) + _run_offset(methods, k)
                ax.errorbar(x, y, xerr=ends, fmt=mark, color=color, markersize=4, elinewidth=1.2, markeredgewidth=0, zorder=3)
    for ax, (what, text) in zip(axes[0], panels, strict=True):
        ax.set_xlabel(text)
        ax.grid(axis="x", **GRID_STYLE)
        ax.set_axisbelow(True)
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.tick_params(axis="y", length=0)
        if what in ("success", "score"):
            most = 100 if what == "success" else 1
            ax.set_xlim(-0.03 * most, 1.03 * most)
    axes[0, 0].set_yticks(np.arange(len(results)) * slot + (len(looks) - 1) / 2, list(results))
    axes[0, 0].set_ylim(rows - 0.8, -0.8)
    figure.suptitle(title, fontsize=10)
    _legend(figure, [Line2D([], [], color=c, marker=m, linestyle="", label=name) for name, (c, m) in looks.items()])
    return figure


def _run_offset(methods: list[str], k: int) -> float:
    """Where run k stands beside the others of its method."""
    return 0.6 * ((methods[:k].count(methods[k]) + 0.5) / methods.count(methods[k]) - 0.5)


def _value_and_error(result: RunResult, what: str) -> tuple[float, np.ndarray]:
    """A value and how far its interval reaches to both sides, (2, 1)."""
    value: Rate | Estimate = result.success if what == "success" else result.means[what]
    x = value.rate if isinstance(value, Rate) else value.mean
    factor = 100.0 if what == "success" else 1.0
    return factor * x, np.nan_to_num(factor * np.array([[max(0.0, x - value.low)], [max(0.0, value.high - x)]]))


def sweep_figure(found: list[Sweep], methods: list[str]) -> Figure:
    """Success and score against each parameter, a line per run, and the ranges of training below."""
    looks, names = _method_styles(methods), [c.name for c in found[0].curves]
    size, heights = (4.2 * max(2, len(found)), 6.2), [3, 3, _range_panel_height(names)]
    figure, axes = make_figure(size, nrows=3, ncols=len(found), height_ratios=heights, sharex="col")
    marks = _run_line_styles(methods)
    for column, one in zip(axes.T, found, strict=True):
        x = np.array(one.values)
        for k, curve in enumerate(one.curves):
            color, style = looks[methods[k]][0], marks[k]
            rate = 100 * np.array([[r.rate, r.low, r.high] for r in curve.success]).T
            score = np.array([[s.mean, s.low, s.high] for s in curve.score]).T
            for ax, (middle, low, high) in zip(column[:2], (rate, score), strict=True):
                ax.plot(x, middle, style, color=color, linewidth=1.6, markersize=3, marker="o")
                if len(names) <= MAX_RUNS_WITH_BANDS:
                    ax.fill_between(x, low, high, color=color, alpha=0.13, linewidth=0)
            low, high = curve.training_range
            alike = [c for c in one.curves if c.training_range == curve.training_range]
            if curve is alike[0]:
                for ax in column[:2]:
                    ax.axvspan(low, high, color=color if len(alike) == 1 else "0.5", alpha=0.08, linewidth=0, zorder=0)
            column[2].plot([low, high], [k, k], color=color, linewidth=3, solid_capstyle="butt", marker="|")
        column[0].set_ylim(-3, 103)
        column[1].set_ylim(-0.03, 1.03)
        column[2].set_ylim(len(names) - 0.4, -0.6)
        column[2].set_xlabel(one.param + (f", {one.unit}" if one.unit not in ("", "1") else ""))
        for ax in column:
            ax.grid(**GRID_STYLE)
            if one.log_scale:
                ax.set_xscale("log")
            ax.set_xticks(x[::2], [f"{v:.3g}" for v in x[::2]])
            ax.minorticks_off()
        column[2].set_yticks(range(len(names)), names if column[0] is axes[0, 0] else [""] * len(names), fontsize=7)
    axes[0, 0].set_ylabel("success, % of worlds")
    axes[1, 0].set_ylabel("score, 0 to 1")
    axes[2, 0].set_ylabel("trained on", fontsize=8)
    handles = [Line2D([], [], color=looks[m][0], linestyle=marks[k], label=names[k]) for k, m in enumerate(methods)]
    _legend(figure, handles)
    return figure


def _range_panel_height(names: list[str]) -> float:
    """Height of the panel of training ranges, relative to the curves'."""
    return 0.35 + 0.16 * len(names)


def _run_line_styles(methods: list[str]) -> list[Any]:
    """A line style per run, so that runs of one method, in one colour, can be told apart."""
    styles = ("-", "--", ":", "-.")
    return [styles[methods[:k].count(m) % len(styles)] for k, m in enumerate(methods)]


def recovery_figure(task: Task, found: list[Recovery], at: float, what: str) -> Figure:
    """Score and the task's first metric through the change, a line per method; dotted: without the change."""
    looks = _method_styles([r.name for r in found])
    figure, axes = make_figure((8.5, 5.6), nrows=2, sharex=True)
    time = (np.arange(len(found[0].curves["score"])) + 1) / task.robot.contract.rate
    for ax, key in zip(axes[:, 0], ("score", "error"), strict=True):
        for one in found:
            color = looks[one.name][0]
            ax.plot(time, one.curves[f"{key}_without_change"], color=color, linewidth=1.2, alpha=0.9, linestyle=":")
            ax.plot(time, one.curves[key], color=color, linewidth=1.7)
        ax.axvline(at, color="0.3", linewidth=1.0, linestyle="--")
        ax.grid(**GRID_STYLE)
    axes[0, 0].set_ylim(-0.03, 1.03)
    axes[1, 0].set_ylim(bottom=0.0)
    _label_change(axes[0, 0], at, what)
    axes[0, 0].set_ylabel("score, 0 to 1")
    axes[1, 0].set_ylabel(metric_label(next(iter(task.metrics))))
    axes[1, 0].set_xlabel("time, s")
    axes[1, 0].set_xlim(0, time[-1])
    stood = {r.name: "" if np.isfinite(r.worst_loss) else " (no world stood)" for r in found}
    handles = [Line2D([], [], color=c, label=name + stood[name]) for name, (c, _) in looks.items()]
    handles.append(Line2D([], [], color="0.5", linestyle=":", label="without the change"))
    _legend(figure, handles)
    return figure


def _label_change(ax: Axes, at: float, what: str) -> None:
    ax.annotate(
        what, (at, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3), textcoords="offset points", fontsize=8, ha="center"
    )


MAX_REALITIES_SHOWN = 12
"""Realities up to which a figure shows each, and not only all together."""


def draw_figures(report: Comparison, main: Path, sweep: Path, recovery: Path) -> list[Path]:
    """Draw the figures that there is something for, each into its file."""
    methods, made = [entry.method for entry in report.contenders], {}
    if report.run_results:
        alone = [name for name in report.run_results if name not in (*PARAMETRIC_SETS, ALL_REALITIES)]
        shown = {
            name: found for name, found in report.run_results.items() if name not in alone or len(alone) <= MAX_REALITIES_SHOWN
        }
        title = f"{report.task.name}, {report.worlds} worlds per ground; dots are runs, bars 95 % intervals"
        made[main] = comparison_figure(methods, shown, title)
    if report.sweeps:
        made[sweep] = sweep_figure(report.sweeps, methods)
    if report.change:
        made[recovery] = recovery_figure(
            report.task, report.recoveries[1], report.change_time, describe_change(report.task, report.change)
        )
    for path, figure in made.items():
        save_figure(figure, path)
    return list(made)
