"""The files that MLflow keeps of a run or a model: by path where they lie here, else by request.

A listing of a remote store is one call for each folder, so whoever looks at many asks `is_local`.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from clma.ledger.store import file_digest
from tasks.tracking.location import Tracking
from tasks.tracking.outage import TrackingAwayError

__all__ = ["ArtifactFolder"]

_MAX_LENGTH = 300


@dataclass(frozen=True)
class ArtifactFolder:
    """One folder of artifacts.

    Parameters
    ----------
    uri : str
        As MLflow has it: ``file:///...``, ``mlflow-artifacts:/...``, ``s3://...``.
    tracking : Tracking

    Raises
    ------
    TrackingAwayError
        From every look or deletion, if a store elsewhere refuses: each has errors of its own.
    """

    uri: str
    tracking: Tracking

    @cached_property
    def local(self) -> Path | None:
        """The folder on this machine, None elsewhere."""
        parts = urlsplit(self.uri)
        return Path(url2pathname(parts.path)) if parts.scheme in {"", "file"} else None

    @property
    def is_local(self) -> bool:
        """Tell whether looking costs no call."""
        return self.local is not None

    def size(self, path: str) -> int | None:
        """Return a file's size in bytes; None if it is not there."""
        if self.local is not None:
            file = self.local / path
            return file.stat().st_size if file.is_file() else None
        folder = path.rpartition("/")[0]
        with self._answered():
            listed = self._repository.list_artifacts(folder or None)
        return next((int(f.file_size or 0) for f in listed if f.path == path), None)

    def digest(self, path: str) -> str | None:
        """Return a file's SHA-256; None if it is not there."""
        if self.local is not None:
            file = self.local / path
            return file_digest(file) if file.is_file() else None
        data = self._download(path)
        return None if data is None else hashlib.sha256(data).hexdigest()

    def delete(self) -> None:
        """Delete all files; nothing happens if there is none."""
        if self.local is not None and not self.local.exists():
            return
        with self._answered():
            self._repository.delete_artifacts()  # type: ignore[no-untyped-call]

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise TrackingAwayError(f"{self.uri} does not answer ({text[:_MAX_LENGTH]})") from error

    @cached_property
    def _repository(self) -> ArtifactRepository:
        return get_artifact_repository(self.uri, tracking_uri=self.tracking.uri)

    def _download(self, path: str) -> bytes | None:
        if self.size(path) is None:
            return None
        with tempfile.TemporaryDirectory() as folder, self._answered():
            copy = self._repository.download_artifacts(path, folder)  # type: ignore[no-untyped-call]
            return Path(copy).read_bytes()
