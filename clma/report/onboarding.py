"""Draw how the first cohorts of a fleet were found: the curve of silhouettes and a map of clients.

Examples
--------
>>> apart = 1 - np.kron(np.eye(2), np.ones((2, 2)))
>>> choice = choose_groups(apart)
>>> figure = onboarding_figure(apart, choice, ["c0", "c0", "c1", "c1"], title="pumps")
>>> [axes.get_title(loc="left") for axes in figure.axes]
['pumps: 2 cohorts of 4 clients', 'map of distances']
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from clma.cohorting.automatic_k import GroupChoice
from clma.errors import EmptyCohortError
from clma.records import cohort_number
from clma.report.figures import canvas, cohort_color

__all__ = ["client_map", "onboarding_figure"]

_MARKERS = "osD^vP*X"


def client_map(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return places in a plane whose distances are like the given ones.

    Parameters
    ----------
    distances : ndarray of shape (n, n)
        At least 0, symmetric, zero diagonal. Not modified.

    Returns
    -------
    ndarray of shape (n, 2)
        Around the origin; the larger coordinate of each axis is positive.

    References
    ----------
    .. [1] Torgerson (1952), "Multidimensional scaling: I. Theory and method", Psychometrika 17.
    """
    n = len(distances)
    centring = np.eye(n) - 1 / max(n, 1)
    values, vectors = np.linalg.eigh(-0.5 * centring @ distances**2 @ centring)
    places = np.zeros((n, 2))
    n_axes = min(2, n)
    kept = np.argsort(values)[::-1][:n_axes]
    places[:, :n_axes] = vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0))
    # An eigenvector's sign means nothing, and a map should not turn over from run to run.
    largest = np.abs(places).argmax(axis=0) if n else np.zeros(2, np.intp)
    signs = np.sign(places[largest, [0, 1]]) if n else np.ones(2)
    return np.asarray(places * np.where(signs == 0, 1, signs))


def onboarding_figure(
    distances: NDArray[np.float64],
    choice: GroupChoice,
    cohorts: Sequence[str],
    *,
    title: str,
) -> Figure:
    """Draw silhouettes against the number of groups, and the clients by their distances.

    Parameters
    ----------
    distances : ndarray of shape (n, n)
        Not modified.
    choice : GroupChoice
    cohorts : sequence of str
        Cohort of every row.
    title : str

    Raises
    ------
    EmptyCohortError
        If there is no client.
    """
    if not cohorts:
        raise EmptyCohortError(f"figure {title!r}: no client to draw, wanted one")
    figure, curve = canvas(width=9.0, height=4.2)
    grid = figure.add_gridspec(1, 2, width_ratios=(1, 1.2))
    curve.set_subplotspec(grid[0])
    n_cohorts = len(set(cohorts))
    cohort_word = "cohort" if n_cohorts == 1 else "cohorts"
    curve.set_title(f"{title}: {n_cohorts} {cohort_word} of {len(cohorts)} clients", loc="left")
    _draw_curve(curve, choice)
    _draw_map(figure.add_subplot(grid[1]), client_map(distances), cohorts)
    return figure


def _draw_curve(axes: Axes, choice: GroupChoice) -> None:
    axes.set_xlabel("number of groups")
    axes.set_ylabel("mean silhouette")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not choice.silhouettes:
        axes.text(0.5, 0.5, f"no curve: {choice.rule}", ha="center", transform=axes.transAxes)
        return
    numbers, scores = zip(*choice.silhouettes, strict=True)
    first, last = choice.window
    axes.axvspan(first - 0.4, last + 0.4, color="#DDDDDD", label="window")
    axes.plot(numbers, scores, color="#0072B2", marker="o", markersize=4)
    chosen = dict(choice.silhouettes).get(choice.n_groups)
    if chosen is not None:
        axes.plot([choice.n_groups], [chosen], "o", color="#D55E00", markersize=10, label="chosen")
    axes.legend(loc="best", frameon=False)
    axes.set_xlabel(f"number of groups ({choice.rule})")


def _draw_map(axes: Axes, places: NDArray[np.float64], cohorts: Sequence[str]) -> None:
    axes.set_title("map of distances", loc="left")
    for cohort_id in sorted(set(cohorts), key=cohort_number):
        rows = [i for i, c in enumerate(cohorts) if c == cohort_id]
        axes.scatter(
            places[rows, 0],
            places[rows, 1],
            s=48,
            color=cohort_color(cohort_id),
            marker=_MARKERS[cohort_number(cohort_id) % len(_MARKERS)],
            edgecolors="#333333",
            linewidths=0.5,
            label=f"{cohort_id} ({len(rows)})",
        )
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(loc="best", frameon=False)
    axes.set_xticks([])
    axes.set_yticks([])
