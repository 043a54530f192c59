"""How many groups there are: silhouettes in a window that the spread of the distances opens.

References
----------
.. [1] FMCL, "one-shot, class-aware client clustering with foundation models", automatic K.
.. [2] Rousseeuw (1987), "Silhouettes", J. Comput. Appl. Math. 20.

Notes
-----
The published outline is a window by the coefficient of variation and a dominant local maximum of
the silhouettes in it; every number is ours. A number of groups is a local maximum when neither
neighbour is better, one step outside the window included, and the largest one wins. Within the
window that is the global maximum, so the rule differs from it at the upper end only: in 28 kinds of
simulated fleets the two chose alike (`docs/fmcl.md`).

One group is an answer, too. Equal distances, and so a low silhouette, come from clients that are
all alike and from clients that are all different; the mean distance says which, and of the second
there is a warning.

Examples
--------
>>> apart = 1 - np.kron(np.eye(3), np.ones((2, 2)))
>>> found = choose_groups(apart)
>>> found.labels, found.rule
((0, 0, 1, 1, 2, 2), 'local maximum')
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from clma.cohorting.clustering import TIE, in_order
from clma.cohorting.silhouettes import mean_silhouettes
from clma.cohorting.tree_cuts import cut_from_top
from clma.errors import InvalidConfigError

__all__ = ["GroupChoice", "Linkage", "Rule", "choose_groups"]

Linkage = Literal["average", "weighted", "complete"]
Rule = Literal["given", "one client", "pair", "no distance", "no split", "local maximum", "largest"]

NARROW_CV = 0.15
WIDE_CV = 0.5


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """Groups, and the evidence for their number.

    Parameters
    ----------
    labels : tuple of int
        Group of every row, numbered by their first member.
    variation : float >= 0
        Coefficient of variation of the distances (population standard deviation over mean).
    window : (int, int)
        Fewest and most groups that were considered; (1, 1) where there was no choice.
    silhouettes : tuple of (int, float)
        Number of groups and mean silhouette of every cut that was scored, one step outside the
        window included.
    rule : str
        What decided.
    warning : str or None
        One line for the operator.
    """

    labels: tuple[int, ...]
    variation: float
    window: tuple[int, int]
    silhouettes: tuple[tuple[int, float], ...]
    rule: Rule
    warning: str | None = None

    @property
    def n_groups(self) -> int:
        """How many there are."""
        return max(self.labels, default=-1) + 1


def choose_groups(
    distances: NDArray[np.float64],
    *,
    method: Linkage = "average",
    n_groups: int = 0,
    silhouette_floor: float = 0.3,
    alike_within: float = 1.0,
) -> GroupChoice:
    """Group by agglomerative clustering, the number of groups automatic or given.

    Parameters
    ----------
    distances : ndarray of shape (n, n)
        At least 0, symmetric, zero diagonal. Not modified.
    method : {"average", "weighted", "complete"}
        Linkage: UPGMA, WPGMA or the largest distance.
    n_groups : int >= 0
        0: automatic.
    silhouette_floor : float in [-1, 1]
        With a lower best silhouette everybody is one group.
    alike_within : float >= 0
        Mean distance up to which clients that form one group are alike; above it there is a
        warning, and two clients are two groups.

    Returns
    -------
    GroupChoice
        Silhouettes of a given number are scored as well, up to the window's end.

    Raises
    ------
    InvalidConfigError
        If more groups are wanted than there are clients.
    """
    n = len(distances)
    if n_groups > n:
        raise InvalidConfigError(f"{n_groups} groups are wanted of {n} clients")
    pairs = distances[np.triu_indices(n, 1)]
    mean = float(pairs.mean()) if n > 1 else 0.0
    variation = float(pairs.std() / mean) if mean > 0 else 0.0
    if n < 3 and not n_groups:
        together = n < 2 or mean <= alike_within
        labels = (0,) * n if together else (0, 1)
        return GroupChoice(labels, variation, (1, n), (), "one client" if n < 2 else "pair")
    if mean == 0 and not n_groups:
        return GroupChoice((0,) * n, 0.0, (1, 1), (), "no distance")
    window = _window(n, variation)
    cuts, scores = _scored(distances, method, max(window[1] + 1, n_groups))
    silhouettes = tuple((k, float(s)) for k, s in enumerate(scores, start=2))
    if n_groups:
        labels = (0,) * n if n_groups == 1 else in_order(cuts[n_groups - 2])
        return GroupChoice(labels, variation, (n_groups, n_groups), silhouettes, "given")
    best, rule = _best(dict(silhouettes), window)
    if dict(silhouettes)[best] < silhouette_floor:
        warning = None if mean <= alike_within else _all_different(mean, dict(silhouettes)[best])
        return GroupChoice((0,) * n, variation, window, silhouettes, "no split", warning)
    return GroupChoice(in_order(cuts[best - 2]), variation, window, silhouettes, rule)


def _window(n: int, variation: float) -> tuple[int, int]:
    most = 3
    if variation >= NARROW_CV:
        most = math.ceil(math.sqrt(n))
    if variation >= WIDE_CV:
        most = max(most, n // 2)
    return 2, min(most, n - 1)


def _scored(
    distances: NDArray[np.float64], method: Linkage, most: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return cuts into 2 ... most groups, and the silhouettes of those that have one."""
    n = len(distances)
    if n < 2:
        return np.zeros((0, n), np.intp), np.zeros(0)
    tree = linkage(squareform(distances, checks=False), method)
    cuts = cut_from_top(tree, max_groups=min(most, n))
    return cuts, mean_silhouettes(distances, cuts[: n - 2])


def _best(scores: dict[int, float], window: tuple[int, int]) -> tuple[int, Rule]:
    inside = [k for k in scores if window[0] <= k <= window[1]]
    tops = [
        k
        for k in inside
        if all(scores[k] >= scores.get(near, -math.inf) - TIE for near in (k - 1, k + 1))
    ]
    rule: Rule = "local maximum" if tops else "largest"
    best = max(tops or inside, key=lambda k: (round(scores[k] / TIE), -k))
    return best, rule


def _all_different(mean: float, silhouette: float) -> str:
    return (
        f"no signal: clients are at a mean distance of {mean:.2f} and no split stands out "
        f"(best silhouette {silhouette:.2f}); all are one group"
    )
