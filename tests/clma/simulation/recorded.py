"""Where the recorded data lies that is not in the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[3]
DATA_DIR = Path(os.environ.get("CLMA_DATA_DIR", _ROOT.parent / "shared" / "data"))


def needs(place: str) -> pytest.MarkDecorator:
    """Skip where `place`, relative to the data folder, is missing."""
    return pytest.mark.skipif(
        not (DATA_DIR / place).is_file(),
        reason=f"no {place}; set CLMA_DATA_DIR to the folder that holds it",
    )
