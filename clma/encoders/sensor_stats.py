"""Eight statistics per channel of a window of sensor readings; nothing is trained.

Notes
-----
Readings are placed in the range that the plant's engineers gave the channel, the same constants for
all clients. Scaling by a client's own mean and deviation would erase the offsets and gains that
tell clients apart.

The statistics of a channel, of steps u_1 to u_T in units of its range: mean; standard deviation;
smallest; largest; mean of the last half less mean of the first (the middle of an odd number of
steps is in neither); standard deviation of the steps' differences; share of differences that are
nothing (a stuck sensor); mean product of neighbours' departures from the mean. The last is not
divided by the variance, which a stuck sensor has none of.

Examples
--------
>>> stats = SensorStats(low=(0.0,), high=(10.0,))
>>> dict(zip(STATISTICS, stats(np.array([[[0.0, 5.0, 5.0, 10.0]]]))[0].tolist()))["stuck"]
0.3333333432674408
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clma.encoders.contract import check_samples, fingerprint_of
from clma.errors import InvalidConfigError, ShapeMismatchError

__all__ = ["STATISTICS", "SensorStats", "read_ranges"]

STATISTICS = ("mean", "std", "min", "max", "drift", "difference_std", "stuck", "lag1")
"""Per channel, in this order."""
STUCK = 1e-6
"""Share of its range by which a reading may differ from the one before and still count as stuck."""


@dataclass(frozen=True, slots=True)
class SensorStats:
    """Statistics of windows in units of each channel's range.

    Parameters
    ----------
    low, high : tuple of float
        One a channel, in the channel's unit, `low` below `high`: engineering constants that all
        clients share.

    Raises
    ------
    InvalidConfigError
        If there is no channel, not one `low` a `high`, or a range is empty, NaN or infinite.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        # Written as floats, so that 0 and 0.0 are one encoder with one fingerprint.
        object.__setattr__(self, "low", tuple(float(value) for value in self.low))
        object.__setattr__(self, "high", tuple(float(value) for value in self.high))
        if not self.low or len(self.low) != len(self.high):
            raise InvalidConfigError(
                f"ranges: {len(self.low)} low, {len(self.high)} high; wanted as many, not 0"
            )
        for channel, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            if not (low < high and math.isfinite(high - low)):
                raise InvalidConfigError(
                    f"channel {channel}: range {low} to {high}, wanted low < high, both finite"
                )

    @property
    def dim(self) -> int:
        """Eight a channel."""
        return len(STATISTICS) * len(self.low)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over kind, version and ranges."""
        return fingerprint_of("sensor-stats", 1, {"low": self.low, "high": self.high})

    def __call__(self, batch: NDArray[Any]) -> NDArray[np.float32]:
        """Describe windows.

        Parameters
        ----------
        batch : ndarray of shape (n, n_channels, n_steps)
            In the channels' units; at least 2 steps. Not modified.

        Returns
        -------
        ndarray of shape (n, 8 * n_channels)
            The statistics of the first channel, then those of the second.

        Raises
        ------
        ShapeMismatchError
            If there are other channels or fewer steps.
        InvalidUpdateError
            If a value is no real number, NaN or infinite; names the row.
        """
        check_samples(batch, (len(self.low), None))
        if batch.shape[2] < 2:
            raise ShapeMismatchError(f"windows have {batch.shape[2]} steps, wanted at least 2")
        statistics = _statistics(self._in_range(batch))
        # A reading beyond float32 becomes infinite, which whoever encodes refuses by its row.
        with np.errstate(over="ignore"):
            return statistics.reshape(len(batch), self.dim).astype(np.float32)

    def _in_range(self, batch: NDArray[Any]) -> NDArray[np.float64]:
        # In one memory order, so that sums add up alike however the batch was cut.
        windows = np.array(batch, np.float64, order="C")
        low, high = np.array(self.low)[:, None], np.array(self.high)[:, None]
        windows -= low
        windows /= high - low
        return windows


def read_ranges(path: Path) -> SensorStats:
    """Read the ranges of a plant's channels.

    Parameters
    ----------
    path : Path
        TOML: a table ``[[channel]]`` with ``low`` and ``high`` for every channel, in the order in
        which windows have them; ``name`` and ``unit`` are for the reader.

    Raises
    ------
    InvalidConfigError
        If the file cannot be read, a channel lacks a number, or a range is refused.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidConfigError(f"ranges {path}: {error}") from error
    channels = tables.get("channel")
    if not isinstance(channels, list):
        raise InvalidConfigError(f"ranges {path}: wanted a [[channel]] with low and high for each")
    lows = tuple(_bound(path, number, channel, "low") for number, channel in enumerate(channels))
    highs = tuple(_bound(path, number, channel, "high") for number, channel in enumerate(channels))
    return SensorStats(lows, highs)


def _statistics(windows: NDArray[np.float64]) -> NDArray[np.float64]:
    half = windows.shape[2] // 2
    steps = np.diff(windows)
    mean = windows.mean(axis=2)
    departures = windows - mean[:, :, None]
    parts = (
        mean,
        windows.std(axis=2),
        windows.min(axis=2),
        windows.max(axis=2),
        windows[:, :, -half:].mean(axis=2) - windows[:, :, :half].mean(axis=2),
        steps.std(axis=2),
        (np.abs(steps) <= STUCK).mean(axis=2),
        (departures[:, :, 1:] * departures[:, :, :-1]).mean(axis=2),
    )
    return np.stack(parts, axis=2)


def _bound(path: Path, number: int, channel: Any, name: str) -> float:
    value = channel.get(name) if isinstance(channel, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidConfigError(f"ranges {path}: channel {number} has no number {name!r}")
    return float(value)
