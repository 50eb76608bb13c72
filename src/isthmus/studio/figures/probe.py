"""The figure of a probe: a bar per parameter, for each set of features."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from isthmus.learn.evaluate.probe import ProbeResult
from isthmus.studio.figures.comparison import COLORS, GRID_STYLE, make_figure


def probe_figure(report: ProbeResult, means: Mapping[str, str], title: str) -> Figure:
    names = report.names
    figure, axes = make_figure((9.0, 1.5 + 0.2 * len(names)), ncols=len(report.features), sharey=True)
    places = np.arange(len(names))
    for ax, color, (what, probe) in zip(axes[0], COLORS, report.features.items(), strict=False):
        reads = [probe[name].best for name in names]
        r2 = np.array([r.value for r in reads])
        ends = np.array([[r.value - r.low for r in reads], [r.high - r.value for r in reads]])
        known = r2 > 0
        shown = np.where(known, r2, 0.0)
        ax.barh(places, shown, color=color, height=0.7)
        ax.errorbar(
            r2[known], places[known], xerr=np.maximum(ends[:, known], 0), fmt="none", ecolor="0.25", elinewidth=1.0, capsize=1.5
        )
        for place in places[~known]:
            ax.text(0.01, place, "cannot be read", fontsize=6.5, color="0.45", va="center")
        ax.set_title(means[what], fontsize=9)
        ax.set_xlim(-0.02, 1.02)
        ax.set_xlabel("R² on held-out worlds")
        ax.grid(axis="x", **GRID_STYLE)
        ax.set_axisbelow(True)
        ax.tick_params(axis="y", length=0)
    axes[0, 0].set_yticks(places, names)
    axes[0, 0].set_ylim(len(names) - 0.4, -0.6)
    figure.suptitle(title, fontsize=10)
    return figure
