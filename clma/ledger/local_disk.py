"""Objects as files of one folder: atomic, durable, and deaf to links.

Not left to the object-store client, for three reasons: it does not fsync, it follows links out of
the folder, and one file with an odd name makes its listing fail.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from clma.errors import ConflictError, DamagedStoreError, MissingObjectError
from clma.ledger.object_info import ObjectInfo

__all__ = ["LocalDisk"]

# Absent on Windows. NONBLOCK: opening a named pipe that someone dropped must not wait for a writer.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_BINARY = getattr(os, "O_BINARY", 0)

_MAX_DEPTH = 8
"""Folders below a listed one that are looked into; keys need three, but a plant may drop more."""


class LocalDisk:
    """Keys as paths below a folder, which is made with the first object.

    Parameters
    ----------
    root : Path
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self.url = str(self._root)

    def read(self, key: str) -> bytes:
        """Return an object's bytes."""
        descriptor = self._open(key)
        with os.fdopen(descriptor, "rb") as handle:
            return handle.read()

    def info(self, key: str) -> ObjectInfo:
        """Return an object's size and age."""
        descriptor = self._open(key)
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        modified = dt.datetime.fromtimestamp(status.st_mtime, tz=dt.UTC)
        return ObjectInfo(status.st_size, modified, f"{status.st_dev}:{status.st_ino}")

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the keys below a folder, and links and odd names as they are found, unsorted."""
        folder = self._path(prefix) if prefix else self._root
        if folder.is_dir():
            found = _walk(folder, f"{prefix}/" if prefix else "")
            yield from (name for name in found if not _is_hidden(name))

    def create(self, key: str, data: bytes) -> None:
        """Write an object that must not be there yet."""
        path = self._path(key)
        draft = self._stage(path, data)
        try:
            os.link(draft, path)
        except FileExistsError:
            raise ConflictError(f"{key} is already there in {self.url}") from None
        finally:
            draft.unlink()
            # Also after a conflict: whoever builds on the other writer's object needs it durable.
            _sync_folder(path.parent)

    def replace(self, key: str, data: bytes) -> None:
        """Write an object, over an older one if need be."""
        path = self._path(key)
        self._stage(path, data).replace(path)
        _sync_folder(path.parent)

    def delete(self, key: str) -> None:
        """Delete an object, if there is one."""
        self._path(key).unlink(missing_ok=True)

    def file(self, key: str) -> Path:
        """Return an object's own file."""
        os.close(self._open(key))
        return self._path(key)

    def sweep(self, prefix: str, older_than_s: float) -> int:
        """Delete drafts that a killed writer left below a folder; returns how many."""
        folder = self._path(prefix)
        limit = time.time() - older_than_s
        n_deleted = 0
        for name in _walk(folder, "") if folder.is_dir() else ():
            path = folder / name
            # Another sweeper, or the writer itself, may be first.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                if _is_draft(name) and path.lstat().st_mtime < limit:
                    path.unlink()
                    n_deleted += 1
        return n_deleted

    def _path(self, key: str) -> Path:
        path = self._root
        for part in key.split("/"):
            path = path / part
            if path.is_symlink():
                raise DamagedStoreError(f"{key}: {part!r} is a link, and links are not followed")
        return path

    def _open(self, key: str) -> int:
        try:
            descriptor = os.open(self._path(key), _READ | _BINARY)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingObjectError(f"{key} is missing in {self.url}") from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise DamagedStoreError(f"{key} is not a plain file in {self.url}")
        return descriptor

    def _stage(self, path: Path, data: bytes) -> Path:
        # In the folder of the file itself: a plant may have the right to write there only. Synced
        # before it gets its name, so that a power cut never leaves a named file without content.
        _make_folders(path.parent)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        descriptor = os.open(draft, _CREATE | _BINARY, 0o666)
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        return draft


def _walk(folder: Path, prefix: str, depth: int = _MAX_DEPTH) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except PermissionError:
        # Named as if it were an object: whoever opens it gets an error for this one alone.
        yield prefix.removesuffix("/")
        return
    for entry in entries:
        if depth and entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", depth - 1)
        else:
            yield prefix + entry.name


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _is_draft(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith(".") and last.endswith(".tmp")


def _make_folders(folder: Path) -> None:
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        _sync_folder(new.parent)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder; NTFS journals the name itself
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
