"""Recall before create: does a movement point to a cohort that is known already?

A plant that drifts today the way another did last week should get that plant's model, not a new
one. The server needs nothing new for it: the group's mean update is compared with the way from the
model its members were sent to the model of every other cohort, dormant ones too.

Examples
--------
>>> gram = np.array([[1.0, 1.0], [1.0, 4.0]])
>>> recall_scores(gram, members=[0], candidates=[1]).round(2).tolist()
[0.5]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clma.parameters.moves import STILL

__all__ = ["recall_scores"]


def recall_scores(
    gram: NDArray[np.float64], members: Sequence[int], candidates: Sequence[int]
) -> NDArray[np.float64]:
    """Return the cosine between a group's mean update and the way to each candidate.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Inner products of movements from one reference.
    members, candidates : sequence of int
        Rows of the group's clients and of the candidate cohorts' models.

    Returns
    -------
    ndarray of shape (n_candidates,), in [-1, 1]
        NaN where the mean update or the way is shorter than 1e-12 and has no direction.
    """
    rows, columns = np.asarray(members, dtype=int), np.asarray(candidates, dtype=int)
    along = gram[np.ix_(rows, columns)].mean(axis=0)
    length = np.sqrt(max(float(gram[np.ix_(rows, rows)].mean()), 0.0))
    ways = np.sqrt(np.maximum(np.diag(gram)[columns], 0.0))
    scores = np.full(columns.size, np.nan)
    known = (ways >= STILL) & (length >= STILL)
    scores[known] = np.clip(along[known] / (length * ways[known]), -1.0, 1.0)
    return scores
