from __future__ import annotations

import numpy as np
import pytest

from clma.errors import InvalidUpdateError, ShapeMismatchError
from clma.signatures.signature import Signature, arrays_of


def signature(kind: str = "fecfl", n: int = 3, encoder: str = "cnn") -> Signature:
    return Signature(kind, {"mean": np.ones(n)}, encoder)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_value_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(InvalidUpdateError, match="'mean' has values that are NaN or infinite"):
        Signature("fecfl", {"mean": np.array([1.0, bad])})


def test_size_is_that_of_the_arrays() -> None:
    assert Signature("x", {"a": np.zeros(3), "b": np.zeros(2, np.float32)}).size_bytes == 32


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        (signature("pacfl"), InvalidUpdateError, "'p2': signature is of kind 'pacfl'"),
        (signature(encoder="vit"), InvalidUpdateError, "'p2': .* encoder 'vit', others with 'cnn'"),
        (signature(n=4), ShapeMismatchError, "'p2': signature has 4 features, others 3"),
    ],
)
def test_signature_that_does_not_compare_is_named(
    other: Signature, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        arrays_of([("p1", signature()), ("p2", other)], "fecfl", "mean")


def test_signatures_without_the_array_are_refused() -> None:
    with pytest.raises(InvalidUpdateError, match="'p1': signature lacks 'mean'"):
        arrays_of([("p1", Signature("fecfl", {}))], "fecfl", "mean")


def test_nobody_has_no_arrays() -> None:
    assert arrays_of([], "fecfl", "mean") == ()
