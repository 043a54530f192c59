"""The federation folder on a local disk or any object store, behind one small interface.

Every write of the ledger goes through *put if absent*, which is atomic on all of them; on a local
disk it is durable, too, before it returns. What the place refuses is a `StorageError` everywhere.

Examples
--------
>>> store = Store.open("memory://example")
>>> store.put_once("models/a.bin", b"weights").path
'models/a.bin'
>>> store.list("models")
('models/a.bin',)
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit
from urllib.request import url2pathname

from clma.errors import ConflictError, DamagedStoreError, MissingObjectError
from clma.ledger.durable_file import discard
from clma.ledger.keys import check_key
from clma.ledger.local_disk import LocalDisk
from clma.ledger.object_info import ObjectInfo
from clma.ledger.object_store import RemoteObjects
from clma.ledger.refusals import refusals_named
from clma.records import ArtifactRef

__all__ = ["Intake", "Store", "file_digest"]

DRAFT_AGE_S = 24 * 3600.0
"""Age from which a draft is swept whoever wrote it: no upload of one file takes a day."""


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


class Store:
    """Keys to bytes; safe to use from several threads and processes. Made by `Store.open`.

    Parameters
    ----------
    objects : LocalDisk or RemoteObjects
    """

    def __init__(self, objects: LocalDisk | RemoteObjects) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._cache: Path | None = None

    @classmethod
    def open(cls, url: str | Path) -> Store:
        """Open a store by path or URL; nothing is made before the first object is written.

        Parameters
        ----------
        url : str or Path
            A plain path, ``file://``, ``memory://NAME`` (the same store for the whole process),
            or what obstore takes: ``s3://``, ``gs://``, ``az://`` ...
        """
        text = str(url)
        # One letter before the colon is a Windows drive, not a scheme.
        if isinstance(url, Path) or len(urlsplit(text).scheme) <= 1:
            return cls(LocalDisk(Path(text)))
        if text.startswith("file:"):
            return cls(LocalDisk(Path(url2pathname(urlsplit(text).path))))
        return cls(RemoteObjects(text))

    @property
    def url(self) -> str:
        """Where it is, for messages."""
        return self._objects.url

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Delete what `local_path` downloaded; the store can still be used."""
        with self._lock:
            if self._cache is not None:
                shutil.rmtree(self._cache, ignore_errors=True)
                self._cache = None

    def get(self, key: str) -> bytes:
        """Return an object's bytes.

        Raises
        ------
        MissingObjectError
            If there is no such object.
        """
        return self._objects.read(check_key(key))

    def stream(self, key: str, *, start: int = 0) -> Iterator[bytes]:
        """Yield an object's bytes from an offset on, in pieces.

        Raises
        ------
        MissingObjectError
            If there is no such object; with the first piece.
        """
        return self._objects.stream(check_key(key), start)

    def get_verified(self, ref: ArtifactRef) -> bytes:
        """Return an object's bytes if they are the recorded ones.

        Raises
        ------
        DamagedStoreError
            If it is missing or its digest is another.
        """
        data = self.get(ref.path)
        _check_digest(ref, hashlib.sha256(data).hexdigest())
        return data

    def info(self, key: str) -> ObjectInfo:
        """Return an object's size and age; MissingObjectError if there is none."""
        return self._objects.info(check_key(key))

    def look(self, key: str, *, max_bytes: int) -> tuple[ObjectInfo, bytes]:
        """Return an object's size and age, and its bytes, in one request.

        Of one that is larger than `max_bytes` the bytes are not all there; its size tells.

        Raises
        ------
        MissingObjectError
            If there is no such object.
        """
        return self._objects.look(check_key(key), max_bytes)

    def exists(self, key: str) -> bool:
        """Tell whether there is such an object."""
        try:
            self.info(key)
        except MissingObjectError:
            return False
        return True

    def list(self, prefix: str = "") -> tuple[str, ...]:
        """Return the keys below a folder, sorted.

        Names that are no keys (a plant may drop anything) are listed as they are found; `get`
        refuses them.
        """
        folder = prefix.rstrip("/")
        return tuple(sorted(self._objects.names(check_key(folder) if folder else "")))

    def put_if_absent(self, key: str, data: bytes) -> ArtifactRef:
        """Write an object, unless there is one: of several writers exactly one succeeds.

        Raises
        ------
        ConflictError
            If the object is already there, whatever it holds.
        """
        self._objects.create(check_key(key), data)
        return ArtifactRef(key, hashlib.sha256(data).hexdigest())

    def put_once(self, key: str, data: bytes) -> ArtifactRef:
        """Write an object that never changes; writing the same bytes again does nothing.

        Raises
        ------
        ConflictError
            If other bytes are already there.
        """
        try:
            return self.put_if_absent(key, data)
        except ConflictError:
            digest = hashlib.sha256(data).hexdigest()
            if hashlib.sha256(self.get(key)).hexdigest() != digest:
                raise ConflictError(
                    f"{key} is already there in {self.url} with other bytes"
                ) from None
            return ArtifactRef(key, digest)

    def replace(self, key: str, data: bytes) -> ArtifactRef:
        """Write an object, over an older one if there is one."""
        self._objects.replace(check_key(key), data)
        return ArtifactRef(key, hashlib.sha256(data).hexdigest())

    def make_durable(self, key: str) -> None:
        """Wait until an object that was found here outlasts a power cut.

        Its writer may have been stopped between the object's name and the sync of its folder, or
        be a program that syncs nothing; who builds on an object that it did not write itself asks
        for this first.
        """
        if isinstance(self._objects, LocalDisk):
            self._objects.make_durable(check_key(key))

    @property
    def folder(self) -> Path | None:
        """The folder on this machine, or None for an object store."""
        return self._objects.root if isinstance(self._objects, LocalDisk) else None

    def probe(self) -> dt.datetime:
        """Do once what every write needs, and return what the store's clock said.

        Raises
        ------
        StorageError
            If the place cannot be written to, or lets two writers make one object.
        """
        return self._objects.probe()

    def local_path(self, key: str) -> Path:
        """Return a file with the object's bytes, to be mapped into memory and not to be changed.

        On a local disk the object itself, elsewhere a copy that is downloaded once and deleted
        with `close`.

        Raises
        ------
        MissingObjectError
            If there is no such object.
        """
        check_key(key)
        if isinstance(self._objects, LocalDisk):
            return self._objects.file(key)
        copies = tempfile.gettempdir()
        with self._lock, refusals_named("written", f"the copy of {key}", copies):
            return self._download(key)

    def verified_path(self, ref: ArtifactRef) -> Path:
        """Return a file with the object's bytes if they are the recorded ones.

        Raises
        ------
        DamagedStoreError
            If it is missing or its digest is another.
        """
        path = self.local_path(ref.path)
        with refusals_named("read", ref.path, self.url):
            found = file_digest(path)
        _check_digest(ref, found)
        return path

    def digest(self, key: str) -> str:
        """Return the SHA-256 of an object as it is now."""
        path = self.local_path(key)
        with refusals_named("read", key, self.url):
            return file_digest(path)

    @contextlib.contextmanager
    def intake(self, key: str, target: str, *, max_bytes: int) -> Iterator[Intake]:
        """Copy an object that others may still write to; what is not kept is gone afterwards.

        Parameters
        ----------
        key : str
            Of the object.
        target : str
            Key under which `Intake.keep` keeps the copy.
        max_bytes : int
            An object that is larger is cut one byte after them.

        Raises
        ------
        MissingObjectError
            If there is no such object.
        """
        check_key(key)
        check_key(target)
        if isinstance(self._objects, LocalDisk):
            draft, digest, size = self._objects.copy(key, target, max_bytes)
        else:
            with self._lock:
                folder = self._cache_folder()
            draft, digest, size = self._objects.copy(key, folder, max_bytes)
        try:
            yield Intake(self, draft, target, digest, size)
        finally:
            discard(draft)

    def sync(self, prefix: str) -> None:
        """Make durable what `Intake.keep` and `delete` did to the names in a folder."""
        if isinstance(self._objects, LocalDisk):
            self._objects.sync(check_key(prefix))

    def delete(self, key: str) -> None:
        """Delete an object; nothing happens if there is none. `sync` makes that durable."""
        self._objects.delete(check_key(key))

    def prune(self, prefix: str) -> None:
        """Remove a folder and those around it as far as they are empty."""
        if isinstance(self._objects, LocalDisk):
            self._objects.prune(check_key(prefix))

    def sweep(
        self, prefix: str = "", *, older_than_s: float = DRAFT_AGE_S, deep: bool = True
    ) -> int:
        """Delete drafts in a folder that are that old or whose writer is dead; returns how many.

        Parameters
        ----------
        prefix : str
            Default: the store itself.
        older_than_s : float
        deep : bool
            In the folders below, too.

        Notes
        -----
        Object stores keep no drafts that a listing would show.
        """
        if isinstance(self._objects, LocalDisk):
            return self._objects.sweep(check_key(prefix) if prefix else "", older_than_s, deep)
        return 0

    def _name(self, intake: Intake) -> None:
        if isinstance(self._objects, LocalDisk):
            self._objects.name(intake.path, intake.target)
        else:
            self._objects.create(intake.target, intake.path.read_bytes())

    def _download(self, key: str) -> Path:
        path = self._cache_folder() / key
        if not path.exists():
            data = self.get(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(path.name + ".tmp")
            try:
                draft.write_bytes(data)
                draft.replace(path)
            except OSError:
                # A full disk is not to stay full of what nobody can use.
                draft.unlink(missing_ok=True)
                raise
        return path

    def _cache_folder(self) -> Path:
        if self._cache is None:
            self._cache = Path(tempfile.mkdtemp(prefix="clma-"))
            weakref.finalize(self, shutil.rmtree, self._cache, ignore_errors=True)
        return self._cache


@dataclass(frozen=True, slots=True)
class Intake:
    """A copy that nobody else can change, not yet kept.

    Parameters
    ----------
    store : Store
    path : Path
        The copy, to be looked at.
    target : str
        Key that it gets.
    sha256 : str
    size_bytes : int
    """

    store: Store
    path: Path
    target: str
    sha256: str
    size_bytes: int

    def keep(self) -> ArtifactRef:
        """Give the copy its key; `Store.sync` of the folder makes that durable.

        Raises
        ------
        ConflictError
            If other bytes are there already.
        """
        try:
            self.store._name(self)
        except ConflictError:
            if file_digest(self.store.local_path(self.target)) != self.sha256:
                raise
        return ArtifactRef(self.target, self.sha256)


def _check_digest(ref: ArtifactRef, found: str) -> None:
    if found != ref.sha256:
        raise DamagedStoreError(
            f"{ref.path} has SHA-256 {found[:12]}..., recorded is {ref.sha256[:12]}..."
        )
