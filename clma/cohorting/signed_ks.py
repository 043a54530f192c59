"""The Kolmogorov-Smirnov statistic with a sign, exact including ties.

CLMA, Algorithm 3, splits drifted clients by the sign of a statistic that as commonly defined has
none. The sign is the one of the larger one-sided difference, as in SciPy's `statistic_sign`.

Examples
--------
>>> signed_ks([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
0.3333333333333333
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clma.cohorting.signed_ks_buckets import (
    MAX_HEIGHT,
    Buckets,
    compile_kernels,
    do_values_repeat,
)
from clma.cohorting.signed_ks_sorted import sorted_statistic
from clma.compiled import is_numba_installed
from clma.errors import EmptyCohortError, InvalidUpdateError, MissingExtraError

__all__ = ["Engine", "SortedReference", "prepare_reference", "signed_ks", "signed_ks_of_rows"]

Engine = Literal["auto", "numpy", "numba"]
"""Who computes: the results are equal. `auto` takes numba where it is installed and worth it."""

WORTH_COMPILING = 50_000_000
"""Values for which numba saves about what loading it and its kept code takes, 0.35 s; a process
that has to compile takes a second more."""

WORTH_BUCKETS = 200_000
"""Values in a row below which sorting them is as fast, or nearly."""

MAX_EXACT_INTEGER = 2**53
"""From here on a float64 does not hold every integer."""


@dataclass(frozen=True, slots=True)
class SortedReference:
    """What clients are compared with, prepared once for all of them.

    Parameters
    ----------
    values : ndarray of shape (m,), float32 or float64
        Sorted, without NaN.
    buckets : Buckets, optional
        For the compiled way; results do not depend on it.
    """

    values: NDArray[np.floating]
    buckets: Buckets | None = None


def prepare_reference(reference: ArrayLike, *, engine: Engine = "auto") -> SortedReference:
    """Sort a reference.

    Parameters
    ----------
    reference : array of shape (m,)
        Not modified.
    engine : {"auto", "numpy", "numba"}
        With ``auto``, numba prepares only where it has been compiled already.

    Raises
    ------
    EmptyCohortError
        If there is no value.
    InvalidUpdateError
        If a value is NaN or no real number of 64 bits or less.
    MissingExtraError
        If numba is asked for and is not there.
    """
    values = np.sort(_as_floats(reference, "reference"))
    if np.isnan(values[-1]):
        raise InvalidUpdateError("signed KS: reference has NaN, wanted numbers")
    prepared = SortedReference(values)
    if engine == "numba" or (engine == "auto" and _is_compiled() and _is_worth_buckets(values)):
        return _with_buckets(prepared)
    return prepared


def signed_ks(
    values: ArrayLike, reference: ArrayLike | SortedReference, *, engine: Engine = "auto"
) -> float:
    """Compare the distribution of values with that of a reference.

    Parameters
    ----------
    values, reference : array of shape (n,) and (m,)
        Of real numbers; float16, float32 and float64 are compared exactly, and infinities have
        their place in the order. Not modified. A reference may be prepared.
    engine : {"auto", "numpy", "numba"}

    Returns
    -------
    float in [-1, 1]
        D+ if D+ >= D-, else -D-, with D+ the largest excess of the values' distribution function
        over the reference's. Positive: the values are the *smaller* ones.

    Raises
    ------
    EmptyCohortError
        If one side is empty.
    InvalidUpdateError
        If a value is NaN, which has no place in an order, or no real number of 64 bits or less.

    Notes
    -----
    Any permutation of the values gives the same number: the statistic sees how weights are
    distributed, not where they moved. It is a diagnostic here, and decides only in the literal
    mode.
    """
    return signed_ks_of_rows([values], reference, engine=engine)[0]


def signed_ks_of_rows(
    rows: Iterable[ArrayLike],
    reference: ArrayLike | SortedReference,
    *,
    engine: Engine = "auto",
) -> tuple[float, ...]:
    """Compare every row with one reference, as `signed_ks` does.

    Parameters
    ----------
    rows : iterable of arrays of shape (n,)
        Read once, one row at a time: an iterator need not hold more.
    reference : array of shape (m,) or SortedReference
    engine : {"auto", "numpy", "numba"}

    Returns
    -------
    tuple of float in [-1, 1]

    Raises
    ------
    EmptyCohortError
        If a row or the reference is empty.
    InvalidUpdateError
        If a value is NaN or no real number of 64 bits or less.
    MissingExtraError
        If numba is asked for and is not there.
    """
    if not isinstance(reference, SortedReference):
        reference = prepare_reference(reference, engine=engine)
    if engine == "numpy":
        reference = SortedReference(reference.values)
    if engine == "numba" and reference.buckets is None:
        reference = _with_buckets(reference)
    compile_after = _compile_after(rows, reference) if engine == "auto" else math.inf
    return tuple(_statistics(rows, reference, compile_after))


def _compile_after(rows: Iterable[ArrayLike], reference: SortedReference) -> float:
    """Return the number of values after which to change to numba."""
    if not is_numba_installed():
        return math.inf
    if not isinstance(rows, Sized):
        return WORTH_COMPILING
    return 0 if len(rows) * reference.values.size >= WORTH_COMPILING else math.inf


def _statistics(
    rows: Iterable[ArrayLike], reference: SortedReference, compile_after: float
) -> Iterator[float]:
    n_rows = n_values = 0
    for row in rows:
        values = _as_floats(row, f"row {n_rows}")
        n_values += values.size
        if n_values > compile_after and _is_worth_buckets(reference.values):
            compile_after = math.inf
            with suppress(MissingExtraError):
                reference = _with_buckets(reference)
        statistic = _statistic(values, reference)
        if statistic is None:
            raise InvalidUpdateError(f"signed KS: row {n_rows} has NaN, wanted numbers")
        n_rows += 1  # noqa: SIM113 - enumerate would keep the row while the next one is read
        del row, values
        yield statistic


def _statistic(values: NDArray[np.floating], reference: SortedReference) -> float | None:
    """Return the signed KS of values that need not be sorted; None if one is NaN."""
    if reference.buckets is not None and _is_worth_counting(values, reference):
        return reference.buckets.statistic(np.require(values, requirements=["C", "A"]))
    ordered = np.sort(values)
    if np.isnan(ordered[-1]):
        return None
    dtype = np.result_type(ordered, reference.values)
    return sorted_statistic(
        ordered.astype(dtype, copy=False), reference.values.astype(dtype, copy=False)
    )


def _is_worth_counting(values: NDArray[np.floating], reference: SortedReference) -> bool:
    return (
        values.dtype == np.float32
        and math.lcm(values.size, reference.values.size) < MAX_HEIGHT
        and not do_values_repeat(values)
    )


def _is_compiled() -> bool:
    return compile_kernels.cache_info().currsize > 0


def _is_worth_buckets(reference: NDArray[np.floating]) -> bool:
    return reference.dtype == np.float32 and reference.size >= WORTH_BUCKETS


def _with_buckets(reference: SortedReference) -> SortedReference:
    """Return the reference with buckets, if it is of float32 and they are of use."""
    kernels = compile_kernels()
    if reference.values.dtype != np.float32:
        return reference
    buckets = Buckets.of(reference.values, kernels)
    return reference if buckets.is_crowded else replace(reference, buckets=buckets)


def _as_floats(values: ArrayLike, whose: str) -> NDArray[np.floating]:
    """Return a vector of float32 or float64 that holds the same numbers."""
    vector = np.ravel(values)
    if vector.size == 0:
        raise EmptyCohortError(f"signed KS: {whose} has 0 values, wanted at least one")
    if vector.dtype.kind == "f" and vector.dtype.itemsize <= 8:
        return vector.astype(np.float64 if vector.dtype.itemsize == 8 else np.float32, copy=False)
    if vector.dtype.kind in "bui":
        floats = vector.astype(np.float64)
        if np.abs(floats).max() < MAX_EXACT_INTEGER:
            return floats
    raise InvalidUpdateError(
        f"signed KS: {whose} is {vector.dtype}, wanted float16, float32, float64 "
        "or integers below 2**53"
    )
