from __future__ import annotations

import itertools

import numpy as np
import pytest

from clma.errors import InvalidConfigError, UnknownClientError
from clma.simulation.replay import ReplaySource, replay_table
from clma.simulation.table import RecordedTable

CLIENTS = ("a", "b", "c")


def _table(n_blocks: int = 20, *, owned: bool = False) -> RecordedTable:
    """Two conditions, two labels, blocks of 20 rows; the only value is the row's number."""
    n = 4 * n_blocks * 20
    part = np.arange(n) // (n_blocks * 20)
    return RecordedTable(
        values=np.arange(n, dtype=np.float64)[:, None],
        labels=(part % 2).astype(np.int64),
        conditions=np.where(part < 2, "low", "high"),
        times=np.arange(n),
        recordings=np.zeros(n, np.int64),
        clients=np.array(CLIENTS)[np.arange(n) // 20 % 3] if owned else None,
    )


def _source(seed: int = 0, **settings: object) -> ReplaySource:
    given = {"base_condition": "low", "block_rows": 20, "window": 8} | settings
    owned = bool(given.pop("owned", False))
    return replay_table(_table(owned=owned), CLIENTS, seed=seed, **given)


def _all_blocks(source: ReplaySource) -> list[tuple[int, int]]:
    groups = [*source.training_blocks.values(), *source.held_out_blocks.values()]
    return [(b.start, b.stop) for b in itertools.chain(*groups)]


def test_each_block_is_dealt_once() -> None:
    blocks = _all_blocks(_source())

    assert len(blocks) == len(set(blocks)) == 80


def test_test_share_holds_for_each_condition_and_label() -> None:
    held_out = _source().held_out_blocks

    assert [[b.label for b in held_out[c]].count(y) for c in ("low", "high") for y in (0, 1)] == [
        6, 6, 6, 6,
    ]  # fmt: skip


def test_shards_of_a_condition_differ_by_at_most_one_block() -> None:
    source = _source()

    sizes = [len(source.training_blocks[c, "low"]) for c in CLIENTS]

    assert max(sizes) - min(sizes) <= 1


def test_owned_blocks_stay_with_their_owner() -> None:
    source = _source(owned=True)

    assert all(b.client == c for (c, _), bs in source.training_blocks.items() for b in bs)


def _rows(source: ReplaySource, windows: np.ndarray) -> np.ndarray:
    """Recover row numbers: the scaler is monotone, so values name their rows."""
    return np.searchsorted(source.values[:, 0], windows[:, 0, :].ravel())


def test_windows_never_leave_their_block_nor_cross_into_the_test() -> None:
    source = _source()
    rng = np.random.default_rng(0)
    tested = {b.start // 20 for bs in source.held_out_blocks.values() for b in bs}

    windows, labels = source.training("a", "high", 200, rng)
    rows = _rows(source, windows).reshape(200, 8)

    assert (rows // 20 == rows[:, :1] // 20).all()
    assert not tested & set((rows // 20).ravel().tolist())
    np.testing.assert_array_equal(labels, rows[:, 0] // 400 % 2)


def test_held_out_windows_overlap_by_half_and_are_everybodys() -> None:
    source = _source()

    (a, labels), (b, _) = (source.held_out(c, "low", np.random.default_rng(0)) for c in CLIENTS[:2])

    np.testing.assert_array_equal(a, b)
    assert len(a) == len(labels) == 12 * 4  # starts 0, 4, 8, 12 of 20 rows


def test_one_round_sees_half_of_a_clients_blocks() -> None:
    source = _source()
    owned = len(source.training_blocks["a", "low"])

    windows, _ = source.training("a", "low", 300, np.random.default_rng(0))

    assert len(set((_rows(source, windows) // 20).tolist())) == -(-owned // 2)


def test_scaler_comes_from_training_blocks_of_the_base_condition() -> None:
    source = _source()
    rows = [
        np.arange(b.start, b.stop)
        for (_, condition), bs in source.training_blocks.items()
        if condition == "low"
        for b in bs
    ]

    scaled = np.sinh(source.values[np.concatenate(rows)].astype(np.float64))

    assert scaled.mean() == pytest.approx(0.0, abs=1e-5)
    assert scaled.std() == pytest.approx(1.0, abs=1e-5)


def test_constant_variable_stays_finite() -> None:
    table = _table()
    still = RecordedTable(
        np.ones_like(table.values), table.labels, table.conditions, table.times, table.recordings
    )

    source = replay_table(still, CLIENTS, seed=0, base_condition="low", block_rows=20, window=8)

    assert not source.values.any()


def test_base_stands_for_the_base_condition() -> None:
    source = _source()

    given, wanted = (source.held_out("a", c, np.random.default_rng(0))[0] for c in ("base", "low"))

    np.testing.assert_array_equal(given, wanted)


def test_other_seed_is_another_split() -> None:
    assert _source(0).held_out_blocks != _source(1).held_out_blocks
    assert _source(1).held_out_blocks == _source(1).held_out_blocks


@pytest.mark.parametrize(
    "settings", [{"window": 21}, {"window": 1}, {"test_share": 1.0}, {"block_share": 0.0}]
)
def test_sizes_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidConfigError, match="wanted 2 <= window <= block"):
        _source(**settings)


def test_base_condition_without_blocks_is_named() -> None:
    with pytest.raises(InvalidConfigError, match="'winter' has no block of 20 rows"):
        _source(base_condition="winter")


def test_client_without_blocks_is_named() -> None:
    with pytest.raises(UnknownClientError, match="'z' has no blocks of condition 'low'"):
        _source().training("z", "low", 4, np.random.default_rng(0))


def test_skewed_shards_are_disjoint_as_large_and_keep_the_held_out_blocks() -> None:
    even, skewed = _source(), _source(skew=0.5)

    assert skewed.held_out_blocks == even.held_out_blocks
    assert len(_all_blocks(skewed)) == len(set(_all_blocks(skewed)))
    assert set(_all_blocks(skewed)) <= set(_all_blocks(even))
    assert len({len(skewed.training_blocks[c, "low"]) for c in CLIENTS}) == 1


def test_skewed_shards_differ_in_their_labels() -> None:
    def range_of_labels(seed: int, skew: float | None) -> int:
        blocks = _source(seed, skew=skew).training_blocks
        counts = [sum(b.label for b in blocks[c, "low"]) for c in CLIENTS]
        return max(counts) - min(counts)

    assert max(range_of_labels(seed, None) for seed in range(10)) <= 1
    assert np.mean([range_of_labels(seed, 0.1) for seed in range(10)]) > 2
