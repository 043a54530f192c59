from __future__ import annotations

import numpy as np

from clma.simulation.scaling import scale

REFERENCE = np.arange(50)


def _values() -> np.ndarray:
    return np.random.default_rng(0).normal(5.0, 3.0, size=(80, 4))


def test_reference_becomes_centred_with_unit_spread() -> None:
    scaled = np.sinh(scale(_values(), REFERENCE)[REFERENCE].astype(np.float64))

    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=0), 1.0, atol=1e-5)


def test_rows_outside_the_reference_do_not_move_the_scale() -> None:
    values, moved = _values(), _values()
    moved[50:] += 1000.0

    np.testing.assert_array_equal(scale(values, REFERENCE)[:50], scale(moved, REFERENCE)[:50])


def test_hundred_deviations_stay_small() -> None:
    values = _values()
    values[60] = values[:50].mean(axis=0) + 100 * values[:50].std(axis=0)

    assert np.abs(scale(values, REFERENCE)[60]).max() < 6.0


def test_variable_that_stands_still_is_zero() -> None:
    assert not scale(np.full((80, 1), 7.0), REFERENCE).any()
