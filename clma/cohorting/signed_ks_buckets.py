"""The signed KS of float32 rows without sorting them: count in buckets, sort what may matter.

The reference's values lie about evenly in some ten thousand buckets. Between two buckets the
difference of the distribution functions is exact; inside one it is bounded by the counts at its
ends. Only the few buckets that could hold a larger difference than the best end are looked into.
Where that is most of them, sorting all is cheaper and is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from clma.cohorting import signed_ks_kernels
from clma.cohorting.signed_ks_sorted import Weights, signed_statistic, sorted_statistic
from clma.compiled import compile_function

__all__ = ["MAX_HEIGHT", "Buckets", "Kernels", "compile_kernels", "do_values_repeat"]

N_CELLS = 4096
"""Cells of equal upper 12 bits: sign, exponent, 3 bits of the mantissa."""

NEGATIVE = 0x800
"""First cell with a negative sign; cells ascend in magnitude."""

INFINITE = 0x7F8
"""Cell of infinity, as an offset to the first of its sign; what lies above is NaN."""

VALUES_PER_BUCKET = 64
MAX_BUCKETS = 65_536
"""Four bytes each: the counts stay in the second-level cache."""

CROWDED = 16
"""Times the values wanted in a bucket; with more it tells little about what is inside."""

N_SAMPLES = 64
"""Values of a row that are looked at to tell whether they repeat."""

MAX_HEIGHT = 2**62
"""Least common multiple of two sizes above which a sum of two counts may not fit in 64 bits."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The inner loops, compiled or as they are written (`signed_ks_kernels`)."""

    count_buckets: Callable[..., None] = signed_ks_kernels.count_buckets
    gather_flagged: Callable[..., None] = signed_ks_kernels.gather_flagged
    raise_excess: Callable[..., int] = signed_ks_kernels.raise_excess


@cache
def compile_kernels() -> Kernels:
    """Compile once in a process.

    Raises
    ------
    MissingExtraError
        If numba is not there.
    """
    floats, bits = np.zeros(1, np.float32), np.zeros(1, np.uint32)
    floats_in, bits_in = floats.view(), bits.view()
    floats_in.flags.writeable = bits_in.flags.writeable = False
    counts, flags = np.zeros(1, np.int32), np.zeros(1, np.uint8)
    ranks = np.zeros((1, 6), np.int64)
    one = np.float32(1)
    return Kernels(
        compile_function(signed_ks_kernels.count_buckets, bits_in, bits, counts),
        compile_function(
            signed_ks_kernels.gather_flagged, floats_in, bits_in, bits, flags, one, one, floats
        ),
        compile_function(signed_ks_kernels.raise_excess, floats_in, floats_in, ranks, 1, 1, 1),
    )


