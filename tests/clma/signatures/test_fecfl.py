from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from clma.errors import ShapeMismatchError
from clma.signatures.fecfl import cosine_distances, sign_by_mean_feature

RNG = np.random.default_rng(0)


def double(samples: NDArray[np.floating]) -> NDArray[np.floating]:
    return 2 * samples.reshape(len(samples), -1)


@pytest.mark.parametrize("n", [1, 255, 256, 257, 600])
def test_every_sample_counts_whatever_the_batches(n: int) -> None:
    samples = RNG.normal(size=(n, 2, 3))

    mean = sign_by_mean_feature(samples, double).arrays["mean"]

    assert mean == pytest.approx(2 * samples.reshape(n, 6).mean(axis=0))


def test_no_sample_is_refused() -> None:
    with pytest.raises(ShapeMismatchError, match="0 samples"):
        sign_by_mean_feature(np.zeros((0, 3)), double)


def test_extractor_that_does_not_give_a_row_a_sample_is_refused() -> None:
    with pytest.raises(ShapeMismatchError, match=r"shape \(3,\), wanted \(3, n_features\)"):
        sign_by_mean_feature(np.ones((3, 2)), lambda x: x[:, 0])


def test_distance_is_one_minus_the_cosine() -> None:
    distances = cosine_distances([np.array([1.0, 0])], [np.array([3.0, 4]), np.array([-2.0, 0])])
    assert distances == pytest.approx(np.array([[0.4, 2.0]]))


def test_vector_of_zeros_is_at_distance_one() -> None:
    assert cosine_distances([np.zeros(2)], [np.zeros(2), np.ones(2)]).tolist() == [[1, 1]]


def test_same_direction_is_at_distance_zero() -> None:
    features = list(RNG.normal(size=(50, 300)))
    assert not np.diag(cosine_distances(features, [7.3 * f for f in features])).any()


def test_nobody_has_no_distance() -> None:
    assert cosine_distances([], [np.ones(2)]).shape == (0, 1)
