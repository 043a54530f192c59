"""Decode CIFAR-10 images once and keep them.

Decoding 60,000 small JPEG images takes seconds, the same for every seed and method. A process keeps
in memory what it has decoded; a folder that the caller names keeps all between processes, which
then share one copy in the page cache.
"""

from __future__ import annotations

import functools
import hashlib
import io
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError

__all__ = ["CLASSES", "FILE_NAMES", "N_TRAIN_IMAGES", "SIZE", "ImageStore", "load_images"]

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
FILE_NAMES = (*(f"train_{number}.parquet" for number in range(5)), "test.parquet")
N_TRAIN_IMAGES = 50_000
N_IMAGES_PER_FILE = 10_000
SIZE = 32


class ImageStore:
    """Images of the Parquet files, each decoded when it is first asked for; see `load_images`.

    Parameters
    ----------
    paths : sequence of Path
        Files of 10,000 images each.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        labels = np.concatenate([_column(path, "label") for path in paths])
        if not np.isin(labels, np.arange(len(CLASSES))).all():
            raise InvalidConfigError(
                f"{paths[0].parent}: labels {np.unique(labels)}, wanted 0 to 9"
            )
        self.labels: NDArray[np.int64] = labels.astype(np.int64)
        self._paths = tuple(paths)
        self._encoded: list[bytes] = []
        self._images = np.empty((len(labels), SIZE, SIZE, 3), np.uint8)
        self._known = np.zeros(len(labels), dtype=bool)
        self._lock = threading.Lock()

    def decoded(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return an array of shape (60000, 32, 32, 3) in which at least `rows` are decoded.

        Raises
        ------
        InvalidConfigError
            If an image is not a JPEG of 32x32 pixels.
        """
        with self._lock:
            if not self._encoded and not self._known[rows].all():
                self._encoded = [c for p in self._paths for c in _column(p, "image_jpeg")]
            for row in rows[~self._known[rows]].tolist():
                path, number = self._paths[row // N_IMAGES_PER_FILE], row % N_IMAGES_PER_FILE
                self._images[row] = _decode(self._encoded[row], f"{path}: image {number}")
            self._known[rows] = True
        return _read_only(self._images)

    def keep(self, place: Path) -> None:
        """Work with the images in a file from now on; it is written if it is not there.

        Raises
        ------
        InvalidConfigError
            If the file is not what it should be.
        """
        everything = np.arange(len(self.labels))
        if not place.is_file():
            images = self.decoded(everything)
            place.parent.mkdir(parents=True, exist_ok=True)
            # Under another name first: a second process must not read half of it.
            with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
                np.save(file, images)
            Path(file.name).replace(place)
        try:
            kept = np.lib.format.open_memmap(place, mode="r")
        except (ValueError, OSError) as error:
            raise InvalidConfigError(f"{place} cannot be read, remove it: {error}") from error
        if kept.shape != self._images.shape or kept.dtype != np.uint8:
            raise InvalidConfigError(
                f"{place} has {kept.dtype} of shape {kept.shape}, "
                f"wanted uint8 of {self._images.shape}: remove it"
            )
        self._images, self._known[:], self._encoded = kept, True, []


@functools.lru_cache(maxsize=1)
def load_images(data: Path, cache: Path | None = None) -> ImageStore:
    """Open the data set, the 50,000 images for training first.

    Parameters
    ----------
    data : Path
        Folder of the Parquet files. Nothing is written there.
    cache : Path or None
        Folder for the decoded images, made if it is not there.

    Raises
    ------
    InvalidConfigError
        If a file is missing or is not what it should be.
    """
    paths = [data / name for name in FILE_NAMES]
    for path in paths:
        if not path.is_file():
            raise InvalidConfigError(f"no file {path}, wanted {', '.join(FILE_NAMES)}")
    store = ImageStore(paths)
    if cache is not None:
        digest = hashlib.sha256()
        for path in paths:
            digest.update(path.read_bytes())
        store.keep(cache / f"cifar10-{digest.hexdigest()[:16]}.npy")
    return store


def _decode(content: bytes, where: str) -> NDArray[np.uint8]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            pixels = np.asarray(image.convert("RGB"))
    except (UnidentifiedImageError, OSError, TypeError) as error:
        raise InvalidConfigError(f"{where} is not a JPEG: {error}") from error
    if pixels.shape != (SIZE, SIZE, 3):
        raise InvalidConfigError(f"{where} has shape {pixels.shape}, wanted {(SIZE, SIZE, 3)}")
    return pixels


def _read_only(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    view = images.view()
    view.flags.writeable = False
    return view


def _column(path: Path, name: str) -> NDArray[Any]:
    import pandas as pd

    try:
        column = pd.read_parquet(path, columns=[name])[name].to_numpy()
    except (ValueError, OSError, KeyError) as error:
        raise InvalidConfigError(
            f"{path} is not a table with a column {name!r}: {error}"
        ) from error
    if len(column) != N_IMAGES_PER_FILE:
        raise InvalidConfigError(f"{path} has {len(column)} rows, wanted {N_IMAGES_PER_FILE}")
    return column
