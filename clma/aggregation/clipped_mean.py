"""The weighted mean of updates that are shortened where they are unusually long.

Sun, Kairouz, Suresh and McMahan (2019), "Can You Really Backdoor Federated Learning?",
arXiv:1911.07963 (norm thresholding of updates).

Examples
--------
>>> spread = Spread(np.array([0.5, 0.25, 0.25]), np.array([[1.0, 2.0, 60.0], [0.0, 0.0, 0.0]]))
>>> mix = clip_updates(spread, AggregationConfig(clip_factor=3))
>>> [] if mix is None else mix.kept[0].tolist()
[1.0, 1.0, 0.1]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clma.aggregation.contract import Mix, Spread
from clma.config import AggregationConfig

__all__ = ["clip_updates"]


def clip_updates(spread: Spread, config: AggregationConfig) -> Mix | None:
    """Shorten updates to `clip_factor` times the median length; keep their direction.

    Parameters
    ----------
    spread : Spread
    config : AggregationConfig

    Returns
    -------
    Mix or None
        None if no update is longer: the weighted mean stands.

    Notes
    -----
    The paper's threshold is a number that somebody has to know; here it follows the fleet. The
    tensors that cohorting looks at are clipped by the length that is reported as ``update_norm``,
    all other tensors by their own: statistics of normalisation layers move in units of their own
    and would hide what the learned weights do, and left alone they would be a way in. Of an even
    number of lengths the lower middle one counts: with the mean of both, the longer one of two
    updates could never be clipped. Updates that did not move say nothing of how long one is: were
    they counted, a voter that sends its model back untouched would take the other one's along.
    """
    norms = spread.norms
    limits = config.clip_factor * np.array([[_middle(row[row > 0])] for row in norms])
    too_long = norms > limits
    if not too_long.any():
        return None
    kept = np.divide(limits, norms, out=np.ones_like(norms), where=too_long)
    return Mix(spread.shares, kept)


def _middle(lengths: NDArray[np.float64]) -> float:
    """Return the lower middle one; 0 for none, which nothing is longer than."""
    return float(np.sort(lengths)[(lengths.size - 1) // 2]) if lengths.size else 0.0
