"""Bring recorded variables to one scale, and keep it when the plant leaves its range.

Examples
--------
>>> scale(np.array([[0.0], [2.0], [100.0]]), np.array([0, 1])).round(2).ravel().tolist()
[-0.8799999952316284, 0.8799999952316284, 5.289999961853027]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["scale"]


def scale(
    values: NDArray[np.floating[Any]], reference_rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Standardise by the rows of the time before any drift, then squash with ``arcsinh``.

    The squash keeps variables trainable that leave their range by a hundred deviations.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_variables)
        Not modified.
    reference_rows : ndarray of shape (n_reference,)
        Rows that mean and standard deviation are taken from; at least one.

    Returns
    -------
    ndarray of shape (n_rows, n_variables)
        Dimensionless; a variable that does not vary in the reference is only centred.
    """
    exact = values.astype(np.float64)
    reference = exact[reference_rows]
    mean, spread = reference.mean(axis=0), reference.std(axis=0)
    spread[spread == 0] = 1.0
    return np.asarray(np.arcsinh((exact - mean) / spread), dtype=np.float32)
