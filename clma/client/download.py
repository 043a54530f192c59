"""Fetch models to a plant's disk: checked, at once or not at all, and going on after a break.

What has arrived lies in a hidden file that carries the digest of what it is to become; the next
attempt, of this or another process, goes on behind it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from clma.client.access import Access
from clma.errors import DamagedStoreError, StorageError
from clma.ledger.durable_file import (
    discard,
    sync_file,
    sync_folder,
    write_all,
    write_draft,
)
from clma.ledger.refusals import refusals_named
from clma.ledger.store import file_digest
from clma.records import model_ref

__all__ = ["OwnDiskError", "download", "is_there", "put_in_place"]


class OwnDiskError(StorageError):
    """The plant's disk refuses, not the store."""


def download(access: Access, models: Mapping[Path, str]) -> dict[Path, Path]:
    """Fetch models to hidden files beside where they belong.

    Parameters
    ----------
    access : Access
    models : mapping of Path to str
        File and digest; what is there already is not fetched.

    Returns
    -------
    dict of Path to Path
        Complete and checked hidden file of each that was fetched, for `put_in_place`.

    Raises
    ------
    DamagedStoreError
        If a model is missing or is not what its digest says.
    OwnDiskError
        If the plant's disk refuses.
    StorageError
        If the store refuses; what arrived stays.
    """
    parts = {}
    for path, digest in models.items():
        if not is_there(path, digest):
            parts[path] = _complete(access, path, digest)
    return parts


def put_in_place(parts: Mapping[Path, Path], note: Path, text: bytes) -> None:
    """Give what was downloaded its name, after a note that says what it is.

    Raises
    ------
    StorageError
        If the disk refuses.
    """
    with refusals_named("written", note.name, str(note.parent), len(text)):
        note.parent.mkdir(parents=True, exist_ok=True)
        draft = write_draft(note, text)
        try:
            # A model without its note would be taken for the one of the state.
            draft.replace(note)
        except BaseException:
            discard(draft)
            raise
        for path, part in parts.items():
            # Two pulls at once have the same bytes; the other one may have been faster.
            with contextlib.suppress(FileNotFoundError):
                part.replace(path)
            for left in path.parent.glob(f".{path.name}.*.part"):
                discard(left)
        sync_folder(note.parent)


def is_there(path: Path, digest: str) -> bool:
    """Tell whether a file has the bytes of a digest."""
    try:
        return file_digest(path) == digest
    except OSError:
        return False


def _complete(access: Access, path: Path, digest: str) -> Path:
    part = path.with_name(f".{path.name}.{digest[:16]}.part")
    with _own_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        began_anew = not part.exists()
        _append(access, digest, part)
        found = file_digest(part)
        if found != digest and not began_anew:
            # A power cut may have left a length without its bytes.
            discard(part)
            _append(access, digest, part)
            found = file_digest(part)
        if found != digest:
            discard(part)
            raise DamagedStoreError(
                f"{model_ref(digest).path} has SHA-256 {found[:12]}..., "
                f"recorded is {digest[:12]}..."
            )
        sync_file(part)
    return part


@contextlib.contextmanager
def _own_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as refused:
        try:
            with refusals_named("written", path.name, str(path.parent)):
                raise
        except StorageError as error:
            raise OwnDiskError(str(error), error.errno) from refused


def _append(access: Access, digest: str, part: Path) -> None:
    # Written at its place, not at the end: two pulls of one plant write the same bytes twice.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    try:
        done = os.fstat(descriptor).st_size
        os.lseek(descriptor, done, os.SEEK_SET)
        for piece in access.model(digest, start=done):
            write_all(descriptor, piece)
    finally:
        os.close(descriptor)
