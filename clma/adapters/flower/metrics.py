"""Average what nodes measured, over those whose measurements can be averaged.

Examples
--------
>>> weighted_means([Measured(1, {"accuracy": 0.5}), Measured(3, {"accuracy": 0.9})])
{'accuracy': 0.8}
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Measured", "weighted_means"]

MAX_METRICS = 1000
"""Names of metrics that are averaged; a report of more is nobody's report."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A node's metrics, and how many examples they stand for."""

    n_examples: int
    metrics: Mapping[str, Any]


def weighted_means(
    measured: Sequence[Measured], *, without: Collection[str] = ()
) -> dict[str, float | list[float]]:
    """Average metrics by numbers of examples.

    Parameters
    ----------
    measured : sequence of Measured
        From anybody.
    without : collection of str
        Names to leave out.

    Returns
    -------
    dict of name to float or list of float
        Of the names that at least half of the nodes sent: what one node invents is not the fleet's.
        A value that is not finite, or a list of another length than most have, counts nowhere.
        Where all nodes had 0 examples, all count alike.
    """
    n_senders = Counter(name for one in measured for name in one.metrics)
    names = [
        name for name, n in n_senders.items() if 2 * n >= len(measured) and name not in without
    ]
    means = {name: _mean(name, measured) for name in names[:MAX_METRICS]}
    return {name: mean for name, mean in means.items() if mean is not None}


def _mean(name: str, measured: Sequence[Measured]) -> float | list[float] | None:
    found = [(one.n_examples, one.metrics.get(name)) for one in measured]
    usable = [(weight, value) for weight, value in found if _is_finite(value)]
    if not usable:
        return None
    form = Counter(_form(value) for _, value in usable).most_common(1)[0][0]
    alike = [(weight, value) for weight, value in usable if _form(value) == form]
    total = sum(weight for weight, _ in alike)
    shares = [weight / total if total else 1 / len(alike) for weight, _ in alike]
    values: list[Any] = [value for _, value in alike]
    if form is None:
        return _dot(shares, values)
    return [_dot(shares, column) for column in zip(*values, strict=True)]


def _dot(shares: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(share * value for share, value in zip(shares, values, strict=True))


def _form(value: Any) -> int | None:
    """Return the length of a list, None for a single number."""
    return len(value) if isinstance(value, list) else None


def _is_finite(value: object) -> bool:
    values = value if isinstance(value, list) else [value]
    try:
        return all(isinstance(v, int | float) and math.isfinite(v) for v in values)
    except OverflowError:  # a whole number beyond float64
        return False
