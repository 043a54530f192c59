"""A new database gets its tables once, however many nights are its first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

FIRST = """
import sys
from pathlib import Path
from tasks.tracking import resolve_tracking
from tasks.tracking.runs import open_experiment
root, name = Path(sys.argv[1]), sys.argv[2]
place = resolve_tracking(root)
(root / f"ready-{name}").touch()
while not (root / "go").exists():
    pass
open_experiment(place, name)
"""


def test_first_nights_of_three_federations_make_the_tables_once(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    first = [subprocess.Popen([sys.executable, "-c", FIRST, str(tmp_path), n]) for n in names]
    while not all((tmp_path / f"ready-{name}").exists() for name in names):
        assert all(process.poll() is None for process in first)
    (tmp_path / "go").touch()

    assert [process.wait(timeout=280) for process in first] == [0, 0, 0]
