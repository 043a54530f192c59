"""Files that several workers read are checked once by one of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clma.errors import DamagedStoreError
from clma.ledger.artifacts import ArtifactShelf
from clma.ledger.store import Store
from clma.parameters.tensor_file import serialize_tensors
from clma.records import ArtifactRef, model_ref

COUNT = 3


@pytest.fixture
def shelf(tmp_path: Path) -> ArtifactShelf:
    return ArtifactShelf(Store.open(tmp_path))


@pytest.fixture
def model(shelf: ArtifactShelf) -> ArtifactRef:
    return model_ref(shelf.add_model(serialize_tensors({"w": np.zeros(4, np.float32)})))


def who_refuses(shelf: ArtifactShelf, ref: ArtifactRef) -> list[int]:
    refusing = []
    for index in range(COUNT):
        try:
            shelf.open_tensors_of_share(ref, index=index, count=COUNT).close()
        except DamagedStoreError:
            refusing.append(index)
    return refusing


def spoil(shelf: ArtifactShelf, ref: ArtifactRef, place: int) -> None:
    path = shelf.store.local_path(ref.path)
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(data)


def test_sound_file_is_opened_for_every_share(shelf: ArtifactShelf, model: ArtifactRef) -> None:
    assert who_refuses(shelf, model) == []


def test_changed_value_is_seen_by_exactly_one_share(
    shelf: ArtifactShelf, model: ArtifactRef
) -> None:
    spoil(shelf, model, -1)
    assert who_refuses(shelf, model) == [int(model.sha256[:8], 16) % COUNT]


def test_file_that_cannot_be_read_is_named_by_every_share(
    shelf: ArtifactShelf, model: ArtifactRef
) -> None:
    spoil(shelf, model, 8)
    assert who_refuses(shelf, model) == [*range(COUNT)]
