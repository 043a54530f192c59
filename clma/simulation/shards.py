"""Examples that stand alone, images or rows of sensors, dealt to clients as shards.

Examples
--------
>>> zeros = np.zeros(6, np.int64)
>>> rows = {("a", "base"): np.array([0, 1]), ("b", "base"): np.array([2, 3])}
>>> source = ShardSource(np.eye(6, dtype=np.float32), zeros, rows, {"base": np.array([4, 5])})
>>> source.training("a", "base", 96, np.random.default_rng(0))[0].shape
(2, 6)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError, UnknownClientError
from clma.simulation.fleet import Windows

__all__ = ["ShardSource"]


def _as_it_is(inputs: NDArray[Any], condition: str) -> NDArray[np.float32]:  # noqa: ARG001
    return inputs.astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class ShardSource:
    """Shards of a set of examples.

    Parameters
    ----------
    inputs : ndarray of shape (n, ...)
        As they are kept; `view` makes float32 of those that are drawn.
    labels : ndarray of shape (n,)
        Class indices.
    shards : mapping of (client_id, condition) to row numbers
        What a client may train on.
    held_out_rows : mapping of condition to row numbers
        What all clients are tested on.
    view : callable of (inputs, condition)
        How examples look under a condition.
    share : float in (0, 1]
        Share of its shard that a client sees in one round.
    own_held_out_rows : mapping of client_id to row numbers
        What a client is tested on that has a test of its own, under all conditions.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    shards: Mapping[tuple[str, str], NDArray[np.int64]]
    held_out_rows: Mapping[str, NDArray[np.int64]]
    view: Callable[[NDArray[Any], str], NDArray[np.float32]] = _as_it_is
    share: float = 1.0
    own_held_out_rows: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def training(
        self, client_id: str, condition: str, n_windows: int, rng: np.random.Generator
    ) -> Windows:
        """Draw from a client's shard without repetition: a share of it, at most `n_windows`.

        Raises
        ------
        UnknownClientError
            If the client has no shard under that condition.
        """
        rows = self.shards.get((client_id, condition), np.zeros(0, np.int64))
        if len(rows) == 0:
            raise UnknownClientError(
                f"client {client_id!r} has no examples of condition {condition!r}"
            )
        n_seen = min(n_windows, int(np.ceil(self.share * len(rows))))
        return self._seen(rng.choice(rows, size=n_seen, replace=False), condition)

    def held_out(self, client_id: str, condition: str, rng: np.random.Generator) -> Windows:  # noqa: ARG002 - the pool is drawn
        """Return a client's held-out examples, or all of them, as they look under the condition.

        Raises
        ------
        InvalidConfigError
            If the condition is unknown.
        """
        if condition not in self.held_out_rows:
            raise InvalidConfigError(
                f"condition {condition!r} is unknown, wanted one of {', '.join(self.held_out_rows)}"
            )
        rows = self.own_held_out_rows.get(client_id, self.held_out_rows[condition])
        return self._seen(rows, condition)

    def _seen(self, rows: NDArray[np.int64], condition: str) -> Windows:
        return self.view(self.inputs[rows], condition), self.labels[rows]
