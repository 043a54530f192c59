"""Objects in memory, S3, GCS or Azure, through obstore."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import HTTPStore, MemoryStore, from_url

from clma.errors import ClmaError, ConflictError, MissingObjectError, StorageError
from clma.ledger.object_info import ObjectInfo
from clma.ledger.refusals import our_refusals_named

__all__ = ["RemoteObjects"]

_PROBE_KEY = "preflight/probe"
"""Written over each time: the right to delete is not needed."""

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
        if isinstance(self._store, HTTPStore):
            raise ClmaError(
                f"store {url!r} is a web address: only 'clma client' commands take a gateway's"
            )

    def read(self, key: str) -> bytes:
        """Return an object's bytes."""
        with self._refusals_named("read", key):
            return bytes(self._store.get(key).bytes())

    def stream(self, key: str, start: int) -> Iterator[bytes]:
        """Yield an object's bytes from an offset on, in pieces."""
        # A range that begins behind the last byte is refused by some stores.
        if start < self.info(key).size_bytes or not start:
            yield from self._parts(key, {"range": {"offset": start}} if start else None)

    def info(self, key: str) -> ObjectInfo:
        """Return an object's size and age."""
        with self._refusals_named("read", key):
            return _info(self._store.head(key))

    def look(self, key: str, max_bytes: int) -> tuple[ObjectInfo, bytes]:
        """Return an object's size and age, and its bytes if they are not more than so many."""
        with self._refusals_named("read", key):
            found = self._store.get(key)
            info = _info(found.meta)
            return info, bytes(found.bytes()) if info.size_bytes <= max_bytes else b""

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the keys below a prefix, unsorted."""
        with self._refusals_named("listed", prefix or "the store"):
            pages = list(self._store.list(prefix or None))
        yield from (str(item["path"]) for page in pages for item in page)

    def create(self, key: str, data: bytes) -> None:
        """Write an object that must not be there yet."""
        with self._refusals_named("written", key):
            try:
                self._store.put(key, data, mode="create")
            except (AlreadyExistsError, PreconditionError):
                raise ConflictError(f"{key} is already there in {self.url}") from None

    def copy(self, key: str, folder: Path, max_bytes: int) -> tuple[Path, str, int]:
        """Download an object to a file of `folder`; return it, its SHA-256 and its size.

        It is read up to one byte more than `max_bytes`, which tells the caller that it is too
        large.
        """
        digest, size = hashlib.sha256(), 0
        draft = folder / secrets.token_hex(8)
        with (
            our_refusals_named("written", f"the copy of {key}", str(folder)),
            draft.open("xb") as handle,
        ):
            for part in self._parts(key):
                piece = part[: max_bytes + 1 - size]
                handle.write(piece)
                digest.update(piece)
                size += len(piece)
                if size > max_bytes:
                    break
        return draft, digest.hexdigest(), size

    def _parts(self, key: str, options: Any = None) -> Iterator[bytes]:
        with self._refusals_named("read", key):
            for part in self._store.get(key, options=options).stream():
                yield bytes(part)

    def delete(self, key: str) -> None:
        """Delete an object; nothing happens if there is none."""
        with contextlib.suppress(MissingObjectError), self._refusals_named("deleted", key):
            self._store.delete(key)

    def replace(self, key: str, data: bytes) -> None:
        """Write an object, over an older one if need be."""
        with self._refusals_named("written", key):
            self._store.put(key, data)

    def probe(self) -> dt.datetime:
        """Write an object, see that it is not made a second time; returns the store's time."""
        self.replace(_PROBE_KEY, b"probe")
        try:
            self.create(_PROBE_KEY, b"probe")
        except ConflictError:
            return self.info(_PROBE_KEY).modified
        raise StorageError(
            f"{self.url} makes an object that is there already: two nights could both commit; use "
            "a store with conditional writes"
        )

    @contextlib.contextmanager
    def _refusals_named(self, done: str, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise MissingObjectError(f"{what} is missing in {self.url}") from None
        except (BaseError, OSError) as error:
            # No number of the operating system: whose fault it is cannot be told from here.
            first_line = str(error).partition("\n")[0].strip() or type(error).__name__
            raise StorageError(
                f"{what} cannot be {done} in {self.url}: {first_line}; check network and "
                "credentials, then try it again"
            ) from None


def _info(head: Any) -> ObjectInfo:
    modified = head["last_modified"].astimezone(dt.UTC)
    identity = f"{head.get('e_tag') or ''}:{modified.isoformat()}"
    return ObjectInfo(int(head["size"]), modified, identity)


def _memory(url: str) -> MemoryStore:
    name = url.removeprefix("memory:").strip("/")
    with _memories_lock:
        return _memories.setdefault(name, MemoryStore())
