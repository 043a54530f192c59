from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from clma.cohorting.signed_ks import signed_ks, signed_ks_of_rows
from clma.errors import EmptyCohortError, InvalidUpdateError

integers = st.lists(st.integers(-3, 3), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("client", "reference", "statistic"),
    [
        ([1, 2, 3], [2, 3, 4], 1 / 3),
        ([2, 3, 4], [1, 2, 3], -1 / 3),
        ([1, 1, 1, 9], [1, 2, 3, 4], 0.5),
        ([3, 1, 2], [1, 2, 3], 0.0),
        ([-2, -1, 1, 2], [-1, -0.5, 0.5, 1], 0.25),
        ([0, 0, 5, 5], [2, 2, 3, 3], 0.5),
        ([1, 2], [1, 2], 0.0),
    ],
)
def test_hand_computed_values(client, reference, statistic) -> None:
    assert signed_ks(client, reference) == pytest.approx(statistic)


@given(integers, integers)
def test_size_and_sign_are_scipys(client, reference) -> None:
    ours = signed_ks(client, reference)
    theirs = ks_2samp(client, reference)

    assert abs(ours) == pytest.approx(theirs.statistic, abs=1e-12)
    back = signed_ks(reference, client)
    if ours != 0 and ours != back:  # D+ == D- is decided by our rule, not by theirs
        assert np.sign(ours) == theirs.statistic_sign


@given(integers, integers, st.integers(1, 5))
def test_scale_of_the_values_changes_nothing(client, reference, factor) -> None:
    scaled = signed_ks([factor * x for x in client], [factor * x for x in reference])
    assert scaled == signed_ks(client, reference)


def test_exact_tie_is_positive() -> None:
    """As floats, 1 - 0.7 is more than 0.3; as tenths they are equal."""
    assert signed_ks([0] * 3 + [1] * 4 + [2] * 3, [1] * 10) == 0.3


def test_inputs_are_not_modified() -> None:
    values = np.array([3.0, 1.0, 2.0])
    signed_ks(values, values)
    assert values.tolist() == [3.0, 1.0, 2.0]


def test_rows_equal_single_calls() -> None:
    rows = [np.array([3.0, 1.0]), np.array([0.0, 9.0])]
    reference = np.array([2.0, 1.0, 5.0])
    assert signed_ks_of_rows(rows, reference) == tuple(signed_ks(r, reference) for r in rows)


def test_nan_and_nothing_are_refused() -> None:
    with pytest.raises(InvalidUpdateError, match="NaN"):
        signed_ks([np.nan], [1.0])
    with pytest.raises(EmptyCohortError, match="of 0 and 1 values"):
        signed_ks([], [1.0])
