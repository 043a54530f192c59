"""FECFL's signature: the mean of what one network, the same for all, sees in a client's samples.

References
----------
.. [1] "Lightweight Clustered Federated Learning via Feature Extraction" (FECFL), after the
   published reference code.

Notes
-----
The paper was not available, only its code: what is here follows what the code does. The network has
the federation's initial, untrained weights for everybody and for ever. Departure: the reference
code drops the last, partial batch, so that a client with less than one batch has no features; here
every sample counts, whatever the batches.

Examples
--------
>>> sign_by_mean_feature(np.array([[1.0, 0.0], [0.0, 3.0]]), lambda x: 2 * x).arrays["mean"]
array([1., 3.])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clma.errors import ShapeMismatchError
from clma.signatures.signature import FeatureExtractor, Signature

__all__ = ["KIND", "cosine_distances", "sign_by_mean_feature"]

KIND = "fecfl"
N_AT_ONCE = 256
ROUNDING = 1e-12


def sign_by_mean_feature(
    samples: NDArray[np.floating], extract: FeatureExtractor, *, encoder: str = ""
) -> Signature:
    """Describe a client's data by its mean feature.

    Parameters
    ----------
    samples : ndarray of shape (n, ...)
        Not modified.
    extract : callable
        Sees a few hundred samples at a time.
    encoder : str
        Name of what `extract` is.

    Raises
    ------
    ShapeMismatchError
        If there is no sample, or not one row of features a sample.
    """
    if len(samples) == 0:
        raise ShapeMismatchError("0 samples, wanted at least 1")
    parts = [
        _features(samples[start : start + N_AT_ONCE], extract)
        for start in range(0, len(samples), N_AT_ONCE)
    ]
    return Signature(KIND, {"mean": np.concatenate(parts).mean(axis=0)}, encoder)


def cosine_distances(
    rows: Sequence[NDArray[np.float64]], columns: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return one minus the cosine of every pair.

    Parameters
    ----------
    rows, columns : sequence of ndarray of shape (n_features,)

    Returns
    -------
    ndarray of shape (n_rows, n_columns)
        In [0, 2]. A vector of zeros points nowhere: it is at distance 1 from everything.
    """
    if not rows or not columns:
        return np.zeros((len(rows), len(columns)))
    cosines = np.stack([_unit(r) for r in rows]) @ np.stack([_unit(c) for c in columns]).T
    distances = np.clip(1 - cosines, 0.0, 2.0)
    return np.where(distances < ROUNDING, 0.0, distances)


def _features(samples: NDArray[np.floating], extract: FeatureExtractor) -> NDArray[np.float64]:
    features = np.asarray(extract(samples), np.float64)
    if features.ndim != 2 or len(features) != len(samples):
        raise ShapeMismatchError(
            f"features of {len(samples)} samples have shape {features.shape}, "
            f"wanted ({len(samples)}, n_features)"
        )
    return features


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.linalg.norm(vector)
    return np.asarray(vector / length if length > 0 else np.zeros_like(vector))
