from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from clma.cohorting import signed_ks as module
from clma.cohorting.signed_ks import prepare_reference, signed_ks, signed_ks_of_rows
from clma.compiled import is_numba_installed
from clma.errors import EmptyCohortError, InvalidUpdateError, MissingExtraError

integers = st.lists(st.integers(-3, 3), min_size=1, max_size=12)
floats = st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=30)
needs_numba = pytest.mark.skipif(not is_numba_installed(), reason="numba is not installed")


def slow_signed_ks(values, reference) -> float:
    """Count at every value, in Python's integers."""
    ours, theirs = Counter(map(float, values)), Counter(map(float, reference))
    n, m = len(values), len(reference)
    up = down = height = 0
    for point in sorted({*ours, *theirs}):
        height += ours[point] * m - theirs[point] * n
        up, down = max(up, height), max(down, -height)
    return up / (n * m) if up >= down else -down / (n * m)


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
    theirs = ks_2samp(client, reference, method="asymp")

    assert abs(ours) == pytest.approx(theirs.statistic, abs=1e-12)
    back = signed_ks(reference, client)
    if ours != 0 and ours != back:  # D+ == D- is decided by our rule, not by theirs
        assert np.sign(ours) == theirs.statistic_sign


@given(integers, integers)
def test_equals_counting_at_every_value(client, reference) -> None:
    assert signed_ks(client, reference) == slow_signed_ks(client, reference)


@given(floats, floats)
def test_any_float32_has_its_place(client, reference) -> None:
    """Both zeros, subnormal numbers and infinities among them."""
    client, reference = np.array(client, np.float32), np.array(reference, np.float32)
    assert signed_ks(client, reference) == slow_signed_ks(client, reference)


@pytest.mark.parametrize("sizes", [(5000, 5000), (5000, 4999), (1, 5000), (5000, 1), (6000, 4000)])
@pytest.mark.parametrize("step", [0.0, 0.01, 0.5])
def test_samples_larger_than_one_comparison(sizes, step) -> None:
    """Rounded to `step`, most values are tied."""
    rng = np.random.default_rng(sizes)
    client, reference = (rng.normal(size=size).astype(np.float32) for size in sizes)
    if step:
        client, reference = np.round(client / step) * step, np.round(reference / step) * step
    assert signed_ks(client, reference) == slow_signed_ks(client, reference)


@given(integers, integers, st.integers(1, 5))
def test_scale_of_the_values_changes_nothing(client, reference, factor) -> None:
    scaled = signed_ks([factor * x for x in client], [factor * x for x in reference])
    assert scaled == signed_ks(client, reference)


def test_exact_tie_is_positive() -> None:
    """As floats, 1 - 0.7 is more than 0.3; as tenths they are equal."""
    assert signed_ks([0] * 3 + [1] * 4 + [2] * 3, [1] * 10) == 0.3


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, ">f4", ">f8"])
def test_type_of_the_numbers_changes_nothing(dtype) -> None:
    client, reference = np.array([3, 1, 2, 2], dtype), np.array([2, 5, 4], np.float32)
    assert signed_ks(client, reference) == slow_signed_ks(client, reference)


def test_float32_is_compared_with_float64_exactly() -> None:
    """The float32 nearest to 0.1 is larger than the float64."""
    assert signed_ks(np.array([0.1], np.float32), np.array([0.1])) == -1.0


@pytest.mark.parametrize("dtype", [np.complex64, np.longdouble, object, "U3"])
def test_what_no_float64_holds_is_refused(dtype) -> None:
    with pytest.raises(InvalidUpdateError, match=r"row 0 is .*, wanted float16, float32, float64"):
        signed_ks(np.array([1, 2]).astype(dtype), [1.0])


def test_integers_that_a_float64_would_round_are_refused() -> None:
    assert signed_ks([2**53 - 1], [2**53 - 2]) == -1.0
    with pytest.raises(InvalidUpdateError, match=r"reference is int64, wanted .* below 2"):
        signed_ks([1], [-(2**53) - 1])


def test_inputs_are_not_modified() -> None:
    values = np.array([3.0, 1.0, 2.0])
    signed_ks(values, values)
    assert values.tolist() == [3.0, 1.0, 2.0]


