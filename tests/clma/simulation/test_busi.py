from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("PIL")

from PIL import Image  # noqa: E402

from clma.errors import InvalidConfigError  # noqa: E402
from clma.simulation.busi import CLASSES, load_busi  # noqa: E402
from tests.clma.simulation.recorded import DATA_DIR, needs  # noqa: E402


def _jpeg(grey: int, size: int = 224) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (size, size), grey).save(buffer, "JPEG")
    return buffer.getvalue()


def _folder(tmp_path: Path, **columns: object) -> Path:
    table = {"label": [0, 2], "image_jpeg": [_jpeg(10), _jpeg(200)], **columns}
    pd.DataFrame(table).to_parquet(tmp_path / "busi_224.parquet")
    return tmp_path


def test_images_and_labels_are_those_of_the_table(tmp_path: Path) -> None:
    images = load_busi(_folder(tmp_path))

    assert (images.pixels.shape, images.pixels.dtype) == ((2, 224, 224), np.uint8)
    assert [int(image[5, 5]) for image in images.pixels] == [10, 200]
    assert [CLASSES[label] for label in images.labels] == ["benign", "normal"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": [0, 3]}, "labels .*wanted 0 to 2"),
        ({"image_jpeg": [_jpeg(1), b"GIF89a"]}, "image 1 is not a JPEG"),
        ({"image_jpeg": [_jpeg(1, 32), _jpeg(1)]}, "image 0 has .* pixels, wanted 224"),
        ({"image_jpeg": [None, _jpeg(1)]}, "image 0 is not a JPEG"),
    ],
)
def test_table_that_is_not_what_it_should_be_is_named(
    tmp_path: Path, columns: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        load_busi(_folder(tmp_path, **columns))


def test_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "busi_224.parquet").write_text("label,image_jpeg\n")

    with pytest.raises(InvalidConfigError, match="is not a table with columns 'label'"):
        load_busi(tmp_path)


@needs("busi_224/busi_224.parquet")
def test_recorded_images_have_the_published_counts() -> None:
    images = load_busi(DATA_DIR / "busi_224")

    assert np.bincount(images.labels).tolist() == [437, 210, 133]
    assert images.pixels.shape == (780, 224, 224)
