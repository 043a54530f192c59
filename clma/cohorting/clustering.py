"""Group a few clients and decide how many groups there are; one is an answer.

Every clusterer returns a `Clustering` whose labels number the groups by their first member, so the
result does not depend on the inner numbering of a library.

Examples
--------
>>> distances = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0.0]])
>>> average_linkage(distances).labels
(0, 0, 1, 1)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from clma.blas import one_thread
from clma.cohorting.silhouettes import mean_silhouettes
from clma.cohorting.tree_cuts import cut_from_top

__all__ = [
    "NO_SPLIT",
    "Clustering",
    "average_linkage",
    "fixed_kmeans",
    "in_order",
    "one_each",
    "silhouette_kmeans",
]

TIE = 1e-9
"""Silhouettes closer than this are equal; then the smaller number of groups wins."""

NO_SPLIT = 2.0
"""Floor above every silhouette."""


@dataclass(frozen=True, slots=True)
class Clustering:
    """Groups, and how clearly they stand apart.

    Parameters
    ----------
    labels : tuple of int
        Group of every row; groups are numbered by their first member.
    silhouette : float or None
        Of the best split with two or more groups, also where it was refused; None where it is not
        defined (fewer than three rows) or was not asked for.
    unclear : bool
        There are more groups than were allowed. Those of one row are then no finding: whoever is
        unlike so many others may have drifted alone, or not at all.
    """

    labels: tuple[int, ...]
    silhouette: float | None = None
    unclear: bool = False


def average_linkage(
    distances: NDArray[np.float64],
    *,
    max_groups: int = 6,
    silhouette_floor: float = 0.25,
    silhouette_floor_three: float = 0.20,
    pair_threshold: float = 0.40,
    split_ceiling: float = 1.0,
) -> Clustering:
    """Cluster by average linkage (UPGMA), the number of groups by silhouette.

    Parameters
    ----------
    distances : ndarray of shape (n, n)
        Cosine distances in [0, 2], zero diagonal. Not modified.
    max_groups : int >= 1
        Most groups of a split that stands out. Where none does and more are unlike each other, the
        result is `unclear`; nobody is put together with what it is unlike.
    silhouette_floor : float in [-1, 1]
        Below it no split stands out: on noise, too, some split is the best one.
    silhouette_floor_three : float in [-1, 1]
        The same for n = 3, where only one number of groups can be scored.
    pair_threshold : float in [-1, 1]
        Where no split stands out, or n = 2 and there is no silhouette, clients and groups stay
        together whose mean cosine is at least this.
    split_ceiling : float in [-1, 1]
        No two groups of a split that stands out may have a mean cosine of at least this: a
        silhouette has no absolute scale. 1 does not ask.

    Returns
    -------
    Clustering
        Empty for n = 0.

    Notes
    -----
    The largest mean silhouette over 2 ... min(max_groups, n - 1) groups wins. A low silhouette
    comes from clients that are all alike and from clients that are all different; only an absolute
    measure tells them apart, so there the tree is cut at the pair threshold. Floors and threshold
    were calibrated on small networks; calibrate them anew for another kind of model.
    """
    n = distances.shape[0]
    if n < 2:
        return Clustering((0,) * n)
    if n == 2:
        together = distances[0, 1] <= 1 - pair_threshold + TIE
        return Clustering((0, 0) if together else (0, 1), unclear=not together and max_groups < 2)
    tree = linkage(squareform(distances, checks=False), method="average")
    cuts = cut_from_top(tree, max_groups=min(max_groups, n - 1))
    floor = silhouette_floor_three if n == 3 else silhouette_floor
    scores = mean_silhouettes(distances, cuts)
    n_apart = _n_apart(tree, split_ceiling)
    best = _best(cuts[:n_apart], scores[:n_apart], floor)
    if max(best.labels) > 0:
        return best
    refused = _best(cuts, scores, NO_SPLIT)
    alike = in_order(fcluster(tree, 1 - pair_threshold + TIE, criterion="distance"))
    return Clustering(alike, refused.silhouette, unclear=max(alike) >= max_groups)


def _n_apart(tree: NDArray[np.float64], split_ceiling: float) -> int:
    """Return how many cuts from the top leave no two groups with a mean cosine at the ceiling.

    In a tree of average linkage the nearest two groups of a cut are the next to be merged, at the
    mean of their distances.
    """
    if split_ceiling >= 1:
        return len(tree)
    return int((tree[:, 2] > 1 - split_ceiling + TIE).sum())


def silhouette_kmeans(
    points: NDArray[np.float64],
    *,
    seed: int,
    max_groups: int = 10,
    silhouette_floor: float = 0.25,
) -> Clustering:
    """Cluster points by k-means, the number of groups by silhouette; n <= 2 is one group.

    Parameters
    ----------
    points : ndarray of shape (n, n_components)
    seed : int in [0, 2**32)
    max_groups : int >= 1
    silhouette_floor : float in [-1, 1]
        Below it everybody is one group.
    """
    n = points.shape[0]
    if n <= 2:
        return Clustering((0,) * n)
    most = min(max_groups, n - 1, _n_distinct(points))
    if most < 2:
        return Clustering((0,) * n)
    from sklearn.metrics import silhouette_score

    groupings = np.array([_kmeans(points, k, seed) for k in range(2, most + 1)])
    scores = np.array([silhouette_score(points, labels) for labels in groupings])
    return _best(groupings, scores, silhouette_floor)


def fixed_kmeans(points: NDArray[np.float64], *, seed: int, n_groups: int = 2) -> Clustering:
    """Cluster points into a given number of groups, or as many as there are distinct points."""
    if points.shape[0] == 0:
        return Clustering(())
    return Clustering(_kmeans(points, min(n_groups, _n_distinct(points)), seed))


def one_each(n: int) -> Clustering:
    """Put every row in a group of its own."""
    return Clustering(tuple(range(n)))


def _n_distinct(points: NDArray[np.float64]) -> int:
    # Equal clients have equal points but for rounding; k-means would tear them apart to have its k.
    gaps = np.linalg.norm(points[:, None] - points[None], axis=-1)
    same = gaps <= TIE * np.linalg.norm(points, axis=1).max()
    return sum(not same[row, :row].any() for row in range(len(points)))


def _kmeans(points: NDArray[np.float64], n_groups: int, seed: int) -> tuple[int, ...]:
    # Half a second to import, and only these methods need it.
    from sklearn.cluster import KMeans

    with one_thread():
        model = KMeans(n_clusters=n_groups, n_init=10, random_state=seed)
        return in_order(model.fit_predict(points))


def _best(groupings: NDArray[np.integer], scores: NDArray[np.float64], floor: float) -> Clustering:
    """Return the grouping of the highest score, the first of equal ones, or one group."""
    best, best_score = np.zeros(groupings.shape[1], np.intp), None
    for labels, score in zip(groupings, scores.tolist(), strict=True):
        if best_score is None or score > best_score + TIE:
            best, best_score = labels, score
    if best_score is None or best_score < floor:
        return Clustering((0,) * best.size, best_score)
    return Clustering(in_order(best), best_score)


def in_order(labels: NDArray[np.integer]) -> tuple[int, ...]:
    """Number labels by their first row, whatever numbers a library gave them."""
    number: dict[int, int] = {}
    return tuple(number.setdefault(int(label), len(number)) for label in labels)
