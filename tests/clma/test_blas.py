from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from clma.blas import one_blas_thread, one_thread

BLAS = ThreadpoolController().select(user_api="blas")


def limits() -> set[int]:
    return {library.num_threads for library in BLAS.lib_controllers}


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    with BLAS.limit(limits=3, user_api="blas"):
        assert limits() == {3}, "this BLAS takes no number of threads, nothing can be tested here"
        yield


def test_limit_is_one_inside_and_the_former_one_after() -> None:
    with one_blas_thread():
        assert limits() == {1}
    assert limits() == {3}


def test_former_limit_comes_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        _ = 1 // 0
    assert limits() == {3}


def test_inner_block_does_not_lift_the_outer_limit() -> None:
    with one_blas_thread():
        with one_blas_thread():
            pass
        assert limits() == {1}
    assert limits() == {3}


def test_first_thread_to_leave_does_not_free_the_other() -> None:
    """One enters, the other enters, the first leaves while the other still computes."""
    entered, leave = threading.Event(), threading.Event()

    def first() -> None:
        with one_blas_thread():
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(30)
    with one_blas_thread():
        leave.set()
        thread.join()
        assert limits() == {1}
    assert limits() == {3}


def test_many_threads_restore_the_former_limit() -> None:
    seen: set[int] = set()

    def work() -> None:
        for _ in range(50):
            with one_blas_thread():
                np.ones((8, 8)) @ np.ones((8, 8))
                seen.update(limits())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (seen, limits()) == ({1}, {3})


def test_library_that_was_loaded_inside_is_limited_from_the_next_entry_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As an import does: one more module, and a BLAS with its own number of threads."""
    with one_blas_thread():
        for library in BLAS.lib_controllers:
            library.set_num_threads(2)
        monkeypatch.setitem(sys.modules, "a_module_that_brings_a_blas", threading)
        with one_blas_thread():
            assert limits() == {1}
    assert limits() == {3}


def test_openmp_is_one_too_where_it_is_asked_for() -> None:
    pytest.importorskip("sklearn.cluster")
    openmp = ThreadpoolController().select(user_api="openmp")
    with openmp.limit(limits=2, user_api="openmp"):
        with one_thread():
            assert {library.num_threads for library in openmp.lib_controllers} == {1}
            assert limits() == {1}
        assert {library.num_threads for library in openmp.lib_controllers} == {2}
