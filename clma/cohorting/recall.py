"""Recall before create: does a movement point to a cohort that is known already?

A plant that drifts today the way another did last week should get that plant's model, not a new
one. The server needs nothing new for it: the group's mean update is compared with the way from the
model its members were sent to the model of every other cohort, dormant ones too. That way turns
aside as the cohort learns on; so it is also compared, if asked for, with the update that founded
the cohort, where the group comes from the same origin.

Examples
--------
>>> gram = np.array([[1.0, 1.0], [1.0, 4.0]])
>>> recall_scores(gram, members=[0], candidates=[1]).round(2).tolist()
[0.5]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clma.cohorting.contract import CohortingUnit, Evidence
from clma.parameters.moves import STILL, Movements

__all__ = ["RecallScore", "recall_scores", "score_candidates"]


@dataclass(frozen=True, slots=True)
class RecallScore:
    """How well a group fits a cohort, in [-1, 1], and what says so: ``way`` or ``birth``."""

    cohort_id: str
    score: float
    witness: str


def score_candidates(
    unit: CohortingUnit, evidence: Evidence, members: Sequence[int], *, output_weight: float = 0.0
) -> tuple[RecallScore, ...]:
    """Compare a group with the unit's candidates; of two witnesses the better one counts.

    Parameters
    ----------
    unit : CohortingUnit
    evidence : Evidence
    members : sequence of int
        Rows of the group's clients.
    output_weight : float in [0, 1]
        Share of the output layer's own cosine.

    Returns
    -------
    tuple of RecallScore
        In the order of the candidates, without those that have no direction to compare with.
    """
    first = len(unit.members)
    ids = [c.cohort_id for c in unit.candidates] + [w.cohort_id for w in unit.witnesses]
    columns = range(first, first + len(ids))
    scores = _blended(evidence.movements, members, columns, output_weight).tolist()
    found: dict[str, RecallScore] = {}
    for row, (cohort_id, score) in enumerate(zip(ids, scores, strict=True)):
        known = found.get(cohort_id)
        if not np.isnan(score) and (known is None or score > known.score):
            witness = "way" if row < len(unit.candidates) else "birth"
            found[cohort_id] = RecallScore(cohort_id, score, witness)
    return tuple(found[c.cohort_id] for c in unit.candidates if c.cohort_id in found)


def _blended(
    movements: Movements, members: Sequence[int], columns: Sequence[int], output_weight: float
) -> NDArray[np.float64]:
    whole = recall_scores(movements.gram, members, columns)
    if movements.output_gram is None:
        return whole
    # Who did not move in the output layer has no direction in it, and may still have one.
    part = np.nan_to_num(recall_scores(movements.output_gram, members, columns))
    return np.asarray((1 - output_weight) * whole + output_weight * part)


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
