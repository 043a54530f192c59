"""Draw who stood in which cohort, round by round, and who said that it drifted.

Examples
--------
>>> rows = [AssignmentRow("plant-01", "c0", "c0", ClientStatus.ACTIVE, "ab" * 32, 1)]
>>> figure = cohort_heatmap({1: rows}, {}, title="pumps")
>>> [text.get_text() for text in figure.axes[0].texts]
['c0']
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure

from clma.errors import EmptyCohortError
from clma.records import ClientStatus, cohort_number
from clma.report.figures import MAX_ROUNDS, OKABE_ITO, canvas, cohort_color
from clma.rows import AssignmentRow, DriftRow

__all__ = ["MAX_CLIENTS", "cohort_heatmap", "shown_clients"]

MAX_CLIENTS = 1000
"""Rows of a heatmap: an image of ten thousand is 66,000 pixels high, and no PNG can be."""

_FEW_CELLS = 900
"""Up to here every cell of the heatmap is written out, above it only where something changes."""

_MAX_LABELS = 60
"""Client names beside a large heatmap; the clients in between follow in order."""

Cells = Mapping[tuple[str, int], AssignmentRow]


def cohort_heatmap(
    assignments: Mapping[int, Sequence[AssignmentRow]],
    drift: Mapping[int, Sequence[DriftRow]],
    *,
    title: str,
) -> Figure:
    """Draw clients against rounds, with the cohort of each as colour and as text.

    Parameters
    ----------
    assignments, drift : mapping of round to rows
        Round numbers from 1; of `drift` only those of `assignments` are used. Not modified.
    title : str

    Returns
    -------
    Figure
        A triangle marks a drift flag, a cross a client in quarantine, a ring one that sent nothing.
        Clients that moved together stand together once there are too many to write out all cells.
        Of more than `MAX_CLIENTS`, `shown_clients` are drawn, and the title says so.

    Raises
    ------
    EmptyCohortError
        If there is no round or no client.
    """
    rounds = sorted(assignments)[-MAX_ROUNDS:]
    cells = {(row.client_id, r): row for r in rounds for row in assignments[r]}
    if not cells:
        raise EmptyCohortError(f"cohort heatmap {title!r}: no client in any round, wanted one")
    everybody = {client_id for client_id, _ in cells}
    shown = shown_clients(everybody, _eventful(cells, drift, rounds))
    if len(shown) < len(everybody):
        title = f"{title} ({len(shown):,} of {len(everybody):,} clients)"
        cells = {place: row for place, row in cells.items() if place[0] in shown}
    few = len(cells) <= _FEW_CELLS
    clients = _client_order(cells, rounds, by_id=few)
    row_height = 0.28 if few else max(0.06, min(0.14, 40 / len(clients)))
    figure, axes = canvas(
        width=3.0 + 0.42 * max(len(rounds), 10), height=1.6 + row_height * max(len(clients), 5)
    )
    _paint_cells(axes, cells, clients, rounds)
    _draw_moves(axes, cells, clients, rounds)
    _write_cohorts(axes, cells, clients, rounds, few=few, points=min(8.0, 60 * row_height))
    marks = _marks(cells, drift, clients, rounds)
    _draw_marks(axes, marks, size=min(24.0, 200 * row_height))
    axes.set_title(title, loc="left")
    axes.set_xlabel("round")
    axes.set_xticks(range(len(rounds)), [str(r) for r in rounds], fontsize=8)
    step = 1 if few else math.ceil(len(clients) / _MAX_LABELS)
    axes.set_yticks(
        range(0, len(clients), step), clients[::step], fontsize=min(8.0, 60 * row_height)
    )
    return figure


def shown_clients(clients: Set[str], eventful: Set[str]) -> frozenset[str]:
    """Return the clients that a heatmap has room for.

    Parameters
    ----------
    clients : set of str
        Not modified.
    eventful : set of str
        Those that moved, flagged drift or were in quarantine: they go first.

    Returns
    -------
    frozenset of str
        All, if there are at most `MAX_CLIENTS`; else so many, taken at even distances.
    """
    if len(clients) <= MAX_CLIENTS:
        return frozenset(clients)
    first = _spread(sorted(clients & eventful), MAX_CLIENTS)
    return frozenset([*first, *_spread(sorted(clients - eventful), MAX_CLIENTS - len(first))])


def _spread(names: Sequence[str], n_wanted: int) -> list[str]:
    if len(names) <= n_wanted:
        return list(names)
    return [names[i * len(names) // n_wanted] for i in range(n_wanted)]


def _eventful(
    cells: Cells, drift: Mapping[int, Sequence[DriftRow]], rounds: Sequence[int]
) -> set[str]:
    flagged = {row.client_id for r in rounds for row in drift.get(r, ()) if row.drift_flag}
    return flagged | {
        row.client_id
        for row in cells.values()
        if row.cohort_before != row.cohort_after or row.status is ClientStatus.QUARANTINED
    }


def _client_order(cells: Cells, rounds: Sequence[int], *, by_id: bool) -> list[str]:
    """Return the rows of the heatmap, top to bottom."""
    clients = sorted({client_id for client_id, _ in cells})
    if by_id:
        return clients
    return sorted(clients, key=lambda c: (_path(cells, c, rounds), c))


def _path(cells: Cells, client_id: str, rounds: Sequence[int]) -> tuple[int, ...]:
    """Return a client's cohorts by number, newest first; -1 before it joined."""
    rows = (cells.get((client_id, r)) for r in reversed(rounds))
    return tuple(-1 if row is None else cohort_number(row.cohort_after) for row in rows)


