"""Laws of one round, on models of three numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from clma.config import preset_config
from clma.errors import RoundHeldError
from clma.records import ClientStatus, CohortStatus, FederationState, SealedUpdate
from clma.round import run_round
from clma.rows import Gate, SealedRound
from tests.clma.shelf import Shelf, cohorts_of, models, one_cohort, run, sealed, update

CONFIG = preset_config("test")


@pytest.fixture
def example(shelf: Shelf, base: str) -> tuple[FederationState, list[SealedUpdate]]:
    """Two quiet clients, two that drifted one way and one that drifted another."""
    updates = [
        update(shelf, "p1", [1, 1, 1.1], base, n=10),
        update(shelf, "p2", [1, 1, 1.1], base, n=30),
        update(shelf, "p3", [2, 1, 1], base, flag=True),
        update(shelf, "p4", [3, 1, 1], base, flag=True),
        update(shelf, "p5", [1, 2, 1], base, flag=True),
    ]
    return one_cohort(base, ["p1", "p2", "p3", "p4", "p5"]), updates


def test_the_hand_computed_round(shelf: Shelf, example: Any) -> None:
    outcome = run(shelf, *example)

    assert models(shelf, outcome) == {"c0": [1, 1, 1.1], "c1": [2.5, 1, 1], "c2": [1, 2, 1]}
    assert cohorts_of(outcome) == {"p1": "c0", "p2": "c0", "p3": "c1", "p4": "c1", "p5": "c2"}


def test_order_of_arrival_changes_nothing(shelf: Shelf, example: Any) -> None:
    state, updates = example
    rng = np.random.default_rng(3)
    reference = run(shelf, state, updates)
    for _ in range(5):
        shuffled = [updates[i] for i in rng.permutation(len(updates))]
        outcome = run(shelf, state, shuffled)
        assert outcome.state == reference.state
        assert outcome.decision.cohorting == reference.decision.cohorting
        assert outcome.decision.cohorts == reference.decision.cohorts


def test_scaling_all_example_counts_changes_no_model(shelf: Shelf, example: Any) -> None:
    state, updates = example
    scaled = [dataclasses.replace(u, n_examples=7 * u.n_examples) for u in updates]
    assert run(shelf, state, scaled).state == run(shelf, state, updates).state


def test_quarantined_client_does_not_move_the_mean(shelf: Shelf, example: Any) -> None:
    state, updates = example
    wild = dataclasses.replace(updates[4], tensors=shelf.put({"w": [-99.0, 99.0, 5.0]}))
    outcome = run(shelf, state, [*updates[:4], wild])
    assert models(shelf, outcome)["c0"] == [1, 1, 1.1]


def test_state_before_is_not_modified(shelf: Shelf, example: Any) -> None:
    state, updates = example
    before = dataclasses.replace(state, clients=dict(state.clients), cohorts=dict(state.cohorts))
    run(shelf, state, updates)
    assert state == before


def test_nobody_drifts_and_one_model_is_made(shelf: Shelf, base: str) -> None:
    state = one_cohort(base, ["p1", "p2"])
    quiet = [update(shelf, c, [1, 1, 2], base) for c in ("p1", "p2")]

    outcome = run(shelf, state, quiet)

    assert models(shelf, outcome) == {"c0": [1, 1, 2]}
    assert outcome.decision.cohorting == ()


def test_everybody_drifts_alike_and_the_root_rests(shelf: Shelf, base: str) -> None:
    """A cohort without members is dormant; its model is kept."""
    ids = [f"p{i}" for i in range(8)]
    updates = [update(shelf, c, [2, 1, 1], base, flag=True) for c in ids]

    outcome = run(shelf, one_cohort(base, ids), updates)

    assert set(cohorts_of(outcome).values()) == {"c1"}
    assert outcome.state.cohorts["c0"].status is CohortStatus.DORMANT
    assert outcome.state.cohorts["c0"].model_digest == base
    assert outcome.decision.cohorts[0].gate is Gate.UNCHANGED


def test_everybody_drifts_his_own_way_and_nobody_is_forced_together(
    shelf: Shelf, base: str
) -> None:
    ways = {"p1": [9, 1, 1], "p2": [-9, 1, 1]}
    updates = [update(shelf, c, w, base, flag=True) for c, w in ways.items()]
    assert cohorts_of(run(shelf, one_cohort(base, list(ways)), updates)) == {
        "p1": "c1",
        "p2": "c2",
    }


def test_single_drifted_client_founds_a_cohort(shelf: Shelf, base: str) -> None:
    updates = [
        update(shelf, "p1", [1, 1, 1], base),
        update(shelf, "p2", [2, 1, 1], base, flag=True),
    ]
    outcome = run(shelf, one_cohort(base, ["p1", "p2"]), updates)
    assert cohorts_of(outcome) == {"p1": "c0", "p2": "c1"}
    assert outcome.state.cohorts["c1"].parent == "c0"


def test_first_flag_of_a_client_is_noted_and_not_followed(shelf: Shelf, base: str) -> None:
    state = one_cohort(base, ["p1"], round_num=1)
    new = dataclasses.replace(state.clients["p1"], n_updates=0)
    state = dataclasses.replace(state, clients={"p1": new})

    outcome = run(shelf, state, [update(shelf, "p1", [2, 1, 1], base, flag=True)])

    assert cohorts_of(outcome) == {"p1": "c0"}
    assert "no earlier loss" in str(outcome.decision.drift[0].detail)


def test_flag_without_movement_keeps_the_client(shelf: Shelf, base: str) -> None:
    updates = [update(shelf, "p1", [1, 1, 1], base, flag=True)]
    outcome = run(shelf, one_cohort(base, ["p1"]), updates)
    assert cohorts_of(outcome) == {"p1": "c0"}
    assert outcome.decision.cohorting[0].decision == "kept"


def test_missing_client_keeps_its_cohort_and_gets_its_new_model(shelf: Shelf, base: str) -> None:
    state = one_cohort(base, ["p1", "p2"])
    outcome = run(shelf, state, [update(shelf, "p1", [1, 1, 2], base)])
    missing = outcome.state.clients["p2"]
    assert missing.status is ClientStatus.MISSING
    assert missing.serving_digest == outcome.state.cohorts["c0"].model_digest


def test_drifted_client_without_examples_is_held_on_its_last_good_model(
    shelf: Shelf, base: str
) -> None:
    updates = [
        update(shelf, "p1", [7, 1, 1], base, n=0, flag=True),
        update(shelf, "p2", [1, 1, 4], base),
    ]
    outcome = run(shelf, one_cohort(base, ["p1", "p2"]), updates)
    held = outcome.state.clients["p1"]
    assert held.status is ClientStatus.QUARANTINED
    assert held.serving_digest == base
    assert outcome.decision.cohorting[0].decision == "held"


def test_held_client_is_placed_as_soon_as_it_can_be(shelf: Shelf, base: str) -> None:
    updates = [
        update(shelf, "p1", [7, 1, 1], base, n=0, flag=True),
        update(shelf, "p2", [1, 1, 4], base),
    ]
    state = dataclasses.replace(
        run(shelf, one_cohort(base, ["p1", "p2"]), updates).state, round_num=3
    )
    outcome = run(shelf, state, [update(shelf, "p1", [7, 1, 1], base)])
    assert cohorts_of(outcome)["p1"] == "c1"
    assert outcome.state.clients["p1"].status is ClientStatus.ACTIVE


@pytest.mark.parametrize("n_updates", [0, 1])
def test_round_below_quorum_is_held(shelf: Shelf, base: str, n_updates: int) -> None:
    config = preset_config("test", round={"quorum": 2})
    updates = [update(shelf, "p1", [1, 1, 2], base)][:n_updates]
    with pytest.raises(RoundHeldError, match=f"{n_updates} updates accepted, round.quorum is 2"):
        run(shelf, one_cohort(base, ["p1"]), updates, config)


def test_round_without_a_single_example_is_held(shelf: Shelf, base: str) -> None:
    with pytest.raises(RoundHeldError, match="NO_WEIGHT"):
        run(shelf, one_cohort(base, ["p1"]), [update(shelf, "p1", [1, 1, 2], base, n=0)])


def test_cohort_of_too_few_for_the_rule_keeps_its_model(shelf: Shelf, example: Any) -> None:
    config = preset_config("test", aggregation={"method": "krum", "n_byzantine": 0})

    outcome = run(shelf, *example, config=config)

    row = outcome.decision.cohorts[0]
    assert (row.gate, row.gate_detail) == (
        Gate.HELD,
        "2 updates have a weight, aggregation.method 'krum' needs 3",
    )
    assert row.model_digest == example[0].cohorts["c0"].model_digest


def test_group_of_too_few_for_the_rule_is_held(shelf: Shelf, example: Any) -> None:
    config = preset_config("test", aggregation={"method": "krum", "n_byzantine": 0})
    outcome = run(shelf, *example, config=config)
    assert set(cohorts_of(outcome).values()) == {"c0"}
    assert {r.decision for r in outcome.decision.cohorting} == {"held"}


def test_others_publish_beside_a_cohort_of_too_few(shelf: Shelf, base: str) -> None:
    ids = ["p1", "p2", "q1", "q2", "q3"]
    updates = [update(shelf, c, [1 + 4 * (c > "q"), 1, 1], base, flag=c > "q") for c in ids]
    config = preset_config("test", aggregation={"method": "krum", "n_byzantine": 0})

    outcome = run(shelf, one_cohort(base, ids), updates, config)

    assert models(shelf, outcome) == {"c0": [1, 1, 1], "c1": [5, 1, 1]}


def test_voters_without_examples_do_not_make_up_the_number(shelf: Shelf, base: str) -> None:
    updates = [update(shelf, f"p{i}", [1, 1, i], base, n=10 * i) for i in range(3)]
    config = preset_config("test", aggregation={"method": "krum", "n_byzantine": 0})
    outcome = run(shelf, one_cohort(base, ["p0", "p1", "p2"]), updates, config)
    assert str(outcome.decision.cohorts[0].gate_detail).startswith("2 updates have a weight")


def test_single_cohort_ignores_flags(shelf: Shelf, example: Any) -> None:
    outcome = run(shelf, *example, config=preset_config("test", "fedavg"))
    assert set(cohorts_of(outcome).values()) == {"c0"}


def test_singletons_put_nobody_together(shelf: Shelf, example: Any) -> None:
    outcome = run(shelf, *example, config=preset_config("test", "singletons"))
    assert cohorts_of(outcome) == {"p1": "c0", "p2": "c0", "p3": "c1", "p4": "c2", "p5": "c3"}


@pytest.mark.parametrize("preset", ["clma-literal", "clma-package"])
def test_literal_presets_compare_with_the_average_of_everybody(
    shelf: Shelf, example: Any, preset: str
) -> None:
    outcome = run(shelf, *example, config=preset_config("test", preset))
    assert outcome.decision.consensus_digest is not None
    consensus = shelf.read(outcome.decision.consensus_digest)
    assert consensus == pytest.approx([1 + 30 / 70, 1 + 10 / 70, 1 + 4 / 70])
    assert outcome.state.consensus_digest == outcome.decision.consensus_digest


def test_average_of_everybody_is_made_by_no_rule(shelf: Shelf, example: Any) -> None:
    """Those who drifted are part of it, and would be taken for liars."""
    plain = run(shelf, *example, config=preset_config("test", "clma-literal"))
    config = preset_config("test", "clma-literal", aggregation={"method": "median"})
    outcome = run(shelf, *example, config=config)
    assert outcome.decision.consensus_digest == plain.decision.consensus_digest


def test_every_client_is_in_one_cohort_and_served_a_model(shelf: Shelf, base: str) -> None:
    """Random rounds in a row keep the books straight."""
    rng = np.random.default_rng(0)
    ids = [f"p{i:02d}" for i in range(12)]
    state = one_cohort(base, ids)
    for round_num in range(2, 10):
        state = dataclasses.replace(state, round_num=round_num)
        updates = [
            update(
                shelf,
                c,
                list(np.array(shelf.read(state.clients[c].serving_digest)) + rng.normal(size=3)),
                state.clients[c].serving_digest,
                flag=bool(rng.random() < 0.4),
                n=int(rng.integers(0, 3)),
                confirm=bool(rng.random() < 0.5),
            )
            for c in ids
            if rng.random() < 0.9
        ]
        state = run(shelf, state, updates).state
        assert set(state.clients) == set(ids)
        for client in state.clients.values():
            assert client.cohort_id in state.cohorts
            assert len(shelf.read(client.serving_digest)) == 3
            if client.status is not ClientStatus.QUARANTINED:
                assert client.serving_digest == state.cohorts[client.cohort_id].model_digest
                assert state.cohorts[client.cohort_id].status is CohortStatus.ACTIVE
        for cohort in state.active_cohorts():
            assert state.members(cohort.cohort_id)


def test_sealed_round_is_not_modified(shelf: Shelf, example: Any) -> None:
    state, updates = example
    round_ = sealed(updates)
    copy = SealedRound(round_.round_num, round_.updates, round_.rows)
    run_round(state, round_, CONFIG, open_tensors=shelf.open, save_model=shelf.save)
    assert round_ == copy


def test_sketches_find_the_same_cohorts(shelf, base) -> None:
    rng = np.random.default_rng(0)
    drifts = rng.normal(size=(2, 400))
    start = shelf.put({"w": np.zeros(400, np.float32)}).sha256
    updates = [
        update(shelf, f"p{i}", list(drifts[i % 2] + rng.normal(0, 0.3, 400)), start, flag=True)
        for i in range(8)
    ]
    state = one_cohort(start, [u.client_id for u in updates])

    exact, sketched = (
        run(shelf, state, updates, preset_config("test", preset))
        for preset in ("clma", "clma-sketch")
    )

    assert cohorts_of(sketched) == cohorts_of(exact)
    assert len(set(cohorts_of(exact).values())) == 2
