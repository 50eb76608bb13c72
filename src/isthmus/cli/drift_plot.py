"""A picture of what a watch has seen: each number over the recordings, and the errors that none explains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from isthmus.real2sim.drift.parameter_changes import DriftAnalysis

PLOT_COLUMNS = 3


def save_drift_plot(path: Path, found: DriftAnalysis, files: Sequence[str]) -> None:
    """One panel per number that is watched, with changes marked, and one for the errors."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    space, changes = found.inputs.twin_prior.space, {c.name: c for c in found.changes}
    names = sorted(found.evidence, key=lambda n: (n not in changes, -float(found.evidence[n].log_evidence.max())))
    rows = -(-(len(names) + 1) // PLOT_COLUMNS)
    figure, axes = plt.subplots(
        rows, PLOT_COLUMNS, figsize=(4.2 * PLOT_COLUMNS, 2.4 * rows), squeeze=False, layout="constrained"
    )
    at = np.arange(len(files))
    for axis, name in zip(axes.flat, names, strict=False):
        j, one = space.index(name), space.subset([name])
        y, error = found.estimates[:, j], 1.645 * found.standard_errors[:, j]
        middle = found.inputs.twin_prior.mean[j]
        values = lambda x: one.from_unconstrained((middle + np.clip(x, -8, 8))[:, None])[:, 0]  # noqa: B023, E731
        value, low, high = values(y), values(y - error), values(y + error)
        bars = np.maximum([value - low, high - value], 0.0)
        axis.errorbar(at, value, bars, fmt="o", ms=3, lw=1, color="tab:blue")
        axis.axhline(float(one.from_unconstrained(np.array([middle]))[0]), color="grey", lw=0.8)
        axis.set_title(f"{name} [{one.params[0].unit}]" if one.params[0].unit else name, fontsize=9)
        if name in changes:
            axis.axvline(changes[name].change_start[0] - 0.5, color="tab:red", lw=1)
            axis.axvspan(
                changes[name].change_start[1] - 0.5, changes[name].change_start[2] - 0.5, color="tab:red", alpha=0.15, lw=0
            )
    last = axes.flat[len(names)]
    last.plot(at, found.unexplained_error, "o", ms=3, color="tab:blue")
    last.axhline(1.0, color="grey", lw=0.8)
    last.set_title("error that no number explains / noise", fontsize=9)
    if found.unexplained_change:
        last.axvline(found.unexplained_change.change_start[0] - 0.5, color="tab:red", lw=1)
    for axis in list(axes.flat)[len(names) + 1 :]:
        axis.set_visible(False)
    figure.supxlabel("recording")
    figure.savefig(path, dpi=110)
    plt.close(figure)
