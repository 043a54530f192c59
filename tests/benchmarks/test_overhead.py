from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        (["--clients", "2,3", "--parameters", "5", "--signed"], "a night of 3 x 5, signed takes"),
        (["--history", "2"], "night 3 takes"),
    ],
)
def test_the_last_line_is_the_verdict(options: list[str], verdict: str) -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/overhead.py", "--steps-only", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    last = done.stdout.splitlines()[-1]
    assert last.startswith("overhead: met: " if done.returncode == 0 else "overhead: missed: ")
    assert verdict in last
