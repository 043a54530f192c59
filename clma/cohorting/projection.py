"""Project a few long rows on their leading components (CLMA, Algorithm 3).

`eig(S'S)` of the listing is d x d for d parameters; the same scores come from the n x n matrix
`SS'` of inner products, exactly.

Examples
--------
>>> rows = np.array([[3.0, 0, 0], [-3, 0, 0], [0, 1, 0], [0, -1, 0]])
>>> project(rows @ rows.T, variance_kept=0.9, center=True).shape
(4, 1)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clma.blas import one_blas_thread
from clma.errors import EmptyCohortError

__all__ = ["project"]

EQUAL = 1e-14
"""Share of the squared rows; rows that differ by less are equal, as float32 has it (1e-7)."""


def project(
    gram: NDArray[np.float64], *, variance_kept: float = 0.95, center: bool = True
) -> NDArray[np.float64]:
    """Return the scores on the fewest components that keep a share of the variance.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Inner products of the rows. Not modified.
    variance_kept : float in (0, 1]
        Share of the eigenvalue sum to reach.
    center : bool
        Subtract the mean row first. Without it (Algorithm 3 as listed) what all rows have in common
        takes the first component, often alone.

    Returns
    -------
    ndarray of shape (n, n_components)
        The largest entry of every column (the first of equals) is positive: the sign of an
        eigenvector is arbitrary, a result must not be. Rows that are all equal give one column of
        zeros.

    Raises
    ------
    EmptyCohortError
        If there is no row.
    """
    n = gram.shape[0]
    if n == 0:
        raise EmptyCohortError("projection of no rows, wanted at least one")
    scale = float(np.abs(gram).max())
    if center:
        means = gram.mean(axis=0)
        gram = gram - means[:, None] - means[None, :] + means.mean()
    with one_blas_thread():
        eigenvalues, eigenvectors = np.linalg.eigh((gram + gram.T) / 2)
    eigenvalues = np.maximum(eigenvalues[::-1], 0.0)
    eigenvectors = eigenvectors[:, ::-1]
    total = eigenvalues.sum()
    # Below this the sum is what rounding left of equal rows, measured by what was subtracted.
    if total <= EQUAL * max(scale, 1e-300) * n:
        return np.zeros((n, 1))
    reached = np.cumsum(eigenvalues) / total
    n_components = int(np.searchsorted(reached, variance_kept * (1 - 1e-12))) + 1
    scores = eigenvectors[:, :n_components] * np.sqrt(eigenvalues[:n_components])
    peaks = np.argmax(np.abs(scores) > np.abs(scores).max(axis=0) * (1 - 1e-9), axis=0)
    signs = np.sign(scores[peaks, np.arange(scores.shape[1])])
    return np.asarray(scores * np.where(signs == 0, 1.0, signs))
