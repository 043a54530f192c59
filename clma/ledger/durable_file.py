"""Write files that are whole or absent, also after a power cut or on a disk that fails."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from clma.ledger.drafts import draft_name

__all__ = [
    "DurableFolders",
    "discard",
    "replace_files",
    "sync_file",
    "sync_folder",
    "write_all",
    "write_draft",
]

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)

_PIECE = 1 << 30
"""Bytes of one call; Linux writes at most 2 GiB - 4 KiB."""


class DurableFolders:
    """Makes folders whose names outlast a power cut.

    That a folder is there does not mean that its name is on the disk: who made it may have been
    killed, or refused, before that. So the way down from the root is synced once by everybody.

    Parameters
    ----------
    root : Path
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._durable: set[Path] = set()

    def make(self, folder: Path) -> None:
        """Make a folder at or below the root, and what is missing above it."""
        if folder in self._durable and folder.is_dir():
            return
        made = _make_missing(folder)
        way = [folder, *(p for p in folder.parents if p.is_relative_to(self._root))]
        for new in sorted({*way, *made}):
            if new in made or new not in self._durable:
                _sync_name(new, ours=new in made)
                self._durable.add(new)


def write_draft(path: Path, data: bytes | Iterable[bytes]) -> Path:
    """Write a hidden file beside `path` and sync it; whatever fails, nothing is left of it.

    Pieces are written as they come, so a large file is never in memory as a whole.

    Synced before it gets its name, so that a power cut never leaves a named file without content.
    """
    draft = path.with_name(draft_name(path.name))
    descriptor = os.open(draft, _CREATE, 0o666)
    try:
        try:
            for piece in (data,) if isinstance(data, bytes) else data:
                write_all(descriptor, piece)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        # Above all after a failed sync: the system may have dropped what it could not write, and
        # a second sync of the same file would say that all is well.
        discard(draft)
        raise
    return draft


def replace_files(files: Mapping[Path, bytes]) -> None:
    """Write files of one folder, over older ones if need be: each at once, durably, or not at all.

    All are on the disk before the first of them gets its name, so a full disk changes none.
    """
    drafts: dict[Path, Path] = {}
    try:
        for path, data in files.items():
            drafts[path] = write_draft(path, data)
        for path, draft in drafts.items():
            draft.replace(path)
    except BaseException:
        for draft in drafts.values():
            discard(draft)
        raise
    for folder in {path.parent for path in files}:
        sync_folder(folder)


def discard(draft: Path) -> None:
    """Delete a draft if the disk lets us; it is hidden, and swept later if not."""
    with contextlib.suppress(OSError):
        draft.unlink()


def sync_file(path: Path) -> None:
    """Wait until the bytes of a file that somebody else wrote are on the disk."""
    if os.name == "nt":  # Windows syncs only what is open for writing
        return
    _sync(path)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name == "nt":  # Windows cannot open a folder; NTFS journals the name itself
        return
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write bytes where a file stands; the system may take fewer at a time."""
    rest = memoryview(data)
    while rest:
        n_written = os.write(descriptor, rest[:_PIECE])
        if n_written == 0:
            raise OSError(errno.EIO, "the disk took no byte")
        rest = rest[n_written:]


def _make_missing(folder: Path) -> list[Path]:
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
    return missing


def _sync_name(folder: Path, *, ours: bool) -> None:
    try:
        sync_folder(folder.parent)
    except PermissionError:
        # A plant may have the right to write into its own folder only; who made it, synced it.
        if ours:
            raise
