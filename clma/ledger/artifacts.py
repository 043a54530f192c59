"""Models and updates in a federation's folder: written once, opened by digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

from clma.ledger.refusals import refusals_named
from clma.ledger.store import Store
from clma.parameters.tensor_file import TensorFile, TensorFileError
from clma.records import ArtifactRef, model_ref

__all__ = ["ArtifactShelf"]


class ArtifactShelf:
    """Stores models under their digest and opens tensors only if they are what they should be.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._verified: set[tuple[str, str, int, int]] = set()

    def add_model(self, data: bytes) -> str:
        """Store a model under its digest, which is returned."""
        digest = hashlib.sha256(data).hexdigest()
        self.store.put_once(model_ref(digest).path, data)
        return digest

    def model_ref(self, digest: str) -> ArtifactRef:
        """Return where a model lies."""
        return model_ref(digest)

    def model_path(self, digest: str) -> Path:
        """Return a file with a model, checked against its digest; not to be changed."""
        return self._verified_path(model_ref(digest))

    def open_tensors(self, ref: ArtifactRef) -> TensorFile:
        """Open stored tensors, checked against their digest.

        Raises
        ------
        DamagedStoreError
            If they are missing or were changed.
        """
        path = self._verified_path(ref)
        with refusals_named("read", ref.path, self.store.url):
            return TensorFile(path)

    def open_tensors_of_share(self, ref: ArtifactRef, *, index: int, count: int) -> TensorFile:
        """Open stored tensors, checked if they are one share's to check.

        Of several workers that all read parts of the same files, each checks some: before their
        results are put together, every file was checked once.

        Parameters
        ----------
        ref : ArtifactRef
        index : int in [0, count)
        count : int >= 1

        Raises
        ------
        DamagedStoreError
            If they are missing, or were changed and this share is to see it.
        """
        if int(ref.sha256[:8], 16) % count == index:
            return self.open_tensors(ref)
        path = self.store.local_path(ref.path)
        with refusals_named("read", ref.path, self.store.url):
            try:
                return TensorFile(path)
            except TensorFileError:
                # Whoever is to check it says the same in better words, but later.
                self.store.verified_path(ref)
                raise

    def _verified_path(self, ref: ArtifactRef) -> Path:
        # A round opens the same file several times; it is hashed again only if it was touched.
        path = self.store.local_path(ref.path)
        with refusals_named("read", ref.path, self.store.url):
            status = path.stat()
        seen = (ref.path, ref.sha256, status.st_size, status.st_mtime_ns)
        if seen not in self._verified:
            path = self.store.verified_path(ref)
            self._verified.add(seen)
        return path
