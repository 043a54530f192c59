from __future__ import annotations

import numpy as np
import pytest

from clma.aggregation.outliers import MIN_VOTERS, find_outliers
from clma.config import AggregationConfig


def outliers(*cosines: float, **settings: float) -> list[int]:
    config = AggregationConfig.model_validate({"outlier_check": True, **settings})
    return np.flatnonzero(find_outliers(np.array(cosines), config)).tolist()


def test_the_one_that_points_back_is_found() -> None:
    assert outliers(0.7, 0.8, -0.9, 0.6, 0.7) == [2]


def test_two_of_eight_that_point_back_are_found() -> None:
    assert outliers(0.7, 0.8, -0.9, 0.6, 0.7, 0.75, -0.4, 0.65) == [2, 6]


def test_one_that_only_points_aside_is_none() -> None:
    """However far from the others: it may be the first to see what they will see tomorrow."""
    assert outliers(0.99, 0.98, -0.19, 0.99, 0.98) == []


def test_one_of_many_directions_is_none() -> None:
    assert outliers(0.6, 0.1, -0.3, 0.5, -0.1, 0.3) == []


@pytest.mark.parametrize("n", range(1, MIN_VOTERS))
def test_of_fewer_than_four_nobody_is_one(n: int) -> None:
    assert outliers(*[1.0] * (n - 1), -1.0) == []


def test_where_most_point_the_same_way_the_sign_decides() -> None:
    """The deviation is 0, of which every other cosine is many times away."""
    assert outliers(1.0, 1.0, 1.0, 1.0, 0.0, -0.1, -0.3) == [6]


def test_where_all_point_back_nobody_stands_apart() -> None:
    assert outliers(-0.9, -0.9, -0.9, -0.9) == []


def test_no_half_is_held_out_by_the_other() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(4, 9))
        cosines = np.round(rng.choice([-1.0, -0.5, 0.9, 1.0], n) + rng.normal(0, 0.01, n), 2)
        assert len(outliers(*cosines)) < n / 2


def test_both_thresholds_are_followed() -> None:
    cosines = (0.7, 0.8, -0.5, 0.6, 0.7)
    assert outliers(*cosines, outlier_cosine=-0.6) == []
    assert outliers(*cosines, outlier_z=-20.0) == []
    assert outliers(0.7, 0.8, -0.1, 0.6, 0.7, outlier_cosine=0.0) == [2]
