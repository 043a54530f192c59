"""A generated fleet: plants of one type, 17 variables, four faults, several operating points.

A window is a state of the plant around its operating point, in standard deviations of normal
running at the base point: slow common disturbances that all variables share, each variable's own
noise, the plant's own offsets, and the signature of a fault. Faults start mild, so the classes
touch. Another operating point moves the levels, widens some disturbances, and turns the sign of
some process gains, as at a pump that runs past its best point. The type of plant is fixed; the seed
draws its plants and their data.

Examples
--------
>>> windows, labels = PlantSource(seed=0).training("plant-01", "base", 8, np.random.default_rng(0))
>>> windows.shape, windows.dtype
((8, 17, 30), dtype('float32'))
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clma.errors import InvalidConfigError
from clma.simulation.fleet import Windows

__all__ = [
    "CLASSES",
    "CONDITIONS",
    "VARIABLES",
    "PlantSource",
    "drawn_shares",
    "shares_of_known",
]

VARIABLES = (
    "feed_flow",
    "feed_temperature",
    "feed_pressure",
    "steam_flow",
    "steam_pressure",
    "pump_speed",
    "pump_current",
    "pump_vibration",
    "column_pressure",
    "column_level",
    "column_temperature",
    "valve_position",
    "cooling_flow",
    "cooling_temperature",
    "product_flow",
    "product_density",
    "tank_level",
)
CLASSES = ("normal", "leak", "fouling", "stiction", "sensor_fault")
CONDITIONS = ("base", "high-load", "low-load", "winter", "recycle")
"""Operating points; the fleet starts at ``base``."""

N_FACTORS = 4
N_HELD_OUT = 200
CLASS_SHARES = (0.28, 0.18, 0.18, 0.18, 0.18)
_SKEW = 4  # stream number; see `clma.simulation.fleet`
PLANT_TYPE = 20_260  # seed of the constants that all plants share


@dataclass(frozen=True, slots=True)
class _Point:
    """An operating point: `level`, `spread` and `gain` of shape (n_variables,)."""

    level: NDArray[np.float64]
    spread: NDArray[np.float64]
    gain: NDArray[np.float64]


def _loadings() -> NDArray[np.float64]:
    """Return how strongly each variable follows each common disturbance, rows of unit length."""
    drawn = np.random.default_rng(PLANT_TYPE).normal(size=(len(VARIABLES), N_FACTORS))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def _points() -> Mapping[str, _Point]:
    n = len(VARIABLES)
    points = {"base": _Point(np.zeros(n), np.ones(n), np.ones(n))}
    for number, name in enumerate(CONDITIONS[1:], start=1):
        rng = np.random.default_rng([PLANT_TYPE, number])
        level = rng.choice([-1.0, 1.0], size=n) * rng.uniform(1.0, 3.0, size=n)
        gain = np.where(rng.permutation(n) < 2 * n // 3, -1.0, 1.0)
        points[name] = _Point(level, rng.uniform(0.8, 1.4, size=n), gain)
    return points


_LOADINGS = _loadings()
_POINTS = _points()


@dataclass(frozen=True, slots=True)
class PlantSource:
    """Windows of generated plants.

    Parameters
    ----------
    seed : int, >= 0
        Draws the plants' offsets.
    window : int, >= 8
        Seconds.
    n_held_out : int, >= 1
        Held-out windows per client and condition.
    skew : float, > 0, or None
        Parameter of the Dirichlet distribution that each plant's class shares in training are drawn
        from; None: all have those of the type. What is held out keeps the type's shares.
    shares : mapping of client_id to shares of the classes
        Of plants that have their own, in training as in what is held out.
    """

    seed: int
    window: int = 30
    n_held_out: int = N_HELD_OUT
    skew: float | None = None
    shares: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def training(
        self, client_id: str, condition: str, n_windows: int, rng: np.random.Generator
    ) -> Windows:
        """Draw fresh windows of a client at an operating point.

        Raises
        ------
        InvalidConfigError
            If the operating point is unknown.
        """
        shares = self.shares.get(client_id, CLASS_SHARES)
        if self.skew is not None:
            shares = drawn_shares(self.seed, client_id, self.skew)
        return self._draw(client_id, condition, n_windows, shares, rng)

    def held_out(self, client_id: str, condition: str, rng: np.random.Generator) -> Windows:
        """Draw the windows that a client is tested on."""
        shares = self.shares.get(client_id, CLASS_SHARES)
        return self._draw(client_id, condition, self.n_held_out, shares, rng)

    def _draw(
        self,
        client_id: str,
        condition: str,
        n_windows: int,
        shares: Sequence[float],
        rng: np.random.Generator,
    ) -> Windows:
        if condition not in _POINTS:
            raise InvalidConfigError(
                f"operating point {condition!r} is unknown, wanted one of {', '.join(CONDITIONS)}"
            )
        point = _POINTS[condition]
        labels = rng.choice(len(CLASSES), size=n_windows, p=shares).astype(np.int64)
        running = _disturbances(n_windows, self.window, rng) * point.spread[:, None]
        _add_faults(running, labels, point.gain[:, None], rng)
        running += (point.level + self._offset(client_id))[:, None]
        return np.arcsinh(running).astype(np.float32), labels

    def _offset(self, client_id: str) -> NDArray[np.float64]:
        return _own_rng(self.seed, client_id).normal(0.0, 0.15, size=len(VARIABLES))


def drawn_shares(seed: int, client_id: str, alpha: float) -> tuple[float, ...]:
    """Draw a plant's class shares from a symmetric Dirichlet distribution.

    Parameters
    ----------
    seed : int, >= 0
    client_id : str
    alpha : float, > 0
    """
    shares = _own_rng(seed, client_id, _SKEW).dirichlet(np.full(len(CLASSES), alpha))
    return tuple(shares.tolist())


def shares_of_known(classes: Sequence[int]) -> tuple[float, ...]:
    """Return the type's class shares of a plant that knows some classes only; 0 for the others."""
    kept = [share if c in classes else 0.0 for c, share in enumerate(CLASS_SHARES)]
    return tuple(share / sum(kept) for share in kept)


