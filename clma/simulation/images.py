"""What may happen to a camera, and how two cameras differ: the same images look otherwise.

Examples
--------
>>> look(np.array([[[0.0, 1.0]]], np.float32), "invert").tolist()
[[[1.0, 0.0]]]
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError
from clma.simulation.schedule import BASE

__all__ = ["CONDITIONS", "STYLES", "look"]

CONDITIONS = ("invert", "rotate-90", "dim")
"""What happens to a camera."""

STYLES = ("invert", "grainy")
"""How groups of cameras differ from those at the base, from the start."""

DIM = 0.3  # share of the light that is left
CONTRAST = 0.5  # share of the contrast that a grainy image has left
GRAIN = 0.1  # standard deviation of its noise


def look(images: NDArray[np.float32], condition: str) -> NDArray[np.float32]:
    """Return images as they look under a condition.

    Parameters
    ----------
    images : ndarray of shape (n, size, size) or (n, size, size, channels)
        Brightness in [0, 1]. Not modified.
    condition : str
        ``base`` or one of `CONDITIONS` or `STYLES`. ``grainy`` takes half of the contrast and adds
        noise; an image always gets the same noise, whichever images it comes with.

    Raises
    ------
    InvalidConfigError
        If the condition is unknown.
    """
    if condition == BASE.condition:
        return images
    if condition == "invert":
        return np.asarray(1.0 - images, dtype=np.float32)
    if condition == "rotate-90":
        return np.ascontiguousarray(np.rot90(images, axes=(1, 2)))
    if condition == "dim":
        return np.asarray(images * np.float32(DIM), dtype=np.float32)
    if condition == "grainy":
        return _grainy(images)
    known = ", ".join(dict.fromkeys([*CONDITIONS, *STYLES]))
    raise InvalidConfigError(f"condition {condition!r} is unknown, wanted base or one of {known}")


def _grainy(images: NDArray[np.float32]) -> NDArray[np.float32]:
    noise = np.empty_like(images)
    for own, image in zip(noise, images, strict=True):
        # Seeded by the image, so that it is not another one in another round.
        rng = np.random.default_rng(zlib.crc32(np.ascontiguousarray(image).tobytes()))
        rng.standard_normal(out=own, dtype=np.float32)
    faint = np.float32(0.5) + np.float32(CONTRAST) * (images - np.float32(0.5))
    return np.asarray(np.clip(faint + np.float32(GRAIN) * noise, 0.0, 1.0), dtype=np.float32)
