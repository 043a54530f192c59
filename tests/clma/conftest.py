from __future__ import annotations

from pathlib import Path

import pytest

from tests.clma.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    folder = tmp_path / "shelf"
    folder.mkdir()
    return Shelf(folder)


@pytest.fixture
def base(shelf: Shelf) -> str:
    return shelf.put({"w": [1.0, 1.0, 1.0]}).sha256
