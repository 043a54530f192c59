"""What encoders of all runtimes share: prepare, run, average over places, check at the start.

Examples
--------
>>> encoder = NetworkEncoder(lambda x: 2 * x, Preprocessing(std=(4.0,)), (3,), fingerprint="f")
>>> encoder(np.ones((1, 3))).tolist()
[[0.5, 0.5, 0.5]]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.encoders.contract import check_samples
from clma.encoders.preprocessing import Preprocessing
from clma.encoders.reference import check_row_wise
from clma.errors import InvalidConfigError, InvalidUpdateError

__all__ = ["NetworkEncoder"]


class NetworkEncoder:
    """A frozen network with its preprocessing.

    Parameters
    ----------
    run : callable
        From prepared samples to (n, dim), or for images to (n, dim, height, width) in the
        network's layout, which is averaged over height and width. Raises InvalidConfigError if the
        network fails.
    preprocessing : Preprocessing
    sample_shape : tuple of int
        Of one sample, images as (channels, height, width). Networks that take images of any size
        give each size other embeddings, so one size is part of the encoder.
    fingerprint : str

    Raises
    ------
    InvalidConfigError
        If the network does not take such samples, gives something else than a row of numbers for
        each, or a row that depends on the others: two samples made up here are tried.
    """

    def __init__(
        self,
        run: Callable[[NDArray[np.float32]], NDArray[Any]],
        preprocessing: Preprocessing,
        sample_shape: tuple[int, ...],
        *,
        fingerprint: str,
    ) -> None:
        preprocessing.check_shape(sample_shape)
        self._run = run
        self._preprocessing = preprocessing
        self._sample_shape = sample_shape
        self._fingerprint = fingerprint
        trial = preprocessing.made_up((2, *sample_shape))
        self._dim = int(self._embed(trial).shape[1])
        try:
            check_row_wise(self, trial)
        except InvalidUpdateError as error:
            raise InvalidConfigError(f"tried on two samples: {error}") from error

    @property
    def dim(self) -> int:
        """Numbers in an embedding."""
        return self._dim

    @property
    def fingerprint(self) -> str:
        """SHA-256 over kind, version, preprocessing and weights."""
        return self._fingerprint

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Of one sample."""
        return self._sample_shape

    def __call__(self, batch: NDArray[Any]) -> NDArray[np.float32]:
        """Embed samples.

        Parameters
        ----------
        batch : ndarray of shape (n, *sample_shape)
            Not modified.

        Returns
        -------
        ndarray of shape (n, dim)

        Raises
        ------
        ShapeMismatchError
            If the samples have another shape.
        InvalidUpdateError
            If a value is no real number, NaN, infinite or out of range; names the row.
        """
        check_samples(batch, self._sample_shape)
        if len(batch) == 0:
            return np.zeros((0, self._dim), np.float32)
        return self._embed(batch)

    def _embed(self, batch: NDArray[Any]) -> NDArray[np.float32]:
        embedded = np.asarray(self._run(self._preprocessing.prepare(batch)))
        if embedded.ndim == 4 and self._preprocessing.layout != "as-is":
            places = (2, 3) if self._preprocessing.layout == "NCHW" else (1, 2)
            embedded = embedded.mean(axis=places, dtype=np.float64)
        if embedded.ndim != 2 or len(embedded) != len(batch):
            raise InvalidConfigError(
                f"the network gives shape {embedded.shape} for {len(batch)} samples, wanted "
                "(n, dim), or with a layout of images four axes"
            )
        return embedded.astype(np.float32)
