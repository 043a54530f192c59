"""Intervals and chance, against values that can be looked up."""

from __future__ import annotations

import pytest

from clma.calibration.rates import Rate, sign_test


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634)],
)
def test_interval_is_wilsons(count: int, total: int, low: float, high: float) -> None:
    rate = Rate(count, total)
    assert (rate.low, rate.high) == pytest.approx((low, high), abs=1e-4)


def test_interval_of_nothing_is_everything() -> None:
    assert (Rate(0, 0).low, Rate(0, 0).high) == (0.0, 1.0)


def test_more_cases_narrow_the_interval() -> None:
    few, many = Rate(1, 10), Rate(10, 100)
    assert few.low < many.low < 0.1 < many.high < few.high


@pytest.mark.parametrize(
    ("better", "worse", "chance"), [(0, 0, 1.0), (1, 0, 0.5), (5, 0, 1 / 32), (2, 1, 0.5)]
)
def test_chance_is_that_of_a_coin(better: int, worse: int, chance: float) -> None:
    assert sign_test(better, worse) == pytest.approx(chance)
