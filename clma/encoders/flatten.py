"""The raw sample as its own embedding: the baseline that every other encoder has to beat.

Examples
--------
>>> Flatten((2, 2))(np.array([[[1, 2], [3, 4]]])).tolist()
[[1.0, 2.0, 3.0, 4.0]]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.encoders.contract import check_samples, fingerprint_of
from clma.errors import InvalidConfigError

__all__ = ["Flatten"]


@dataclass(frozen=True, slots=True)
class Flatten:
    """All values of a sample, in the order in which they lie.

    Parameters
    ----------
    shape : tuple of int >= 1
        Of one sample.

    Raises
    ------
    InvalidConfigError
        If a length is below 1.
    """

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(length < 1 for length in self.shape):
            raise InvalidConfigError(f"sample shape {self.shape}, wanted lengths of at least 1")

    @property
    def dim(self) -> int:
        """Values in a sample."""
        return math.prod(self.shape)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over kind, version and shape."""
        return fingerprint_of("flatten", 1, {"shape": [int(n) for n in self.shape]})

    def __call__(self, batch: NDArray[Any]) -> NDArray[np.float32]:
        """Lay out every sample.

        Parameters
        ----------
        batch : ndarray of shape (n, *shape)

        Returns
        -------
        ndarray of shape (n, dim)
            A copy.

        Raises
        ------
        ShapeMismatchError, InvalidUpdateError
            As `check_samples` does.
        """
        check_samples(batch, self.shape)
        # A value beyond float32 becomes infinite, which whoever encodes refuses by its row.
        with np.errstate(over="ignore"):
            return np.array(batch.reshape(len(batch), self.dim), np.float32, order="C")
