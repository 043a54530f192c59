"""Where tracking lives: one function decides, everything else is told.

Examples
--------
>>> import tempfile
>>> place = resolve_tracking(Path(tempfile.mkdtemp()))
>>> place.uri.startswith("sqlite:////"), place.artifacts.startswith("file:///")
(True, True)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from clma.errors import InvalidConfigError

__all__ = ["Tracking", "locate_tracking", "resolve_tracking", "wanted_tracking"]

ROOT = Path(__file__).parents[2]

_SERVERS = frozenset({"http", "https"})
_DATABASES = frozenset({"sqlite", "postgresql", "mysql", "mssql"})


@dataclass(frozen=True, slots=True)
class Tracking:
    """An MLflow tracking store.

    Parameters
    ----------
    uri : str
        For `mlflow.set_tracking_uri` and ``mlflow server --backend-store-uri``.
    artifacts : str or None
        Where the artifacts of new experiments go, as a URI; None: the server decides.
    """

    uri: str
    artifacts: str | None

    @property
    def shown(self) -> str:
        """The address without the password that may be in it."""
        parts = urlsplit(self.uri)
        if parts.password is None:
            return self.uri
        return self.uri.replace(f":{parts.password}@", ":***@", 1)

    @property
    def folder(self) -> Path | None:
        """Folder of a local store's database; None elsewhere."""
        return None if self.database is None else self.database.parent

    @property
    def database(self) -> Path | None:
        """File of a local store; None elsewhere."""
        path = self.uri.partition("sqlite:///")[2]
        return Path(path) if path else None


def wanted_tracking(uri: str | None) -> Tracking:
    """Return where to track: as told, else as ``MLFLOW_TRACKING_URI`` says, else in the project.

    Nothing is made; raises what `locate_tracking` does.
    """
    return locate_tracking(ROOT, uri or os.environ.get("MLFLOW_TRACKING_URI") or None)


def resolve_tracking(root: Path, uri: str | None = None) -> Tracking:
    """Return where to track, with absolute places; makes the folders of a local store.

    Parameters
    ----------
    root : Path
        Folder of the project; a local store is ``mlruns/`` in it.
    uri : str, optional
        ``sqlite:///PATH`` (relative to `root`), another database, or the address of a server.
        Default: ``sqlite:///<root>/mlruns/mlflow.db``.

    Raises
    ------
    InvalidConfigError
        If `uri` is a folder (MLflow keeps no runs in folders any more) or of an unknown kind.
    """
    tracking = locate_tracking(root, uri)
    if tracking.folder is not None:
        tracking.folder.mkdir(parents=True, exist_ok=True)
    if tracking.artifacts is not None:
        Path(url2pathname(urlsplit(tracking.artifacts).path)).mkdir(parents=True, exist_ok=True)
    return tracking


def locate_tracking(root: Path, uri: str | None = None) -> Tracking:
    """Return what `resolve_tracking` does, and make nothing.

    Raises
    ------
    InvalidConfigError
        If `uri` is a folder or of an unknown kind.
    """
    root = root.resolve()
    if uri is None:
        return _sqlite(root / "mlruns" / "mlflow.db")
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme == "sqlite":
        return _sqlite(root / uri.partition("///")[2])
    if scheme in _SERVERS:
        return Tracking(uri, None)
    if scheme in _DATABASES:
        return Tracking(uri, (root / "mlruns" / "artifacts").as_uri())
    if scheme in {"", "file"} or len(scheme) == 1:
        raise InvalidConfigError(
            f"tracking URI {uri!r} is a folder, MLflow wants a database: "
            "use sqlite:///mlruns/mlflow.db or the address of a server"
        )
    raise InvalidConfigError(
        f"tracking URI {uri!r} has scheme {scheme!r}, "
        f"wanted one of {', '.join(sorted(_SERVERS | _DATABASES))}"
    )


def _sqlite(database: Path) -> Tracking:
    """Return a local store whose artifacts lie beside its database."""
    database = database.resolve()
    if database.is_dir() or not database.name:
        raise InvalidConfigError(f"tracking URI: {database} is a folder, wanted a database file")
    return Tracking(f"sqlite:///{database.as_posix()}", (database.parent / "artifacts").as_uri())
