"""The compiled way, and the same loops as plain Python: whatever the compiler does, one result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clma.cohorting.signed_ks import signed_ks
from clma.cohorting.signed_ks_buckets import (
    Buckets,
    Kernels,
    compile_kernels,
    do_values_repeat,
)
from clma.compiled import is_numba_installed

NUMBA = pytest.mark.skipif(not is_numba_installed(), reason="numba is not installed")
floats = st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=30)
few = st.lists(st.sampled_from([-np.inf, -2, -1e-40, -0.0, 0, 1, 1.0000001, 2]), min_size=1)


@pytest.fixture(params=["python", pytest.param("compiled", marks=NUMBA)])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return Kernels() if request.param == "python" else compile_kernels()


def array(values) -> np.ndarray:
    return np.array(values, np.float32)


def statistic(client: np.ndarray, reference: np.ndarray, kernels: Kernels) -> float | None:
    return Buckets.of(np.sort(reference), kernels).statistic(client)


@pytest.mark.parametrize("values", [floats, few])
def test_equals_the_sorted_way_on_any_values(values, kernels: Kernels) -> None:
    @given(values, values)
    @settings(deadline=None)
    def check(client, reference) -> None:
        client, reference = array(client), array(reference)
        expected = signed_ks(client, reference, engine="numpy")
        assert statistic(client, reference, kernels) == expected

    check()


@pytest.mark.parametrize("n", [2000, 1999, 1500, 1])
@pytest.mark.parametrize("scale", [0.0, 1e-7, 1e-3, 0.1, 3.0])
@pytest.mark.parametrize("step", [0.0, 0.02])
def test_equals_the_sorted_way_on_weights(n, scale, step, kernels: Kernels) -> None:
    rng = np.random.default_rng(n)
    reference = rng.normal(0, 0.05, 2000)
    client = rng.permutation(reference)[:n] + rng.normal(0, scale, n)
    if step:
        reference, client = np.round(reference / step) * step, np.round(client / step) * step
    expected = signed_ks(array(client), array(reference), engine="numpy")
    assert statistic(array(client), array(reference), kernels) == expected


def test_sides_that_are_level_are_positive(kernels: Kernels) -> None:
    reference = array(np.linspace(-1, 1, 500))
    for client in (reference * 2, np.append(reference[:250] - 0.3, reference[250:] + 0.3)):
        assert statistic(array(client), reference, kernels) == signed_ks(client, reference) > 0


@pytest.mark.parametrize("bad", [0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF])
def test_every_kind_of_nan_is_seen(bad: int, kernels: Kernels) -> None:
    nan = np.array([bad], np.uint32).view(np.float32)
    assert statistic(np.append(array([1, 2]), nan), array([1, 2]), kernels) is None


def test_infinities_are_values(kernels: Kernels) -> None:
    client = array([-np.inf, 1, np.inf])
    assert statistic(client, array([1, 1, 1]), kernels) == pytest.approx(1 / 3)


def test_bucket_around_zero_has_values_of_both_signs(kernels: Kernels) -> None:
    """Half of the reference's numbers lie below the client's 128, half between them and zero."""
    others = np.linspace(1, 2, 400)
    client = array([*np.linspace(-3e-40, -2e-40, 128), *others, *[6] * 60])
    reference = array([*[-4e-40] * 64, *[-1e-40] * 64, *others, *[5] * 60])
    assert statistic(client, reference, kernels) == 64 / 588


@NUMBA
def test_read_only_rows_are_read(kernels: Kernels) -> None:
    client = array([1, 2, 3])
    client.flags.writeable = False
    assert statistic(client, array([2, 3, 4]), kernels) == pytest.approx(1 / 3)


def test_weights_spread_over_buckets_and_a_few_values_do_not() -> None:
    rng = np.random.default_rng(0)
    normal = np.sort(array(rng.normal(size=20_000)))
    assert not Buckets.of(normal, compile_or_plain()).is_crowded
    assert Buckets.of(array(np.ones(20_000)), compile_or_plain()).is_crowded
    assert Buckets.of(normal * np.float32(1e-40), compile_or_plain()).is_crowded


def compile_or_plain() -> Kernels:
    return compile_kernels() if is_numba_installed() else Kernels()


def test_few_values_look_repetitive_and_weights_do_not() -> None:
    rng = np.random.default_rng(0)
    assert do_values_repeat(array(rng.integers(0, 3, 10_000)))
    assert not do_values_repeat(array(rng.normal(size=10_000)))
