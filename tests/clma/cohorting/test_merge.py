"""Cohorts whose models went the same way become one, and nothing of them is lost."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from clma.cohorting.merge import cosine_from
from clma.config import FederationConfig, preset_config
from clma.records import ClientStatus, Cohort, CohortStatus, FederationState, SealedUpdate
from clma.round import RoundOutcome
from tests.clma.shelf import Shelf, cohorts_of, models, one_cohort, run, update

ALIKE = [4.0, 1.5, 1.0]
OTHER = [1.0, 4.0, 1.0]


def config(**cohorting: Any) -> FederationConfig:
    # Two cohorts that are to merge fit alike: the margin would let neither be recalled to.
    return preset_config("test", cohorting={"merge": True, "recall_margin": 0.0, **cohorting})


def forked(shelf: Shelf, base: str, third: list[float] = ALIKE) -> FederationState:
    """Return p1 in c0 and its children c1 at (5, 1, 1) with p2, c2 elsewhere with p3 and p4."""
    state = one_cohort(base, ["p1", "p2", "p3", "p4"], round_num=8)
    places = {"c1": [5.0, 1.0, 1.0], "c2": third}
    digests = {c: shelf.put({"w": w}).sha256 for c, w in places.items()}
    homes = {"p2": "c1", "p3": "c2", "p4": "c2"}
    clients = {
        p: dataclasses.replace(state.clients[p], cohort_id=c, serving_digest=digests[c])
        for p, c in homes.items()
    }
    cohorts = {c: Cohort(c, "c0", 3, d, origin_digest=base) for c, d in digests.items()}
    return dataclasses.replace(
        state, clients={**state.clients, **clients}, cohorts={**state.cohorts, **cohorts}
    )


def quiet(shelf: Shelf, state: FederationState, *, n_of_p2: int = 10) -> list[SealedUpdate]:
    """Return updates of clients that move each by a little, every one in a way of its own."""
    updates = []
    for number, (client_id, client) in enumerate(sorted(state.clients.items())):
        weights = np.add(shelf.read(client.serving_digest), [0, 0, 0.01 * number])
        n = n_of_p2 if client_id == "p2" else 10
        updates.append(update(shelf, client_id, weights.tolist(), client.serving_digest, n=n))
    return updates


def nights(
    shelf: Shelf, state: FederationState, n: int, settings: FederationConfig, **more: int
) -> RoundOutcome:
    for _ in range(n):
        outcome = run(shelf, state, quiet(shelf, state, **more), settings)
        state = dataclasses.replace(outcome.state, round_num=state.round_num + 1)
    return dataclasses.replace(outcome, state=state)


def test_two_alike_nights_make_one_cohort_and_one_does_not(shelf: Shelf, base: str) -> None:
    state = forked(shelf, base)

    after = [cohorts_of(nights(shelf, state, n, config())) for n in (1, 2)]

    assert after[0] == {"p1": "c0", "p2": "c1", "p3": "c2", "p4": "c2"}
    assert after[1] == {"p1": "c0", "p2": "c1", "p3": "c1", "p4": "c1"}


def test_nothing_merges_where_it_is_off(shelf: Shelf, base: str) -> None:
    outcome = nights(
        shelf, forked(shelf, base), 3, preset_config("test", cohorting={"merge": False})
    )
    assert len(outcome.state.active_cohorts()) == 3


@pytest.mark.parametrize("n_rounds", [2, 5])
def test_cohorts_that_went_different_ways_stay_apart(
    shelf: Shelf, base: str, n_rounds: int
) -> None:
    outcome = nights(shelf, forked(shelf, base, OTHER), n_rounds, config())
    assert len(outcome.state.active_cohorts()) == 3


def test_larger_part_makes_the_model_and_the_older_one_gives_the_name(
    shelf: Shelf, base: str
) -> None:
    by_many = nights(shelf, forked(shelf, base), 2, config())
    by_examples = nights(shelf, forked(shelf, base), 2, config(), n_of_p2=100)

    assert models(shelf, by_many)["c1"][:2] == ALIKE[:2]
    assert models(shelf, by_examples)["c1"][:2] == [5.0, 1.0]


def test_both_models_are_kept_and_the_rows_tell_the_lineage(shelf: Shelf, base: str) -> None:
    outcome = nights(shelf, forked(shelf, base), 2, config())
    merged, survivor = outcome.state.cohorts["c2"], outcome.state.cohorts["c1"]

    assert (merged.status, merged.merged_into) == (CohortStatus.MERGED, "c1")
    assert shelf.read(merged.model_digest)[:2] == ALIKE[:2]
    assert shelf.read(str(survivor.previous_digest))[:2] == [5.0, 1.0]
    assert outcome.decision.cohorts[2].gate_detail == "became part of c1"
    assert "cohort c2 became part of c1" in str(outcome.decision.drift[2].detail)


def test_order_of_arrival_changes_nothing(shelf: Shelf, base: str) -> None:
    state = nights(shelf, forked(shelf, base), 1, config()).state
    updates = quiet(shelf, state)

    forward, backward = (run(shelf, state, u, config()) for u in (updates, updates[::-1]))

    assert forward.state == backward.state
    assert forward.state.cohorts["c2"].status is CohortStatus.MERGED


def test_cohort_with_a_client_in_quarantine_waits_and_keeps_its_streak(
    shelf: Shelf, base: str
) -> None:
    state = nights(shelf, forked(shelf, base), 1, config()).state
    updates = quiet(shelf, state)
    updates[3] = update(shelf, "p4", [-9, 1, 1], state.clients["p4"].serving_digest, flag=True)

    waited = run(shelf, state, updates, config()).state
    then = nights(shelf, dataclasses.replace(waited, round_num=10), 1, config()).state

    assert waited.cohorts["c2"].status is CohortStatus.ACTIVE
    assert (then.clients["p3"].cohort_id, then.clients["p4"].cohort_id) == ("c1", "c0")


def test_streak_with_another_cohort_does_not_count(shelf: Shelf, base: str) -> None:
    state = forked(shelf, base)
    c2 = dataclasses.replace(state.cohorts["c2"], alike_to="c0", alike_rounds=9)
    state = dataclasses.replace(state, cohorts={**state.cohorts, "c2": c2})

    after = nights(shelf, state, 1, config()).state.cohorts["c2"]

    assert (after.status, after.alike_to, after.alike_rounds) == (CohortStatus.ACTIVE, "c1", 1)


def test_night_that_is_not_alike_ends_the_streak(shelf: Shelf, base: str) -> None:
    state = nights(shelf, forked(shelf, base), 1, config()).state
    strict = config(merge_cosine=0.99999)
    for settings in (strict, config()):
        state = nights(shelf, state, 1, settings).state
    assert state.cohorts["c2"].status is CohortStatus.ACTIVE


def test_client_that_goes_home_to_a_merged_cohort_finds_where_it_lives_on(
    shelf: Shelf, base: str
) -> None:
    state = nights(shelf, forked(shelf, base), 2, config()).state
    p1 = dataclasses.replace(state.clients["p1"], origin_cohort="c2", unconfirmed=True)
    state = dataclasses.replace(state, clients={**state.clients, "p1": p1})
    updates = quiet(shelf, state)
    updates[0] = dataclasses.replace(updates[0], confirm=False)

    assert cohorts_of(run(shelf, state, updates, config()))["p1"] == "c1"


def test_group_that_is_recalled_to_a_cohort_that_merges_joins_the_survivor(
    shelf: Shelf, base: str
) -> None:
    state = nights(shelf, forked(shelf, base, [5.0, 3.0, 1.0]), 1, config()).state
    updates = quiet(shelf, state)
    updates[0] = update(shelf, "p1", [3.0, 2.0, 1.0], base, flag=True)

    outcome = run(shelf, state, updates, config(recall_margin=0))

    assert outcome.decision.cohorting[0].recall_cohort == "c2"
    assert cohorts_of(outcome)["p1"] == "c1"


def test_moved_client_is_not_asked_for_its_old_cohort(shelf: Shelf, base: str) -> None:
    after = nights(shelf, forked(shelf, base), 2, config()).state.clients["p3"]
    assert after.status is ClientStatus.ACTIVE
    assert after.way_home() is None


def test_cosine_is_taken_from_where_the_lines_parted() -> None:
    points = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 3.0], [1.0, 0.0]])
    assert cosine_from(points @ points.T, 0, 1, 2) == 0
    assert cosine_from(points @ points.T, 2, 0, 1) == pytest.approx(0.948683)
    assert cosine_from(points @ points.T, 0, 3, 1) == 0  # no way has no direction
