"""Folders as authors publish them, exported here from made-up images and from recorded ones."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")

from PIL import Image

from clma.encoders.flatten import Flatten
from clma.errors import InvalidConfigError
from clma.simulation.frozen import ImageSet, frozen_fleet
from clma.simulation.image_folder import LAYOUTS, FolderLayout, load_image_folder
from clma.simulation.scenarios import load_scenario
from tests.clma.simulation.recorded import DATA_DIR, needs

PLAIN = FolderLayout("images")


def _save(path: Path, value: object = 100, mode: str = "L", size: tuple[int, int] = (6, 6)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def _two_classes(root: Path) -> Path:
    _save(root / "cat" / "b.png", 10)
    _save(root / "cat" / "a.png", 20)
    _save(root / "ant" / "z.png", 30)
    return root


def _load(root: Path, layout: FolderLayout = PLAIN) -> ImageSet:
    return load_image_folder(root, layout, size=4)


def test_classes_are_sorted_folders_and_images_come_by_name(tmp_path: Path) -> None:
    images = _load(_two_classes(tmp_path))

    assert images.classes == ("ant", "cat")
    assert images.labels.tolist() == [0, 1, 1]
    assert images.pixels[:, 0, 0].tolist() == [30, 20, 10]
    assert (images.pixels.shape, images.pixels.dtype) == ((3, 4, 4), np.uint8)


def test_split_holds_out_what_the_authors_do(tmp_path: Path) -> None:
    _two_classes(tmp_path / "train")
    _save(tmp_path / "val" / "cat" / "a.JPEG", 40)

    images = _load(tmp_path, LAYOUTS["folder-split"])

    assert images.held_out is not None
    assert (images.labels.tolist(), images.held_out.tolist()) == ([0, 1, 1, 1], [3])


def test_wordnet_folders_have_readable_names(tmp_path: Path) -> None:
    for split in ("train", "val"):
        for folder in ("n01440764", "n03888257"):
            _save(tmp_path / split / folder / "x.JPEG")

    assert _load(tmp_path, LAYOUTS["imagenette"]).classes == ("parachute", "tench")


@pytest.mark.parametrize(
    ("name", "classes", "n"),
    [
        ("lunghist-20x", ("aca_bd", "aca_md", "nor", "scc_pd"), 4),
        ("lunghist-20x-merged", ("aca", "nor", "scc"), 4),
        ("lunghist-40x-merged", ("aca", "nor"), 3),
    ],
)
def test_magnifications_are_two_data_sets_and_grades_can_be_merged(
    tmp_path: Path, name: str, classes: tuple[str, ...], n: int
) -> None:
    for folder in ("aca_bd", "aca_md", "nor", "scc_pd"):
        place = tmp_path / "data" / "images" / folder
        _save(place / f"{folder}_20x_1.jpg")
        if folder != "scc_pd":
            _save(place / f"{folder}_40x_1.jpg")

    images = _load(tmp_path, LAYOUTS[name])

    assert (images.classes, len(images.labels)) == (classes, n)


def test_masks_of_ultrasound_images_are_no_images(tmp_path: Path) -> None:
    for label in ("benign", "normal"):
        for end in ("", "_mask", "_mask_1"):
            _save(tmp_path / label / f"{label} (1){end}.png")

    assert _load(tmp_path, LAYOUTS["busi-folder"]).labels.tolist() == [0, 1]


def _with(tmp_path: Path, image: Image.Image) -> np.ndarray:
    root = _two_classes(tmp_path)
    image.save(root / "ant" / "z.png")
    return _load(root).pixels[0]


def test_sixteen_bits_become_eight(tmp_path: Path) -> None:
    deep = Image.fromarray(np.full((6, 6), 51_400, np.uint16))

    assert np.unique(_with(tmp_path, deep)).tolist() == [200]


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        (Image.new("RGB", (6, 6), (1, 2, 3)), [1, 2, 3]),
        (Image.new("RGBA", (6, 6), (200, 100, 50, 255)), [200, 100, 50]),
        (Image.new("RGBA", (6, 6), (200, 100, 50, 0)), [0, 0, 0]),
        (Image.new("RGB", (6, 6), (9, 8, 7)).convert("P", palette=1), [9, 8, 7]),
    ],
)
def test_colours_are_three_channels_and_nothing_shines_through(
    tmp_path: Path, image: Image.Image, wanted: list[int]
) -> None:
    seen = _with(tmp_path, image)

    assert seen.shape == (4, 4, 3)
    assert seen[2, 2].tolist() == wanted


@pytest.mark.parametrize(
    ("image", "wanted"),
    [(Image.new("1", (6, 6), 1), 255), (Image.new("LA", (6, 6), (90, 255)), 90)],
)
def test_images_without_colour_stay_grey(tmp_path: Path, image: Image.Image, wanted: int) -> None:
    seen = _with(tmp_path, image)

    assert (seen.shape, int(seen[1, 1])) == ((4, 4), wanted)


def test_middle_of_a_wide_image_is_taken(tmp_path: Path) -> None:
    wide = np.zeros((6, 18), np.uint8)
    wide[:, 6:12] = 77

    assert np.unique(_with(tmp_path, Image.fromarray(wide))).tolist() == [77]


def _claims(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header claims a size."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = b"IDAT" + zlib.compress(b"")
    chunks = [len(c[4:]).to_bytes(4, "big") + c + struct.pack(">I", zlib.crc32(c))
              for c in (head, body, b"IEND")]  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.png", b"", "bad.png cannot be read as an image"),
        ("bad.png", b"GIF89a" + bytes(30), "bad.png cannot be read as an image"),
        ("bad.png", _claims(9000, 9000), "bad.png has 9000x9000 pixels, wanted at most"),
        ("bad.png", _claims(60_000, 60_000), r"bad.png (has 60000|cannot be read)"),
        ("bad.png", _claims(8, 8), "bad.png cannot be read as an image"),
        ("notes.txt", b"hello", "notes.txt is no image, wanted .jpeg, .jpg, .png"),
    ],
)
def test_file_that_is_no_image_is_named_and_refused(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (_two_classes(tmp_path) / "ant" / name).write_bytes(content)

    with pytest.raises(InvalidConfigError, match=message) as caught:
        _load(tmp_path)

    assert "\n" not in str(caught.value)


def test_image_that_was_cut_short_is_named(tmp_path: Path) -> None:
    root = _two_classes(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    Image.fromarray(noise).save(root / "ant" / "z.png")
    content = (root / "ant" / "z.png").read_bytes()
    (root / "ant" / "z.png").write_bytes(content[: len(content) // 2])

    with pytest.raises(InvalidConfigError, match=r"z.png cannot be read as an image"):
        _load(root)


@pytest.mark.parametrize("link", ["file", "folder"])
def test_link_out_of_the_folder_is_refused(tmp_path: Path, link: str) -> None:
    root = _two_classes(tmp_path / "images")
    _save(tmp_path / "elsewhere" / "secret.png")
    if link == "file":
        (root / "cat" / "c.png").symlink_to(tmp_path / "elsewhere" / "secret.png")
    else:
        (root / "dog").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(InvalidConfigError, match="leads out of"):
        _load(root)


def test_link_within_the_folder_is_followed(tmp_path: Path) -> None:
    root = _two_classes(tmp_path)
    (root / "cat" / "c.png").symlink_to(root / "ant" / "z.png")

    assert _load(root).pixels[-1, 0, 0] == 30


def test_hidden_files_are_left_alone(tmp_path: Path) -> None:
    (_two_classes(tmp_path) / "cat" / ".DS_Store").write_bytes(b"x")

    assert len(_load(tmp_path).labels) == 3


def test_missing_and_lonely_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"no folder .*data/images"):
        _load(tmp_path, LAYOUTS["lunghist-20x"])

    _save(tmp_path / "cat" / "a.png")
    with pytest.raises(InvalidConfigError, match="has images of cat, wanted at least 2 classes"):
        _load(tmp_path)

    (tmp_path / "readme.txt").write_text("x")
    with pytest.raises(InvalidConfigError, match=r"readme.txt is no folder, wanted one for each"):
        _load(tmp_path)


def test_class_that_is_only_tested_is_refused(tmp_path: Path) -> None:
    _two_classes(tmp_path / "train")
    _save(tmp_path / "val" / "dog" / "a.png")

    with pytest.raises(InvalidConfigError, match="all that are tested: ant, cat, dog"):
        _load(tmp_path, LAYOUTS["folder-split"])


def test_folder_is_a_data_set_of_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for label in ("ant", "bee", "cat"):
        for number in range(20):
            _save(tmp_path / "images" / label / f"{number:02d}.png", 10 * number)
    encoder = Flatten((3, 4, 4))
    monkeypatch.setattr("clma.simulation.frozen.backbone", lambda: encoder)
    monkeypatch.setattr(
        "clma.simulation.frozen.embed_images",
        lambda pixels, *_, **__: np.repeat(pixels[:, :4, :4].reshape(-1, 16) / 255.0, 3, axis=1),
    )

    fleet = load_scenario("folder/class-groups", 0, tmp_path)

    assert fleet.classes == ("ant", "bee", "cat")
    assert len(fleet.training_windows("plant-01", 1)[1]) > 0


@needs("busi_224/busi_224.parquet")
def test_exported_ultrasound_images_make_a_fleet(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    table = pd.read_parquet(DATA_DIR / "busi_224" / "busi_224.parquet")
    for row in table.groupby("class_name").head(30).itertuples():
        place = tmp_path / row.class_name / f"{row.class_name} ({row.source_index}).jpg"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(row.image_jpeg)

    images = load_image_folder(tmp_path, LAYOUTS["busi-folder"], size=8)
    encoder = Flatten((3, 8, 8))
    fleet = frozen_fleet(images, "class-groups", "concept", 0, name="b", encoder=encoder, size=8)

    assert images.classes == ("benign", "malignant", "normal")
    assert fleet.training_windows("plant-01", 1)[0].shape[1] == 192
