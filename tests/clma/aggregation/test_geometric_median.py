from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clma.aggregation.geometric_median import geometric_median
from tests.clma.aggregation.voters import POINTS, model_of
from tests.clma.shelf import Shelf


def median_of(points: np.ndarray, shares: np.ndarray | None = None) -> np.ndarray:
    shares = np.full(len(points), 1 / len(points)) if shares is None else shares
    return geometric_median(points @ points.T, shares) @ points


def total(points: np.ndarray, place: np.ndarray, shares: np.ndarray) -> float:
    """Return the sum of distances that the geometric median makes least."""
    return float(shares @ np.linalg.norm(points - place, axis=1))


def test_four_points_and_a_liar(shelf: Shelf) -> None:
    made = model_of(shelf, POINTS, method="geometric_median")
    np.testing.assert_allclose(made, [1.02259, 0.99842], atol=5e-6)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 12), far=st.sampled_from([1.0, 1e4, 1e8]))
def test_no_place_nearby_is_better(seed: int, n: int, far: float) -> None:
    rng = np.random.default_rng(seed)
    points, shares = rng.normal(size=(n, 3)), rng.dirichlet(np.ones(n))
    points[0] *= far
    place = median_of(points, shares)
    least = total(points, place, shares)
    for candidate in (*points, *(place + rng.normal(size=(20, 3)) * 0.01)):
        assert least <= total(points, candidate, shares) * (1 + 1e-8)


def test_a_point_that_is_the_median_is_it_exactly() -> None:
    points = np.array([[0.0, 0.0], [5.0, 0.1], [-3.0, 0.1]])
    weights = geometric_median(points @ points.T, np.full(3, 1 / 3))
    assert weights.tolist() == [1.0, 0.0, 0.0]


def test_half_of_the_voters_at_one_point_are_the_median() -> None:
    points = np.array([[2.0, 1.0]] * 3 + [[1e12, 0.0], [0.0, -7.0]])
    assert median_of(points).tolist() == [2.0, 1.0]


def test_examples_count(shelf: Shelf) -> None:
    rows = np.array([[0.0], [1.0], [5.0]])
    made = model_of(shelf, rows, weights=[1, 1, 3], method="geometric_median")
    assert made.tolist() == [5.0]


@pytest.mark.parametrize("size", [1e6, 1e12, 1e50])
def test_how_far_a_liar_is_does_not_matter(size: float) -> None:
    """It pulls with its share, not with its distance."""
    points = np.random.default_rng(1).normal(size=(6, 4))
    near, far = points.copy(), points.copy()
    near[5], far[5] = 1e5 * points[5], size * points[5]
    np.testing.assert_allclose(median_of(far), median_of(near), atol=2e-5)
