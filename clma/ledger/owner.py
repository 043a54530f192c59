"""Who a process is, and whether the process that somebody once was still lives.

A process id alone says little: it is given again, and means another process in another container.
So an owner also has the machine's boot, the table that its id is from, and the time it started.

Examples
--------
>>> is_gone(this_process())
False
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Owner", "is_alive", "is_gone", "place_of_ids", "this_process"]

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Owner:
    """One holder of something.

    Parameters
    ----------
    host : str
        For people.
    place : str
        Boot of the machine and table of process ids; empty where the system does not say.
    pid : int
    started : int
        Clock ticks from boot to the start of the process; 0 where the system does not say.
    token : str
        Random; tells two holders of one process apart.
    """

    host: str
    place: str
    pid: int
    started: int
    token: str

    def __str__(self) -> str:
        """Return host and process, for messages."""
        return f"process {self.pid} on {self.host}" if self.host else "an unknown process"


def this_process() -> Owner:
    """Return this process as an owner, with a token of its own at every call."""
    pid = os.getpid()
    _, started = _look_up(pid) or ("", 0)
    return Owner(socket.gethostname(), place_of_ids(), pid, started, secrets.token_hex(8))


def is_gone(owner: Owner) -> bool:
    """Tell whether the owner's process is known to have ended; False where nobody can know."""
    if not owner.place or owner.place != place_of_ids():
        return False
    found = _look_up(owner.pid)
    return found is None or not is_alive(owner.pid) or found[1] != owner.started


def is_alive(pid: int) -> bool:
    """Tell whether a process of this machine still does anything."""
    found = _look_up(pid)
    # One that nobody has collected yet does nothing any more.
    return found is not None and found[0] not in {"Z", "X"}


def place_of_ids() -> str:
    """Return what process ids are unique in; empty where the system does not say."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _look_up(pid: int) -> tuple[str, int] | None:
    """Return a process's state and start, or None if there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program, in parentheses, may hold spaces and parentheses.
    values = text.rpartition(")")[2].split()
    return values[0], int(values[19])
