"""Which part of a file a request asks for; whole files and "from here on", nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from deployments._gateway_errors import NotTakenError

__all__ = ["Part", "part_of"]

_FROM_HERE_ON = re.compile(r"bytes=(\d{1,18})-")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file.

    Parameters
    ----------
    start : int
        Its first byte; it goes to the end.
    status : int
        200 for the whole file, 206 for a part.
    headers : mapping of str to str
        Of the answer.
    """

    start: int
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


def part_of(headers: Mapping[str, str], tag: str, size: int) -> Part:
    """Return the part that a request asks for.

    Parameters
    ----------
    headers : mapping
        Of the request, in small letters. A ``Range`` of another form is answered with the whole
        file, as HTTP allows.
    tag : str
        The file's ``ETag``.
    size : int
        Of the file, in bytes.

    Raises
    ------
    NotTakenError
        With 416 if the part begins behind the end.
    """
    found = _FROM_HERE_ON.fullmatch(headers.get("range", ""))
    if found is None or headers.get("if-range", tag) != tag:
        return Part(0, 200, {"Content-Length": str(size)})
    start = int(found[1])
    if start >= size:
        raise NotTakenError(f"the part begins at byte {start}, the model has {size}", 416)
    length = {"Content-Length": str(size - start)}
    return Part(start, 206, {"Content-Range": f"bytes {start}-{size - 1}/{size}", **length})
