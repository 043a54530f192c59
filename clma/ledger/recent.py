"""Values that were made from bytes not long ago, found again by the digest of those bytes.

The tasks of a night open the federation one after another and read the same large records. A digest
stands for the bytes, so what is found is what would be made again, whatever happened on the disk in
between.

Examples
--------
>>> lengths: Recent[int] = Recent(len, n_kept=2)
>>> lengths.of(b"abc")
3
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Recent"]

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Makes values from bytes and keeps the newest ones; safe to use from several threads.

    Parameters
    ----------
    make : callable
        Of the bytes only; its values are never modified.
    n_kept : int, >= 1
    """

    def __init__(self, make: Callable[[bytes], Value], *, n_kept: int) -> None:
        self._make = make
        self._n_kept = n_kept
        self._lock = threading.Lock()
        self._values: dict[str, Value] = {}

    def of(self, data: bytes) -> Value:
        """Return the value of some bytes; what making it raises is not kept."""
        digest = hashlib.sha256(data).hexdigest()
        # Within the lock: of several threads that want one value, one makes it and all wait.
        with self._lock:
            value = self._values.pop(digest, None)
            if value is None:
                value = self._make(data)
            self._values[digest] = value
            while len(self._values) > self._n_kept:
                del self._values[next(iter(self._values))]
            return value
