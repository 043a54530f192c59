"""Samples that are embeddings already: what made them is named, nothing is done to them.

Examples
--------
>>> encoder = Embedded(3, fingerprint="of the network that made them")
>>> encoder(np.ones((2, 3))).shape
(2, 3)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.encoders.contract import check_samples
from clma.errors import InvalidConfigError

__all__ = ["Embedded"]


class Embedded:
    """The identity, under the name of the encoder that was there before.

    Parameters
    ----------
    dim : int >= 1
        Numbers in an embedding.
    fingerprint : str
        Of the encoder that made the samples.

    Raises
    ------
    InvalidConfigError
        If `dim` is below 1 or there is no fingerprint.
    """

    def __init__(self, dim: int, *, fingerprint: str) -> None:
        if dim < 1 or not fingerprint:
            raise InvalidConfigError(
                f"embeddings of {dim} numbers by encoder {fingerprint!r}, wanted both"
            )
        self._dim = dim
        self._fingerprint = fingerprint

    @property
    def dim(self) -> int:
        """Numbers in an embedding."""
        return self._dim

    @property
    def fingerprint(self) -> str:
        """Of the encoder that made the samples."""
        return self._fingerprint

    def __call__(self, batch: NDArray[Any]) -> NDArray[np.float32]:
        """Return samples of shape (n, dim) as they are, float32.

        Raises
        ------
        ShapeMismatchError
            If they have another shape.
        InvalidUpdateError
            If a value is no real number, NaN or infinite; names the row.
        """
        check_samples(batch, (self._dim,))
        return np.asarray(batch, np.float32)
