"""A voter that points against its cohort has no vote in this round, and loses nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from clma.config import preset_config
from clma.records import ClientStatus, SealedUpdate
from clma.round import RoundOutcome
from clma.rows import DriftRow, Gate
from tests.clma.shelf import Shelf, models, one_cohort, run, update

QUIET = {"p1": [2, 1, 1.1], "p2": [2, 1.1, 1], "p3": [2.1, 1, 1], "p4": [2, 1, 1]}
"""What four plants make of (1, 1, 1)."""


def night(
    shelf: Shelf, base: str, liar: list[float] | None, *, n: int = 10, **settings: Any
) -> RoundOutcome:
    updates = [update(shelf, c, w, base) for c, w in QUIET.items()]
    updates += [update(shelf, "p5", liar, base, n=n)] if liar else []
    config = preset_config("test", aggregation=settings)
    return run(shelf, one_cohort(base, [*QUIET, "p5"]), updates, config)


def row_of(outcome: RoundOutcome, client_id: str = "p5") -> DriftRow:
    return next(row for row in outcome.decision.drift if row.client_id == client_id)


def test_the_model_is_made_as_if_the_outlier_had_sent_nothing(shelf: Shelf, base: str) -> None:
    with_it, without = night(shelf, base, [-4, 1, 1]), night(shelf, base, None)
    assert models(shelf, with_it) == models(shelf, without)


def test_the_outlier_stays_and_is_served_the_model(shelf: Shelf, base: str) -> None:
    outcome = night(shelf, base, [-4, 1, 1])
    held_out = outcome.state.clients["p5"]
    assert (held_out.cohort_id, held_out.status) == ("c0", ClientStatus.ACTIVE)
    assert held_out.serving_digest == outcome.state.cohorts["c0"].model_digest != base


def test_the_row_says_why(shelf: Shelf, base: str) -> None:
    row = row_of(night(shelf, base, [-4, 1, 1]))
    assert (row.server_check, row.voted_in, row.update_norm) == ("outlier", None, 5.0)
    assert "held out of c0: its update points against the others' (cosine -1.00)" in str(row.detail)


def test_all_others_are_in_order(shelf: Shelf, base: str) -> None:
    rows = [row_of(night(shelf, base, [-4, 1, 1]), client_id) for client_id in QUIET]
    assert {(row.server_check, row.voted_in, row.detail) for row in rows} == {("ok", "c0", None)}


def test_the_cohort_counts_those_who_voted(shelf: Shelf, base: str) -> None:
    row = night(shelf, base, [-4, 1, 1]).decision.cohorts[0]
    assert (row.n_updates, row.n_members, row.gate) == (4, 5, Gate.PROMOTED)


def test_one_that_goes_further_the_same_way_votes(shelf: Shelf, base: str) -> None:
    assert row_of(night(shelf, base, [3, 1, 1])).voted_in == "c0"


def test_without_the_check_it_votes(shelf: Shelf, base: str) -> None:
    assert row_of(night(shelf, base, [-4, 1, 1], outlier_check=False)).voted_in == "c0"


def test_one_without_examples_has_no_vote_to_lose(shelf: Shelf, base: str) -> None:
    assert row_of(night(shelf, base, [-4, 1, 1], n=0)).server_check == "ok"


def test_without_examples_it_is_looked_at_where_all_count_the_same(shelf: Shelf, base: str) -> None:
    outcome = night(shelf, base, [-4, 1, 1], n=0, weight="equal")
    assert row_of(outcome).server_check == "outlier"


def test_three_voters_are_not_compared(shelf: Shelf, base: str) -> None:
    updates = [update(shelf, c, QUIET[c], base) for c in ("p1", "p2")]
    updates.append(update(shelf, "p5", [-4, 1, 1], base))
    outcome = run(shelf, one_cohort(base, ["p1", "p2", "p5"]), updates)
    assert row_of(outcome).server_check == "ok"


def test_who_flags_a_drift_is_no_outlier(shelf: Shelf, base: str) -> None:
    updates = [update(shelf, c, w, base) for c, w in QUIET.items()]
    updates.append(update(shelf, "p5", [-4, 1, 1], base, flag=True))
    row = row_of(run(shelf, one_cohort(base, [*QUIET, "p5"]), updates))
    assert row.server_check == "ok"


def test_an_earlier_note_is_kept(shelf: Shelf, base: str) -> None:
    """Of a first flag, which is not followed: the client votes, and is held out."""
    state = one_cohort(base, [*QUIET, "p5"])
    new = dataclasses.replace(state.clients["p5"], n_updates=0)
    state = dataclasses.replace(state, clients={**state.clients, "p5": new})
    updates: list[SealedUpdate] = [update(shelf, c, w, base) for c, w in QUIET.items()]
    updates.append(update(shelf, "p5", [-4, 1, 1], base, flag=True))
    config = preset_config("test", drift={"probation": False})
    detail = str(row_of(run(shelf, state, updates, config)).detail)
    assert detail.startswith("flag not followed: no earlier loss to compare with; held out of c0")


@pytest.mark.parametrize("preset", ["fedavg", "clma-literal", "clma-package", "singletons"])
def test_methods_of_the_literature_hold_nobody_out(shelf: Shelf, base: str, preset: str) -> None:
    updates = [update(shelf, c, w, base) for c, w in QUIET.items()]
    updates.append(update(shelf, "p5", [-4, 1, 1], base))
    outcome = run(shelf, one_cohort(base, [*QUIET, "p5"]), updates, preset_config("test", preset))
    mean = [(sum(w[0] for w in QUIET.values()) - 4) / 5, 1.02, 1.02]
    assert models(shelf, outcome)["c0"] == pytest.approx(mean)
