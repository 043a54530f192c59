from __future__ import annotations

import numpy as np
import pytest

from tests.clma.aggregation.voters import model_of
from tests.clma.shelf import Shelf

ROWS = np.array([[1.0, 2.0], [30.0, -50.0], [2.0, 2.5], [0.0, 3.0], [1.5, 1e6], [1.1, 2.0]])


@pytest.mark.parametrize(
    ("n", "method"),
    [
        (1, "weighted_mean"),
        (2, "clipped_mean"),
        (3, "median"),
        (4, "median"),
        (5, "trimmed_mean"),
        (6, "trimmed_mean"),
    ],
)
def test_the_number_of_voters_decides(shelf: Shelf, n: int, method: str) -> None:
    robust = model_of(shelf, ROWS[:n], method="robust")
    assert robust.tolist() == model_of(shelf, ROWS[:n], method=method).tolist()


def test_voters_without_examples_are_not_counted(shelf: Shelf) -> None:
    robust = model_of(shelf, ROWS[:5], weights=[1, 1, 0, 0, 0], method="robust")
    assert robust.tolist() == model_of(shelf, ROWS[:2], method="clipped_mean").tolist()
