"""All floating-point parameters of a model as numbered columns, cut into pieces of fixed borders.

What is summed up over columns (inner products, norms) must not depend on how the work was divided.
So the borders of the pieces follow from the model alone: *blocks*, within which one sum is taken,
and *stripes* of whole blocks, whose sums are added in their order whoever computed them.

Examples
--------
>>> columns = plan_columns([TensorSpec("w", "F32", (3, 2)), TensorSpec("b", "F32", (2,))])
>>> columns.names, columns.n_columns
(('b', 'w'), 8)
>>> [piece.parts for piece in columns.pieces(Span(0, 8))]
[(Part(tensor=0, start=0, stop=2), Part(tensor=1, start=2, stop=8))]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.parameters.tensor_file import FLOAT_DTYPES, NUMPY_DTYPES, file_order
from clma.records import TensorSpec

__all__ = ["BLOCK", "MAX_STRIPES", "Columns", "Part", "Piece", "Span", "plan_columns"]

BLOCK = 16_384
"""Columns of one sum: a few float64 vectors of this length stay in a core's own cache."""

MAX_STRIPES = 16
"""Parts that a model's columns can be divided into; more workers than this find nothing to do."""

MIN_BLOCKS = 8
"""In a stripe: what is read at once must not be cut small for shards that nobody needs."""


@dataclass(frozen=True, slots=True)
class Span:
    """Columns `start` to `stop`, excluded."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def blocks(self) -> Iterator[slice]:
        """Cut the columns at multiples of `BLOCK`; yield slices that count from `start`."""
        for low in range(self.start // BLOCK * BLOCK, self.stop, BLOCK):
            yield slice(max(low, self.start) - self.start, min(low + BLOCK, self.stop) - self.start)


@dataclass(frozen=True, slots=True)
class Part:
    """The columns of one tensor within a piece; `tensor` is its number in `Columns.specs`."""

    tensor: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring columns of one dtype that are read and computed together.

    Parameters
    ----------
    span : Span
    dtype : str
        As safetensors writes it.
    parts : tuple of Part
        The same columns by tensor.
    """

    span: Span
    dtype: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Columns:
    """The numbering of a model's columns.

    Parameters
    ----------
    specs : tuple of TensorSpec
        Floating-point tensors in the order of their columns, which is the one of a file that is
        written here: wide dtypes first, then by name.
    borders : tuple of int
        First column of every tensor, and the number of all columns.
    selected : tuple of bool
        The tensors that cohorting looks at; aggregation covers all.
    output : tuple of bool
        Those among them that are the output layer; empty where it does not count by itself.
    """

    specs: tuple[TensorSpec, ...]
    borders: tuple[int, ...]
    selected: tuple[bool, ...]
    output: tuple[bool, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tensors, in the order of their columns."""
        return tuple(spec.name for spec in self.specs)

    @property
    def n_columns(self) -> int:
        """Floating-point parameters of the model."""
        return self.borders[-1]

    def n_bytes(self, span: Span) -> int:
        """Return the bytes that some columns take in a file."""
        sizes = {dtype: NUMPY_DTYPES[dtype].itemsize for dtype in {s.dtype for s in self.specs}}
        return sum((p.stop - p.start) * sizes[self._dtype_of(p)] for p in self._parts(span))

    def stripes(self) -> tuple[Span, ...]:
        """Return the parts that can be summed apart: at most 16, equal in size up to a block."""
        n_blocks = -(-self.n_columns // BLOCK)
        n_stripes = max(1, min(MAX_STRIPES, n_blocks // MIN_BLOCKS))
        cuts = [k * n_blocks // n_stripes * BLOCK for k in range(n_stripes)] + [self.n_columns]
        return tuple(Span(a, b) for a, b in itertools.pairwise(cuts))

    def selected_spans(self) -> list[Span]:
        """Return the columns that cohorting looks at, as few spans."""
        spans: list[Span] = []
        for chosen, (start, stop) in zip(
            self.selected, itertools.pairwise(self.borders), strict=True
        ):
            if chosen and spans and spans[-1].stop == start:
                spans[-1] = Span(spans[-1].start, stop)
            elif chosen:
                spans.append(Span(start, stop))
        return spans

    def pieces(self, span: Span, *, width: int = BLOCK) -> Iterator[Piece]:
        """Cut columns at the multiples of `width` and where the dtype changes."""
        for low in range(span.start // width * width, span.stop, width):
            inside = Span(max(low, span.start), min(low + width, span.stop))
            for dtype, parts in itertools.groupby(self._parts(inside), self._dtype_of):
                run = tuple(parts)
                yield Piece(Span(run[0].start, run[-1].stop), dtype, run)

    def selects_any(self, piece: Piece) -> bool:
        """Tell whether cohorting looks at any tensor of a piece."""
        return any(self.selected[part.tensor] for part in piece.parts)

    def selection(self, piece: Piece) -> NDArray[np.float64] | None:
        """Return 1.0 for every column that cohorting looks at, else 0.0; None if it is all."""
        if all(self.selected[part.tensor] for part in piece.parts):
            return None
        return np.concatenate(
            [np.full(p.stop - p.start, float(self.selected[p.tensor])) for p in piece.parts]
        )

    def _dtype_of(self, part: Part) -> str:
        return self.specs[part.tensor].dtype

    def _parts(self, span: Span) -> Iterator[Part]:
        first = int(np.searchsorted(self.borders, span.start, side="right")) - 1
        for tensor in range(max(first, 0), len(self.specs)):
            start, stop = self.borders[tensor], self.borders[tensor + 1]
            if start >= span.stop:
                return
            if stop > max(start, span.start):
                yield Part(tensor, max(start, span.start), min(stop, span.stop))


def plan_columns(
    specs: Sequence[TensorSpec],
    selected: Sequence[str] | None = None,
    output: Sequence[str] = (),
) -> Columns:
    """Number the columns of a model.

    Parameters
    ----------
    specs : sequence of TensorSpec
        Of the whole model, in any order.
    selected : sequence of str, optional
        Names of the tensors that cohorting looks at. Default: all of floating point.
    output : sequence of str
        Names of the output layer's tensors, where it counts by itself.
    """
    floats = file_order(s for s in specs if s.dtype in FLOAT_DTYPES)
    sizes = [math.prod(s.shape) for s in floats]
    wanted = {s.name for s in floats} if selected is None else set(selected)
    seen = tuple(s.name in wanted and s.name in output for s in floats)
    return Columns(
        floats,
        (0, *itertools.accumulate(sizes)),
        tuple(s.name in wanted for s in floats),
        seen if any(seen) else (),
    )
