from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from clma.cohorting.fmcl import form_cohorts, place_by_class_means, place_newcomers
from clma.config import FederationConfig, OnboardingConfig, preset_config
from clma.encoders.flatten import Flatten
from clma.errors import InvalidConfigError, InvalidUpdateError
from clma.records import ROOT_COHORT, FederationState
from clma.signatures.fmcl import sign_by_class_means
from clma.signatures.signature import Signature
from tests.clma.shelf import one_cohort

CLIENTS = ("p1", "p2", "p3", "p4", "p5", "p6", "p7")
FAR = {"p2", "p4", "p6"}


def config(**onboarding: object) -> FederationConfig:
    share = ["weights", "examples", "signature"]
    return preset_config("test", "fmcl", privacy={"share": share}, onboarding=onboarding)


def sign(client_id: str, *, far: bool, seed: int | None = None) -> Signature:
    """Sign samples of two classes: around the first two axes, or around the next two."""
    rng = np.random.default_rng(int(client_id[1:]) if seed is None else seed)
    labels = np.arange(40) % 2
    samples = np.eye(12)[labels + (2 if far else 0)] + rng.normal(0, 0.05, (40, 12))
    return sign_by_class_means(samples, labels, Flatten((12,)))


def source(client_id: str, _round_num: int = 1) -> Signature:
    return sign(client_id, far=client_id in FAR)


def start(client_ids: tuple[str, ...] = CLIENTS) -> FederationState:
    return one_cohort("m0", list(client_ids), round_num=0)


def placed(state: FederationState) -> Mapping[str, str]:
    return {c.client_id: c.cohort_id for c in state.clients.values()}


def moved(state: FederationState, client_id: str, cohort_id: str) -> FederationState:
    client = dataclasses.replace(state.clients[client_id], cohort_id=cohort_id)
    return dataclasses.replace(state, clients={**state.clients, client_id: client})


def test_two_groups_of_like_data_are_found() -> None:
    state = place_by_class_means(start(), config(), 1, source)

    assert {c for c, cohort in placed(state).items() if cohort == "c1"} == FAR


def test_largest_group_stays_in_the_root_cohort() -> None:
    state = place_by_class_means(start(), config(), 1, source)

    assert set(state.members(ROOT_COHORT)) == set(CLIENTS) - FAR


def test_new_cohorts_start_from_the_initial_model() -> None:
    state = place_by_class_means(start(), config(), 1, source)

    assert {c.model_digest for c in state.cohorts.values()} == {"m0"}


def test_fleet_of_one_kind_stays_one_cohort() -> None:
    state = place_by_class_means(start(), config(), 1, lambda c, _: sign(c, far=False))

    assert set(placed(state).values()) == {ROOT_COHORT}


def test_order_of_clients_changes_nothing() -> None:
    signatures = {c: source(c) for c in CLIENTS}

    one = form_cohorts(start(), signatures, OnboardingConfig(method="fmcl")).cohorts
    two = form_cohorts(
        start(), dict(reversed(signatures.items())), OnboardingConfig(method="fmcl")
    ).cohorts

    assert one == two


def test_newcomer_joins_the_cohort_of_like_data_and_nobody_else_moves() -> None:
    state = place_by_class_means(start(CLIENTS[:-1]), config(), 1, source)
    late = {**start().clients, **state.clients}
    joined = dataclasses.replace(state, clients=dict(sorted(late.items())), round_num=3)

    after = place_by_class_means(joined, config(), 4, lambda c, _: sign(c, far=c in {*FAR, "p7"}))

    assert placed(after) == {**placed(state), "p7": "c1"}
    assert after.clients["p7"].signature_round == 4


def test_newcomers_do_not_decide_for_each_other() -> None:
    state = place_by_class_means(start(CLIENTS[:4]), config(), 1, source)
    known = {c: source(c) for c in CLIENTS[:4]}
    fresh = {c: source(c) for c in CLIENTS[4:]}

    together = place_newcomers(state, known, fresh, OnboardingConfig(method="fmcl"))
    alone = place_newcomers(state, known, {"p5": fresh["p5"]}, OnboardingConfig(method="fmcl"))

    assert together["p5"] == alone["p5"]


def test_client_that_left_since_is_no_witness_of_its_new_cohort() -> None:
    state = moved(place_by_class_means(start(), config(), 1, source), "p2", ROOT_COHORT)
    fresh = {"p9": sign("p9", far=True)}

    placement = place_newcomers(
        state, {c: source(c) for c in CLIENTS}, fresh, OnboardingConfig(method="fmcl")
    )["p9"]

    assert placement.cohort_id == "c1"
    assert set(placement.distances) == {ROOT_COHORT, "c1"}


def test_newcomer_of_a_fleet_that_left_all_its_places_starts_in_the_root() -> None:
    state = start()
    placement = place_newcomers(
        state, {}, {"p9": sign("p9", far=True)}, OnboardingConfig(method="fmcl")
    )["p9"]

    assert (placement.cohort_id, placement.distances) == (ROOT_COHORT, {})


def test_given_number_of_cohorts_is_formed() -> None:
    state = place_by_class_means(start(), config(n_groups=3), 1, source)

    assert len(set(placed(state).values())) == 3


def test_more_cohorts_than_clients_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="8 groups are wanted of 7 clients"):
        place_by_class_means(start(), config(n_groups=8), 1, source)


def test_signature_of_another_kind_is_refused_by_client() -> None:
    def mixed(client_id: str, round_num: int) -> Signature:
        return Signature("pacfl", {}) if client_id == "p3" else source(client_id, round_num)

    with pytest.raises(InvalidUpdateError, match="'p3': signature is of kind 'pacfl'"):
        place_by_class_means(start(), config(), 1, mixed)


def test_nothing_changes_once_all_are_placed() -> None:
    state = place_by_class_means(start(), config(), 1, source)

    assert place_by_class_means(state, config(), 2, source) is state


@pytest.mark.parametrize("method", ["given", "local", "ifca", "pacfl", "fecfl"])
def test_two_ways_to_form_first_cohorts_are_refused(method: str) -> None:
    cohorting: dict[str, Any] = {"method": method}
    if method == "given":
        cohorting["schedule"] = [{"from_round": 1, "labels": {"p1": "a"}}]
    share = ["weights", "examples", "signature", "choice"]

    with pytest.raises(InvalidConfigError, match="forms the first cohorts"):
        preset_config("test", "fmcl", privacy={"share": share}, cohorting=cohorting)


def test_policy_without_signature_is_named() -> None:
    with pytest.raises(InvalidConfigError, match=r"onboarding\.method = 'fmcl' needs signature"):
        preset_config("test", "fmcl-clma")
