from __future__ import annotations

from pathlib import Path

import pytest

from clma.config import override_config
from clma.errors import InvalidConfigError, InvalidUpdateError, PolicyError
from clma.ledger.federation import Federation
from clma.onboarding.plan import plan_cohorts
from tests.clma.ledger.fleet import make_fleet
from tests.clma.onboarding.fleet import found, onboard, send, send_all, signature


@pytest.fixture
def fleet(tmp_path: Path) -> Federation:
    made = found(tmp_path / "store", tmp_path)
    send_all(made)
    return made


def test_families_become_cohorts_and_the_largest_stays_in_the_root(fleet: Federation) -> None:
    plan = plan_cohorts(fleet)

    assert plan.cohorts == ("c0", "c1")
    assert plan.members("c0") == ("p0", "p1", "p2", "p3")
    assert plan.members("c1") == ("p4", "p5")
    assert (plan.is_first, plan.n_moves) == (True, 2)


def test_look_changes_nothing(fleet: Federation) -> None:
    keys = fleet.store.list()

    plan_cohorts(fleet)

    assert fleet.store.list() == keys


def test_other_settings_can_be_looked_at(fleet: Federation) -> None:
    config = override_config(fleet.config, ["onboarding.n_groups=3"])

    assert len(plan_cohorts(fleet, config).cohorts) == 3


def test_more_cohorts_than_clients_are_refused(fleet: Federation) -> None:
    with pytest.raises(InvalidConfigError, match="7 groups are wanted of 6 clients"):
        plan_cohorts(fleet, override_config(fleet.config, ["onboarding.n_groups=7"]))


def test_without_signatures_there_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(InvalidUpdateError, match="no usable signature of 6 clients has come"):
        plan_cohorts(found(tmp_path / "store", tmp_path))


def test_federation_of_another_kind_is_told_the_setting(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"onboarding\.method is 'none', wanted 'fmcl'"):
        plan_cohorts(make_fleet(tmp_path / "store", tmp_path))


def test_same_groups_formed_anew_move_nobody(fleet: Federation) -> None:
    onboard(fleet)

    plan = plan_cohorts(fleet)

    assert (plan.is_first, plan.n_moves, plan.cohorts) == (False, 0, ("c0", "c1"))


def test_client_whose_data_changed_moves_to_its_like(fleet: Federation) -> None:
    onboard(fleet)
    send(fleet, "p3", signature("south", 33))

    plan = plan_cohorts(fleet)

    assert plan.n_moves == 1
    assert plan.after["p3"] == "c1"


def test_group_that_no_cohort_stands_for_is_new_and_starts_from_where_most_are(
    tmp_path: Path,
) -> None:
    fleet = found(tmp_path / "store", tmp_path)
    for number in range(6):
        send(fleet, f"p{number}", signature("north", number))
    onboard(fleet)
    for number in (4, 5):
        send(fleet, f"p{number}", signature("south", number))

    plan = plan_cohorts(fleet)

    assert (plan.members("new-1"), plan.parents) == (("p4", "p5"), {"new-1": "c0"})


def test_plan_does_not_depend_on_who_sent_first(tmp_path: Path) -> None:
    one, two = (found(tmp_path / name, tmp_path) for name in ("one", "two"))
    send_all(one)
    for number in reversed(range(6)):
        send(two, f"p{number}", signature("north" if number < 4 else "south", number))

    assert plan_cohorts(one).after == plan_cohorts(two).after
