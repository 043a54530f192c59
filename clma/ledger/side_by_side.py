"""Do the same for many items on some threads, with a result that does not tell.

Hashing, signatures, and waiting for a disk or a server let other threads work; ten thousand syncs
that wait for each other take ten times as long as those that wait together.

Examples
--------
>>> side_by_side(str.upper, ["a", "b"])
['A', 'B']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["side_by_side"]

N_THREADS = 8
"""Each may hold some megabytes of a tensor file: memory grows with these, not with the items."""

FEW = 32
"""Items for which starting threads does not pay."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return what `work` makes of every item, in the order of the items.

    Parameters
    ----------
    work : callable
        Safe to call from several threads. What it raises is raised: of several errors that of the
        first item. Items whose turn has not come by then are left.
    items : sequence
    """
    if len(items) <= FEW:
        return [work(item) for item in items]
    with ThreadPoolExecutor(N_THREADS, thread_name_prefix="side-by-side") as pool:
        return list(pool.map(work, items))
