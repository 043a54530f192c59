"""Voters whose update points against their cohort's, though they flagged no drift.

A client that hides its drift, or means harm, is in the mean of its cohort: a flag is its own word.
What the server sees without it is where the update points.

Leys, Ley, Klein, Bernard and Licata (2013), "Detecting outliers: Do not use standard deviation
around the mean, use absolute deviation around the median", Journal of Experimental Social
Psychology 49: the rule for a single number. Which number, and both thresholds, are our own choice.

Examples
--------
>>> config = AggregationConfig(outlier_check=True)
>>> find_outliers(np.array([0.7, 0.8, -0.9, 0.6, 0.7]), config).tolist()
[False, False, True, False, False]
>>> find_outliers(np.array([0.5, -0.3, -0.4, 0.6, 0.1]), config).tolist()
[False, False, False, False, False]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clma.config import AggregationConfig

__all__ = ["MIN_VOTERS", "find_outliers"]

MIN_VOTERS = 4
"""Of three cosines the median deviation is the gap between the closest two: any two voters that
resemble each other, by chance or by agreement, would put the third one out."""

SIGMAS_OF_MAD = 1.4826
"""Standard deviation of a normal distribution, in median absolute deviations."""


def find_outliers(cosines: NDArray[np.float64], config: AggregationConfig) -> NDArray[np.bool_]:
    """Say which voters point against their cohort and stand apart from all others in that.

    Parameters
    ----------
    cosines : ndarray of shape (n_voters,), in [-1, 1]
        Of every voter's update to the coordinate median of all; 0 for one without a direction.
    config : AggregationConfig

    Returns
    -------
    ndarray of bool, shape (n_voters,)
        Never half of the voters or more; none of fewer than `MIN_VOTERS`.

    Notes
    -----
    Both conditions are needed. Where clients differ much, a cosine far below the others' is still
    a direction that the cohort may go; where they spread over all directions, one that points back
    is one of many. Where the deviation is 0, because more than half of the voters point exactly the
    same way, every other cosine stands apart and the first condition alone decides.
    """
    if cosines.size < MIN_VOTERS:
        return np.zeros(cosines.size, np.bool_)
    middle = np.median(cosines)
    deviation = SIGMAS_OF_MAD * np.median(np.abs(cosines - middle))
    apart = cosines < middle + config.outlier_z * deviation
    return np.asarray(apart & (cosines < config.outlier_cosine))
