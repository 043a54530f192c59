"""The most robust rule that a number of voters allows.

Our own choice, for cohorts are small: with one voter nothing can be compared, of two nobody can
tell who lies, three and four have a middle, and from five on the mean of the middle is closer to
the mean of all. Rules: `clma.aggregation.clipped_mean`, `median`, `trimmed_mean`.

Examples
--------
>>> [method_for(n) for n in (1, 2, 3, 5)]
['weighted_mean', 'clipped_mean', 'median', 'trimmed_mean']
"""

from __future__ import annotations

__all__ = ["method_for"]


def method_for(n_voters: int) -> str:
    """Return the name of the rule for so many updates with a weight above 0."""
    if n_voters < 2:
        return "weighted_mean"
    if n_voters == 2:
        return "clipped_mean"
    return "median" if n_voters < 5 else "trimmed_mean"
