"""Peak resident memory of this process since a moment, mapped files included."""

from __future__ import annotations

import resource
from pathlib import Path

_PROC = Path("/proc/self")
_start = 0.0


def reset_peak() -> None:
    """Begin to measure; where the system cannot reset its peak, a growth may be missed."""
    global _start
    if (_PROC / "clear_refs").exists():
        (_PROC / "clear_refs").write_text("5")
    _start = _peak_mb()


def peak_growth_mb() -> float:
    """Return by how many MB the peak has grown since `reset_peak`."""
    return max(0.0, _peak_mb() - _start)


def _peak_mb() -> float:
    status = _PROC / "status"
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = [row for row in status.read_text().splitlines() if row.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024
