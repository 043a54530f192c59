from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from clma.cohorting.cfl import bipartition, separation
from clma.config import preset_config
from clma.parameters.moves import cosine_distances, mean_norm
from clma.records import FederationState, SealedUpdate
from tests.clma.shelf import Shelf, cohorts_of, models, one_cohort, run, update

UPDATES = np.array([[1, 0], [0.9, 0.1], [-1, 0], [-0.9, -0.1]])
GRAM = UPDATES @ UPDATES.T
CONFIG = preset_config("test", "cfl")
CLIENTS = ["p1", "p2", "p3", "p4"]


def test_mean_of_opposite_updates_stands_still() -> None:
    assert mean_norm(GRAM, [1, 1, 1, 1]) == pytest.approx(0.0)


def test_weights_count_in_the_mean() -> None:
    assert mean_norm(GRAM[:2, :2], [1, 0]) == pytest.approx(1.0)


def test_no_weight_at_all_counts_everybody_once() -> None:
    assert mean_norm(GRAM, [0, 0, 0, 0]) == pytest.approx(0.0)


def test_cut_goes_between_the_directions() -> None:
    distances = cosine_distances(GRAM)
    labels = bipartition(distances)

    assert 1 - distances[0, 1] == pytest.approx(0.993884, abs=1e-6)
    assert labels == (0, 0, 1, 1)
    assert separation(1 - distances, labels) == pytest.approx(0.998470, abs=1e-6)


def test_no_cut_separates_nothing() -> None:
    assert separation(np.ones((2, 2)), (0, 0)) == 0.0


def standing(base: str, *, round_num: int = 6, longest: float = 1.0) -> FederationState:
    state = one_cohort(base, CLIENTS, round_num=round_num)
    root = dataclasses.replace(state.cohorts["c0"], largest_mean_norm=longest)
    return dataclasses.replace(state, cohorts={"c0": root})


def opposite(shelf: Shelf, base: str) -> list[SealedUpdate]:
    return [
        update(shelf, c, [1 + a, 1 + b, 1], base)
        for c, (a, b) in zip(CLIENTS, UPDATES.tolist(), strict=True)
    ]


def test_standing_cohort_whose_members_move_is_split(shelf: Shelf, base: str) -> None:
    outcome = run(shelf, standing(base), opposite(shelf, base), CONFIG)

    assert cohorts_of(outcome) == {"p1": "c0", "p2": "c0", "p3": "c1", "p4": "c1"}
    assert models(shelf, outcome) == {"c0": [1.95, 1.05, 1], "c1": [0.05, 0.95, 1]}


@pytest.mark.parametrize("state", [{"round_num": 5}, {"longest": 0.0}, {"longest": 100.0}], ids=str)
def test_cohort_that_is_not_ripe_stays_one(
    shelf: Shelf, base: str, state: dict[str, float]
) -> None:
    """Too early; no longer mean seen yet; members that hardly move any more."""
    outcome = run(shelf, standing(base, **state), opposite(shelf, base), CONFIG)  # type: ignore[arg-type]

    assert set(cohorts_of(outcome).values()) == {"c0"}
    assert models(shelf, outcome)["c0"] == [1, 1, 1]


def test_cohort_with_a_missing_member_is_not_split(shelf: Shelf, base: str) -> None:
    outcome = run(shelf, standing(base), opposite(shelf, base)[:3], CONFIG)
    assert set(cohorts_of(outcome).values()) == {"c0"}


def test_longest_mean_is_remembered_and_inherited(shelf: Shelf, base: str) -> None:
    far = [update(shelf, c, [4, 1, 1], base) for c in CLIENTS]
    grown = run(shelf, standing(base), far, CONFIG)
    split = run(shelf, standing(base, longest=1.5), opposite(shelf, base), CONFIG)

    assert grown.state.cohorts["c0"].largest_mean_norm == pytest.approx(3.0)
    assert [c.largest_mean_norm for c in split.state.cohorts.values()] == [1.5, 1.5]


def test_member_that_stands_still_votes_in_its_cohort(shelf: Shelf, base: str) -> None:
    moved = [update(shelf, c, [5, 1, 1], base) for c in CLIENTS[:3]]
    still = update(shelf, "p4", [1, 1, 1], base)

    outcome = run(shelf, standing(base), [*moved, still], CONFIG)

    assert models(shelf, outcome)["c0"] == [4, 1, 1]
    assert set(cohorts_of(outcome).values()) == {"c0"}


def test_cohort_in_which_nobody_moves_stays_one(shelf: Shelf, base: str) -> None:
    updates = [update(shelf, c, [1, 1, 1], base) for c in CLIENTS]
    assert set(cohorts_of(run(shelf, standing(base), updates, CONFIG)).values()) == {"c0"}
