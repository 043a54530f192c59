from __future__ import annotations

import numpy as np
import pytest

from clma.cohorting.projection import project
from clma.errors import EmptyCohortError

CENTRED = np.array([[3.0, 0, 0], [-3, 0, 0], [0, 1, 0], [0, -1, 0]])
SHIFTED = np.array([[10.0, 1], [10, -1], [10, 2], [10, -2]])


@pytest.mark.parametrize(("variance_kept", "n_components"), [(0.95, 2), (0.90, 1)])
def test_fewest_components_that_reach_the_share(variance_kept: float, n_components: int) -> None:
    scores = project(CENTRED @ CENTRED.T, variance_kept=variance_kept, center=True)
    np.testing.assert_allclose(np.abs(scores), np.abs(CENTRED[:, :n_components]), atol=1e-9)


def test_uncentred_projection_loses_the_difference() -> None:
    scores = project(SHIFTED @ SHIFTED.T, center=False)
    np.testing.assert_allclose(scores, np.full((4, 1), 10.0), atol=1e-9)


def test_centred_projection_keeps_the_difference() -> None:
    scores = project(SHIFTED @ SHIFTED.T, center=True)
    np.testing.assert_allclose(np.abs(scores).ravel(), [1, 1, 2, 2], atol=1e-9)


@pytest.mark.parametrize("value", [0.0, 5.0, 1e-30])
def test_equal_rows_give_zeros_and_never_nan(value: float) -> None:
    assert project(np.full((3, 3), value), center=True).tolist() == [[0.0]] * 3


@pytest.mark.parametrize("n", [2, 3, 8])
def test_rounding_does_not_make_equal_rows_differ(n: int) -> None:
    row = np.random.default_rng(2).normal(size=1000).astype(np.float32)
    gram = np.full((n, n), float(row @ row))
    noise = np.random.default_rng(n).normal(scale=1e-16, size=(n, n))
    assert project(gram * (1 + noise + noise.T)).tolist() == [[0.0]] * n


def test_distances_survive_when_everything_is_kept() -> None:
    rows = np.random.default_rng(1).normal(size=(5, 200))
    scores = project(rows @ rows.T, variance_kept=1.0, center=True)

    def gaps(a: np.ndarray) -> np.ndarray:
        return np.linalg.norm(a[:, None] - a[None], axis=-1)

    np.testing.assert_allclose(gaps(scores), gaps(rows), rtol=1e-6, atol=1e-6)


def test_no_row_is_refused() -> None:
    with pytest.raises(EmptyCohortError):
        project(np.zeros((0, 0)))
