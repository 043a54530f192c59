from __future__ import annotations

import itertools

import pytest

from clma.records import TensorSpec
from clma.sweep.columns import BLOCK, MAX_STRIPES, MIN_BLOCKS, Columns, Span, plan_columns

MIXED = (
    TensorSpec("head", "F32", (5, 2)),
    TensorSpec("count", "I64", ()),
    TensorSpec("scale", "F64", (3,)),
    TensorSpec("body", "F32", (2 * BLOCK,)),
    TensorSpec("half", "BF16", (7,)),
)


def large(n_columns: int) -> Columns:
    return plan_columns([TensorSpec("w", "F32", (n_columns,))])


def test_wide_tensors_come_first_and_integers_have_no_columns() -> None:
    columns = plan_columns(MIXED)
    assert columns.names == ("scale", "body", "head", "half")
    assert columns.n_columns == 3 + 2 * BLOCK + 10 + 7


@pytest.mark.parametrize("width", [256, BLOCK, 4 * BLOCK])
def test_pieces_cover_every_column_once_with_one_dtype_each(width: int) -> None:
    columns = plan_columns(MIXED)
    pieces = list(columns.pieces(Span(0, columns.n_columns), width=width))
    assert [c for p in pieces for c in range(p.span.start, p.span.stop)] == [
        *range(columns.n_columns)
    ]
    assert all({columns.specs[part.tensor].dtype for part in p.parts} == {p.dtype} for p in pieces)
    assert all(p.parts[0].start == p.span.start and p.parts[-1].stop == p.span.stop for p in pieces)


@pytest.mark.parametrize("n_columns", [1, BLOCK, 2 * MIN_BLOCKS * BLOCK + 1, 400 * BLOCK + 5])
def test_stripes_cover_every_column_and_are_cut_between_blocks(n_columns: int) -> None:
    stripes = large(n_columns).stripes()
    assert stripes[0].start == 0
    assert stripes[-1].stop == n_columns
    assert all(a.stop == b.start and b.start % BLOCK == 0 for a, b in itertools.pairwise(stripes))
    assert len(stripes) == min(MAX_STRIPES, max(1, n_columns // (MIN_BLOCKS * BLOCK)))


def test_blocks_are_cut_at_the_same_columns_wherever_a_span_begins() -> None:
    whole = {b.stop for b in Span(0, 4 * BLOCK).blocks()}
    later = {b.stop + 10 for b in Span(10, 4 * BLOCK).blocks()}
    assert whole == later == {BLOCK, 2 * BLOCK, 3 * BLOCK, 4 * BLOCK}


def test_model_without_columns_has_one_empty_stripe() -> None:
    columns = plan_columns([TensorSpec("n", "I64", (4,))])
    assert columns.stripes() == (Span(0, 0),)
    assert list(columns.pieces(Span(0, 0))) == []


def test_bytes_of_stripes_add_up_to_the_files() -> None:
    columns = plan_columns(MIXED)
    assert sum(columns.n_bytes(s) for s in columns.stripes()) == 3 * 8 + (2 * BLOCK + 10) * 4 + 14


def test_selected_neighbours_are_one_span() -> None:
    columns = plan_columns([TensorSpec(n, "F32", (2,)) for n in "abcde"], ["a", "b", "d", "e"])
    assert columns.selected_spans() == [Span(0, 4), Span(6, 10)]
