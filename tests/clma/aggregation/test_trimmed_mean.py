from __future__ import annotations

import numpy as np
import pytest

from clma.aggregation.trimmed_mean import n_trimmed
from tests.clma.aggregation.voters import POINTS, model_of
from tests.clma.shelf import Shelf


def test_one_of_five_is_dropped_at_each_end(shelf: Shelf) -> None:
    made = model_of(shelf, POINTS, method="trimmed_mean")
    np.testing.assert_allclose(made, [1.033333, 0.966667], atol=5e-7)


@pytest.mark.parametrize(
    ("n", "fraction", "dropped"), [(4, 0.2, 0), (5, 0.2, 1), (100, 0.29, 29), (3, 0.49, 1)]
)
def test_the_share_is_rounded_down(n: int, fraction: float, dropped: int) -> None:
    assert n_trimmed(n, fraction) == dropped


def test_nothing_trimmed_is_the_mean_of_equal_weights(shelf: Shelf) -> None:
    trimmed = model_of(shelf, POINTS, method="trimmed_mean", trim_fraction=0)
    np.testing.assert_allclose(trimmed, POINTS.mean(axis=0), rtol=1e-14)


def test_most_trimmed_is_the_median(shelf: Shelf) -> None:
    trimmed = model_of(shelf, POINTS, method="trimmed_mean", trim_fraction=0.49)
    assert trimmed.tolist() == model_of(shelf, POINTS, method="median").tolist()


def test_examples_do_not_count(shelf: Shelf) -> None:
    many = model_of(shelf, POINTS, weights=[1, 1, 10**9, 1, 1], method="trimmed_mean")
    assert many.tolist() == model_of(shelf, POINTS, method="trimmed_mean").tolist()