def _own_rng(seed: int, client_id: str, *stream: int) -> np.random.Generator:
    # From the name, not from the place in the fleet: a plant stays itself in a larger fleet.
    name = int.from_bytes(hashlib.sha256(client_id.encode()).digest()[:8], "little")
    return np.random.default_rng([seed, name, *stream])


def _disturbances(n_windows: int, window: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return normal running, shape (n_windows, n_variables, window), unit variance."""
    common = _autoregressive(rng.normal(size=(n_windows, N_FACTORS, window)), 0.95)
    own = _autoregressive(rng.normal(size=(n_windows, len(VARIABLES), window)), 0.5)
    mixed = np.einsum("vf,nft->nvt", _LOADINGS, common)
    return np.asarray(np.sqrt(0.7) * mixed + np.sqrt(0.3) * own)


def _autoregressive(noise: NDArray[np.float64], memory: float) -> NDArray[np.float64]:
    """Return a stationary AR(1) series of unit variance along the last axis."""
    series = noise.copy()
    for t in range(1, noise.shape[-1]):
        series[..., t] = memory * series[..., t - 1] + np.sqrt(1 - memory**2) * noise[..., t]
    return series


def _add_faults(
    running: NDArray[np.float64],
    labels: NDArray[np.int64],
    signs: NDArray[np.float64],
    rng: np.random.Generator,
) -> None:
    """Add each window's fault signature to `running` in place."""
    n_windows, n_variables, window = running.shape
    severity = rng.uniform(0.4, 1.0, size=(n_windows,))
    phase = rng.uniform(0.0, 2.0 * np.pi, size=(n_windows,))
    period = rng.uniform(6.0, 12.0, size=(n_windows,))
    hiss = rng.normal(size=(n_windows, n_variables, window))
    time = np.arange(window, dtype=np.float64)
    for index, fault in enumerate(labels):
        s = severity[index]
        if fault == 1:  # a leak: pressure and level stand lower, the pump works harder
            running[index] += s * 1.8 * signs * _PATTERNS["leak"]
        elif fault == 2:  # fouling: temperatures and flows creep apart
            running[index] += s * 3.0 * signs * _PATTERNS["fouling"] * (time / window)
        elif fault == 3:  # a sticking valve: the loop hunts, around a place that is too open
            swing = np.sin(2.0 * np.pi * time / period[index] + phase[index])
            running[index] += s * signs * _PATTERNS["stiction"] * (1.0 + 2.0 * swing)
        elif fault == 4:  # a failing sensor: it loses touch with the plant, hisses and reads low
            seen = np.abs(_PATTERNS["sensor_fault"])
            running[index] += s * seen * (2.0 * hiss[index] - 0.5 * running[index] - 1.0 * signs)


def _pattern(**parts: float) -> NDArray[np.float64]:
    """Return a column of shape (n_variables, 1) with the named variables' parts."""
    return np.array([[parts.get(name, 0.0)] for name in VARIABLES])


_PATTERNS = {
    "leak": _pattern(
        column_pressure=-1.0, column_level=-0.8, pump_speed=0.7, pump_current=0.6, tank_level=-0.6
    ),
    "fouling": _pattern(
        column_temperature=0.9, cooling_temperature=1.0, cooling_flow=-0.8, steam_flow=0.8
    ),
    "stiction": _pattern(valve_position=1.0, feed_flow=0.9, product_flow=-0.7, column_level=0.6),
    "sensor_fault": _pattern(feed_pressure=1.0, product_density=1.0, steam_pressure=0.8),
}
