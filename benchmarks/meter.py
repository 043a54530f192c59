"""What a stretch of this process costs: seconds and memory.

Standard library only: the other package's side runs it in an environment of its own.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

__all__ = ["Meter", "Reading", "pin_to_one_cpu", "process_cpu_s"]

_SELF = Path("/proc/self")
_HAS_PROC = (_SELF / "clear_refs").exists()
_RESET_PEAK = "5"
"""What `proc(5)` wants written to clear_refs to start the peak anew."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Costs of one stretch.

    Parameters
    ----------
    wall_s, cpu_s : float
        Elapsed; user and system time of all threads.
    peak_bytes : int
        Largest resident memory, pages of mapped files included.
    over_bytes : int
        The same less what was resident at the start.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int
    over_bytes: int


class Meter:
    """Measures what happens inside a ``with`` block; `reading` is there afterwards."""

    def __enter__(self) -> Meter:
        _restart_peak()
        self._resident = _resident_bytes()
        self._cpu = process_cpu_s()
        self._wall = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        wall_s = time.perf_counter() - self._wall
        cpu_s = process_cpu_s() - self._cpu
        peak = _peak_bytes()
        self.reading = Reading(wall_s, cpu_s, peak, max(peak - self._resident, 0))


def process_cpu_s() -> float:
    """Return user and system seconds of this process since it started."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def pin_to_one_cpu() -> None:
    """Keep this process on the first CPU it may use, where the system lets it choose."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _restart_peak() -> None:
    # Imports and the reading of input may have peaked higher than what is measured.
    if _HAS_PROC:
        (_SELF / "clear_refs").write_text(_RESET_PEAK)


def _resident_bytes() -> int:
    return _status_bytes("VmRSS") if _HAS_PROC else _peak_bytes()


def _peak_bytes() -> int:
    if _HAS_PROC:
        return _status_bytes("VmHWM")
    # Without /proc there is only the peak since the start, in bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _status_bytes(key: str) -> int:
    for line in (_SELF / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    raise KeyError(key)
