"""Exiles and slow drifts, counted on lives that are written down by hand."""

from __future__ import annotations

from collections.abc import Mapping, Set

from benchmarks.flags import Exile, Life, delays, exiles
from clma.simulation.schedule import Concept, DriftEvent

CLIENTS = ("p1", "p2", "p3")


def life(
    *p1: str,
    flagged: Mapping[int, Set[str]],
    changed: Mapping[int, Set[str]] | None = None,
    slow: tuple[DriftEvent, ...] = (),
) -> Life:
    """p1 is after each round in the cohort that is given, the others stay in c0."""
    rounds = range(1, len(p1) + 1)
    return Life(
        cohorts={n: {"p1": p1[n - 1], "p2": "c0", "p3": "c0"} for n in rounds},
        flagged={n: flagged.get(n, set()) for n in rounds},
        changed={n: (changed or {}).get(n, set()) for n in rounds},
        concepts={n: dict.fromkeys(CLIENTS, "base") for n in rounds},
        slow=slow,
    )


def test_client_that_comes_back_is_home() -> None:
    found = list(exiles(life("c0", "c0", "c1", "c1", "c0", flagged={3: {"p1"}})))
    assert found == [Exile("p1", 3, 2)]


def test_client_that_never_comes_back_is_not_home() -> None:
    found = list(exiles(life("c0", "c0", "c1", "c1", "c1", flagged={3: {"p1"}})))
    assert found == [Exile("p1", 3, None)]


def test_flag_that_moves_nobody_exiles_nobody() -> None:
    assert list(exiles(life(*["c0"] * 5, flagged={3: {"p1"}}))) == []


def test_client_that_drifted_is_no_exile() -> None:
    drifted = life("c0", "c0", "c1", "c1", "c1", flagged={3: {"p1"}}, changed={3: {"p1"}})
    assert list(exiles(drifted)) == []


def test_exile_that_drifts_before_it_is_home_was_not_home() -> None:
    gone = life("c0", "c0", "c1", "c1", "c0", flagged={3: {"p1"}}, changed={4: {"p1"}})
    assert list(exiles(gone)) == [Exile("p1", 3, None)]


def test_exile_of_the_last_rounds_is_not_counted() -> None:
    assert list(exiles(life("c0", "c0", "c0", "c1", "c1", flagged={4: {"p1"}}))) == []


def test_slow_drift_is_found_with_the_first_flag() -> None:
    drift = DriftEvent(2, "p1", Concept("next"), 9)
    lives = life(*["c0"] * 6, flagged={1: {"p1"}, 4: {"p1"}, 5: {"p1"}}, slow=(drift,))
    assert list(delays(lives)) == [3]


def test_flag_of_the_next_drift_finds_the_next_one_only() -> None:
    drifts = (DriftEvent(2, "p1", Concept("a"), 2), DriftEvent(5, "p1", Concept("b"), 2))
    lives = life(*["c0"] * 6, flagged={5: {"p1"}}, slow=drifts)
    assert list(delays(lives)) == [None, 1]
