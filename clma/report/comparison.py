"""Methods side by side in numbers: means over seeds, and differences over equal seeds.

Seeds are what was drawn at random, so they are what is averaged over: of several scenarios a seed
first has its mean. Two methods are compared on the cells that both have, one pair for each scenario
and seed; whatever one of them lacks leaves its pair out.

Examples
--------
>>> summary = spread({0: [0.8], 1: [0.6]})
>>> round(summary.mean, 3), round(summary.sd, 3), summary.n_seeds
(0.7, 0.141, 2)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtrit

from clma.errors import EmptyCohortError, InvalidConfigError
from clma.simulation.cells import CellRow, RoundRow

__all__ = [
    "PairedDifference",
    "Spread",
    "check_unique",
    "curve_of",
    "figure_of",
    "in_reading_order",
    "paired_difference",
    "spread",
]

_FIRST = ("clma", "fedavg", "local")
_LAST = ("singletons", "oracle")
_EQUAL = 1e-12
"""Two figures that differ by less are a draw: sums of one set of numbers in another order."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over seeds.

    Parameters
    ----------
    mean : float
    sd : float or None
        Standard deviation (n - 1) of the seeds' means; None for a single seed.
    n_seeds : int, >= 1
    """

    mean: float
    sd: float | None
    n_seeds: int


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """One method minus another in one figure.

    Parameters
    ----------
    mean : float
        Of the seeds' means.
    sd : float or None
        Standard deviation (n - 1) of the seeds' means; None for a single seed.
    n_pairs, n_won, n_lost : int
        Pairs of equal scenario and seed; the rest are draws.
    low, high : float or None
        95 % interval of the mean over seeds, by Student's t; None for a single seed.
    """

    mean: float
    sd: float | None
    n_pairs: int
    n_won: int
    n_lost: int
    low: float | None
    high: float | None


def check_unique(rows: Iterable[CellRow]) -> None:
    """Raise InvalidConfigError if a cell is there twice: it would count twice."""
    counts = Counter((row.scenario, row.method, row.seed) for row in rows)
    twice = [cell for cell, count in counts.items() if count > 1]
    if twice:
        scenario, method, seed = twice[0]
        raise InvalidConfigError(
            f"cell {scenario} {method} seed {seed}: {counts[twice[0]]} rows, wanted 1"
        )


def in_reading_order(methods: Iterable[str]) -> tuple[str, ...]:
    """Return methods as a table lists them: ours, what it has to beat, the others, the truth."""
    known = list(dict.fromkeys(methods))
    middle = [m for m in known if m not in (*_FIRST, *_LAST)]
    return (*(m for m in _FIRST if m in known), *middle, *(m for m in _LAST if m in known))


def spread(values: Mapping[int, Sequence[float]]) -> Spread:
    """Sum up a figure over seeds.

    Parameters
    ----------
    values : mapping of seed to its values
        One for each scenario. Not modified.

    Raises
    ------
    EmptyCohortError
        If there is no value.
    """
    means = [fmean(values[seed]) for seed in sorted(values) if values[seed]]
    if not means:
        raise EmptyCohortError("spread over seeds: no value, wanted one")
    return Spread(fmean(means), stdev(means) if len(means) > 1 else None, len(means))


def figure_of(rows: Iterable[CellRow], figure: str) -> Spread | None:
    """Sum up a column of rows over their seeds; None where no row has a value.

    Parameters
    ----------
    rows : iterable of CellRow
        Of one method, each cell once.
    figure : str
        One of `clma.simulation.cells.FIGURES`.
    """
    values: dict[int, list[float]] = {}
    for row in rows:
        value = getattr(row, figure)
        if value is not None:
            values.setdefault(row.seed, []).append(float(value))
    return spread(values) if values else None


def paired_difference(
    rows: Sequence[CellRow], ours: str, other: str, figure: str
) -> PairedDifference | None:
    """Compare two methods on the cells that both have.

    Parameters
    ----------
    rows : sequence of CellRow
        Of all methods, each cell once. Not modified.
    ours, other : str
        Methods; the difference is the first minus the second.
    figure : str
        One of `clma.simulation.cells.FIGURES`.

    Returns
    -------
    PairedDifference, or None
        None where no pair has both values.

    Notes
    -----
    Scenarios of one seed share the seed of data and model and are no independent draws, so a seed
    counts once, with the mean of its pairs.
    """
    mine, theirs = (_values(rows, method, figure) for method in (ours, other))
    differences = {cell: mine[cell] - theirs[cell] for cell in sorted(mine.keys() & theirs.keys())}
    if not differences:
        return None
    by_seed: dict[int, list[float]] = {}
    for (_, seed), difference in differences.items():
        by_seed.setdefault(seed, []).append(difference)
    over_seeds = spread(by_seed)
    half = _half_width(over_seeds)
    return PairedDifference(
        mean=over_seeds.mean,
        sd=over_seeds.sd,
        n_pairs=len(differences),
        n_won=sum(d > _EQUAL for d in differences.values()),
        n_lost=sum(d < -_EQUAL for d in differences.values()),
        low=None if half is None else over_seeds.mean - half,
        high=None if half is None else over_seeds.mean + half,
    )


def curve_of(rounds: Iterable[tuple[int, RoundRow]], *, drifting: bool) -> dict[int, float]:
    """Return the mean F1 of a method by round.

    Parameters
    ----------
    rounds : iterable of (seed, RoundRow)
        Of one scenario and method.
    drifting : bool
        Of the clients that drift at some time, or of the others.

    Returns
    -------
    dict of round to macro-F1 in [0, 1]
        Mean over seeds of the mean over clients; empty where there is no such client.
    """
    values: dict[int, dict[int, list[float]]] = {}
    for seed, row in rounds:
        if row.drifting is drifting and row.f1 is not None:
            values.setdefault(row.round_num, {}).setdefault(seed, []).append(row.f1)
    return {round_num: spread(values[round_num]).mean for round_num in sorted(values)}


def _values(rows: Iterable[CellRow], method: str, figure: str) -> dict[tuple[str, int], float]:
    return {
        (row.scenario, row.seed): float(getattr(row, figure))
        for row in rows
        if row.method == method and getattr(row, figure) is not None
    }


def _half_width(over_seeds: Spread) -> float | None:
    """Return half the width of the mean's 95 % interval, by Student's t."""
    if over_seeds.sd is None:
        return None
    quantile = float(stdtrit(over_seeds.n_seeds - 1, 0.975))
    return quantile * over_seeds.sd / math.sqrt(over_seeds.n_seeds)