def test_rows_equal_single_calls() -> None:
    rows = [np.array([3.0, 1.0]), np.array([0.0, 9.0])]
    reference = np.array([2.0, 1.0, 5.0])
    expected = tuple(signed_ks(row, reference) for row in rows)
    assert signed_ks_of_rows(rows, reference) == expected
    assert signed_ks_of_rows(iter(rows), prepare_reference(reference)) == expected


@pytest.mark.parametrize("engine", ["auto", "numpy"])
def test_a_row_is_let_go_before_the_next_one_is_read(engine) -> None:
    read: list[weakref.ref[np.ndarray]] = []

    def rows() -> Iterator[np.ndarray]:
        for _ in range(3):
            assert all(row() is None for row in read)
            row = np.ones(2)
            read.append(weakref.ref(row))
            yield row
            del row

    assert signed_ks_of_rows(rows(), [1.0, 2.0], engine=engine) == (0.5,) * 3


@pytest.mark.parametrize("bad", [np.nan, -np.nan])
@pytest.mark.parametrize("others", [[], [np.inf], [1.0] * 200_000])
def test_nan_is_refused(bad, others) -> None:
    values = np.array([*others, bad], np.float32)
    with pytest.raises(InvalidUpdateError, match="row 1 has NaN"):
        signed_ks_of_rows([[1.0], values], [1.0])
    with pytest.raises(InvalidUpdateError, match="reference has NaN"):
        signed_ks([1.0], values)


def test_nothing_is_refused() -> None:
    with pytest.raises(EmptyCohortError, match="row 0 has 0 values"):
        signed_ks([], [1.0])
    with pytest.raises(EmptyCohortError, match="reference has 0 values"):
        signed_ks([1.0], [])


def normal_rows(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    reference = rng.normal(0, 0.05, 60_000)
    scales = (1e-7, 1e-4, 1e-2)
    rows = [reference + rng.normal(scale / 3, scale, reference.size) for scale in scales]
    rows += [rng.normal(0.001, 0.05, 50_000), np.zeros(100), rng.permutation(reference)]
    return [row.astype(np.float32) for row in (reference, *rows)]


@needs_numba
@pytest.mark.parametrize("seed", range(3))
def test_engines_give_the_same(seed: int) -> None:
    reference, *rows = normal_rows(seed)
    sorted_ = signed_ks_of_rows(rows, reference, engine="numpy")
    assert signed_ks_of_rows(rows, reference, engine="numba") == sorted_
    prepared = prepare_reference(reference, engine="numba")
    assert prepared.buckets is not None
    assert signed_ks_of_rows(rows, prepared) == sorted_


def test_numba_is_not_loaded_for_a_small_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_with_buckets", lambda reference: pytest.fail("compiled"))
    monkeypatch.setattr(module, "_is_compiled", lambda: False)
    reference, *rows = normal_rows(0)
    assert len(signed_ks_of_rows(rows, reference)) == len(rows)


@pytest.mark.parametrize("worth", [0, 200_000])
def test_numba_is_loaded_once_it_is_worth_it(worth, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known beforehand from a list; while an iterator runs, from what it has brought so far."""
    loaded = []
    monkeypatch.setattr(module, "WORTH_COMPILING", worth)
    monkeypatch.setattr(module, "WORTH_BUCKETS", 50_000)
    monkeypatch.setattr(module, "is_numba_installed", lambda: True)
    monkeypatch.setattr(module, "_is_compiled", lambda: False)
    monkeypatch.setattr(module, "_with_buckets", lambda reference: loaded.append(1) or reference)
    reference, *rows = normal_rows(0)
    signed_ks_of_rows(iter(rows), reference)
    assert loaded == [1]


def test_numba_that_does_not_load_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingExtraError("numba needs another NumPy")

    monkeypatch.setattr(module, "WORTH_COMPILING", 0)
    monkeypatch.setattr(module, "is_numba_installed", lambda: True)
    monkeypatch.setattr(module, "_is_compiled", lambda: False)
    monkeypatch.setattr(module, "compile_kernels", missing)
    reference, *rows = normal_rows(0)
    expected = signed_ks_of_rows(rows, reference, engine="numpy")
    assert signed_ks_of_rows(rows, reference) == expected
    with pytest.raises(MissingExtraError, match="another NumPy"):
        signed_ks_of_rows(rows, reference, engine="numba")
