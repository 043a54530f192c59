from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from clma.cohorting.feddrift import cluster_distances, merge_clusters
from clma.config import FederationConfig, preset_config
from clma.records import Cohort, CohortStatus, FederationState, SealedUpdate
from tests.clma.shelf import Shelf, cohorts_of, models, one_cohort, run, update

LOSSES = np.array([[0.2, 0.9, 0.3], [1.0, 0.3, 0.8], [0.25, 0.7, 0.2]])


def test_distance_is_the_worse_rise_of_the_loss_on_the_others_data() -> None:
    distances = cluster_distances(LOSSES)

    assert distances == pytest.approx(np.array([[0, 0.7, 0.1], [0.7, 0, 0.5], [0.1, 0.5, 0]]))


def test_model_that_is_better_abroad_is_at_distance_zero() -> None:
    assert cluster_distances(np.array([[0.5, 0.1], [0.2, 0.4]])).max() == 0


def test_linkage_is_complete() -> None:
    """Single linkage would chain all three: 1-3 at .1, then 3-2 at .5."""
    assert merge_clusters(cluster_distances(LOSSES), merge_distance=0.5) == (0, 1, 0)


def test_everything_merges_within_the_largest_distance() -> None:
    assert merge_clusters(cluster_distances(LOSSES), merge_distance=0.7) == (0, 0, 0)


def test_pair_that_was_not_measured_is_not_merged() -> None:
    losses = np.array([[0.2, np.nan], [0.2, 0.2]])
    assert merge_clusters(cluster_distances(losses), merge_distance=9.0) == (0, 1)


@pytest.mark.parametrize("n", [0, 1])
def test_no_two_clusters_are_no_merge(n: int) -> None:
    assert merge_clusters(np.zeros((n, n)), merge_distance=1.0) == (0,) * n


def config(preset: str = "feddrift") -> FederationConfig:
    share = ["weights", "flag", "examples", "loss_vector"]
    return preset_config("test", preset, privacy={"share": share})


def two_cohorts(state: FederationState, digest: str, *, born: int) -> FederationState:
    return dataclasses.replace(
        state, cohorts={**state.cohorts, "c1": Cohort("c1", "c0", born, digest)}
    )


def test_every_drifted_client_founds_a_cohort(shelf: Shelf, base: str) -> None:
    state = one_cohort(base, ["p1", "p2", "p3"])
    updates = [update(shelf, p, [2, 1, 1], base, flag=p != "p3") for p in ("p1", "p2", "p3")]

    outcome = run(shelf, state, updates, config())

    assert cohorts_of(outcome) == {"p1": "c1", "p2": "c2", "p3": "c0"}


def test_eager_founds_one_cohort_for_all_that_drift_at_once(shelf: Shelf, base: str) -> None:
    other = shelf.put({"w": [5.0, 5.0, 5.0]}).sha256
    state = two_cohorts(one_cohort(base, ["p1", "p2", "p3"]), other, born=1)
    updates = [
        update(shelf, "p1", [3, 1, 1], base, flag=True),
        update(shelf, "p2", [5, 1, 1], other, flag=True),
        update(shelf, "p3", [1, 1, 1], base),
    ]

    outcome = run(shelf, state, updates, config("feddrift-eager"))

    assert cohorts_of(outcome) == {"p1": "c2", "p2": "c2", "p3": "c0"}
    assert models(shelf, outcome)["c2"] == [4, 1, 1]


def settled(
    shelf: Shelf, base: str, other: str, *, losses_of_p2: tuple[float, float]
) -> list[SealedUpdate]:
    """Return updates of p1 on the base and of p2, with three times the examples, on the other."""
    on_own = {base: 0.2, other: 0.25}
    theirs = dict(zip((base, other), losses_of_p2, strict=True))
    return [
        update(shelf, "p1", [0, 0, 0], base, losses=on_own),
        update(shelf, "p2", [4, 4, 4], other, losses=theirs, n=30),
    ]


def test_cohorts_that_do_as_well_on_each_others_data_become_one(shelf: Shelf, base: str) -> None:
    other = shelf.put({"w": [5.0, 5.0, 5.0]}).sha256
    state = two_cohorts(one_cohort(base, ["p1", "p2"]), other, born=1)

    outcome = run(shelf, state, settled(shelf, base, other, losses_of_p2=(0.3, 0.2)), config())

    assert cohorts_of(outcome) == {"p1": "c0", "p2": "c0"}
    assert models(shelf, outcome)["c0"] == [3, 3, 3]
    assert outcome.state.cohorts["c1"].status is CohortStatus.MERGED


def test_cohorts_that_do_worse_on_each_others_data_stay_apart(shelf: Shelf, base: str) -> None:
    other = shelf.put({"w": [5.0, 5.0, 5.0]}).sha256
    state = two_cohorts(one_cohort(base, ["p1", "p2"]), other, born=1)

    outcome = run(shelf, state, settled(shelf, base, other, losses_of_p2=(0.8, 0.2)), config())

    assert cohorts_of(outcome) == {"p1": "c0", "p2": "c1"}


def test_isolated_cohort_is_not_merged_yet(shelf: Shelf, base: str) -> None:
    other = shelf.put({"w": [5.0, 5.0, 5.0]}).sha256
    state = two_cohorts(one_cohort(base, ["p1", "p2"]), other, born=2)

    outcome = run(shelf, state, settled(shelf, base, other, losses_of_p2=(0.2, 0.2)), config())

    assert cohorts_of(outcome) == {"p1": "c0", "p2": "c1"}


def test_client_of_a_merged_cohort_goes_with_it_though_it_did_not_answer(
    shelf: Shelf, base: str
) -> None:
    other = shelf.put({"w": [5.0, 5.0, 5.0]}).sha256
    state = two_cohorts(one_cohort(base, ["p1", "p2", "p3"]), other, born=1)
    absent = dataclasses.replace(state.clients["p3"], cohort_id="c1", serving_digest=other)
    state = dataclasses.replace(state, clients={**state.clients, "p3": absent})

    outcome = run(shelf, state, settled(shelf, base, other, losses_of_p2=(0.3, 0.2)), config())

    assert outcome.state.clients["p3"].cohort_id == "c0"
    assert outcome.state.clients["p3"].serving_digest == outcome.state.cohorts["c0"].model_digest


def test_losses_are_the_evidence(shelf: Shelf, base: str) -> None:
    other = shelf.put({"w": [5.0, 5.0, 5.0]}).sha256
    state = two_cohorts(one_cohort(base, ["p1", "p2"]), other, born=1)

    outcome = run(shelf, state, settled(shelf, base, other, losses_of_p2=(0.3, 0.2)), config())

    assert outcome.decision.drift[1].scores == (("c0", 0.3), ("c1", 0.2))
