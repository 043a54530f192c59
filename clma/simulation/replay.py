"""Replay a recorded table as a fleet.

Rows are cut into blocks of consecutive time inside one recording, condition and label; blocks,
never rows, are split between training and test, because neighbouring rows are nearly equal. Windows
never leave their block, so none of them sees both sides.

Examples
--------
>>> zeros = np.zeros(240, np.int64)
>>> table = RecordedTable(np.eye(240, 1), zeros, np.full(240, "base"), np.arange(240), zeros)
>>> source = replay_table(table, ("a", "b"), seed=0, block_rows=60, window=30)
>>> source.held_out("a", "base", np.random.default_rng(0))[0].shape
(3, 1, 30)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError, UnknownClientError
from clma.simulation.dealing import class_shares, deal_skewed
from clma.simulation.fleet import Windows
from clma.simulation.scaling import scale
from clma.simulation.schedule import BASE
from clma.simulation.table import Block, RecordedTable, cut_blocks

__all__ = ["ReplaySource", "replay_table"]

_SPLIT = 3  # stream number of the split; see `clma.simulation.fleet`


@dataclass(frozen=True, slots=True, eq=False)
class ReplaySource:
    """Windows of a recorded table, split and scaled; `replay_table` makes one.

    Parameters
    ----------
    values : ndarray of float32, shape (n_rows, n_variables)
        Scaled and squashed.
    training_blocks : mapping of (client_id, condition) to blocks
    held_out_blocks : mapping of condition to blocks
        Pooled over clients.
    base_condition : str
        Condition that the name ``base`` stands for.
    window : int
        Rows.
    block_share : float in (0, 1]
        Share of its blocks that a client sees in one round.
    own_held_out_blocks : mapping of (client_id, condition) to blocks
        What a client is tested on that has a test of its own.
    """

    values: NDArray[np.float32]
    training_blocks: Mapping[tuple[str, str], tuple[Block, ...]]
    held_out_blocks: Mapping[str, tuple[Block, ...]]
    base_condition: str
    window: int
    block_share: float = 0.5
    own_held_out_blocks: Mapping[tuple[str, str], tuple[Block, ...]] = field(default_factory=dict)

    def training(
        self, client_id: str, condition: str, n_windows: int, rng: np.random.Generator
    ) -> Windows:
        """Draw windows from a random share of the client's blocks, about as many from each.

        Raises
        ------
        UnknownClientError
            If the client has no block of that condition.
        """
        blocks = self.training_blocks.get((client_id, self._recorded(condition)), ())
        if not blocks:
            raise UnknownClientError(
                f"client {client_id!r} has no blocks of condition {condition!r}"
            )
        seen = rng.permutation(len(blocks))[: int(np.ceil(self.block_share * len(blocks)))]
        chosen = [blocks[seen[turn % len(seen)]] for turn in range(n_windows)]
        starts = [int(rng.integers(b.start, b.stop - self.window + 1)) for b in chosen]
        return self._cut(starts), np.array([b.label for b in chosen], dtype=np.int64)

    def held_out(self, client_id: str, condition: str, rng: np.random.Generator) -> Windows:  # noqa: ARG002 - the pool is drawn
        """Cut a client's held-out blocks, or all of them, into half-overlapping windows."""
        recorded = self._recorded(condition)
        pool = self.held_out_blocks.get(recorded, ())
        blocks = self.own_held_out_blocks.get((client_id, recorded), pool)
        if not blocks:
            raise InvalidConfigError(f"condition {condition!r} has no held-out blocks")
        places = [
            (start, block.label)
            for block in blocks
            for start in range(block.start, block.stop - self.window + 1, self.window // 2)
        ]
        return self._cut([s for s, _ in places]), np.array([y for _, y in places], dtype=np.int64)

    def _recorded(self, condition: str) -> str:
        return self.base_condition if condition == BASE.condition else condition

    def _cut(self, starts: Sequence[int]) -> NDArray[np.float32]:
        rows = np.asarray(starts)[:, None] + np.arange(self.window)
        return np.ascontiguousarray(self.values[rows].transpose(0, 2, 1))


def replay_table(
    table: RecordedTable,
    client_ids: Sequence[str],
    *,
    seed: int,
    base_condition: str = BASE.condition,
    block_rows: int = 60,
    window: int = 30,
    test_share: float = 0.3,
    block_share: float = 0.5,
    skew: float | None = None,
) -> ReplaySource:
    """Split a table's blocks between test and clients, and scale it.

    The scaler (mean and standard deviation) comes from the training blocks of the base condition
    and stays; ``arcsinh`` then keeps variables trainable that leave their range by a hundred
    deviations.

    Parameters
    ----------
    table : RecordedTable
    client_ids : sequence of str
        Who the blocks are dealt to, unless the table names their owners.
    seed : int, >= 0
        Shuffles the blocks of each (condition, label) before the split.
    base_condition : str
    block_rows, window : int
        Rows; a window must fit into a block.
    test_share : float in (0, 1)
        Share of each (condition, label)'s blocks that is held out.
    block_share : float in (0, 1]
    skew : float, > 0, or None
        Parameter of the Dirichlet distribution of the clients' class shares, for a table that does
        not name owners; None: shards are as alike as they can be.

    Raises
    ------
    InvalidConfigError
        If a size is out of range or the base condition has no training block.
    """
    if not 2 <= window <= block_rows or not 0 < test_share < 1 or not 0 < block_share <= 1:
        raise InvalidConfigError(
            f"got window {window}, blocks of {block_rows} rows, test share {test_share}, "
            f"block share {block_share}; wanted 2 <= window <= block and shares in (0, 1)"
        )
    blocks, order = cut_blocks(table, block_rows)
    rng = np.random.default_rng([seed, _SPLIT])
    training, held_out = _split(blocks, client_ids, test_share, rng)
    if skew is not None:
        training = _deal_again(training, client_ids, skew, rng)
    base = [b for (_, c), owned in training.items() if c == base_condition for b in owned]
    if not base:
        raise InvalidConfigError(
            f"base condition {base_condition!r} has no block of {block_rows} rows"
        )
    rows = np.concatenate([np.arange(b.start, b.stop) for b in sorted(base, key=lambda b: b.start)])
    return ReplaySource(
        scale(table.values[order], rows),
        training,
        held_out,
        base_condition,
        window,
        block_share,
    )


def _split(
    blocks: Sequence[Block],
    client_ids: Sequence[str],
    test_share: float,
    rng: np.random.Generator,
) -> tuple[dict[tuple[str, str], tuple[Block, ...]], dict[str, tuple[Block, ...]]]:
    """Return training blocks by (client, condition) and held-out blocks by condition."""
    strata: dict[tuple[str, int], list[Block]] = {}
    for block in blocks:
        strata.setdefault((block.condition, block.label), []).append(block)
    training: dict[tuple[str, str], tuple[Block, ...]] = {}
    held_out: dict[str, tuple[Block, ...]] = {}
    turns: dict[str, int] = {}
    for (condition, _), stratum in sorted(strata.items()):
        shuffled = [stratum[i] for i in rng.permutation(len(stratum))]
        n_test = round(test_share * len(shuffled))
        held_out[condition] = held_out.get(condition, ()) + tuple(shuffled[:n_test])
        for block in shuffled[n_test:]:
            # The turn runs on through a condition's labels, so that shards differ by one block.
            turn = turns.get(condition, 0)
            turns[condition] = turn + 1
            key = (block.client or client_ids[turn % len(client_ids)], condition)
            training[key] = (*training.get(key, ()), block)
    return training, held_out


def _deal_again(
    training: Mapping[tuple[str, str], tuple[Block, ...]],
    client_ids: Sequence[str],
    skew: float,
    rng: np.random.Generator,
) -> dict[tuple[str, str], tuple[Block, ...]]:
    """Deal the training blocks of each condition by the clients' own class shares."""
    pools: dict[str, list[Block]] = {}
    for (_, condition), blocks in sorted(training.items()):
        pools.setdefault(condition, []).extend(blocks)
    labels = {c: np.array([b.label for b in pool]) for c, pool in pools.items()}
    n_classes = 1 + max(int(own.max()) for own in labels.values())
    shares = class_shares(len(client_ids), n_classes, skew, rng)
    skewed = {}
    for condition, pool in pools.items():
        n_each = len(pool) // len(client_ids)
        rows = np.arange(len(pool))
        dealt = deal_skewed(labels[condition], rows, shares, n_each, rng)
        for client_id, own in zip(client_ids, dealt, strict=True):
            skewed[client_id, condition] = tuple(pool[row] for row in own)
    return skewed
