"""How clients move between cohorts: recall, the way home, the cool-down."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from clma.config import preset_config
from clma.records import ClientStatus, Cohort, CohortStatus, FederationState, SealedUpdate
from clma.rows import Gate
from tests.clma.shelf import Shelf, cohorts_of, models, one_cohort, run, update


def with_cohort(state: FederationState, digest: str, **fields: Any) -> FederationState:
    known = Cohort("c1", "c0", 0, digest, **fields)
    return dataclasses.replace(state, cohorts={**state.cohorts, "c1": known})


def test_group_is_recalled_to_the_cohort_it_points_to(shelf: Shelf, base: str) -> None:
    known = shelf.put({"w": [5.0, 1.0, 1.0]}).sha256
    state = with_cohort(one_cohort(base, ["p1"]), known, status=CohortStatus.DORMANT)

    outcome = run(shelf, state, [update(shelf, "p1", [2, 1, 1], base, flag=True)])

    assert cohorts_of(outcome) == {"p1": "c1"}
    assert outcome.state.cohorts["c1"].status is CohortStatus.ACTIVE
    assert outcome.state.clients["p1"].serving_digest == known
    assert outcome.decision.cohorting[0].recall_score == pytest.approx(1.0)


def test_recalled_update_is_not_averaged_into_the_cohort(shelf: Shelf, base: str) -> None:
    known = shelf.put({"w": [5.0, 1.0, 1.0]}).sha256
    state = with_cohort(one_cohort(base, ["p1"]), known)
    outcome = run(shelf, state, [update(shelf, "p1", [2, 1, 1], base, flag=True)])
    assert outcome.state.cohorts["c1"].model_digest == known


def test_weak_resemblance_founds_a_new_cohort(shelf: Shelf, base: str) -> None:
    known = shelf.put({"w": [1.0, 5.0, 1.0]}).sha256
    state = with_cohort(one_cohort(base, ["p1"]), known, status=CohortStatus.DORMANT)
    outcome = run(shelf, state, [update(shelf, "p1", [2, 1, 1], base, flag=True)])
    assert cohorts_of(outcome) == {"p1": "c2"}


PLAIN, VOUCHED = (
    preset_config("test", cohorting={"birth_witness": vouches}) for vouches in (False, True)
)


def turned_aside(shelf: Shelf, base: str) -> FederationState:
    """Return a state whose c1 was founded one way and has learned on in another."""
    birth = shelf.put({"w": [2.0, 1.0, 1.0]}).sha256
    state = with_cohort(one_cohort(base, ["p1"]), shelf.put({"w": [2.0, 9.0, 1.0]}).sha256)
    born = dataclasses.replace(
        state.cohorts["c1"], parent="c0", origin_digest=base, birth_digest=birth
    )
    return dataclasses.replace(state, cohorts={**state.cohorts, "c1": born})


def test_birth_of_a_cohort_vouches_for_it_when_its_model_has_learned_on(
    shelf: Shelf, base: str
) -> None:
    state = turned_aside(shelf, base)
    updates = [update(shelf, "p1", [3, 1, 1], base, flag=True)]

    plain, vouched = (run(shelf, state, updates, config) for config in (PLAIN, VOUCHED))

    assert cohorts_of(plain) == {"p1": "c2"}
    assert cohorts_of(vouched) == {"p1": "c1"}
    assert vouched.decision.cohorting[0].recall_witness == "birth"


@pytest.mark.parametrize("other", [{"parent": "c2"}, {"birth_digest": None}])
def test_birth_vouches_only_for_those_who_come_from_there(
    shelf: Shelf, base: str, other: dict[str, Any]
) -> None:
    """Nor does a state from before births were kept."""
    state = turned_aside(shelf, base)
    cohorts = {**state.cohorts, "c1": dataclasses.replace(state.cohorts["c1"], **other)}
    updates = [update(shelf, "p1", [3, 1, 1], base, flag=True)]

    outcome = run(shelf, dataclasses.replace(state, cohorts=cohorts), updates, VOUCHED)

    assert outcome.decision.cohorting[0].recall_witness == "way"
    assert cohorts_of(outcome) == {"p1": "c2"}


def test_cohort_remembers_the_model_it_was_born_with(shelf: Shelf, base: str) -> None:
    born = run(
        shelf, one_cohort(base, ["p1"]), [update(shelf, "p1", [3, 1, 1], base, flag=True)]
    ).state
    birth = born.cohorts["c1"].model_digest
    later = run(shelf, born, [update(shelf, "p1", [3, 2, 1], birth)]).state

    assert later.cohorts["c1"].birth_digest == birth
    assert later.cohorts["c1"].model_digest != birth


@pytest.fixture
def two_ways(shelf: Shelf, base: str) -> tuple[FederationState, list[SealedUpdate]]:
    """Two clients that look alike by half, and the two cohorts that they belong to."""
    state = with_cohort(one_cohort(base, ["p1", "p2"]), shelf.put({"w": [3.0, 2.0, 1.0]}).sha256)
    other = Cohort("c2", "c0", 1, shelf.put({"w": [3.0, 0.0, 1.0]}).sha256)
    updates = [
        update(shelf, "p1", [2, 1.5, 1], base, flag=True),
        update(shelf, "p2", [2, 0.5, 1], base, flag=True),
    ]
    return dataclasses.replace(state, cohorts={**state.cohorts, "c2": other}), updates


@pytest.mark.parametrize(
    ("settings", "cohorts"),
    [
        ({}, ["c1", "c1"]),
        ({"recall_first": True}, ["c1", "c2"]),
        ({"recall_margin": 0.1}, ["c3", "c3"]),
        ({"recall_first": True, "recall_margin": 0.3}, ["c1", "c2"]),
        ({"recall_first": True, "recall_margin": 0.5}, ["c3", "c3"]),
    ],
)
def test_clients_that_look_alike_are_recalled_as_one_unless_one_by_one(
    shelf: Shelf, two_ways: Any, settings: dict[str, Any], cohorts: list[str]
) -> None:
    """Their mean fits both cohorts alike, each of them its own better by .4."""
    plain = {"recall_first": False, "recall_margin": 0.0}
    outcome = run(shelf, *two_ways, preset_config("test", cohorting=plain | settings))
    assert list(cohorts_of(outcome).values()) == cohorts


def test_nobody_is_recalled_alone_to_the_cohort_it_left(
    shelf: Shelf, base: str, two_ways: Any
) -> None:
    state, updates = two_ways
    left = dataclasses.replace(state.clients["p1"], moved_round=1, origin_cohort="c1")
    state = dataclasses.replace(state, clients={**state.clients, "p1": left})
    config = preset_config("test", cohorting={"recall_first": True, "recall_margin": 0.0})

    assert cohorts_of(run(shelf, state, updates, config)) == {"p1": "c2", "p2": "c2"}


def test_cohort_that_was_left_is_a_rival_of_the_others(
    shelf: Shelf, base: str, two_ways: Any
) -> None:
    """p1 points back to c1, and by half to c2: it is not sent to the second best."""
    state, updates = two_ways
    left = dataclasses.replace(state.clients["p1"], moved_round=1, origin_cohort="c1")
    state = dataclasses.replace(state, clients={**state.clients, "p1": left})

    assert cohorts_of(run(shelf, state, updates[:1]))["p1"] == "c3"


def test_who_fits_no_cohort_is_grouped_with_its_like(
    shelf: Shelf, base: str, two_ways: Any
) -> None:
    state, [first, second] = two_ways
    second = dataclasses.replace(second, tensors=shelf.put({"w": [1.0, 1.0, 9.0]}))
    config = preset_config("test", cohorting={"recall_first": True})

    outcome = run(shelf, state, [first, second], config)

    assert cohorts_of(outcome) == {"p1": "c1", "p2": "c3"}
    assert [row.group for row in outcome.decision.cohorting] == [1, 0]


def moved(state: FederationState, digest: str) -> FederationState:
    """Return the state in which p1 went from c0 to c1 one round ago."""
    client = dataclasses.replace(
        state.clients["p1"],
        cohort_id="c1",
        serving_digest=digest,
        moved_round=state.round_num - 1,
        origin_cohort="c0",
        unconfirmed=True,
    )
    return dataclasses.replace(with_cohort(state, digest), clients={**state.clients, "p1": client})


def test_false_alarm_goes_home(shelf: Shelf, base: str) -> None:
    own = shelf.put({"w": [2.0, 1.0, 1.0]}).sha256
    state = moved(one_cohort(base, ["p1", "p2"]), own)
    updates = [
        update(shelf, "p1", [3, 1, 1], own, confirm=False),
        update(shelf, "p2", [1, 1, 4], base),
    ]

    outcome = run(shelf, state, updates)

    assert cohorts_of(outcome) == {"p1": "c0", "p2": "c0"}
    assert models(shelf, outcome)["c0"] == [1, 1, 4]
    assert outcome.state.cohorts["c1"].status is CohortStatus.DORMANT


@pytest.mark.parametrize("confirm", [True, None])
def test_confirmed_move_stays(shelf: Shelf, base: str, confirm: bool | None) -> None:
    own = shelf.put({"w": [2.0, 1.0, 1.0]}).sha256
    state = moved(one_cohort(base, ["p1", "p2"]), own)
    outcome = run(shelf, state, [update(shelf, "p1", [3, 1, 1], own, confirm=confirm)])
    assert cohorts_of(outcome)["p1"] == "c1"


def test_missed_night_keeps_the_way_home_open(shelf: Shelf, base: str) -> None:
    own = shelf.put({"w": [2.0, 1.0, 1.0]}).sha256
    state = moved(one_cohort(base, ["p1", "p2"]), own)
    away = run(shelf, state, [update(shelf, "p2", [1, 1, 4], base)]).state
    state = dataclasses.replace(away, round_num=3)

    updates = [update(shelf, "p1", [3, 1, 1], own, confirm=False)]
    back = run(shelf, state, updates).state.clients["p1"]

    assert back.cohort_id == "c0"
    assert back.way_home() is None


def test_confirmed_client_is_not_asked_again(shelf: Shelf, base: str) -> None:
    own = shelf.put({"w": [2.0, 1.0, 1.0]}).sha256
    state = moved(one_cohort(base, ["p1", "p2"]), own)
    config = preset_config("test", drift={"confirm_rounds": 1})
    updates = [update(shelf, "p1", [3, 1, 1], own, confirm=True)]
    assert run(shelf, state, updates, config).state.clients["p1"].way_home() is None


def test_held_client_goes_home_when_its_old_model_is_good_again(shelf: Shelf, base: str) -> None:
    config = preset_config("test", round={"cohort_quorum": 2})
    updates = [update(shelf, f"p{i}", [1, 1, 4], base, flag=i == 1) for i in (1, 2, 3)]
    held = run(shelf, one_cohort(base, ["p1", "p2", "p3"]), updates, config).state
    state = dataclasses.replace(held, round_num=3)
    assert state.clients["p1"].status is ClientStatus.QUARANTINED

    home = run(
        shelf,
        state,
        [
            update(shelf, "p1", [1, 1, 4], base, confirm=False),
            *(update(shelf, c, [1, 1, 5], state.clients[c].serving_digest) for c in ("p2", "p3")),
        ],
        config,
    ).state.clients["p1"]

    assert home.status is ClientStatus.ACTIVE
    assert home.cohort_id == "c0"


@pytest.mark.parametrize(
    ("cooldown", "rounds_later", "cohort"),
    [
        (0, 1, "c0"),
        (1, 1, "c2"),
        (1, 2, "c0"),
        (2, 2, "c2"),
        (2, 3, "c0"),
    ],
)
def test_cooldown_is_rounds_after_the_move(
    shelf: Shelf, base: str, cooldown: int, rounds_later: int, cohort: str
) -> None:
    config = preset_config("test", cohorting={"recall_cooldown": cooldown})
    own = shelf.put({"w": [2.0, 1.0, 1.0]}).sha256
    state = dataclasses.replace(
        moved(one_cohort(base, ["p1", "p2"]), own), round_num=1 + rounds_later
    )
    outcome = run(shelf, state, [update(shelf, "p1", [1, 1, 1], own, flag=True)], config)
    assert cohorts_of(outcome)["p1"] == cohort


def test_company_does_not_lift_the_cooldown(shelf: Shelf, base: str) -> None:
    """p1 left c0 a round ago, p3 long since: both move back there, p3 alone is recalled."""
    own = shelf.put({"w": [2.0, 1.0, 1.0]}).sha256
    state = moved(one_cohort(base, ["p1", "p2", "p3"]), own)
    third = dataclasses.replace(state.clients["p3"], cohort_id="c1", serving_digest=own)
    state = dataclasses.replace(state, clients={**state.clients, "p3": third})
    updates = [update(shelf, c, [1, 1, 1], own, flag=True) for c in ("p1", "p3")]

    outcome = run(shelf, state, updates)

    assert cohorts_of(outcome) == {"p1": "c2", "p2": "c0", "p3": "c0"}
    assert [r.decision for r in outcome.decision.cohorting] == ["created", "recalled"]


def test_client_is_not_recalled_at_once_to_the_cohort_it_left(shelf: Shelf, base: str) -> None:
    own = shelf.put({"w": [2.0, 1.0, 1.0]}).sha256
    state = moved(one_cohort(base, ["p1", "p2"]), own)
    outcome = run(shelf, state, [update(shelf, "p1", [1, 1, 1], own, flag=True)])
    assert cohorts_of(outcome)["p1"] == "c2"


def test_two_origins_are_never_compared(shelf: Shelf, base: str) -> None:
    """The same destination from two models: one new cohort each."""
    other = shelf.put({"w": [1.0, -9.0, 1.0]}).sha256
    state = moved(one_cohort(base, ["p1", "p2"]), other)
    state = dataclasses.replace(
        state,
        clients={
            **state.clients,
            "p1": dataclasses.replace(state.clients["p1"], moved_round=None, unconfirmed=False),
        },
    )
    updates = [
        update(shelf, "p1", [1, -9, 7], other, flag=True),
        update(shelf, "p2", [1, 1, 7], base, flag=True),
    ]
    assert cohorts_of(run(shelf, state, updates)) == {"p1": "c2", "p2": "c3"}


def test_cohort_without_examples_keeps_its_model(shelf: Shelf, base: str) -> None:
    own = shelf.put({"w": [2.0, 1.0, 1.0]}).sha256
    state = moved(one_cohort(base, ["p1", "p2"]), own)
    updates = [update(shelf, "p1", [7, 7, 7], own, n=0), update(shelf, "p2", [1, 1, 4], base)]

    outcome = run(shelf, state, updates)

    assert outcome.state.cohorts["c1"].model_digest == own
    assert outcome.decision.cohorts[1].gate is Gate.HELD
    assert outcome.decision.cohorts[0].gate is Gate.PROMOTED


def test_client_is_asked_for_as_many_rounds_as_configured(shelf: Shelf, base: str) -> None:
    config = preset_config("test", drift={"confirm_rounds": 2})
    own = shelf.put({"w": [2.0, 1.0, 1.0]}).sha256
    state = moved(one_cohort(base, ["p1", "p2"]), own)
    homes = []
    for round_num in (state.round_num, state.round_num + 1):
        state = dataclasses.replace(state, round_num=round_num)
        served = state.clients["p1"].serving_digest
        state = run(
            shelf, state, [update(shelf, "p1", [3, 1, 1], served, confirm=True)], config
        ).state
        homes.append(state.clients["p1"].way_home())
    assert homes == ["c0", None]


@pytest.mark.parametrize(("recheck", "cohort"), [(True, "c1"), (False, "c2")])
def test_cohort_of_last_night_that_found_no_relief_goes_on_learning(
    shelf: Shelf, base: str, recheck: bool, cohort: str
) -> None:
    own = shelf.put({"w": [2.0, 1.0, 1.0]}).sha256
    state = moved(one_cohort(base, ["p1", "p2"]), own)
    young = dataclasses.replace(state.cohorts["c1"], born_round=state.round_num - 1)
    state = dataclasses.replace(state, cohorts={**state.cohorts, "c1": young})
    config = preset_config("test", drift={"recheck": recheck})

    outcome = run(shelf, state, [update(shelf, "p1", [2, 1, 3], own, flag=True)], config)

    assert cohorts_of(outcome)["p1"] == cohort
    assert models(shelf, outcome)[cohort] == [2, 1, 3]


def test_cohort_of_a_false_alarm_ends_when_its_founders_are_home(shelf: Shelf, base: str) -> None:
    own = shelf.put({"w": [2.0, 1.0, 1.0]}).sha256
    state = moved(one_cohort(base, ["p1", "p2"]), own)
    young = dataclasses.replace(state.cohorts["c1"], born_round=state.round_num - 1)
    state = dataclasses.replace(state, cohorts={**state.cohorts, "c1": young})

    after = run(shelf, state, [update(shelf, "p1", [3, 1, 1], own, confirm=False)]).state

    assert after.clients["p1"].cohort_id == "c0"
    assert after.cohorts["c1"].status is CohortStatus.MERGED
    assert after.lives_on_in("c1") == "c0"
