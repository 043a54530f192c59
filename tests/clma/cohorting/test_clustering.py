from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from clma.cohorting.clustering import (
    average_linkage,
    fixed_kmeans,
    one_each,
    silhouette_kmeans,
)
from clma.parameters.moves import cosine_distances

TWO_PAIRS = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 0, 0.0]])


def pair(distance: float) -> np.ndarray:
    return np.array([[0.0, distance], [distance, 0.0]])


def test_two_clear_pairs_are_two_groups_with_silhouette_one() -> None:
    clustering = average_linkage(TWO_PAIRS)
    assert clustering.labels == (0, 0, 1, 1)
    assert clustering.silhouette == pytest.approx(1.0)


def test_three_with_one_apart() -> None:
    clustering = average_linkage(np.array([[0, 0, 1], [0, 0, 1], [1, 1, 0.0]]))
    assert clustering.labels == (0, 0, 1)
    assert clustering.silhouette == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("distance", "labels"), [(0.0, (0, 0)), (0.6, (0, 0)), (0.61, (0, 1)), (2.0, (0, 1))]
)
def test_pair_rule_at_the_threshold(distance: float, labels: tuple[int, ...]) -> None:
    assert average_linkage(pair(distance)).labels == labels


@pytest.mark.parametrize("n", [0, 1])
def test_none_and_one_are_no_problem(n: int) -> None:
    assert average_linkage(np.zeros((n, n))).labels == (0,) * n


@pytest.mark.parametrize("n", [2, 3, 5])
def test_identical_clients_are_one_group(n: int) -> None:
    assert average_linkage(np.zeros((n, n))).labels == (0,) * n


@pytest.mark.parametrize("n", [3, 6])
def test_clients_that_are_all_different_are_not_forced_together(n: int) -> None:
    """Equal distances: every split has silhouette 0, for far clients as for near ones."""
    assert average_linkage(np.ones((n, n)) - np.eye(n)).labels == tuple(range(n))
    assert average_linkage(0.5 * (np.ones((n, n)) - np.eye(n))).labels == (0,) * n


def blocks(between: list[list[float]]) -> np.ndarray:
    """Return distances of pairs that are .05 apart within, as far as said between."""
    distances = np.kron(np.array(between), np.ones((2, 2)))
    distances += 0.05 * np.kron(np.eye(len(between)), np.ones((2, 2)) - np.eye(2))
    return distances


@pytest.mark.parametrize(("ceiling", "n_groups"), [(1.0, 2), (0.46, 2), (0.45, 1), (0.40, 1)])
def test_split_of_groups_that_are_alike_is_refused(ceiling: float, n_groups: int) -> None:
    """Its silhouette is kept as evidence."""
    clustering = average_linkage(blocks([[0, 0.55], [0.55, 0]]), split_ceiling=ceiling)
    assert len(set(clustering.labels)) == n_groups
    assert clustering.silhouette == pytest.approx(0.5 / 0.55)


def test_next_best_split_is_taken_where_it_may_be() -> None:
    """The first two groups are alike, the third is like neither."""
    distances = blocks([[0, 0.5, 1.2], [0.5, 0, 1.2], [1.2, 1.2, 0]])
    assert average_linkage(distances).labels == (0, 0, 1, 1, 2, 2)
    assert average_linkage(distances, split_ceiling=0.4).labels == (0, 0, 0, 0, 1, 1)


def test_without_a_clear_split_the_pair_rule_decides() -> None:
    """Two that resemble each other and one that resembles neither, by a narrow margin."""
    clustering = average_linkage(np.array([[0, 0.55, 0.7], [0.55, 0, 0.65], [0.7, 0.65, 0.0]]))
    assert clustering.labels == (0, 0, 1)
    assert clustering.silhouette is not None
    assert clustering.silhouette < 0.2


@pytest.mark.parametrize(("n", "unclear"), [(2, False), (3, False), (4, True), (8, True)])
def test_more_groups_than_allowed_are_no_finding(n: int, unclear: bool) -> None:
    """Nobody is put together with what it is unlike, to have fewer groups."""
    clustering = average_linkage(np.ones((n, n)) - np.eye(n), max_groups=3)
    assert (clustering.labels, clustering.unclear) == (tuple(range(n)), unclear)


def test_order_of_rows_changes_numbers_but_not_groups() -> None:
    order = [2, 0, 3, 1]
    labels = average_linkage(TWO_PAIRS[np.ix_(order, order)]).labels
    assert labels == (0, 1, 0, 1)


def test_max_groups_is_kept() -> None:
    corners = np.kron(np.eye(4), np.ones((2, 2)))
    assert max(average_linkage(1 - corners).labels) == 3
    assert max(average_linkage(1 - corners, max_groups=2).labels) <= 1


def test_floor_guards_against_a_split_of_noise() -> None:
    updates = np.random.default_rng(0).normal(size=(8, 500)) * 0.5 + 1.0
    assert set(average_linkage(cosine_distances(updates @ updates.T)).labels) == {0}


def test_kmeans_by_silhouette_finds_three_heaps() -> None:
    points = np.repeat([[0.0, 0], [9, 0], [0, 9]], 4, axis=0) + np.arange(12)[:, None] * 1e-3
    assert silhouette_kmeans(points, seed=0).labels == (0,) * 4 + (1,) * 4 + (2,) * 4


def test_kmeans_of_two_is_one_group_as_in_the_public_package() -> None:
    assert silhouette_kmeans(np.array([[0.0], [9.0]]), seed=0).labels == (0, 0)


def test_fixed_kmeans_never_makes_more_groups_than_points() -> None:
    assert fixed_kmeans(np.array([[1.0]]), seed=0).labels == (0,)
    assert fixed_kmeans(np.array([[1.0], [1.0], [1.0]]), seed=0).labels == (0, 0, 0)
    assert fixed_kmeans(np.array([[1.0], [5.0], [1.0]]), seed=0).labels == (0, 1, 0)


def test_kmeans_does_not_tear_equal_points_apart() -> None:
    points = np.array([[1.0], [1.0 + 1e-15], [1.0 - 1e-15], [5.0]])
    assert fixed_kmeans(points, seed=0, n_groups=3).labels == (0, 0, 0, 1)
    assert fixed_kmeans(points[:3], seed=0).labels == (0, 0, 0)
    assert silhouette_kmeans(points[:3], seed=0).labels == (0, 0, 0)


def test_one_each() -> None:
    assert one_each(3).labels == (0, 1, 2)


def test_average_linkage_does_without_scikit_learn() -> None:
    """A night that groups by direction need not wait for its import."""
    code = (
        "import sys, numpy as np, clma.cohorting.form\n"
        "from clma.cohorting.clustering import average_linkage\n"
        "average_linkage(1 - np.kron(np.eye(2), np.ones((2, 2))))\n"
        "sys.exit('sklearn' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
