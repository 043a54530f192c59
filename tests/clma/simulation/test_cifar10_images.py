from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("PIL")

from PIL import Image  # noqa: E402

from clma.errors import InvalidConfigError  # noqa: E402
from clma.simulation.cifar10_images import ImageStore, load_images  # noqa: E402

ROWS = np.array([0, 7, 9_999])


def _jpeg(grey: int, size: int = 32) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), (grey, grey, grey)).save(buffer, "JPEG")
    return buffer.getvalue()


def _table(tmp_path: Path, *, odd: bytes | None = None, n: int = 10_000) -> Path:
    """Ten thousand grey images, number 7 another one."""
    images = [_jpeg(100)] * n
    images[7] = _jpeg(200) if odd is None else odd
    path = tmp_path / "train_0.parquet"
    pd.DataFrame({"label": np.arange(n) % 10, "image_jpeg": images}).to_parquet(path)
    return path


def test_images_are_decoded_where_they_stand(tmp_path: Path) -> None:
    images = ImageStore([_table(tmp_path)]).decoded(ROWS)

    assert images.shape == (10_000, 32, 32, 3)
    assert np.unique(images[0]).tolist() == np.unique(images[9_999]).tolist() == [100]
    assert np.unique(images[7]).tolist() == [200]


def test_images_cannot_be_written_to(tmp_path: Path) -> None:
    images = ImageStore([_table(tmp_path)]).decoded(ROWS)

    with pytest.raises(ValueError, match="read-only"):
        images[0] = 0


@pytest.mark.parametrize(
    ("odd", "message"),
    [(b"GIF89a", "image 7 is not a JPEG"), (_jpeg(1, size=16), "image 7 has shape")],
)
def test_image_that_is_not_one_is_named(tmp_path: Path, odd: bytes, message: str) -> None:
    store = ImageStore([_table(tmp_path, odd=odd)])

    with pytest.raises(InvalidConfigError, match=f"train_0.parquet: {message}"):
        store.decoded(ROWS)


def test_file_keeps_the_images_for_the_next_process(tmp_path: Path) -> None:
    path, place = _table(tmp_path), tmp_path / "cache" / "images.npy"
    ImageStore([path]).keep(place)
    written = place.stat().st_mtime_ns

    store = ImageStore([path])
    store.keep(place)

    assert np.unique(store.decoded(ROWS)[7]).tolist() == [200]
    assert place.stat().st_mtime_ns == written
    assert [p.name for p in place.parent.iterdir()] == ["images.npy"]


@pytest.mark.parametrize("content", [b"", b"not an array", b"PK\x03\x04", b"\x93NUMPY\x01\x00"])
def test_spoiled_cache_is_named(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "images.npy"
    place.write_bytes(content)

    with pytest.raises(InvalidConfigError, match=r"images.npy cannot be read, remove it"):
        ImageStore([_table(tmp_path)]).keep(place)


def test_cache_of_another_shape_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.zeros(3))

    with pytest.raises(InvalidConfigError, match=r"has float64 of shape \(3,\), wanted uint8"):
        ImageStore([_table(tmp_path)]).keep(tmp_path / "images.npy")


def test_table_that_is_too_short_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="has 20 rows, wanted 10000"):
        ImageStore([_table(tmp_path, n=20)])


def test_missing_file_is_named(tmp_path: Path) -> None:
    _table(tmp_path)

    with pytest.raises(InvalidConfigError, match=r"no file .*train_1.parquet"):
        load_images(tmp_path)


def test_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("label,image_jpeg\n")

    with pytest.raises(InvalidConfigError, match=r"x.parquet is not a table with a column 'label'"):
        ImageStore([tmp_path / "x.parquet"])
