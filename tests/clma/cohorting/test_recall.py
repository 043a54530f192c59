from __future__ import annotations

import numpy as np
import pytest

from clma.cohorting.recall import recall_scores


def scores(members: list[list[float]], ways: list[list[float]]) -> list[float]:
    rows = np.array([*members, *ways], dtype=float)
    n = len(members)
    return recall_scores(rows @ rows.T, range(n), range(n, len(rows))).tolist()


def test_score_is_the_cosine_of_the_mean_update() -> None:
    assert scores([[1, 0], [0, 1]], [[2, 2], [0, 3], [-1, -1]]) == pytest.approx(
        [1.0, 0.5**0.5, -1.0]
    )


def test_cohort_with_the_reference_model_has_no_direction() -> None:
    assert np.isnan(scores([[1, 0]], [[0, 0]])).all()


def test_members_that_cancel_point_nowhere() -> None:
    assert np.isnan(scores([[1, 0], [-1, 0]], [[1, 0]])).all()
