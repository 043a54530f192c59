"""Names of half-written files, which tell whether their writer can still finish them.

A draft carries where its writer runs: the boot of the machine, the process namespace in it and the
process id. Only there can one tell that the writer is dead; a draft from anywhere else, for
instance from a plant that mounts the folder, is left to its age.

Examples
--------
>>> name = draft_name("a.json")
>>> is_draft(name), is_left_behind(name)
(True, False)
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from functools import cache

from clma.ledger.owner import is_alive, place_of_ids

__all__ = ["draft_name", "is_draft", "is_left_behind"]

_WRITER = re.compile(r"\..*\.(?P<place>[0-9a-f]{12})-(?P<pid>[0-9]{1,10})-[0-9a-f]{16}\.tmp")


def draft_name(name: str) -> str:
    """Return a name of its own for a draft of a file."""
    token = secrets.token_hex(8)
    place = _place()
    return f".{name}.{place}-{os.getpid()}-{token}.tmp" if place else f".{name}.{token}.tmp"


def is_draft(name: str) -> bool:
    """Tell whether a file name is that of a draft, of whatever writer."""
    return name.startswith(".") and name.endswith(".tmp")


def is_left_behind(name: str) -> bool:
    """Tell whether a file name is that of a draft whose writer is known to be dead."""
    writer = _WRITER.fullmatch(name)
    return writer is not None and writer["place"] == _place() and not is_alive(int(writer["pid"]))


@cache
def _place() -> str:
    """Return a short name for what process ids are unique in, or nothing where nobody says."""
    place = place_of_ids()
    return hashlib.sha256(place.encode()).hexdigest()[:12] if place else ""
