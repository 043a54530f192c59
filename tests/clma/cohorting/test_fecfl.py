from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest

from clma.cohorting.fecfl import place_by_features, widest_merge
from clma.config import FederationConfig, preset_config
from clma.errors import ShapeMismatchError
from clma.records import ROOT_COHORT, ClientState, ClientStatus, FederationState
from clma.signatures.signature import Signature, SignatureSource
from tests.clma.shelf import one_cohort

CLIENTS = ("p1", "p2", "p3", "p4", "p5", "p6")
ALPHA = 0.01


def config(alpha: float = ALPHA) -> FederationConfig:
    return preset_config(
        "test",
        "fecfl",
        privacy={"share": ["weights", "examples", "signature"]},
        cohorting={"max_feature_distance": alpha},
    )


def feature(degrees: float) -> Signature:
    angle = np.radians(degrees)
    return Signature("fecfl", {"mean": np.array([np.cos(angle), np.sin(angle)])}, "net")


def at(later: Mapping[str, float] | None = None, *, since: int = 3) -> SignatureSource:
    """Return features 40 degrees apart, p1 to p3 and p4 to p6, that later stand elsewhere."""

    def source(client_id: str, round_num: int) -> Signature:
        number = CLIENTS.index(client_id)
        if later and round_num >= since and client_id in later:
            return feature(later[client_id])
        return feature(number + (40 if number > 2 else 0))

    return source


def start(client_ids: tuple[str, ...] = CLIENTS) -> FederationState:
    return one_cohort("m0", list(client_ids), round_num=0)


def live(source: SignatureSource, n_rounds: int, alpha: float = ALPHA) -> FederationState:
    """Open rounds 1 to n_rounds; models are trained before the third."""
    state = start()
    for round_num in range(1, n_rounds + 1):
        state = place_by_features(state, config(alpha), round_num, source)
        if round_num == 2:
            trained = {
                c: dataclasses.replace(cohort, model_digest="m0" if c == "c0" else f"trained-{c}")
                for c, cohort in state.cohorts.items()
            }
            state = dataclasses.replace(state, cohorts=trained)
    return state


def placed(state: FederationState) -> Mapping[str, str]:
    return {c.client_id: c.cohort_id for c in state.clients.values()}


FIRST = {"p1": "c1", "p2": "c1", "p3": "c1", "p4": "c2", "p5": "c2", "p6": "c2"}


@pytest.mark.parametrize("alpha", [0.0, ALPHA])
def test_two_groups_of_like_data_are_found(alpha: float) -> None:
    assert placed(live(at(), 1, alpha)) == FIRST


@pytest.mark.parametrize("alpha", [0.0, ALPHA])
def test_nobody_moves_while_the_data_stay(alpha: float) -> None:
    assert placed(live(at(), 5, alpha)) == FIRST


@pytest.mark.parametrize("alpha", [0.0, ALPHA])
def test_shifted_client_joins_the_cohort_of_the_most_similar_one(alpha: float) -> None:
    state = live(at({"p1": 44.0}), 3, alpha)

    assert placed(state) == {**FIRST, "p1": "c2"}
    assert state.clients["p1"].serving_digest == "trained-c2"


@pytest.mark.parametrize("alpha", [0.0, ALPHA])
def test_client_that_is_like_nobody_starts_again_from_the_initial_model(alpha: float) -> None:
    state = live(at({"p1": 90.0}), 3, alpha)

    assert placed(state) == {**FIRST, "p1": "c3"}
    assert state.clients["p1"].serving_digest == state.cohorts["c3"].model_digest == "m0"


def test_clients_that_shift_alike_found_one_cohort() -> None:
    state = live(at({"p1": 90.0, "p2": 130.0, "p5": 91.0}), 3)
    assert placed(state) == {**FIRST, "p1": "c3", "p2": "c4", "p5": "c3"}


