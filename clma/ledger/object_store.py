"""Objects in memory, S3, GCS or Azure, through obstore."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from collections.abc import Iterator
from typing import Any

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import MemoryStore, from_url

from clma.errors import ClmaError, ConflictError, MissingObjectError
from clma.ledger.object_info import ObjectInfo

__all__ = ["RemoteObjects"]

_memories: dict[str, MemoryStore] = {}
_memories_lock = threading.Lock()


class RemoteObjects:
    """Keys as objects of a bucket, or of this process' memory.

    Parameters
    ----------
    url : str
        As obstore takes it, with credentials from the environment; ``memory://NAME`` is the same
        store for everybody in this process.

    Raises
    ------
    ClmaError
        If the URL names no store that can be opened.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._store: Any = _memory(url) if url.startswith("memory:") else from_url(url)
        except (BaseError, ValueError) as error:
            first_line = str(error).partition("\n")[0]
            raise ClmaError(f"store {url!r} cannot be opened: {first_line}") from None

    def read(self, key: str) -> bytes:
        """Return an object's bytes."""
        try:
            return bytes(self._store.get(key).bytes())
        except FileNotFoundError:
            raise MissingObjectError(f"{key} is missing in {self.url}") from None

    def info(self, key: str) -> ObjectInfo:
        """Return an object's size and age."""
        try:
            head = self._store.head(key)
        except FileNotFoundError:
            raise MissingObjectError(f"{key} is missing in {self.url}") from None
        modified = head["last_modified"].astimezone(dt.UTC)
        identity = f"{head.get('e_tag') or ''}:{modified.isoformat()}"
        return ObjectInfo(int(head["size"]), modified, identity)

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the keys below a prefix, unsorted."""
        for page in self._store.list(prefix or None):
            yield from (str(item["path"]) for item in page)

    def create(self, key: str, data: bytes) -> None:
        """Write an object that must not be there yet."""
        try:
            self._store.put(key, data, mode="create")
        except (AlreadyExistsError, PreconditionError):
            raise ConflictError(f"{key} is already there in {self.url}") from None

    def replace(self, key: str, data: bytes) -> None:
        """Write an object, over an older one if need be."""
        self._store.put(key, data)

    def delete(self, key: str) -> None:
        """Delete an object, if there is one."""
        # Some stores tell that it was not there, some do not.
        with contextlib.suppress(FileNotFoundError):
            self._store.delete(key)


def _memory(url: str) -> MemoryStore:
    name = url.removeprefix("memory:").strip("/")
    with _memories_lock:
        return _memories.setdefault(name, MemoryStore())
