from __future__ import annotations

import numpy as np
import pytest

from clma.cohorting.signed_ks_sorted import OneSide, Weights


@pytest.mark.parametrize("sizes", [(3000, 2000), (2000, 2000), (1, 7)])
@pytest.mark.parametrize("factor", [2**40, 2**62, 2**80])
def test_products_beyond_64_bits_are_exact(sizes: tuple[int, int], factor: int) -> None:
    """As two samples of 10**10 values would have them, without their memory."""
    rng = np.random.default_rng(0)
    a, b = (np.sort(rng.normal(size=size).round(2)) for size in sizes)
    weights = Weights.of_sizes(*sizes)
    small = OneSide.of(a, b, weights.value, weights.reference).largest_excess(0)
    large = OneSide.of(a, b, factor * weights.value, factor * weights.reference)
    assert large.largest_excess(0) == factor * small


def test_both_distribution_functions_end_at_one_height() -> None:
    weights = Weights.of_sizes(10**10, 3 * 10**9)
    assert (weights.value, weights.reference) == (3, 10)


def test_what_is_known_already_is_the_least_that_is_returned() -> None:
    side = OneSide.of(np.array([1.0, 2.0]), np.array([2.0, 3.0]), 1, 1)
    assert (side.largest_excess(0), side.largest_excess(2)) == (1, 2)
