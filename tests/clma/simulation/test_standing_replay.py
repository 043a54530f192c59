from __future__ import annotations

import itertools

import numpy as np

from clma.simulation.replay import ReplaySource, replay_table
from clma.simulation.standing_replay import deal_blocks_apart
from clma.simulation.table import RecordedTable

CLIENTS = tuple("abcdef")
ROWS = np.arange(4 * 30 * 20)


def _source() -> ReplaySource:
    """Four classes of thirty blocks of 20 rows."""
    table = RecordedTable(
        ROWS[:, None].astype(np.float64), ROWS // 600, np.full(len(ROWS), "on"), ROWS, 0 * ROWS
    )
    return replay_table(table, CLIENTS, seed=0, base_condition="on", block_rows=20, window=8)


def _apart(shape: str = "class-groups", seed: int = 0) -> ReplaySource:
    return deal_blocks_apart(_source(), shape, CLIENTS, seed=seed, skew=0.5, shared=(0,))


def test_no_block_is_trained_on_twice_or_tested_on() -> None:
    source = _apart("dirichlet")

    trained = list(itertools.chain(*source.training_blocks.values()))
    tested = set(itertools.chain(*source.own_held_out_blocks.values()))
    assert len(trained) == len(set(trained)) == 84
    assert tested <= set(source.held_out_blocks["on"])


def test_groups_share_a_class_and_have_one_to_themselves() -> None:
    blocks = _apart().training_blocks

    known = [frozenset(block.label for block in blocks[c, "on"]) for c in CLIENTS]
    assert known[::2] == known[1::2]
    assert frozenset.intersection(*known) == {0}
    assert {len(classes) for classes in known} == {2}


def test_client_is_tested_on_its_own_classes() -> None:
    source, rng = _apart(), np.random.default_rng(0)

    for client_id in CLIENTS:
        trained = {block.label for block in source.training_blocks[client_id, "on"]}
        assert set(source.held_out(client_id, "base", rng)[1].tolist()) == trained


def test_seed_decides_the_groups() -> None:
    def known(seed: int) -> set[int]:
        return {block.label for block in _apart(seed=seed).training_blocks["a", "on"]}

    assert len({frozenset(known(seed)) for seed in range(8)}) == 3
