"""Picture of a benchmark: time and memory against the number of atoms."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .sitting import Row

__all__ = ["draw"]

_PANELS = {
    "median_ms": "time of an evaluation (ms)",
    "steady_alloc_gb": "peak memory (GB)",
}
_MARKERS = "osD^vP*X"


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the rows that succeeded, a line for each model and arm.

    Args:
        path: PNG file to write.
        rows: as in the table.
    """
    done = [row for row in rows if row["success"] is True]
    # A figure of its own, without pyplot: the caller's backend stays as it is.
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    for axes, (column, label) in zip(figure.subplots(1, 2), _PANELS.items(), strict=True):
        _lines(axes, done, column)
        axes.set(xscale="log", yscale="log", xlabel="atoms", ylabel=label)
        axes.grid(color="0.9")
        axes.spines[["top", "right"]].set_visible(False)
    if done:
        figure.axes[0].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=120, format="png")


def _lines(axes: Axes, rows: Sequence[Row], column: str) -> None:
    names = dict.fromkeys((row["model"], row["arm"]) for row in rows)
    for index, name in enumerate(names):
        points = sorted(
            (row["atoms"], row[column])
            for row in rows
            if (row["model"], row["arm"]) == name
        )
        marker = _MARKERS[index % len(_MARKERS)]
        axes.plot(*zip(*points, strict=True), marker=marker, label=", ".join(name))
