from __future__ import annotations

import numpy as np
import pytest

from clma.cohorting.contract import Candidate, CohortingUnit, Evidence, UnitMember, Witness
from clma.cohorting.recall import recall_scores, score_candidates
from clma.parameters.moves import Movements
from clma.records import model_ref


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


def evidence_of(rows: list[list[float]], output: list[list[float]] | None = None) -> Evidence:
    """Return what is measured of one member and of what it is compared with."""
    found, part = np.array(rows, float), None if output is None else np.array(output, float)
    movements = Movements(
        found @ found.T,
        np.ones((1, len(rows))),
        np.zeros(len(rows)),
        ("w",),
        None if part is None else part @ part.T,
    )
    return Evidence(movements, np.zeros((1, 1)), np.zeros(1))


def unit_of(candidates: tuple[str, ...], witnesses: tuple[str, ...] = ()) -> CohortingUnit:
    ref = model_ref("ab" * 32)
    return CohortingUnit(
        "c0",
        2,
        (UnitMember("p1", "c0", ref, 1),),
        ref,
        tuple(Candidate(c, ref) for c in candidates),
        0,
        witnesses=tuple(Witness(c, ref, ref) for c in witnesses),
    )


def test_the_better_of_two_witnesses_counts() -> None:
    unit = unit_of(("c1", "c2"), ("c2", "c1"))
    evidence = evidence_of([[1, 0], [1, 1], [3, 4], [1, 0], [0, 1]])

    first, second = score_candidates(unit, evidence, [0])

    assert (first.cohort_id, first.score, first.witness) == ("c1", pytest.approx(0.5**0.5), "way")
    assert (second.cohort_id, second.score, second.witness) == ("c2", 1.0, "birth")


def test_a_cohort_without_a_way_is_known_by_its_birth() -> None:
    evidence = evidence_of([[1, 0], [0, 0], [1, 0]])
    [found] = score_candidates(unit_of(("c1",), ("c1",)), evidence, [0])
    assert (found.score, found.witness) == (1.0, "birth")


def test_a_cohort_without_any_direction_has_no_score() -> None:
    assert score_candidates(unit_of(("c1",)), evidence_of([[1, 0], [0, 0]]), [0]) == ()


def test_output_layer_has_its_share_in_a_score() -> None:
    evidence = evidence_of([[1, 0], [2, 0], [1, 0]], [[1, 0], [-1, 0], [0, 0]])
    scores = score_candidates(unit_of(("c1", "c2")), evidence, [0], output_weight=0.25)
    assert [s.score for s in scores] == pytest.approx([0.75 - 0.25, 0.75])
