"""What may happen to a camera: conditions under which the same images look otherwise.

Examples
--------
>>> look(np.array([[[0.0, 1.0]]], np.float32), "invert").tolist()
[[[1.0, 0.0]]]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError
from clma.simulation.schedule import BASE

__all__ = ["CONDITIONS", "look"]

CONDITIONS = ("invert", "rotate-90", "dim")
DIM = 0.3  # share of the light that is left


def look(images: NDArray[np.float32], condition: str) -> NDArray[np.float32]:
    """Return images as they look under a condition.

    Parameters
    ----------
    images : ndarray of shape (n, size, size) or (n, size, size, channels)
        Brightness in [0, 1]. Not modified.
    condition : str
        ``base`` or one of `CONDITIONS`.

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
    raise InvalidConfigError(
        f"condition {condition!r} is unknown, wanted base or one of {', '.join(CONDITIONS)}"
    )
