from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clma.errors import InvalidConfigError
from clma.simulation.long_schedules import (
    LONG_ROUNDS,
    LONG_SHAPES,
    build_long_schedule,
    schedule_of,
)
from clma.simulation.scenarios import load_scenario
from clma.simulation.schedule import BASE, Concept, Schedule, build_schedule, client_names

FAMILIES = [[Concept("b", relabelling=(1, 0, 2))], [Concept("x", relabelling=(0, 2, 1))]]
TEN = client_names(10)


def built(shape: str) -> Schedule:
    return build_long_schedule(shape, TEN, FAMILIES)


@given(st.sampled_from(sorted(LONG_SHAPES)), st.integers(3, 40), st.integers(1, LONG_ROUNDS))
def test_shares_add_up_to_one_in_fleets_of_any_size(shape: str, n: int, round_num: int) -> None:
    schedule = build_long_schedule(shape, client_names(n), FAMILIES)

    for client_id in schedule.client_ids:
        assert sum(schedule.mixture(client_id, round_num).values()) == pytest.approx(1.0)


@given(st.sampled_from(sorted(LONG_SHAPES)), st.integers(1, 4))
def test_events_of_a_client_do_not_overlap(shape: str, n_families: int) -> None:
    schedule = build_long_schedule(shape, TEN, (FAMILIES * 2)[:n_families])

    for client_id in TEN:
        ends = [(e.round_num, e.round_num + e.ramp_rounds) for e in schedule.events_of(client_id)]
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))


@pytest.mark.parametrize("shape", sorted(LONG_SHAPES))
def test_the_first_client_never_drifts(shape: str) -> None:
    assert {built(shape).concept(TEN[0], r) for r in range(1, LONG_ROUNDS + 1)} == {BASE}


def test_concept_comes_back_after_weeks_at_the_base() -> None:
    concepts = [built("long-recurring").concept("plant-03", r).name for r in (5, 6, 20, 26, 60)]
    assert concepts == ["base", "b", "base", "b", "b"]


def test_only_the_restless_clients_change_more_than_once() -> None:
    schedule = built("long-flapping")

    n_moves = {c: len(schedule.events_of(c)) for c in TEN}

    assert sorted(n_moves.values()) == [0, 0, 1, 1, 1, 1, 1, 1, 23, 23]


def test_creeping_concept_prevails_before_it_is_complete() -> None:
    schedule = built("long-creep")
    shares = [schedule.mixture("plant-03", r).get(FAMILIES[0][0], 0.0) for r in (5, 6, 10, 14)]
    np.testing.assert_allclose(shares, [0, 1 / 9, 5 / 9, 1])


def test_late_clients_have_drifted_before_they_come() -> None:
    schedule = built("long-late")

    late = [c for c, _ in schedule.joins]

    assert late == ["plant-02", "plant-07", "plant-08", "plant-09", "plant-10"]
    assert [schedule.concept(c, schedule.first_round(c)).name for c in late[1:]] == [
        "b", "x", "b", "x",
    ]  # fmt: skip


def test_families_meet_at_a_concept_that_is_none_of_theirs() -> None:
    schedule = built("long-reconverge")

    names = [{schedule.concept(c, r).name for c in TEN[2:]} for r in (10, 25, 40, 60)]

    assert names == [{"b", "x"}, {"labels-reversed"}, {"b", "x"}, {"base"}]


def test_noise_is_no_drift_and_spares_most_nights() -> None:
    schedule = built("long-noise")
    noisy = [schedule.label_noise(c, r) > 0 for c in TEN for r in range(1, LONG_ROUNDS + 1)]

    assert not schedule.events
    assert 0.05 < np.mean(noisy) < 0.2


def test_noisy_night_changes_labels_and_nothing_else() -> None:
    noisy, quiet = (load_scenario(f"plant/{s}", 0) for s in ("long-noise", "stationary"))
    night = next(n for n in noisy.schedule.noisy_nights if n.share > 0.5)

    (x, y), (same, clean) = (
        fleet.training_windows(night.client_id, night.round_num) for fleet in (noisy, quiet)
    )

    np.testing.assert_array_equal(x, same)
    assert 0.4 < (y != clean).mean() < night.share


def test_short_shapes_are_built_as_ever() -> None:
    assert schedule_of("stagger", TEN, FAMILIES) == build_schedule("stagger", TEN, FAMILIES)


def test_unknown_shape_names_the_known_ones() -> None:
    with pytest.raises(InvalidConfigError, match="'stagger' is unknown, wanted one of long-recur"):
        build_long_schedule("stagger", TEN, FAMILIES)


def test_drift_without_a_concept_to_go_to_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="needs families"):
        build_long_schedule("long-late", TEN, [[]])
