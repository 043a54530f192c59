"""Every error that clma raises on purpose.

All derive from :class:`ClmaError`, so a caller can tell an expected failure (one line for the
operator) from a bug (a traceback). Those that describe a bad value are also ``ValueError``, those
that describe a missing name also ``KeyError``, so existing ``except`` clauses keep working.

Messages say what, got, wanted and whose:
``client 'c07': update has 12 parameters, reference has 10``.
"""

from __future__ import annotations

__all__ = [
    "CellFailedError",
    "ClmaError",
    "ConflictError",
    "DamagedStoreError",
    "EmptyCohortError",
    "InvalidConfigError",
    "InvalidUpdateError",
    "LeaseError",
    "MissingExtraError",
    "MissingObjectError",
    "NotEnoughClientsError",
    "PolicyError",
    "RoundHeldError",
    "RoundStateError",
    "ShapeMismatchError",
    "StorageError",
    "UnauthorizedError",
    "UnknownClientError",
    "UnknownFederationError",
]


class ClmaError(Exception):
    """Base of all expected failures."""


class CellFailedError(ClmaError):
    """A cell of a comparison came to nothing; the others are not touched by that."""


class InvalidConfigError(ClmaError, ValueError):
    """A setting is out of range, unknown or in conflict with another."""


class InvalidUpdateError(ClmaError, ValueError):
    """An update cannot be used.

    Parameters
    ----------
    message : str
        One line: what, got, wanted, whose.
    reason : str, optional
        The reason code (`clma.updates.reasons`), where one applies.
    """

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class ShapeMismatchError(InvalidUpdateError):
    """Arrays that must agree in shape do not; nothing is ever broadcast."""


class EmptyCohortError(ClmaError, ValueError):
    """A mean, a median or a distance was asked for without a single row."""


class NotEnoughClientsError(ClmaError, ValueError):
    """Fewer clients than the rule needs."""


class PolicyError(ClmaError, ValueError):
    """A method needs something that the federation's privacy policy does not share."""


class RoundHeldError(ClmaError):
    """The round does not publish; the last good models keep serving."""


class RoundStateError(ClmaError):
    """The step does not fit the round's state (for example: seal a round that is not open)."""


class ConflictError(ClmaError):
    """Another writer created the same object first; re-read and decide again."""


class LeaseError(ClmaError):
    """Another process holds the lease, or may have taken it over."""


class DamagedStoreError(ClmaError):
    """A stored object is missing or its digest is not the recorded one."""


class MissingObjectError(DamagedStoreError):
    """The store holds no object of this key."""


class StorageError(ClmaError, OSError):
    """A disk or an object store refused to read or to write; it may be in order the next time.

    Parameters
    ----------
    message : str
        One line: what, where, why, and what helps.
    errno : int, optional
        What the operating system said, where it was the one that refused.
    """

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class UnauthorizedError(ClmaError):
    """Nobody known made the request, or it is too old, or it was made before."""


class MissingExtraError(ClmaError, ImportError):
    """An optional dependency is needed; the message names the extra to install."""


class _NotFoundError(ClmaError, KeyError):
    def __str__(self) -> str:
        # KeyError shows repr(args[0]); an operator should read the sentence as it was written.
        return str(self.args[0]) if self.args else ""


class UnknownClientError(_NotFoundError):
    """The client is not registered in this federation."""


class UnknownFederationError(_NotFoundError):
    """The store holds no federation, or another one than was asked for."""
