"""Where tracking lives: one function decides, everything else is told.

Examples
--------
>>> import tempfile
>>> place = resolve_tracking(Path(tempfile.mkdtemp()))
>>> place.uri.startswith("sqlite:////"), place.artifacts.startswith("file:///")
(True, True)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from clma.errors import InvalidConfigError

__all__ = ["Tracking", "resolve_tracking"]

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
    def folder(self) -> Path | None:
        """Folder of a local store's database; None elsewhere."""
        path = self.uri.partition("sqlite:///")[2]
        return Path(path).parent if path else None


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
    root = root.resolve()
    if uri is None:
        return _sqlite(root / "mlruns" / "mlflow.db")
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme == "sqlite":
        return _sqlite(root / uri.partition("///")[2])
    if scheme in _SERVERS:
        return Tracking(uri, None)
    if scheme in _DATABASES:
        return Tracking(uri, _folder_uri(root / "mlruns" / "artifacts"))
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
    database.parent.mkdir(parents=True, exist_ok=True)
    return Tracking(f"sqlite:///{database.as_posix()}", _folder_uri(database.parent / "artifacts"))


def _folder_uri(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.as_uri()
