"""What a refused read or write means for an operator: why, and what helps, in one line."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping

from clma.errors import StorageError

__all__ = ["SENDERS_FAULTS", "our_refusals_named", "readable_size", "refusals_named"]

SENDERS_FAULTS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.ENOENT,
        errno.ELOOP,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.ENXIO,
    }
)
"""What a plant can do to its own files. Everything else is a matter of our disk or our process."""

_BLOCK = 4096

_ROOM = {errno.ENOSPC, errno.EDQUOT}

_ADVICE: Mapping[int, tuple[str, str]] = {
    errno.EACCES: ("permission denied", "give the user who runs this the right to {do} there"),
    errno.EPERM: ("not permitted", "give the user who runs this the right to {do} there"),
    errno.EROFS: ("the disk is mounted read-only", "mount it for writing"),
    errno.EIO: ("the disk reports an input/output error", "look for the disk in the system's log"),
    errno.EFBIG: ("the file is larger than allowed", "raise the file size limit (ulimit -f)"),
    errno.EMFILE: ("too many files are open", "raise the limit of open files (ulimit -n)"),
    errno.ENFILE: ("too many files are open", "raise the system's limit of open files"),
    errno.ESTALE: ("the network folder was replaced", "mount it again"),
    errno.ENOTDIR: ("a file lies where a folder is wanted", "move that file away"),
    errno.EEXIST: ("a file lies where a folder is wanted", "move that file away"),
    errno.EISDIR: ("a folder lies where a file is wanted", "move that folder away"),
    errno.EOPNOTSUPP: ("the file system cannot do it", "use one with hard links, not FAT"),
    errno.EMLINK: ("the file system has no more hard links", "use another one"),
    errno.EINVAL: ("the file system cannot do it", "use one that can sync files and folders"),
}


@contextlib.contextmanager
def refusals_named(done: str, what: str, where: str, size_bytes: int = 0) -> Iterator[None]:
    """Turn what the operating system refuses into a `StorageError` that a person can act on.

    Parameters
    ----------
    done : str
        ``read``, ``written``, ``deleted`` or ``listed``.
    what, where : str
        Key and store, or file and folder.
    size_bytes : int, >= 0
        What was to be written.

    Raises
    ------
    StorageError
        For every `OSError` that is none yet.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        why, help_ = _advice(error, done, size_bytes)
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        raise StorageError(
            f"{what} cannot be {done} in {where}: {why} ({name}); {help_}", error.errno
        ) from None


@contextlib.contextmanager
def our_refusals_named(done: str, what: str, where: str, size_bytes: int = 0) -> Iterator[None]:
    """Do as `refusals_named`, of a place where only we write.

    The error has no number, by which a refused read would be laid to the sender's charge; one that
    comes from reading a sender's file meanwhile keeps its own.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as refused:
        try:
            with refusals_named(done, what, where, size_bytes):
                raise
        except StorageError as error:
            raise StorageError(str(error)) from refused


def readable_size(n_bytes: int) -> str:
    """Return a number of bytes as a person reads it: ``4.1 MB``."""
    size = float(n_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _advice(error: OSError, done: str, size_bytes: int) -> tuple[str, str]:
    if error.errno in _ROOM:
        # The file's own blocks, its name in a folder, and the folder.
        room = readable_size((size_bytes // _BLOCK + 3) * _BLOCK)
        if error.errno == errno.EDQUOT:
            return "the user's quota is used up", f"raise it or free at least {room}"
        return "no space is left on the disk", f"free at least {room} (or inodes: df -i)"
    why, help_ = _ADVICE.get(
        error.errno or 0, (os.strerror(error.errno) if error.errno else str(error), "try it again")
    )
    return why, help_.format(do="write" if done in {"written", "deleted"} else "read")
