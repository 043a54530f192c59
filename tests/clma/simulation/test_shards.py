from __future__ import annotations

import numpy as np
import pytest

from clma.errors import InvalidConfigError, UnknownClientError
from clma.simulation.shards import ShardSource

SHARDS = {("a", "base"): np.arange(10), ("b", "base"): np.arange(10, 15)}


def _source(**settings: object) -> ShardSource:
    inputs = np.arange(20, dtype=np.uint8)[:, None]
    return ShardSource(inputs, np.arange(20) % 3, SHARDS, {"base": np.arange(15, 20)}, **settings)


def _drawn(client_id: str = "a", n: int = 96, seed: int = 0, **settings: object) -> np.ndarray:
    inputs, _ = _source(**settings).training(client_id, "base", n, np.random.default_rng(seed))
    return inputs.ravel()


def test_clients_see_their_own_shard_without_repetition() -> None:
    assert sorted(_drawn("a")) == list(range(10))
    assert sorted(_drawn("b")) == list(range(10, 15))


def test_share_and_number_both_bound_a_round() -> None:
    assert len(_drawn(share=0.55)) == 6
    assert len(_drawn(n=4, share=0.55)) == 4


def test_generator_decides_what_is_drawn() -> None:
    np.testing.assert_array_equal(_drawn(n=5, seed=1), _drawn(n=5, seed=1))
    assert sorted(_drawn(n=5, seed=1)) != sorted(_drawn(n=5, seed=2))


def test_labels_stay_with_their_inputs() -> None:
    inputs, labels = _source().training("a", "base", 7, np.random.default_rng(0))

    np.testing.assert_array_equal(inputs.ravel() % 3, labels)


def test_view_is_told_the_condition() -> None:
    source = _source(view=lambda inputs, condition: inputs * np.float32(len(condition)))

    assert source.held_out("a", "base", np.random.default_rng(0))[0][0] == 15 * 4


def test_held_out_is_the_same_for_all() -> None:
    (x, _), (y, _) = (_source().held_out(c, "base", np.random.default_rng(0)) for c in "ab")

    np.testing.assert_array_equal(x, y)
    assert x.dtype == np.float32


def test_client_without_a_shard_is_named() -> None:
    with pytest.raises(UnknownClientError, match="'z' has no examples of condition 'base'"):
        _drawn("z")


def test_unknown_condition_is_named() -> None:
    with pytest.raises(InvalidConfigError, match="'fog' is unknown, wanted one of base"):
        _source().held_out("a", "fog", np.random.default_rng(0))
