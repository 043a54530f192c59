"""A client that moves too often is parked, and comes back."""

from __future__ import annotations

import dataclasses

import pytest

from clma.config import FederationConfig, preset_config
from clma.drift.unstable import longest_stay
from clma.records import ClientState, ClientStatus, Cohort, FederationState, Move
from clma.rows import DriftRow
from tests.clma.shelf import Shelf, models, one_cohort, run, update

ELSEWHERE = [9.0, 1.0, 1.0]


def config(**drift: int) -> FederationConfig:
    settings = {"unstable_moves": 2, "unstable_window": 8, "unstable_rest": 3, **drift}
    return preset_config("test", drift=settings)


def restless(shelf: Shelf, base: str, *moves: Move, round_num: int = 9) -> FederationState:
    """Return p1 and p2 in c0 and p3, which moved before, with the way to c1 open to it."""
    state = one_cohort(base, ["p1", "p2", "p3"], round_num=round_num)
    p3 = dataclasses.replace(state.clients["p3"], moves=moves)
    other = Cohort("c1", "c0", 3, shelf.put({"w": ELSEWHERE}).sha256)
    return dataclasses.replace(
        state, clients={**state.clients, "p3": p3}, cohorts={**state.cohorts, "c1": other}
    )


def night(
    shelf: Shelf,
    state: FederationState,
    base: str,
    settings: FederationConfig,
    *,
    flag: bool = True,
) -> tuple[FederationState, DriftRow]:
    """Run a round in which p3 goes towards c1; return the state and what is said of p3."""
    updates = [update(shelf, c, [1, 1, 2], base) for c in ("p1", "p2")]
    updates.append(update(shelf, "p3", [5, 1, 1], base, flag=flag))
    outcome = run(shelf, state, updates, settings)
    return outcome.state, outcome.decision.drift[2]


def p3_after(shelf: Shelf, state: FederationState, base: str, **drift: int) -> ClientState:
    return night(shelf, state, base, config(**drift))[0].clients["p3"]


TWO_MOVES = (Move(5, "c0"), Move(7, "c1"))


def test_one_move_more_than_allowed_parks_the_client(shelf: Shelf, base: str) -> None:
    state = restless(shelf, base, *TWO_MOVES)

    parked = p3_after(shelf, state, base)

    assert (parked.status, parked.rests_until, parked.moves) == (ClientStatus.UNSTABLE, 12, ())
    assert p3_after(shelf, state, base, unstable_moves=3).status is ClientStatus.ACTIVE


def test_moves_before_the_window_do_not_count(shelf: Shelf, base: str) -> None:
    state = restless(shelf, base, *TWO_MOVES)
    assert p3_after(shelf, state, base, unstable_window=4).status is ClientStatus.ACTIVE


def test_nobody_is_parked_and_no_move_remembered_where_it_is_off(shelf: Shelf, base: str) -> None:
    after = p3_after(shelf, restless(shelf, base, *TWO_MOVES), base, unstable_moves=0)
    assert (after.status, after.cohort_id, after.moves) == (ClientStatus.ACTIVE, "c1", ())


def test_parked_client_is_served_the_cohort_that_it_was_in_longest(shelf: Shelf, base: str) -> None:
    state, row = night(shelf, restless(shelf, base, *TWO_MOVES), base, config())

    assert state.clients["p3"].cohort_id == "c0"
    assert state.clients["p3"].serving_digest == state.cohorts["c0"].model_digest
    assert "parked in c0 until round 12" in str(row.detail)


@pytest.mark.parametrize(
    ("moves", "now", "wanted"),
    [
        ((Move(4, "c0"), Move(6, "c1"), Move(9, "c0")), "c1", "c0"),
        ((Move(4, "c2"), Move(8, "c1")), "c0", "c1"),
        ((Move(4, "c2"), Move(6, "c1"), Move(8, "c0")), "c3", "c0"),
        ((), "c4", "c4"),
    ],
)
def test_longest_stay_and_of_equals_the_oldest(
    moves: tuple[Move, ...], now: str, wanted: str
) -> None:
    assert longest_stay(moves, now, 10) == wanted


def resting(shelf: Shelf, base: str, *, round_num: int) -> FederationState:
    state = restless(shelf, base, round_num=round_num)
    p3 = dataclasses.replace(
        state.clients["p3"], status=ClientStatus.UNSTABLE, rests_until=round_num + 1
    )
    return dataclasses.replace(state, clients={**state.clients, "p3": p3})


def test_resting_client_votes_nowhere_and_its_flag_is_not_followed(shelf: Shelf, base: str) -> None:
    updates = [update(shelf, c, [1, 1, 2], base) for c in ("p1", "p2")]
    updates.append(update(shelf, "p3", ELSEWHERE, base, flag=True))

    outcome = run(shelf, resting(shelf, base, round_num=9), updates, config())

    assert models(shelf, outcome)["c0"] == [1, 1, 2]
    assert outcome.state.clients["p3"].cohort_id == "c0"
    assert outcome.state.clients["p3"].status is ClientStatus.UNSTABLE
    assert "unstable: votes nowhere" in str(outcome.decision.drift[2].detail)


def test_resting_client_gets_its_cohorts_new_model_though_it_sent_nothing(
    shelf: Shelf, base: str
) -> None:
    updates = [update(shelf, c, [1, 1, 2], base) for c in ("p1", "p2")]
    after = run(shelf, resting(shelf, base, round_num=9), updates, config()).state

    assert after.clients["p3"].status is ClientStatus.UNSTABLE
    assert after.clients["p3"].serving_digest == after.cohorts["c0"].model_digest


def test_client_is_active_again_after_its_rest_and_its_flag_counts(shelf: Shelf, base: str) -> None:
    state, _ = night(shelf, resting(shelf, base, round_num=9), base, config(), flag=False)
    assert state.clients["p3"].status is ClientStatus.UNSTABLE

    updates = [update(shelf, "p3", [1, 5, 1], base)]
    rested = run(shelf, dataclasses.replace(state, round_num=10), updates, config()).state
    assert (rested.clients["p3"].status, rested.clients["p3"].cohort_id) == (
        ClientStatus.ACTIVE, "c0",
    )  # fmt: skip

    free, _ = night(shelf, dataclasses.replace(rested, round_num=11), base, config())
    assert free.clients["p3"].cohort_id == "c1"


def test_on_its_last_night_a_client_joins_a_known_cohort_without_a_flag(
    shelf: Shelf, base: str
) -> None:
    """Its detector has got used to the losses of the cohort that it was parked in."""
    state = dataclasses.replace(resting(shelf, base, round_num=9), round_num=10)

    after, row = night(shelf, state, base, config(), flag=False)

    assert (after.clients["p3"].status, after.clients["p3"].cohort_id) == (
        ClientStatus.ACTIVE, "c1",
    )  # fmt: skip
    assert row.voted_in is None


def test_memory_of_moves_is_bounded_by_the_window(shelf: Shelf, base: str) -> None:
    long_ago = tuple(Move(r, "c0") for r in range(1, 9))
    after = p3_after(
        shelf, restless(shelf, base, *long_ago), base, unstable_moves=100, unstable_window=3
    )
    assert [m.round_num for m in after.moves] == [7, 8, 9]
