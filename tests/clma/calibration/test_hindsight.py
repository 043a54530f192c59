"""Later nights judge a night's decisions, as far as they say anything."""

from __future__ import annotations

from typing import Any

import pytest

from clma.calibration.hindsight import Hindsight, look_back
from clma.calibration.nights import Night
from clma.rows import CohortingRow

PAIR = ("a", "b")
TOGETHER = {"a": "c1", "b": "c1"}
APART = {"a": "c1", "b": "c2"}


def judged(
    cohorts: dict[str, str], *likeness: float, rows: tuple[CohortingRow, ...] = (), **later: Any
) -> Hindsight:
    """Judge round 3 by the three rounds after it; `later` is what happens in round 4."""
    nights = {r: Night(r, cohorts) for r in (3, 4, 5, 6)}
    nights[3] = Night(3, cohorts, compared=(PAIR,), rows=rows)
    nights[4] = Night(4, cohorts, **{k: frozenset(v) for k, v in later.items()})
    return look_back(nights, {r: {PAIR: v} for r, v in enumerate(likeness, start=4)})


@pytest.mark.parametrize(("likeness", "alike"), [((0.3, -0.1), True), ((-0.3, 0.1), False)])
def test_who_pulls_one_model_the_same_way_belongs_together(
    likeness: tuple[float, ...], alike: bool
) -> None:
    (pair,) = judged(TOGETHER, *likeness).pairs
    assert (pair.alike, pair.seen) == (alike, True)


@pytest.mark.parametrize("likeness", [(), (0.6,), (-0.1,), (0.04, 0.04), (-0.5, 0.8)])
def test_little_or_contradicting_likeness_says_nothing(likeness: tuple[float, ...]) -> None:
    found = judged(TOGETHER, *likeness)
    assert (found.pairs, found.n_unclear) == ((), 1)


def test_one_night_is_enough_to_tell_apart_who_clearly_pulls_apart() -> None:
    assert not judged(TOGETHER, -0.4).pairs[0].alike


def test_staying_apart_is_counted_as_not_seen() -> None:
    (pair,) = judged(APART).pairs
    assert (pair.alike, pair.seen) == (False, False)


def test_whoever_went_home_had_not_drifted() -> None:
    found = judged(TOGETHER, 0.5, 0.5, returned="a")
    assert (found.pairs, found.n_false_alarms) == ((), 1)


def test_nights_after_another_drift_do_not_count() -> None:
    found = judged(TOGETHER, -0.5, -0.5, flagged="b")
    assert (found.pairs, found.n_unclear) == ((), 1)


def test_a_recall_is_judged_by_the_members_that_were_there_before() -> None:
    row = recalled("a", "c1")
    assert judged(TOGETHER, 0.3, 0.3, rows=(row,)).recalls[0].right
    assert not judged(TOGETHER, -0.3, -0.3, rows=(row,)).recalls[0].right
    assert judged(TOGETHER, 0.3, 0.3, rows=(row, recalled("b", "c1"))).recalls == ()


def test_a_flag_on_the_night_after_a_recall_says_it_was_wrong() -> None:
    (recall,) = judged(TOGETHER, rows=(recalled("a", "c1"),), flagged="a").recalls
    assert (recall.cohort_id, recall.right) == ("c1", False)


def test_of_a_pair_the_order_of_its_clients_changes_nothing() -> None:
    assert (
        judged(TOGETHER, 0.3, 0.2).pairs == judged(dict(reversed(TOGETHER.items())), 0.3, 0.2).pairs
    )


def recalled(client_id: str, cohort_id: str) -> CohortingRow:
    return CohortingRow(client_id, "c0", None, "none", 0, None, cohort_id, 0.5, "recalled")
