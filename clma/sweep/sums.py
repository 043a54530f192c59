"""Sums over stripes, which are added in the order of the stripes whoever computed them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from numpy.typing import NDArray

from clma.sweep.inner_products import InnerProducts

__all__ = ["added", "kept_apart"]

Sum = TypeVar("Sum", InnerProducts, NDArray[Any])


def kept_apart(sums: Iterable[Sum], *, all_stripes: bool) -> tuple[Sum, ...]:
    """Return the sums of stripes; of a shard that has them all, what they add up to."""
    found: Iterator[Sum] = iter(sums)
    if not all_stripes:
        return tuple(found)
    first = next(found, None)
    return () if first is None else (functools.reduce(operator.add, found, first),)


def added(sums: Iterable[Sum]) -> Sum:
    """Add up at least one sum, from the first to the last."""
    return functools.reduce(operator.add, sums)
