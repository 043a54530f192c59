from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from clma.cohorting.silhouettes import mean_silhouettes


def distances(n: int, seed: int, *, decimals: int = 15) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(n, 3)).round(decimals)
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def groupings(n: int, seed: int) -> np.ndarray:
    """All numbers of groups from 2 to n - 1, every label in use, often only once."""
    rng = np.random.default_rng(seed)
    rows = [[*range(k), *rng.integers(0, k, n - k)] for k in range(2, n)]
    return np.array([rng.permutation(row) for row in rows])


@pytest.mark.parametrize("n", [3, 4, 12, 60])
@pytest.mark.parametrize("decimals", [15, 0])
def test_equal_those_of_scikit_learn(n: int, decimals: int) -> None:
    """Also with rows of one alone, and with many rows at one place."""
    matrix, labels = distances(n, n, decimals=decimals), groupings(n, n)
    theirs = [silhouette_score(matrix, row, metric="precomputed") for row in labels]
    np.testing.assert_allclose(mean_silhouettes(matrix, labels), theirs, rtol=0, atol=1e-13)


def test_rows_that_are_all_alone_are_neither_near_nor_far() -> None:
    assert mean_silhouettes(distances(4, 0), np.array([[0, 1, 2, 3]])).tolist() == [0.0]


def test_rows_at_one_place_are_neither_near_nor_far() -> None:
    assert mean_silhouettes(np.zeros((4, 4)), np.array([[0, 0, 1, 1]])).tolist() == [0.0]


def test_numbers_of_groups_change_nothing() -> None:
    matrix, labels = distances(10, 1), groupings(10, 1)
    swapped = np.array([row.max() - row for row in labels])
    np.testing.assert_allclose(mean_silhouettes(matrix, swapped), mean_silhouettes(matrix, labels))


def test_inputs_are_not_modified() -> None:
    matrix, labels = distances(8, 2), groupings(8, 2)
    before = matrix.copy(), labels.copy()
    mean_silhouettes(matrix, labels)
    assert np.array_equal(before[0], matrix)
    assert np.array_equal(before[1], labels)


def test_no_grouping_has_no_silhouette() -> None:
    assert mean_silhouettes(distances(3, 0), np.empty((0, 3), int)).size == 0
