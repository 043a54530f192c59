from __future__ import annotations

import numpy as np
import pytest

from tests.clma.aggregation.voters import POINTS, model_of
from tests.clma.shelf import Shelf


def test_the_middle_of_five_points(shelf: Shelf) -> None:
    assert model_of(shelf, POINTS, method="median").tolist() == [1.0, 1.0]


def test_an_even_number_has_two_in_the_middle(shelf: Shelf) -> None:
    rows = np.array([[1.0], [-9.0], [2.0], [50.0]])
    assert model_of(shelf, rows, method="median").tolist() == [1.5]


def test_examples_do_not_count(shelf: Shelf) -> None:
    made = model_of(shelf, POINTS, weights=[1, 1, 1, 1, 10**9], method="median")
    assert made.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("n", [64, 300])
def test_many_voters_have_the_median_of_numpy(shelf: Shelf, n: int) -> None:
    rows = np.random.default_rng(0).normal(size=(n, 700))
    made = model_of(shelf, rows, method="median")
    assert made.tolist() == np.median(rows, axis=0).tolist()


def test_zeros_of_either_sign_are_one_zero(shelf: Shelf) -> None:
    for order in ([0.0, -0.0, -0.0], [-0.0, 0.0, 0.0], [-0.0, -0.0, 0.0]):
        made = model_of(shelf, np.array(order)[:, None], method="median")
        assert not np.signbit(made).any()
