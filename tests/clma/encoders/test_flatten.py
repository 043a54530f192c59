from __future__ import annotations

import numpy as np
import pytest

from clma.encoders.contract import encode
from clma.encoders.flatten import Flatten
from clma.errors import InvalidConfigError, InvalidUpdateError, ShapeMismatchError


def test_embedding_is_the_sample() -> None:
    samples = np.arange(12.0).reshape(2, 2, 3)
    assert encode(Flatten((2, 3)), samples).tolist() == samples.reshape(2, 6).tolist()


def test_embedding_is_a_copy() -> None:
    samples = np.zeros((2, 3), np.float32)
    Flatten((3,))(samples)[:] = 7
    assert not samples.any()


def test_single_numbers_are_samples_too() -> None:
    assert encode(Flatten(()), np.array([1.0, 2.0])).tolist() == [[1], [2]]


def test_other_shape_is_refused() -> None:
    with pytest.raises(ShapeMismatchError, match=r"shape \(2, 3, 2\), wanted \(n, 2, 3\)"):
        Flatten((2, 3))(np.zeros((2, 3, 2)))


def test_sample_that_is_not_finite_is_refused() -> None:
    with pytest.raises(InvalidUpdateError, match="sample 1"):
        Flatten((1,))(np.array([[0.0], [np.nan]]))


def test_shape_is_the_fingerprint() -> None:
    assert Flatten((2, 3)).fingerprint == Flatten((2, 3)).fingerprint
    assert len({Flatten(s).fingerprint for s in [(2, 3), (3, 2), (6,), (1, 6)]}) == 4


def test_empty_shape_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"\(2, 0\)"):
        Flatten((2, 0))