def _paint_cells(axes: Axes, cells: Cells, clients: list[str], rounds: Sequence[int]) -> None:
    grid = np.full((len(clients), len(rounds)), np.nan)
    for y, client_id in enumerate(clients):
        for x, number in enumerate(reversed(_path(cells, client_id, rounds))):
            grid[y, x] = np.nan if number < 0 else number % len(OKABE_ITO)
    axes.imshow(
        np.ma.masked_invalid(grid),
        cmap=ListedColormap(OKABE_ITO),
        vmin=-0.5,
        vmax=len(OKABE_ITO) - 0.5,
        aspect="auto",
        interpolation="nearest",
    )
    axes.set_xticks(np.arange(len(rounds) + 1) - 0.5, minor=True)
    axes.grid(visible=True, which="minor", axis="x", color="white", linewidth=0.6)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


def _draw_moves(axes: Axes, cells: Cells, clients: list[str], rounds: Sequence[int]) -> None:
    """Draw a line where a client changed cohort: two cohorts may share a colour."""
    moves = [
        (x - 0.5, y - 0.5)
        for y, client_id in enumerate(clients)
        for x in range(1, len(rounds))
        if (row := cells.get((client_id, rounds[x]))) is not None
        and (left := cells.get((client_id, rounds[x - 1]))) is not None
        and _differs(row, left)
    ]
    if moves:
        x, y = np.array(moves).T
        axes.vlines(x, y, y + 1, color="black", linewidth=1.2)


def _write_cohorts(
    axes: Axes,
    cells: Cells,
    clients: list[str],
    rounds: Sequence[int],
    *,
    few: bool,
    points: float,
) -> None:
    """Write the cohort into the cells; of large fleets only where it is new to left and above."""
    for y, client_id in enumerate(clients):
        for x, round_num in enumerate(rounds):
            row = cells.get((client_id, round_num))
            if row is None:
                continue
            left = cells.get((client_id, rounds[x - 1])) if x else None
            above = cells.get((clients[y - 1], round_num)) if y else None
            if few or (_differs(row, left) and _differs(row, above)):
                color = _text_color(cohort_color(row.cohort_after))
                size = max(points, 5.0)
                axes.text(x, y, row.cohort_after, color=color, ha="center", va="center", size=size)


def _differs(row: AssignmentRow, other: AssignmentRow | None) -> bool:
    return other is None or other.cohort_after != row.cohort_after


def _text_color(color: str) -> str:
    """Return black or white, whichever is read better on a colour (luminance as in WCAG 2.1)."""
    channels = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    luminance = float(np.dot([0.2126, 0.7152, 0.0722], channels))
    return "black" if luminance > 0.179 else "white"


def _marks(
    cells: Cells,
    drift: Mapping[int, Sequence[DriftRow]],
    clients: list[str],
    rounds: Sequence[int],
) -> dict[str, list[tuple[int, int]]]:
    """Return the positions (column, row) of each kind of mark."""
    flagged = {(row.client_id, r) for r in rounds for row in drift.get(r, ()) if row.drift_flag}
    marks: dict[str, list[tuple[int, int]]] = {"drift": [], "quarantined": [], "missing": []}
    for y, client_id in enumerate(clients):
        for x, round_num in enumerate(rounds):
            row = cells.get((client_id, round_num))
            if (client_id, round_num) in flagged:
                marks["drift"].append((x, y))
            if row is not None and row.status is ClientStatus.QUARANTINED:
                marks["quarantined"].append((x, y))
            if row is not None and row.status is ClientStatus.MISSING:
                marks["missing"].append((x, y))
    return marks


_MARKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "drift": ("drift flag", {"marker": "^", "color": "black"}),
    "quarantined": ("quarantined", {"marker": "x", "color": "black"}),
    "missing": ("nothing sent", {"marker": "o", "facecolors": "none", "edgecolors": "black"}),
}


def _draw_marks(axes: Axes, marks: Mapping[str, list[tuple[int, int]]], *, size: float) -> None:
    """Draw the marks at the right edge of their cells, where they hide no text."""
    for kind, places in marks.items():
        if places:
            label, style = _MARKS[kind]
            columns, rows = zip(*places, strict=True)
            axes.scatter(
                np.array(columns) + 0.36, rows, s=size, label=label, linewidths=0.8, **style
            )
    if any(marks.values()):
        axes.legend(
            loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, fontsize=8, frameon=False
        )
