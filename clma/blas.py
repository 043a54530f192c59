"""One BLAS thread at a time, so that a sum has one order on any machine.

The number of threads that BLAS uses belongs to the process, not to a thread of ours. Two threads
that each set and restore it would undo each other: the first to leave would free the other's
computation. Here the first to come sets the limit and the last to leave restores it.

Examples
--------
>>> with one_blas_thread():
...     np.ones((2, 2)) @ np.ones((2, 2))
array([[2., 2.],
       [2., 2.]])
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from threadpoolctl import LibController, OpenBLASController, ThreadpoolController

__all__ = ["one_blas_thread", "one_thread"]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep every loaded BLAS at one thread, until the last of all who asked for it has left.

    Notes
    -----
    Safe from any number of threads, and nested. A BLAS that is loaded by an import inside the block
    is limited from the next entry on.
    """
    _PIN.enter()
    try:
        yield
    finally:
        _PIN.leave()


@contextmanager
def one_thread() -> Iterator[None]:
    """Do the same for OpenMP, too, whose limit is the calling thread's own.

    Notes
    -----
    For k-means, which adds up its centres in as many parts as OpenMP has threads.
    """
    with one_blas_thread():
        openmp = _PIN.loaded().select(user_api="openmp")
        with openmp.limit(limits=1, user_api="openmp"):
            yield


class _Pin:
    """The count of those inside, and what was before the first of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._n_inside = 0
        self._n_modules = 0
        self._controller: ThreadpoolController = None
        self._former: list[tuple[LibController, int]] = []

    def enter(self) -> None:
        with self._lock:
            before, controller = self._controller, self._rescan()
            if self._n_inside == 0 or controller is not before:
                libraries = controller.select(user_api="blas").lib_controllers
                self._former += [(library, library.num_threads) for library in libraries]
                _set_limits([(library, 1) for library in libraries])
            self._n_inside += 1

    def leave(self) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                # Backwards: what was found at a later scan had its limit from an earlier one.
                _set_limits(self._former[::-1])
                self._former.clear()
                OpenBLASController.clear_controlling_thread(force=True)

    def loaded(self) -> ThreadpoolController:
        with self._lock:
            return self._rescan()

    def _rescan(self) -> ThreadpoolController:
        """Look for libraries again where an import may have loaded one: it takes 5 to 30 ms."""
        if self._controller is None or len(sys.modules) != self._n_modules:
            self._controller = ThreadpoolController()
            self._n_modules = len(sys.modules)
        return self._controller


def _set_limits(limits: Sequence[tuple[LibController, int]]) -> None:
    # threadpoolctl lets only one thread set a limit and ignores all others without a word; the
    # thread that restores is not always the one that set.
    OpenBLASController.clear_controlling_thread(force=True)
    for library, limit in limits:
        library.set_num_threads(limit)


_PIN = _Pin()
