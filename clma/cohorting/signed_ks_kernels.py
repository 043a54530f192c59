"""The inner loops of the signed KS, written for a compiler; as plain Python they give the same.

A float32 is put in its bucket by two steps: its upper 12 bits (sign, exponent, 3 bits of the
mantissa) name a cell, an entry of `table` says where the cell's buckets begin and how many of the
lower 20 bits to drop.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["count_buckets", "gather_flagged", "raise_excess"]

BLOCK = 32
"""Values that are compared at once, before any is looked at alone."""


def count_buckets(
    bits: NDArray[np.uint32], table: NDArray[np.uint32], counts: NDArray[np.int32]
) -> None:
    """Add the number of values in every bucket to counts."""
    for x in bits:
        entry = table[x >> np.uint32(20)]
        low = (x & np.uint32(0xFFFFF)) >> (entry & np.uint32(31))
        counts[(entry >> np.uint32(5)) + low] += 1


def gather_flagged(
    values: NDArray[np.float32],
    bits: NDArray[np.uint32],
    table: NDArray[np.uint32],
    flags: NDArray[np.uint8],
    lowest: np.float32,
    highest: np.float32,
    gathered: NDArray[np.float32],
) -> None:
    """Copy the values of flagged buckets, all of which lie in [lowest, highest].

    `gathered` has one place more than there are such values: every value is written, and what is
    not flagged is written over, because a branch that nobody can predict costs more. Values that
    somebody changes meanwhile give a wrong result but never write beyond the end.
    """
    n_gathered, most = 0, gathered.size - 1
    for start in range(0, values.size, BLOCK):
        stop = min(start + BLOCK, values.size)
        in_range = False
        for i in range(start, stop):
            in_range |= (values[i] >= lowest) & (values[i] <= highest)
        if in_range:
            for i in range(start, stop):
                entry = table[bits[i] >> np.uint32(20)]
                low = (bits[i] & np.uint32(0xFFFFF)) >> (entry & np.uint32(31))
                gathered[n_gathered] = values[i]
                flag = int(flags[(entry >> np.uint32(5)) + low])
                n_gathered = min(n_gathered + flag, most)


def raise_excess(
    a: NDArray[np.float32],
    b: NDArray[np.float32],
    buckets: NDArray[np.int64],
    weight_a: int,
    weight_b: int,
    excess: int,
) -> int:
    """Return the largest excess within some buckets, or the given one if that is larger.

    Parameters
    ----------
    a, b : ndarray
        Sorted; the buckets' values, at least.
    buckets : ndarray of shape (n_buckets, 6)
        Per bucket: rank of its first value in either sample (two numbers), rank after its last one
        (two numbers), rank minus place in `a` and in `b`.
    weight_a, weight_b : int
        What one value of `a` adds to the excess, and one of `b` takes off.
    excess : int
        At least the one at either end of every bucket.
    """
    for bucket in range(buckets.shape[0]):
        first_b, last_a, last_b = buckets[bucket, 1], buckets[bucket, 2], buckets[bucket, 3]
        shift_a, shift_b = buckets[bucket, 4], buckets[bucket, 5]
        for rank in range(first_b, last_b):
            # Below b[rank] there are at most `rank` of b: that many of a are needed for more.
            needed = excess + rank * weight_b
            needed = needed + 1 if weight_a == 1 else needed // weight_a + 1
            while needed <= last_a and a[needed - 1 - shift_a] < b[rank - shift_b]:
                excess = needed * weight_a - rank * weight_b
                needed += 1
    return excess