@dataclass(frozen=True, slots=True)
class Buckets:
    """A sorted reference and its buckets.

    Parameters
    ----------
    reference : ndarray of shape (m,), float32
        Sorted, without NaN.
    table : ndarray of shape (4096,), uint32
        Per cell: number of its first bucket, shifted by 5, and bits to drop.
    starts : ndarray of shape (4097,), int64
        Number of every cell's first bucket; the last entry is the number of all buckets.
    ranks : ndarray of shape (n_ordered + 1,), int64
        Values of the reference below every bucket, in the order of values.
    kernels : Kernels
    """

    reference: NDArray[np.float32]
    table: NDArray[np.uint32]
    starts: NDArray[np.int64]
    ranks: NDArray[np.int64]
    kernels: Kernels

    @classmethod
    def of(cls, reference: NDArray[np.float32], kernels: Kernels) -> Buckets:
        """Lay out buckets for a sorted reference."""
        dropped = _dropped_bits(reference)
        starts = np.append(0, np.cumsum(1 << (20 - dropped)))
        firsts = starts[:-1].copy()
        firsts[NEGATIVE] = firsts[0]  # -0 equals +0: what is nearest to zero shares a bucket
        table = (firsts << 5 | dropped).astype(np.uint32)
        counts = _counts(reference, table, starts, kernels)
        return cls(reference, table, starts, _ranks(_ordered(counts, starts)), kernels)

    @property
    def is_crowded(self) -> bool:
        """Whether most values are in buckets that say little: few distinct ones, or subnormal."""
        counts = np.diff(self.ranks)
        crowded = counts[counts > CROWDED * _values_per_bucket(self.reference.size)]
        return bool(crowded.sum() > self.reference.size // 2)

    def statistic(self, row: NDArray[np.float32]) -> float | None:
        """Return the signed KS of a contiguous row; None if it holds NaN."""
        counts = _counts(row, self.table, self.starts, self.kernels)
        if self._has_nan(row, counts):
            return None
        ranks = _ranks(_ordered(counts, self.starts))
        weights = Weights.of_sizes(row.size, self.reference.size)
        heights, heights_ref = ranks * weights.value, self.ranks * weights.reference
        ends = heights - heights_ref
        up, down = int(ends.max()), int(-ends.min())
        # Where `down` is ahead, `up` decides only if it draws level.
        up = max(up, down - 1)
        may_raise_up = heights[1:] - heights_ref[:-1] > up
        may_raise_down = heights_ref[1:] - heights[:-1] > max(up, down)
        flagged = np.flatnonzero(may_raise_up | may_raise_down)
        if flagged.size:
            n_flagged = int((ranks[flagged + 1] - ranks[flagged]).sum())
            if n_flagged > row.size // 2:
                return sorted_statistic(np.sort(row), self.reference)
            places = self._places(ranks, flagged)
            values = self._gather(row, flagged, n_flagged)
            raise_excess = self.kernels.raise_excess
            weight, weight_ref = weights.value, weights.reference
            up = raise_excess(values, self.reference, places, weight, weight_ref, up)
            swapped = np.ascontiguousarray(places[:, [1, 0, 3, 2, 5, 4]])
            down = max(up, down)
            down = raise_excess(self.reference, values, swapped, weight_ref, weight, down)
        return signed_statistic(up, down, row.size * weights.value)

    def _has_nan(self, row: NDArray[np.float32], counts: NDArray[np.int32]) -> bool:
        """Look at every value only where some are in a cell of infinity or NaN."""
        cells = (
            slice(self.starts[INFINITE], self.starts[NEGATIVE]),
            slice(self.starts[NEGATIVE + INFINITE], None),
        )
        return any(counts[part].any() for part in cells) and bool(np.isnan(row).any())

    def _places(self, ranks: NDArray[np.int64], flagged: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return where the flagged buckets lie in the gathered row and in the reference."""
        first, last = ranks[flagged], ranks[flagged + 1]
        n_before = np.cumsum(last - first) - (last - first)
        columns = (
            first,
            self.ranks[flagged],
            last,
            self.ranks[flagged + 1],
            first - n_before,
            np.zeros_like(first),
        )
        return np.stack(columns, axis=1)

    def _gather(
        self, row: NDArray[np.float32], flagged: NDArray[np.intp], n_flagged: int
    ) -> NDArray[np.float32]:
        """Return the values in flagged buckets, sorted."""
        n_negative = int(self.starts[NEGATIVE + INFINITE + 1] - self.starts[NEGATIVE + 1])
        flags = np.zeros(int(self.starts[-1]), np.uint8)
        numbers = np.where(
            flagged < n_negative,
            self.starts[NEGATIVE + INFINITE + 1] - 1 - flagged,
            flagged - n_negative,
        )
        flags[numbers] = 1
        lowest, highest = self._range(int(numbers[0]))[0], self._range(int(numbers[-1]))[1]
        values = np.empty(n_flagged + 1, np.float32)
        self.kernels.gather_flagged(
            row, row.view(np.uint32), self.table, flags, lowest, highest, values
        )
        gathered = values[:n_flagged]
        gathered.sort()
        return gathered

    def _range(self, number: int) -> tuple[np.float32, np.float32]:
        """Return a range that holds a bucket's values."""
        cell = int(np.searchsorted(self.starts, number, side="right")) - 1
        dropped = int(self.table[cell]) & 31
        low = (cell % NEGATIVE << 20) + (number - int(self.starts[cell]) << dropped)
        high = min(low + (1 << dropped) - 1, INFINITE << 20)
        near, far = np.array([low, high], np.uint32).view(np.float32)
        if cell == 0:
            return -far, far
        return (near, far) if cell < NEGATIVE else (-far, -near)


def do_values_repeat(row: NDArray[np.float32]) -> bool:
    """Tell from a few values whether most occur often: then sorting is fast, and counting slow."""
    return np.unique(row[:: row.size // N_SAMPLES + 1]).size <= N_SAMPLES // 4


def _values_per_bucket(size: int) -> int:
    return max(VALUES_PER_BUCKET, size // MAX_BUCKETS)


def _dropped_bits(reference: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return how many lower bits every cell drops, so that buckets hold about equally many."""
    edges = (np.arange(INFINITE + 1, dtype=np.uint32) << np.uint32(20)).view(np.float32)
    positive = np.diff(np.searchsorted(reference, edges, side="left"))
    negative = -np.diff(np.searchsorted(reference, -edges, side="right"))
    n_per_bucket = _values_per_bucket(reference.size)
    kept = np.zeros(N_CELLS, np.int64)
    for first, counts in ((0, positive), (NEGATIVE, negative)):
        wanted = np.ceil(np.log2(np.maximum(counts / n_per_bucket, 1.0)))
        kept[first + 1 : first + INFINITE] = np.minimum(wanted, 20)[1:]
    return 20 - kept


def _counts(
    row: NDArray[np.float32],
    table: NDArray[np.uint32],
    starts: NDArray[np.int64],
    kernels: Kernels,
) -> NDArray[np.int32]:
    counts = np.zeros(int(starts[-1]), np.int32)
    kernels.count_buckets(row.view(np.uint32), table, counts)
    return counts


def _ordered(counts: NDArray[np.int32], starts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return counts from minus to plus infinity: magnitudes of negative values run backwards."""
    negative = counts[starts[NEGATIVE + 1] : starts[NEGATIVE + INFINITE + 1]]
    return np.concatenate([negative[::-1], counts[: starts[INFINITE + 1]]])


def _ranks(counts: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
