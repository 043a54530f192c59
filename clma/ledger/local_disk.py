"""Objects as files of one folder: atomic, durable, and deaf to links.

Not left to the object-store client, for three reasons: it does not fsync, it follows links out of
the folder, and one file with an odd name makes its listing fail.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import hashlib
import os
import stat
import time
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

from clma.errors import ConflictError, DamagedStoreError, MissingObjectError
from clma.ledger.drafts import is_draft, is_left_behind
from clma.ledger.durable_file import (
    DurableFolders,
    discard,
    replace_files,
    sync_file,
    sync_folder,
    write_draft,
)
from clma.ledger.keys import LEDGER_PREFIX
from clma.ledger.object_info import ObjectInfo
from clma.ledger.refusals import our_refusals_named, refusals_named

__all__ = ["LocalDisk"]

# Absent on Windows. NONBLOCK: opening a named pipe that someone dropped must not wait for a writer.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)

_CHUNK = 1 << 20
_MAX_DEPTH = 8
"""Folders below a listed one that are looked into; keys need three, but a plant may drop more."""


class LocalDisk:
    """Keys as paths below a folder, which is made with the first object.

    What the disk refuses is a `StorageError`: never an empty listing, a missing object, or half of
    one.

    Parameters
    ----------
    root : Path
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._folders = DurableFolders(self.root)
        self.url = str(self.root)

    def read(self, key: str) -> bytes:
        """Return an object's bytes."""
        with refusals_named("read", key, self.url), os.fdopen(self._open(key), "rb") as handle:
            return handle.read()

    def stream(self, key: str, start: int) -> Iterator[bytes]:
        """Yield an object's bytes from an offset on, in pieces."""
        with refusals_named("read", key, self.url), os.fdopen(self._open(key), "rb") as handle:
            handle.seek(start)
            while piece := handle.read(_CHUNK):
                yield piece

    def info(self, key: str) -> ObjectInfo:
        """Return an object's size and age."""
        with refusals_named("read", key, self.url):
            descriptor = self._open(key)
            try:
                return _info(os.fstat(descriptor))
            finally:
                os.close(descriptor)

    def look(self, key: str, max_bytes: int) -> tuple[ObjectInfo, bytes]:
        """Return an object's size and age, and at most so many of its bytes."""
        with refusals_named("read", key, self.url), os.fdopen(self._open(key), "rb") as handle:
            return _info(os.fstat(handle.fileno())), handle.read(max_bytes)

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the keys below a folder, and links and odd names as they are found, unsorted."""
        with refusals_named("listed", prefix or "the store", self.url):
            folder = self._path(prefix) if prefix else self.root
            found = list(_walk(_entries(folder), f"{prefix}/" if prefix else ""))
        yield from (name for name in found if not _is_hidden(name))

    def create(self, key: str, data: bytes) -> None:
        """Write an object that must not be there yet."""
        with refusals_named("written", key, self.url, len(data)):
            path = self._path(key)
            self._folders.make(path.parent)
            draft = write_draft(path, data)
            try:
                is_new = _link(draft, path)
            finally:
                discard(draft)
            # Also after a conflict: whoever builds on the other writer's object needs it durable.
            sync_folder(path.parent)
        if not is_new:
            raise ConflictError(f"{key} is already there in {self.url}")

    def replace(self, key: str, data: bytes) -> None:
        """Write an object, over an older one if need be."""
        # In the folder of the file itself: a plant may have the right to write there only.
        with refusals_named("written", key, self.url, len(data)):
            path = self._path(key)
            self._folders.make(path.parent)
            replace_files({path: data})

    def make_durable(self, key: str) -> None:
        """Wait until an object's bytes and name are on the disk, whoever wrote it."""
        with refusals_named("written", key, self.url):
            path = self.file(key)
            sync_file(path)
            self._folders.make(path.parent)
            sync_folder(path.parent)

    def probe(self) -> dt.datetime:
        """Write a hidden file, name it once, sync both, delete it; returns the disk's time.

        Where an entry would be written; of the other folders only the right to write is checked.
        """
        folder = self.root / LEDGER_PREFIX
        with refusals_named("written", "a probe", str(folder)):
            draft = write_draft(folder / "probe", b"probe")
            named = draft.with_suffix(".named.tmp")
            try:
                modified = draft.stat().st_mtime
                if not _link(draft, named) or _link(draft, named):
                    raise OSError(errno.EOPNOTSUPP, "a name was given twice")
            finally:
                discard(draft)
                discard(named)
            sync_folder(folder)
        for other in (self.root, self.root / "models", self.root / "rounds"):
            with refusals_named("written", "a probe", str(other)):
                if other.is_dir() and not os.access(other, os.W_OK | os.X_OK):
                    raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return dt.datetime.fromtimestamp(modified, tz=dt.UTC)

    def copy(self, key: str, target: str, max_bytes: int) -> tuple[Path, str, int]:
        """Copy an object to a draft of another one; return the draft, its SHA-256 and its size.

        The source may change under the copy: what is hashed is what was written. It is read up to
        one byte more than `max_bytes`, which tells the caller that it is too large.

        Raises
        ------
        StorageError
            Without a number where our own place refuses: it is never the sender's fault.
        """
        digest = hashlib.sha256()
        with our_refusals_named("written", target, self.url, max_bytes):
            path = self._path(target)
            self._folders.make(path.parent)
            with contextlib.closing(self._pieces(key, max_bytes + 1)) as pieces:
                draft = write_draft(path, _hashed(pieces, digest))
        return draft, digest.hexdigest(), draft.stat().st_size

    def name(self, draft: Path, key: str) -> None:
        """Give a draft its name, as `create` does; `sync` makes the name durable."""
        with our_refusals_named("written", key, self.url):
            is_new = _link(draft, self._path(key))
        if not is_new:
            raise ConflictError(f"{key} is already there in {self.url}")

    def sync(self, prefix: str) -> None:
        """Make the names in a folder durable."""
        with refusals_named("written", prefix, self.url):
            folder = self._path(prefix)
            if folder.is_dir():
                sync_folder(folder)

    def delete(self, key: str) -> None:
        """Delete an object; nothing happens if there is none. `sync` makes it durable."""
        gone = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with refusals_named("deleted", key, self.url), gone:
            self._path(key).unlink()

    def prune(self, prefix: str) -> None:
        """Remove a folder and those around it as far as they are empty, without the root."""
        folder = self._path(prefix)
        with contextlib.suppress(OSError):
            while folder != self.root:
                folder.rmdir()
                folder = folder.parent
        with refusals_named("written", prefix, self.url):
            if folder.is_dir():
                sync_folder(folder)

    def file(self, key: str) -> Path:
        """Return an object's own file."""
        with refusals_named("read", key, self.url):
            os.close(self._open(key))
            return self._path(key)

    def sweep(self, prefix: str, older_than_s: float, deep: bool) -> int:
        """Delete drafts in a folder that are that old or whose writer is dead; returns how many.

        Whether a writer lives is known of this machine's processes only.
        """
        with refusals_named("listed", prefix or "the store", self.url):
            folder = self._path(prefix) if prefix else self.root
            found = _walk(_entries(folder), "", _MAX_DEPTH if deep else 0)
            names = [name for name in found if is_draft(name.rpartition("/")[2])]
        limit = time.time() - older_than_s
        n_deleted = 0
        for name in names:
            path = folder / name
            # Another sweeper, or the writer itself, may be first; and what stays does no harm.
            with contextlib.suppress(OSError):
                if path.lstat().st_mtime < limit or is_left_behind(path.name):
                    path.unlink()
                    n_deleted += 1
        return n_deleted

    def _path(self, key: str) -> Path:
        # Texts and not paths: a night comes here some ten times for each plant.
        path = str(self.root)
        for part in key.split("/"):
            path = f"{path}{os.sep}{part}"
            if _is_link(path):
                raise DamagedStoreError(f"{key}: {part!r} is a link, and links are not followed")
        return Path(path)

    def _open(self, key: str) -> int:
        try:
            descriptor = os.open(self._path(key), _READ | _BINARY)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingObjectError(f"{key} is missing in {self.url}") from None
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise DamagedStoreError(f"{key} is a link, and links are not followed") from None
        if not _is_plain(descriptor):
            os.close(descriptor)
            raise DamagedStoreError(f"{key} is not a plain file in {self.url}")
        return descriptor

    def _pieces(self, key: str, max_bytes: int) -> Generator[bytes]:
        """Yield an object's bytes in pieces, at most so many."""
        left = max_bytes
        with refusals_named("read", key, self.url), os.fdopen(self._open(key), "rb") as source:
            while left and (piece := source.read(min(_CHUNK, left))):
                left -= len(piece)
                yield piece


