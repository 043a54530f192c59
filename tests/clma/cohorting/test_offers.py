from __future__ import annotations

import dataclasses

import pytest

from clma.cohorting.offers import offered_models
from clma.config import FederationConfig, preset_config, requirements
from clma.records import (
    ClientState,
    ClientStatus,
    Cohort,
    CohortStatus,
    FederationState,
)

CLIENT = ClientState("p1", "c1", ClientStatus.ACTIVE, "m1")
STATE = FederationState(
    "test",
    round_num=4,
    clients={"p1": CLIENT},
    cohorts={
        "c0": Cohort("c0", None, 0, "m0", status=CohortStatus.DORMANT),
        "c1": Cohort("c1", "c0", 2, "m1"),
        "c2": Cohort("c2", "c0", 3, "m2"),
        "c3": Cohort("c3", "c0", 2, "m3", status=CohortStatus.MERGED),
    },
)


def config(preset: str, **cohorting: int) -> FederationConfig:
    share = sorted(requirements(preset))
    return preset_config("test", preset, privacy={"share": share}, cohorting=cohorting)


@pytest.mark.parametrize("preset", ["clma", "fedavg", "cfl", "local"])
def test_most_methods_leave_no_choice(preset: str) -> None:
    assert offered_models(STATE, CLIENT, config(preset)) == ()


def test_own_cohorts_model_is_first_and_merged_cohorts_are_gone() -> None:
    offers = offered_models(STATE, CLIENT, config("ifca"))
    assert [(o.cohort_id, o.digest) for o in offers] == [("c1", "m1"), ("c0", "m0"), ("c2", "m2")]


def test_young_cohort_of_another_client_is_measured_but_not_trained() -> None:
    offers = offered_models(STATE, CLIENT, config("feddrift"))
    assert {o.cohort_id: o.trainable for o in offers} == {"c1": True, "c0": True, "c2": False}


def test_founder_trains_its_young_cohort() -> None:
    founder = dataclasses.replace(CLIENT, cohort_id="c2", serving_digest="m2")
    assert offered_models(STATE, founder, config("feddrift"))[0].trainable


def test_cohorts_without_members_are_left_out_first() -> None:
    offers = offered_models(STATE, CLIENT, config("ifca", max_models=2))
    assert [o.cohort_id for o in offers] == ["c1", "c2"]


def test_quarantined_client_trains_what_it_is_served() -> None:
    held = dataclasses.replace(CLIENT, status=ClientStatus.QUARANTINED)
    assert [o.digest for o in offered_models(STATE, held, config("feddrift"))] == ["m1"]
