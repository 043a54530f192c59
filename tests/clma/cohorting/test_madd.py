from __future__ import annotations

import numpy as np
import pytest

from clma.cohorting.madd import madd_distances
from clma.config import preset_config
from tests.clma.shelf import Shelf, cohorts_of, one_cohort, run, update


def distances(n: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(n, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(1 - vectors @ vectors.T)


def test_others_views_are_compared() -> None:
    vectors = np.array([[1, 0], [0.8, 0.6], [0, 1]])
    wanted = [[0, 0.6, 0.2], [0.6, 0, 0.8], [0.2, 0.8, 0]]
    assert madd_distances(1 - vectors @ vectors.T) == pytest.approx(np.array(wanted))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_without_a_third_client_it_is_the_cosine_distance(n: int) -> None:
    assert madd_distances(distances(n)) == pytest.approx(distances(n))


def test_equal_clients_are_at_distance_zero() -> None:
    alike = distances(4)[np.ix_([0, 0, 1, 2, 3], [0, 0, 1, 2, 3])]
    assert madd_distances(alike)[0, 1] == pytest.approx(0.0)


def test_every_entry_is_the_mean_over_the_others() -> None:
    given = distances(5)
    others = [k for k in range(5) if k not in {1, 3}]
    wanted = np.mean([abs(given[1, k] - given[3, k]) for k in others])
    assert madd_distances(given)[1, 3] == pytest.approx(wanted)


def test_order_of_clients_changes_nothing() -> None:
    order = np.random.default_rng(1).permutation(6)
    square = np.ix_(order, order)
    assert madd_distances(distances(6)[square]) == pytest.approx(
        madd_distances(distances(6))[square]
    )


def test_groups_are_found_by_it_where_it_is_chosen(shelf: Shelf, base: str) -> None:
    moved = {"p1": [3, 1, 1], "p2": [3, 1.2, 1], "p3": [1, 3, 1], "p4": [1, 3, 1.2]}
    updates = [update(shelf, p, w, base, flag=True) for p, w in moved.items()]
    config = preset_config("test", cohorting={"metric": "madd"})

    outcome = run(shelf, one_cohort(base, list(moved)), updates, config)

    assert cohorts_of(outcome) == {"p1": "c1", "p2": "c1", "p3": "c2", "p4": "c2"}


def test_clients_that_are_all_alike_stay_together(shelf: Shelf, base: str) -> None:
    moved = {f"p{i}": [3, 1 + 0.01 * i, 1] for i in range(5)}
    updates = [update(shelf, p, w, base, flag=True) for p, w in moved.items()]
    config = preset_config("test", cohorting={"metric": "madd", "silhouette_floor": 1.0})

    outcome = run(shelf, one_cohort(base, list(moved)), updates, config)

    assert set(cohorts_of(outcome).values()) == {"c1"}
