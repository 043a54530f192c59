from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clma.errors import InvalidConfigError
from clma.simulation.dealing import class_shares, deal_evenly, deal_skewed, hold_out

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(5), 40))
ALL = np.arange(len(LABELS))


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _counts(rows: np.ndarray) -> np.ndarray:
    return np.bincount(LABELS[rows], minlength=5)


def test_no_row_is_trained_on_and_held_out() -> None:
    rest, held_out = hold_out(LABELS, 0.3, _rng())

    np.testing.assert_array_equal(np.sort(np.concatenate([rest, held_out])), ALL)


def test_each_class_is_held_out_alike() -> None:
    _, held_out = hold_out(LABELS, 0.3, _rng())

    assert _counts(held_out).tolist() == [12] * 5


@given(st.integers(1, 30), st.integers(0, 100))
def test_even_shards_are_disjoint_and_differ_by_one(n_clients: int, seed: int) -> None:
    shards = deal_evenly(LABELS, ALL, n_clients, _rng(seed))

    np.testing.assert_array_equal(np.sort(np.concatenate(shards)), ALL)
    counts = np.array([_counts(shard) for shard in shards])
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(counts.sum(axis=1)) <= 1


@given(st.integers(1, 10), st.floats(0.01, 10.0), st.integers(0, 100))
def test_skewed_shards_are_disjoint_and_of_one_size(
    n_clients: int, alpha: float, seed: int
) -> None:
    n_each = len(ALL) // n_clients
    shares = class_shares(n_clients, 5, alpha, _rng(seed))

    shards = deal_skewed(LABELS, ALL, shares, n_each, _rng(seed))

    dealt = np.concatenate(shards)
    assert len(np.unique(dealt)) == len(dealt) == n_each * n_clients
    assert {len(shard) for shard in shards} == {n_each}


def test_skewed_shards_follow_their_shares_while_classes_last() -> None:
    labels = np.tile(np.arange(2), 5000)
    shares = np.array([[0.9, 0.1], [0.2, 0.8]])

    shards = deal_skewed(labels, np.arange(len(labels)), shares, 1000, _rng())

    for own, shard in zip(shares, shards, strict=True):
        np.testing.assert_allclose(np.bincount(labels[shard]) / 1000, own, atol=0.05)


def test_classes_that_run_out_are_made_up_for_by_others() -> None:
    (shard,) = deal_skewed(LABELS, ALL, np.array([[1.0, 0, 0, 0, 0]]), 60, _rng())

    assert _counts(shard)[0] == 40
    assert len(shard) == 60


def test_class_shares_add_up_to_one_and_small_alpha_means_few_classes() -> None:
    skewed, mild = (class_shares(200, 5, alpha, _rng()) for alpha in (0.1, 10.0))

    np.testing.assert_allclose(skewed.sum(axis=1), 1.0)
    assert skewed.max(axis=1).mean() > 0.8 > 0.4 > mild.max(axis=1).mean()


def test_class_shares_of_half_have_the_variance_of_dirichlet() -> None:
    shares = class_shares(20_000, 5, 0.5, _rng())

    np.testing.assert_allclose(shares.mean(axis=0), 0.2, atol=0.01)
    np.testing.assert_allclose(shares.var(axis=0), 0.2 * 0.8 / (5 * 0.5 + 1), rtol=0.05)


def test_more_rows_than_there_are_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="101 examples for each of 2 clients, there are"):
        deal_skewed(LABELS, ALL, np.full((2, 5), 0.2), 101, _rng())
