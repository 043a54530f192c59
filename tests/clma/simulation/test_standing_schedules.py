from __future__ import annotations

import pytest

from clma.errors import InvalidConfigError
from clma.simulation.life import truth_schedule
from clma.simulation.scenarios import load_scenario
from clma.simulation.schedule import Concept, client_names
from clma.simulation.standing_schedules import (
    STANDING_SHAPES,
    build_standing_schedule,
    group_numbers,
)

TEN = client_names(10)
FAMILIES = [[Concept("b", "b"), Concept("c")], [Concept("x", "x")]]


@pytest.mark.parametrize("shape", STANDING_SHAPES)
def test_nobody_ever_drifts(shape: str) -> None:
    schedule = build_standing_schedule(shape, TEN, FAMILIES)

    assert not schedule.events
    for client_id in TEN:
        assert len({schedule.concept(client_id, r) for r in range(11)}) == 1


def test_groups_of_classes_are_three_and_see_the_base() -> None:
    schedule = build_standing_schedule("class-groups", TEN, ())

    concepts = [schedule.concept(c, 1) for c in TEN]
    assert [c.name for c in concepts] == ["classes-1"] * 4 + ["classes-2"] * 3 + ["classes-3"] * 3
    assert {(c.condition, c.relabelling) for c in concepts} == {("base", None)}


def test_styles_are_the_base_and_the_first_concept_of_each_family() -> None:
    schedule = build_standing_schedule("style-groups", TEN, FAMILIES)

    assert [schedule.concept(c, 5).condition for c in TEN] == ["base"] * 4 + ["b"] * 3 + ["x"] * 3


def test_only_shares_by_degrees_tell_no_groups() -> None:
    telling = {s for s in STANDING_SHAPES if build_standing_schedule(s, TEN, FAMILIES).tells_groups}

    assert telling == {"class-groups", "style-groups"}


def test_truth_of_the_oracle_is_the_groups_or_all_together() -> None:
    def n_given(schedule: str) -> list[int]:
        fleet = load_scenario(f"plant/{schedule}", 0)
        return [len(set(entry.labels.values())) for entry in truth_schedule(fleet, 10)]

    assert n_given("class-groups") == [3]
    assert n_given("dirichlet-0.5") == [1]


@pytest.mark.parametrize(("n", "wanted"), [(10, [4, 3, 3]), (3, [1, 1, 1])])
def test_first_groups_are_the_larger_ones(n: int, wanted: list[int]) -> None:
    groups = group_numbers(n, 3).tolist()

    assert [groups.count(g) for g in range(3)] == wanted
    assert groups == sorted(groups)


@pytest.mark.parametrize(
    ("shape", "clients", "message"),
    [
        ("stagger", TEN, "wanted one of dirichlet, class-groups, style-groups"),
        ("style-groups", TEN, "1 groups of 10 clients"),
        ("class-groups", TEN[:2], "3 groups of 2 clients"),
    ],
)
def test_what_makes_no_groups_is_refused(
    shape: str, clients: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        build_standing_schedule(shape, clients, ())
