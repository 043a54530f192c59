"""Deal a recorded table's blocks again, to clients that differ from the start.

Examples
--------
>>> from clma.simulation.replay import replay_table
>>> from clma.simulation.table import RecordedTable
>>> rows = np.arange(1200)
>>> table = RecordedTable(rows[:, None] * 1.0, rows // 300, np.full(1200, "base"), rows, 0 * rows)
>>> source = replay_table(table, "abc", seed=0)
>>> apart = deal_blocks_apart(source, "class-groups", "abc", seed=0, shared=(0,))
>>> sorted({block.label for block in apart.training_blocks["a", "base"]}).__len__()
2
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from clma.simulation.replay import ReplaySource
from clma.simulation.standing_shards import deal_apart

__all__ = ["deal_blocks_apart"]

_APART = 6  # stream number; see `clma.simulation.fleet`


def deal_blocks_apart(
    source: ReplaySource,
    shape: str,
    client_ids: Sequence[str],
    *,
    seed: int,
    skew: float | None = None,
    shared: Sequence[int] = (),
) -> ReplaySource:
    """Deal the training blocks of the base condition again; other conditions stay as they are.

    Parameters
    ----------
    source : ReplaySource
        Of a table that does not name owners.
    shape : {"dirichlet", "class-groups"}
        See `clma.simulation.standing_schedules`.
    client_ids : sequence of str
    seed : int, >= 0
    skew : float, > 0, or None
        Parameter of the Dirichlet distribution, for ``dirichlet``.
    shared : sequence of int
        Classes that all groups of ``class-groups`` know.

    Returns
    -------
    ReplaySource
        The same scaling, and the same held-out blocks: each client is tested on some of them, with
        the class shares of its own.

    Raises
    ------
    InvalidConfigError
        If a client would get nothing; see `clma.simulation.standing_shards.deal_apart`.
    """
    base = source.base_condition
    dealt_out = [b for c in client_ids for b in source.training_blocks.get((c, base), ())]
    blocks = [*dealt_out, *source.held_out_blocks[base]]
    labels = np.array([block.label for block in blocks], dtype=np.int64)
    shards, tests = deal_apart(
        shape,
        labels,
        np.arange(len(dealt_out)),
        np.arange(len(dealt_out), len(blocks)),
        len(client_ids),
        np.random.default_rng([seed, _APART]),
        skew=skew,
        shared=shared,
    )
    named = [
        {
            (c, base): tuple(blocks[row] for row in rows)
            for c, rows in zip(client_ids, part, strict=True)
        }
        for part in (shards, tests)
    ]
    return dataclasses.replace(
        source,
        training_blocks={**source.training_blocks, **named[0]},
        own_held_out_blocks=named[1],
    )
