"""Let a side of a benchmark do its task in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["ONE_THREAD", "BenchmarkError", "Result", "ask_side"]

ONE_THREAD = {
    f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "BLIS", "NUMEXPR", "NUMBA")
}
"""Environment of every side: libraries read it when they are loaded."""

Result = dict[str, Any]

_ROOT = Path(__file__).parents[1]


class BenchmarkError(Exception):
    """A side failed, or two sides did not do the same job."""


def _environment() -> dict[str, str]:
    # Compiled code is kept, as it is wherever nobody forbids it.
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **ONE_THREAD}


def ask_side(command: Sequence[str], task: Result) -> Result:
    """Start a side, give it a task as JSON and return the JSON in its last line.

    Parameters
    ----------
    command : sequence of str
    task : dict

    Raises
    ------
    BenchmarkError
        If it fails; with the last line that it wrote to standard error.
    """
    done = subprocess.run(
        command,
        input=json.dumps(task),
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env=_environment(),
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise BenchmarkError(f"{Path(command[-1]).name} ended with {done.returncode}: {last}")
    return dict(json.loads(done.stdout.splitlines()[-1]))
