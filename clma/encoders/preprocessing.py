"""What is done to samples before a network sees them; part of an encoder's identity.

Examples
--------
>>> images = np.full((1, 3, 2, 2), 0.5)
>>> Preprocessing((0.5, 0.25, 0.0), (0.25,), "NCHW").prepare(images)[0, :, 0, 0].tolist()
[0.0, 1.0, 2.0]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clma.encoders.contract import check_finite
from clma.errors import InvalidConfigError, InvalidUpdateError

__all__ = ["Layout", "Preprocessing"]

Layout = Literal["NCHW", "NHWC", "as-is"]


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How samples become a network's input.

    Parameters
    ----------
    mean, std : tuple of float
        Subtracted, then divided by; one for all values or one a channel, in the samples' unit.
    layout : {"NCHW", "NHWC", "as-is"}
        Where the network wants an image's channels. Samples have them first, whatever the network
        wants. ``as-is``: samples are no images, and have no channels of their own mean.
    value_range : (float, float), optional
        Smallest and largest value of a sample. Catches images of 0 to 255 where a network wants 0
        to 1, which no shape tells.

    Raises
    ------
    InvalidConfigError
        If means and deviations do not fit each other or the layout, a deviation is not above 0, or
        the range is empty.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: Layout = "as-is"
    value_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.layout not in get_args(Layout):
            raise InvalidConfigError(f"layout {self.layout!r}, wanted one of {get_args(Layout)}")
        n_mean, n_std = len(self.mean), len(self.std)
        if 0 in (n_mean, n_std) or not (n_mean == n_std or 1 in (n_mean, n_std)):
            raise InvalidConfigError(f"{n_mean} means, {n_std} deviations; wanted as many")
        if self.layout == "as-is" and max(n_mean, n_std) > 1:
            raise InvalidConfigError("layout 'as-is' has no channels, wanted one mean and std")
        if not all(math.isfinite(m) for m in self.mean):
            raise InvalidConfigError(f"mean {self.mean}, wanted finite numbers")
        if not all(math.isfinite(s) and s > 0 for s in self.std):
            raise InvalidConfigError(f"std {self.std}, wanted finite numbers above 0")
        if self.value_range is not None and not self.value_range[0] < self.value_range[1]:
            raise InvalidConfigError(f"value range {self.value_range}, wanted a smaller, a larger")

    @classmethod
    def given(
        cls,
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
        layout: Layout,
        value_range: tuple[float, float] | None,
    ) -> Preprocessing:
        """Return it as an encoder's arguments say it; None changes nothing."""
        means = (0.0,) if mean is None else tuple(float(m) for m in mean)
        stds = (1.0,) if std is None else tuple(float(s) for s in std)
        return cls(means, stds, layout, value_range)

    def settings(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it, for a fingerprint."""
        limits = None if self.value_range is None else [float(v) for v in self.value_range]
        return {
            "mean": [float(value) for value in self.mean],
            "std": [float(value) for value in self.std],
            "layout": self.layout,
            "value_range": limits,
        }

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise InvalidConfigError if samples of a shape cannot be prepared."""
        n_channels = max(len(self.mean), len(self.std))
        if any(length < 1 for length in shape):
            raise InvalidConfigError(f"sample shape {shape}, wanted lengths of at least 1")
        if self.layout == "as-is":
            return
        if len(shape) != 3 or n_channels not in (1, shape[0]):
            wanted = "channels" if n_channels == 1 else n_channels
            raise InvalidConfigError(
                f"sample shape {shape}, layout {self.layout} wants ({wanted}, height, width)"
            )

    def made_up(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return samples to try a network on: always the same noise, within the range."""
        noise = np.random.default_rng(0).uniform(size=shape)
        low, high = self.value_range or (
            min(self.mean) - min(self.std),
            max(self.mean) + max(self.std),
        )
        return np.asarray(low + (high - low) * noise, np.float32)

    def prepare(self, samples: NDArray[Any]) -> NDArray[np.float32]:
        """Return samples as the network wants them.

        Parameters
        ----------
        samples : ndarray of shape (n, ...)
            Images as (n, channels, height, width). Not modified.

        Returns
        -------
        ndarray
            Contiguous, float32; images of layout NHWC as (n, height, width, channels).

        Raises
        ------
        InvalidUpdateError
            If a sample has a value beyond `value_range`, or one that becomes infinite in float32;
            names the row.
        """
        self._check_range(samples)
        axes = (-1, *[1] * (samples.ndim - 2)) if self.layout != "as-is" else (-1,)
        mean, std = (np.array(v, np.float32).reshape(axes) for v in (self.mean, self.std))
        with np.errstate(over="ignore"):  # what becomes infinite is refused below, by its row
            prepared = (np.asarray(samples, np.float32) - mean) / std
        check_finite("prepared sample", prepared)
        if self.layout == "NHWC":
            prepared = np.moveaxis(prepared, 1, -1)
        return np.ascontiguousarray(prepared)

    def _check_range(self, samples: NDArray[Any]) -> None:
        if self.value_range is None or not samples.size:
            return
        low, high = self.value_range
        flat = samples.reshape(len(samples), -1)
        outside = (flat.min(axis=1) < low) | (flat.max(axis=1) > high)
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            raise InvalidUpdateError(
                f"sample {row} has values of {flat[row].min():g} to {flat[row].max():g}, "
                f"wanted {low:g} to {high:g}"
            )
