"""What a store tells about an object without reading it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

__all__ = ["ObjectInfo"]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Size and age of an object.

    Parameters
    ----------
    size_bytes : int
    modified : datetime
        In UTC, by the store's clock.
    identity : str
        Tells the object from a copy of it with the same name, size and age: inode number or etag.
    """

    size_bytes: int
    modified: dt.datetime
    identity: str