def _hashed(pieces: Iterable[bytes], digest: Any) -> Iterator[bytes]:
    for piece in pieces:
        digest.update(piece)
        yield piece


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _info(status: os.stat_result) -> ObjectInfo:
    identity = f"{status.st_dev}:{status.st_ino}"
    return ObjectInfo(status.st_size, _time_of(status.st_mtime), identity)


def _time_of(seconds: float) -> dt.datetime:
    # Whoever owns a file may give it any time, also one that no calendar has.
    try:
        return dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    except (ValueError, OverflowError, OSError):
        return dt.datetime.fromtimestamp(0, tz=dt.UTC)


def _is_plain(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise


def _link(draft: Path, path: Path) -> bool:
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except PermissionError as error:
        if error.errno != errno.EPERM:
            raise
        # The folder took the draft: it is not the user's right that is missing. FAT says it so.
        raise OSError(errno.EOPNOTSUPP, "no hard links") from None
    return True


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _walk(
    entries: Iterable[os.DirEntry[str]], prefix: str, depth: int = _MAX_DEPTH
) -> Iterator[str]:
    for entry in entries:
        name = prefix + entry.name
        if not depth or not entry.is_dir(follow_symlinks=False):
            yield name
            continue
        try:
            inner = _entries(Path(entry.path))
        except PermissionError:
            # Named as if it were an object: whoever opens it gets an error for this one alone.
            yield name
        else:
            yield from _walk(inner, f"{name}/", depth - 1)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))
