"""Image folders as their authors publish them: one folder a class, split or not.

Nothing is left out in silence: a file that is no image, a link that leads elsewhere or an image of
too many pixels is named, and the whole folder refused.

References
----------
.. [1] Howard (2019), Imagenette: ten classes of ImageNet, github.com/fastai/imagenette.
.. [2] Diosdado, Gilabert, Segui and Borrego (2024), "LungHist700: A dataset of histological images
   for deep learning in pulmonary pathology", Scientific Data 11, 1088.
.. [3] Al-Dhabyani, Gomaa, Khaled and Fahmy (2020), "Dataset of breast ultrasound images", Data in
   Brief 28, 104863.

Notes
-----
Of an image that is not square the middle is taken. Transparent places are black; 16-bit brightness
is divided by 257. Images are taken as they are stored, whatever their orientation tag says.
Patients are not told apart: images of one may be trained on and tested on.

Examples
--------
>>> LAYOUTS["lunghist-20x-merged"].class_of("scc_bd")
'scc'
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError
from clma.simulation.frozen import SIZE, ImageSet

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["LAYOUTS", "FolderLayout", "load_image_folder", "published_images"]

SUFFIXES = (".jpeg", ".jpg", ".png")
FORMATS = ("JPEG", "PNG")
MAX_PIXELS = 50_000_000
"""Of one image. A file of a few kilobytes can claim any number; decoded, this many take 150 MB."""

MAX_IMAGES = 20_000
"""Together they take 3 GB at 224 pixels a side."""

DEEP = 257  # 65,535 / 255


@dataclass(frozen=True, slots=True)
class FolderLayout:
    """Where a data set has its images.

    Parameters
    ----------
    folder : str
        Name of the whole, as it is unpacked.
    inside : str
        Folder in it that holds the folders of the classes, or of the splits.
    splits : (str, str), or None
        Folders to train on and to test on; None: classes come at once.
    names : mapping of folder name to class name
        Several folders may be one class; a folder that is not named is a class of its own name.
    only, without : str
        What the names of files contain that are images here, and of those that are not.
    """

    folder: str
    inside: str = ""
    splits: tuple[str, str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    only: str = ""
    without: str = ""

    def class_of(self, folder: str) -> str:
        """Return the class that a folder holds images of."""
        return self.names.get(folder, folder)

    def takes(self, name: str) -> bool:
        """Return whether a file of this name is one of the layout's images."""
        return self.only in name and not (self.without and self.without in name)


IMAGENETTE = {
    "n01440764": "tench",
    "n02102040": "english_springer",
    "n02979186": "cassette_player",
    "n03000684": "chain_saw",
    "n03028079": "church",
    "n03394916": "french_horn",
    "n03417042": "garbage_truck",
    "n03425413": "gas_pump",
    "n03445777": "golf_ball",
    "n03888257": "parachute",
}
GRADES = {f"{cancer}_{grade}": cancer for cancer in ("aca", "scc") for grade in ("bd", "md", "pd")}

LAYOUTS: Mapping[str, FolderLayout] = {
    "folder": FolderLayout("images"),
    "folder-split": FolderLayout("images", splits=("train", "val")),
    "imagenette": FolderLayout("imagenette", splits=("train", "val"), names=IMAGENETTE),
    "busi-folder": FolderLayout("Dataset_BUSI_with_GT", without="_mask"),
    **{
        f"lunghist-{zoom}{merged}": FolderLayout(
            "LungHist700", "data/images", names=names, only=f"_{zoom}_"
        )
        for zoom in ("20x", "40x")
        for merged, names in (("", {}), ("-merged", GRADES))
    },
}
"""By the name of the data set in scenarios. LungHist700 has two magnifications, which are two data
sets, and three grades of either cancer, which ``merged`` makes one class each."""


@functools.lru_cache(maxsize=2)
def published_images(name: str, root: Path) -> ImageSet:
    """Load a data set of `LAYOUTS`, once a process; see `load_image_folder`."""
    return load_image_folder(root, LAYOUTS[name])


