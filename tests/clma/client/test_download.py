from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from clma.client.download import download, put_in_place
from clma.errors import DamagedStoreError, MissingObjectError, StorageError
from clma.ledger.store import Store

WEIGHTS = bytes(range(256)) * 10
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()


class Line:
    """A way to a store of which the connection lets some pieces through."""

    def __init__(self, url: str, n_pieces: int = 10**6) -> None:
        self.store = Store.open(url)
        self.store.put_once(f"models/{DIGEST}.safetensors", WEIGHTS)
        self.n_pieces = n_pieces
        self.asked: list[int] = []

    def model(self, digest: str, *, start: int = 0) -> Iterator[bytes]:
        rest = b"".join(self.store.stream(f"models/{digest}.safetensors", start=start))
        for first in range(0, len(rest), 1000):
            self.asked.append(start + first)
            if len(self.asked) > self.n_pieces:
                raise StorageError("no network")
            yield rest[first : first + 1000]


@pytest.fixture(params=["memory", "folder"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{tmp_path}" if request.param == "memory" else str(tmp_path / "store")


def fetch(line: Line, out: Path) -> bytes:
    parts = download(line, {out: DIGEST})  # type: ignore[arg-type]
    put_in_place(parts, out.with_suffix(".json"), b"{}")
    return out.read_bytes()


def test_a_model_comes_in_pieces_and_leaves_no_draft(url: str, tmp_path: Path) -> None:
    line, out = Line(url), tmp_path / "plant" / "m"

    assert fetch(line, out) == WEIGHTS

    assert line.asked == [0, 1000, 2000]
    assert sorted(p.name for p in out.parent.iterdir()) == ["m", "m.json"]


def test_a_broken_download_goes_on_where_it_was(url: str, tmp_path: Path) -> None:
    out = tmp_path / "m"
    with pytest.raises(StorageError, match="no network"):
        fetch(Line(url, n_pieces=2), out)
    assert not out.exists()

    line = Line(url)

    assert fetch(line, out) == WEIGHTS
    assert line.asked == [2000]


def test_what_is_there_is_not_fetched_again(url: str, tmp_path: Path) -> None:
    line, out = Line(url), tmp_path / "m"
    out.write_bytes(WEIGHTS)

    assert download(line, {out: DIGEST}) == {}  # type: ignore[arg-type]
    assert line.asked == []


def test_a_file_that_was_trained_over_is_fetched_again(url: str, tmp_path: Path) -> None:
    out = tmp_path / "m"
    out.write_bytes(WEIGHTS[:-1] + b"x")

    assert fetch(Line(url), out) == WEIGHTS


def test_a_spoiled_beginning_is_fetched_anew(url: str, tmp_path: Path) -> None:
    out = tmp_path / "m"
    (tmp_path / f".m.{DIGEST[:16]}.part").write_bytes(b"spoiled by a power cut")

    assert fetch(Line(url), out) == WEIGHTS


def test_a_changed_model_never_gets_its_name(url: str, tmp_path: Path) -> None:
    line, out = Line(url), tmp_path / "m"
    line.store.replace(f"models/{DIGEST}.safetensors", b"evil")

    with pytest.raises(DamagedStoreError, match="recorded"):
        fetch(line, out)

    assert list(tmp_path.glob("*m*")) == []


def test_a_missing_model_is_named(url: str, tmp_path: Path) -> None:
    with pytest.raises(MissingObjectError, match="0000"):
        download(Line(url), {tmp_path / "m": "0" * 64})  # type: ignore[arg-type]


def test_what_older_downloads_left_goes_with_the_next_one(url: str, tmp_path: Path) -> None:
    out = tmp_path / "m"
    (tmp_path / ".m.0123456789abcdef.part").write_bytes(b"of another night")

    fetch(Line(url), out)

    assert list(tmp_path.glob(".m.*")) == []
