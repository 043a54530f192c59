from __future__ import annotations

import threading
import time

import pytest

from clma.ledger.side_by_side import FEW, N_THREADS, side_by_side

MANY = range(20 * FEW)


def dawdle(item: int) -> int:
    time.sleep(item * 7919 % 13 / 5000)
    return item


def test_results_come_in_the_order_of_the_items() -> None:
    assert side_by_side(dawdle, MANY) == list(MANY)


def test_of_several_errors_that_of_the_first_item_is_raised() -> None:
    def fail(item: int) -> int:
        if item in {200, 210}:
            raise ValueError(f"item {dawdle(item)}")
        return item

    with pytest.raises(ValueError, match="item 200"):
        side_by_side(fail, MANY)


def test_after_an_error_the_rest_is_left() -> None:
    begun: list[int] = []

    def fail(item: int) -> None:
        begun.append(dawdle(item))
        raise ValueError(str(item))

    with pytest.raises(ValueError, match="0"):
        side_by_side(fail, MANY)
    assert len(begun) < len(MANY) / 2


def test_no_more_threads_than_told_work_at_once() -> None:
    working: set[int] = set()

    side_by_side(lambda item: working.add(threading.get_ident() + 0 * dawdle(item)), MANY)

    assert 1 < len(working) <= N_THREADS


def test_few_items_start_no_thread() -> None:
    assert set(side_by_side(lambda _: threading.get_ident(), range(FEW))) == {threading.get_ident()}
