"""Draw a federation's history by round: how large its cohorts are, how well they do.

Functions from records to a `matplotlib.figure.Figure`, without pyplot: nothing global is touched,
so figures can be drawn in threads and on machines without a display. Colours are those of Okabe and
Ito, which stay apart for colour-blind readers; lines and cohorts are named as well.

Examples
--------
>>> figure = metric_curves({"c0": {1: 0.5, 2: 0.8}}, title="pumps", label="macro-F1")
>>> png_bytes(figure)[1:4]
b'PNG'
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from clma.errors import EmptyCohortError
from clma.records import CohortStatus, cohort_number
from clma.rows import CohortRow

__all__ = [
    "MAX_ROUNDS",
    "OKABE_ITO",
    "canvas",
    "cohort_color",
    "cohort_sizes",
    "metric_curves",
    "png_bytes",
]

OKABE_ITO = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#0072B2", "#D55E00", "#999999")
"""Okabe and Ito (2008), "Color Universal Design"; light ones first, text on them is read best."""

MAX_ROUNDS = 60
"""Rounds that a figure shows, the newest ones; more do not fit a screen."""

_MAX_LINES = 12
"""Named lines of a chart; with more, the rest is drawn grey and their median is named."""


def cohort_color(cohort_id: str) -> str:
    """Return the colour of a cohort as ``#RRGGBB``; the same one in every figure."""
    return OKABE_ITO[cohort_number(cohort_id) % len(OKABE_ITO)]


def cohort_sizes(cohorts: Mapping[int, Sequence[CohortRow]], *, title: str) -> Figure:
    """Draw the number of members of every cohort that ever was active, by round.

    Parameters
    ----------
    cohorts : mapping of round to rows
        Not modified.
    title : str

    Raises
    ------
    EmptyCohortError
        If there is no active cohort.
    """
    sizes: dict[str, dict[int, float]] = {}
    for round_num in sorted(cohorts)[-MAX_ROUNDS:]:
        for row in cohorts[round_num]:
            if row.status is CohortStatus.ACTIVE:
                sizes.setdefault(row.cohort_id, {})[round_num] = row.n_members
    ordered = {c: sizes[c] for c in sorted(sizes, key=cohort_number)}
    colors = {cohort_id: cohort_color(cohort_id) for cohort_id in ordered}
    figure = metric_curves(ordered, title=title, label="members", colors=colors)
    figure.axes[0].yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.axes[0].set_ylim(bottom=0)
    return figure


def metric_curves(
    series: Mapping[str, Mapping[int, float]],
    *,
    title: str,
    label: str,
    colors: Mapping[str, str] | None = None,
) -> Figure:
    """Draw one line per name against the rounds, each named at its end.

    Parameters
    ----------
    series : mapping of name to (mapping of round to value)
        Values that are not finite leave a gap. Not modified.
    title, label : str
        Label of the value axis, with the unit where there is one.
    colors : mapping of name to colour, optional
        Default: in the order of `series`.

    Raises
    ------
    EmptyCohortError
        If there is no line to draw.
    """
    if not any(series.values()):
        raise EmptyCohortError(f"curves {title!r}: no value to draw, wanted one")
    figure, axes = canvas(width=8.0, height=4.2)
    named = len(series) <= _MAX_LINES
    ends: dict[str, tuple[int, float]] = {}
    for number, (name, values) in enumerate(series.items()):
        rounds = sorted(values)[-MAX_ROUNDS:]
        heights = [values[r] if np.isfinite(values[r]) else np.nan for r in rounds]
        default = OKABE_ITO[number % len(OKABE_ITO)] if named else "#BBBBBB"
        _draw_line(axes, rounds, heights, (colors or {}).get(name, default), number, named=named)
        if rounds and np.isfinite(heights[-1]):
            ends[name] = (rounds[-1], heights[-1])
    if named:
        _name_lines(axes, ends)
    else:
        _draw_median(axes, series)
    axes.set_title(title, loc="left")
    axes.set_xlabel("round")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, axis="y", color="#DDDDDD")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def png_bytes(figure: Figure, *, dpi: int = 110) -> bytes:
    """Render a figure as PNG; equal figures give equal bytes on one machine.

    Parameters
    ----------
    figure : Figure
    dpi : int
        Dots per inch.
    """
    out = io.BytesIO()
    # The library's version in the file would change the bytes without changing the picture.
    figure.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()


def canvas(*, width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure, sizes in inches, that draws without a display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _draw_line(
    axes: Axes,
    rounds: Sequence[int],
    heights: Sequence[float],
    color: str,
    number: int,
    *,
    named: bool,
) -> None:
    # The dash changes with every turn through the palette, so no two named lines look alike.
    dash = ("-", "--", ":")[number // len(OKABE_ITO) % 3]
    width, size = (1.6, 3.5) if named else (0.8, 0.0)
    axes.plot(
        rounds, heights, color=color, linestyle=dash, linewidth=width, marker="o", markersize=size
    )


def _name_lines(axes: Axes, ends: Mapping[str, tuple[int, float]]) -> None:
    """Write the names at the lines' ends, moved apart where two would overlap."""
    low, high = axes.get_ylim()
    lowest = low
    for name, (round_num, height) in sorted(ends.items(), key=lambda item: item[1][1]):
        height = max(height, lowest)
        lowest = height + 0.045 * (high - low)
        axes.annotate(
            name,
            (round_num, height),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            annotation_clip=False,
        )


def _draw_median(axes: Axes, series: Mapping[str, Mapping[int, float]]) -> None:
    rounds = sorted({r for values in series.values() for r in values})[-MAX_ROUNDS:]
    columns = [[v[r] for v in series.values() if r in v and np.isfinite(v[r])] for r in rounds]
    medians = [float(np.median(column)) if column else np.nan for column in columns]
    label = f"median of {len(series)}"
    axes.plot(rounds, medians, color=OKABE_ITO[5], linewidth=2.2, label=label)
    axes.legend(loc="best", fontsize=8, frameon=False)
