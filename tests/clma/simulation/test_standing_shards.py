from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clma.errors import InvalidConfigError
from clma.simulation.standing_shards import (
    class_sets,
    deal_apart,
    deal_by_class,
    deal_known,
    draw_like,
)

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))
TRAIN, HELD_OUT = np.arange(400), np.arange(400, 600)


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("shape", ["dirichlet", "class-groups"])
def test_shards_are_disjoint_and_tests_are_of_what_is_held_out(shape: str) -> None:
    shards, tests = deal_apart(shape, LABELS, TRAIN, HELD_OUT, 10, _rng(), skew=0.5)

    np.testing.assert_array_equal(np.sort(np.concatenate(shards)), TRAIN)
    assert np.isin(np.concatenate(tests), HELD_OUT).all()
    assert all(len(np.unique(rows)) == len(rows) > 0 for rows in tests)


def test_clients_of_one_group_know_the_same_classes_and_others_none_of_them() -> None:
    shards, tests = deal_apart("class-groups", LABELS, TRAIN, HELD_OUT, 10, _rng())

    known = [frozenset(LABELS[rows].tolist()) for rows in shards]
    assert len(set(known[:4])) == len(set(known[4:7])) == len(set(known[7:])) == 1
    assert sum(len(classes) for classes in set(known)) == 10
    assert known == [frozenset(LABELS[rows].tolist()) for rows in tests]


@given(st.sampled_from([0.1, 0.5, 5.0]), st.integers(0, 50))
@settings(max_examples=25, deadline=None)
def test_every_client_has_a_fifth_of_an_even_share_at_least(alpha: float, seed: int) -> None:
    shards = deal_by_class(LABELS, TRAIN, 10, alpha, _rng(seed))

    assert min(len(shard) for shard in shards) >= 8
    assert sum(len(shard) for shard in shards) == len(np.unique(np.concatenate(shards))) == 400


def test_smaller_alpha_means_fewer_classes_a_client() -> None:
    def effective(alpha: float) -> float:
        shards = deal_by_class(LABELS, TRAIN, 10, alpha, _rng())
        shares = [np.bincount(LABELS[own], minlength=10) / len(own) for own in shards]
        return float(np.mean([1 / np.sum(own**2) for own in shares]))

    assert effective(0.1) < 3 < 4 < effective(0.5) < effective(100.0) > 9


def test_draw_that_cannot_leave_everyone_enough_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"no draw with alpha 0.001 leaves each of 10"):
        deal_by_class(np.zeros(100, np.int64), np.arange(100), 10, 0.001, _rng())


def test_dirichlet_without_a_parameter_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="no parameter"):
        deal_apart("dirichlet", LABELS, TRAIN, HELD_OUT, 10, _rng())


def test_three_classes_make_three_pairs() -> None:
    assert {*class_sets(3, _rng())} == {(0, 1), (0, 2), (1, 2)}


def test_shared_class_is_known_to_all_and_the_others_to_one_group() -> None:
    sets = class_sets(5, _rng(), shared=(0,))

    assert all(known[0] == 0 for known in sets)
    assert sorted(c for known in sets for c in known[1:]) == [1, 2, 3, 4]


def test_seed_draws_which_classes_go_together() -> None:
    assert len({class_sets(10, _rng(seed)) for seed in range(10)}) == 10


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="2 classes to part, wanted at least 3"):
        class_sets(3, _rng(), shared=(0,))


def test_class_with_fewer_examples_than_clients_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="class 1 has 1 examples, wanted one for each of"):
        deal_known(np.array([0, 0, 1]), np.arange(3), [(0, 1), (1,)], _rng())


def test_test_has_the_shares_of_the_shard_and_uses_up_its_scarcest_class() -> None:
    labels = np.repeat([0, 1, 0, 1], [30, 10, 40, 40])
    shard, held_out = np.arange(40), np.arange(40, 120)

    rows = draw_like(labels, shard, held_out, _rng())

    assert np.bincount(labels[rows]).tolist() == [40, 13]


def test_class_of_which_nothing_is_held_out_is_named() -> None:
    with pytest.raises(InvalidConfigError, match=r"nothing is held out of classes \[1\]"):
        draw_like(np.array([0, 1, 0]), np.array([0, 1]), np.array([2]), _rng())
