"""Breast ultrasound images: 780 grey images of 224 pixels a side, benign, malignant or normal.

Which hospital or patient an image is of is not recorded: how it is dealt to clients is scripted.

References
----------
.. [1] Al-Dhabyani, Gomaa, Khaled and Fahmy (2020), "Dataset of breast ultrasound images", Data in
   Brief 28, 104863.

Notes
-----
The data set is known for images that are nearly the same, of one patient or with and without
markers. Images are held out one by one, so some have a near double among those trained on, and all
figures are higher than they would be on new patients.
"""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError
from clma.simulation.frozen import SIZE, ImageSet

__all__ = ["CLASSES", "FILE_NAME", "load_busi"]

FILE_NAME = "busi_224.parquet"
CLASSES = ("benign", "malignant", "normal")


@functools.lru_cache(maxsize=1)
def load_busi(data: Path) -> ImageSet:
    """Decode all images.

    Parameters
    ----------
    data : Path
        Folder of ``busi_224.parquet``. Nothing is written there.

    Raises
    ------
    InvalidConfigError
        If the file is missing or is not what it should be; names the image.
    """
    path = data / FILE_NAME
    if not path.is_file():
        raise InvalidConfigError(f"no file {path}, wanted {FILE_NAME}")
    import pandas as pd

    try:
        table = pd.read_parquet(path, columns=["label", "image_jpeg"])
    except (ValueError, OSError, KeyError) as error:
        raise InvalidConfigError(
            f"{path} is not a table with columns 'label' and 'image_jpeg': {error}"
        ) from error
    labels = table["label"].to_numpy()
    if len(labels) == 0 or not np.isin(labels, np.arange(len(CLASSES))).all():
        raise InvalidConfigError(f"{path}: labels {np.unique(labels)}, wanted 0 to 2")
    pixels = [_decode(c, f"{path}: image {row}") for row, c in enumerate(table["image_jpeg"])]
    return ImageSet(np.stack(pixels), labels.astype(np.int64), CLASSES)


def _decode(content: Any, where: str) -> NDArray[np.uint8]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            if image.size != (SIZE, SIZE):
                raise InvalidConfigError(f"{where} has {image.size} pixels, wanted {SIZE} squared")
            return np.asarray(image.convert("L"))
    except (UnidentifiedImageError, OSError, TypeError) as error:
        raise InvalidConfigError(f"{where} is not a JPEG: {error}") from error