def test_nobody_is_compared_with_what_another_one_left_behind() -> None:
    """p1 arrives where p4 to p6 were before they shifted in the same round."""
    state = live(at({"p1": 44.0, **dict.fromkeys(("p4", "p5", "p6"), 90.0)}), 3)
    assert placed(state) == {**FIRST, "p1": "c3", **dict.fromkeys(("p4", "p5", "p6"), "c4")}


def test_all_may_shift_at_once() -> None:
    state = live(at(dict.fromkeys(CLIENTS, 90.0)), 3)
    assert set(placed(state).values()) == {"c3"}


def test_shift_within_alpha_is_none() -> None:
    edge = float(np.degrees(np.arccos(1 - ALPHA)))
    assert placed(live(at({"p1": edge - 0.1}), 3)) == FIRST
    assert live(at({"p1": edge - 0.1}), 3).clients["p1"].signature_round == 1


def test_client_that_is_still_most_like_its_own_cohort_stays_with_its_new_feature() -> None:
    state = live(at({"p1": 9.5}), 3)

    assert placed(state) == FIRST
    assert state.clients["p1"].signature_round == 3


def test_client_that_comes_home_is_known_there() -> None:
    def source(client_id: str, round_num: int) -> Signature:
        return at({"p1": 90.0} if round_num < 5 else None)(client_id, round_num)

    assert placed(live(source, 4))["p1"] == "c3"
    assert placed(live(source, 5)) == FIRST


def test_alpha_is_how_far_apart_the_parts_of_the_first_groups_were() -> None:
    """Of clients at 0, 1 and 2 degrees the last joins at a mean of 1.5."""
    alpha = live(at(), 1, 0.0).cohorts["c1"].alike_within
    assert alpha == pytest.approx(1 - np.cos(np.radians(1.5)))


def test_newcomer_is_placed_like_one_that_shifted() -> None:
    first = live(at(), 2)
    ids = {"p7": 41.0, "p8": 200.0}
    new = {c: ClientState(c, ROOT_COHORT, ClientStatus.ACTIVE, "m0", joined_round=3) for c in ids}
    state = dataclasses.replace(first, clients={**first.clients, **new})

    later = place_by_features(
        state, config(), 3, lambda c, r: feature(ids[c]) if c in ids else at()(c, r)
    )

    assert placed(later) == {**FIRST, "p7": "c2", "p8": "c3"}


@pytest.mark.parametrize("alpha", [0.0, ALPHA])
def test_equal_data_are_one_cohort_for_ever(alpha: float) -> None:
    state = live(lambda *_: feature(10), 3, alpha)
    assert set(placed(state).values()) == {"c1"}


@pytest.mark.parametrize("n", [1, 2])
def test_too_few_to_stand_apart_are_one_cohort(n: int) -> None:
    state = place_by_features(start(CLIENTS[:n]), config(0.0), 1, at())
    assert set(placed(state).values()) == {"c1"}


def test_names_of_the_clients_do_not_decide_who_is_together() -> None:
    swapped = dict(zip(CLIENTS, CLIENTS[::-1], strict=True))
    shifts = {"p1": 90.0, "p2": 130.0, "p5": 91.0}

    def source(client_id: str, round_num: int) -> Signature:
        return at(shifts)(swapped[client_id], round_num)

    one, other = placed(live(at(shifts), 3)), placed(live(source, 3))

    for a in CLIENTS:
        for b in CLIENTS:
            assert (one[a] == one[b]) == (other[swapped[a]] == other[swapped[b]])


def test_client_with_another_number_of_features_is_named() -> None:
    wide = Signature("fecfl", {"mean": np.ones(5)}, "net")
    with pytest.raises(ShapeMismatchError, match="client 'p4': signature has 5 features"):
        live(lambda c, r: wide if c == "p4" and r == 2 else at()(c, r), 2)


def test_widest_merge_looks_into_every_group() -> None:
    places = np.array([0.0, 1.0, 9.0, 12.0, 50.0])
    distances = np.abs(places[:, None] - places)

    assert widest_merge(distances, [0, 0, 1, 1, 2]) == 3
    assert widest_merge(distances, [0, 1, 2, 3, 4]) == 0