def load_image_folder(root: Path, layout: FolderLayout, *, size: int = SIZE) -> ImageSet:
    """Load all images of a folder.

    Parameters
    ----------
    root : Path
        What the layout calls `folder`; nothing is written there.
    layout : FolderLayout
    size : int, >= 1
        Pixels of a side that images are brought to.

    Returns
    -------
    ImageSet
        Classes sorted by name, images by split, class, folder and file name. Of shape
        (n, size, size) where all images are grey, otherwise (n, size, size, 3).

    Raises
    ------
    InvalidConfigError
        If a folder is missing or empty, or a file is not an image that can be taken; names it.
    """
    if size < 1:
        raise InvalidConfigError(f"size is {size}, wanted at least 1")
    base = root / layout.inside
    places = [base] if layout.splits is None else [base / split for split in layout.splits]
    found = [_files(place, root, layout) for place in places]
    classes = tuple(sorted({name for files in found for name, _ in files}))
    trained = {name for name, _ in found[0]}
    if len(trained) < 2 or trained != set(classes):
        raise InvalidConfigError(
            f"{places[0]} has images of {', '.join(sorted(trained)) or 'no class'}, "
            f"wanted at least 2 classes, and all that are tested: {', '.join(classes)}"
        )
    files = [file for part in found for file in part]
    if len(files) > MAX_IMAGES:
        raise InvalidConfigError(f"{root} has {len(files)} images, wanted at most {MAX_IMAGES}")
    n_train = len(found[0])
    return ImageSet(
        _pixels([path for _, path in files], size),
        np.array([classes.index(name) for name, _ in files], dtype=np.int64),
        classes,
        None if layout.splits is None else np.arange(n_train, len(files)),
    )


def _files(place: Path, root: Path, layout: FolderLayout) -> list[tuple[str, Path]]:
    """Return class and path of every image below a folder of classes, in order."""
    if not place.is_dir():
        raise InvalidConfigError(f"no folder {place}")
    whole = root.resolve()
    found = []
    for folder in _visible(place):
        if not folder.is_dir():
            raise InvalidConfigError(f"{folder} is no folder, wanted one for each class")
        _check_within(folder, whole)
        for path in _visible(folder):
            _check_within(path, whole)
            if path.suffix.lower() not in SUFFIXES or not path.is_file():
                raise InvalidConfigError(f"{path} is no image, wanted {', '.join(SUFFIXES)}")
            if layout.takes(path.name):
                found.append((layout.class_of(folder.name), path))
    return sorted(found, key=lambda file: (file[0], str(file[1])))


def _visible(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder, by name, without what a desktop hides there."""
    return (path for path in sorted(folder.iterdir()) if not path.name.startswith("."))


def _check_within(path: Path, whole: Path) -> None:
    if not path.resolve().is_relative_to(whole):
        raise InvalidConfigError(f"{path} leads out of {whole}")


def _pixels(paths: list[Path], size: int) -> NDArray[np.uint8]:
    """Decode images; they stay grey as long as all are."""
    images = [_decoded(path, size) for path in paths]
    if all(image.ndim == 2 for image in images):
        return np.stack(images)
    return np.stack([np.stack([i] * 3, axis=2) if i.ndim == 2 else i for i in images])


def _decoded(path: Path, size: int) -> NDArray[np.uint8]:
    import PIL.Image

    try:
        with PIL.Image.open(path, formats=FORMATS) as image:
            width, height = image.size
            # The header has it; nothing is decoded yet.
            if width * height > MAX_PIXELS:
                raise InvalidConfigError(
                    f"{path} has {width}x{height} pixels, wanted at most {MAX_PIXELS}"
                )
            side = min(width, height)
            left, top = (width - side) // 2, (height - side) // 2
            # Cropped first: with a box, resizing still mixes in what lies around it.
            middle = _plain(image).crop((left, top, left + side, top + side))
            resized = middle.resize((size, size), PIL.Image.Resampling.BILINEAR)
            return np.asarray(resized, dtype=np.uint8)
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError) as error:
        if isinstance(error, InvalidConfigError):
            raise
        reason = " ".join(str(error).split())
        raise InvalidConfigError(f"{path} cannot be read as an image: {reason}") from error


def _plain(image: Image) -> Image:
    """Return an image as grey or as red, green and blue, eight bits each."""
    import PIL.Image

    if image.mode.startswith(("I", "F")):
        deep: NDArray[Any] = np.asarray(image)
        return PIL.Image.fromarray((np.clip(deep, 0, 65_535) // DEEP).astype(np.uint8))
    if image.mode in {"1", "L"} and "transparency" not in image.info:
        return image.convert("L")
    if image.mode in {"LA", "PA", "RGBA"} or "transparency" in image.info:
        seen = image.convert("RGBA")
        black = PIL.Image.new("RGBA", seen.size, (0, 0, 0, 255))
        flat = PIL.Image.alpha_composite(black, seen).convert("RGB")
        return flat.convert("L") if image.mode in {"1", "L", "LA"} else flat
    return image.convert("RGB")
