"""Flags are judged by the way home, and settings by the flags."""

from __future__ import annotations

import dataclasses

from clma.calibration.flags import count_flags, judged_flags, propose_detector
from clma.calibration.nights import Night
from clma.config import DriftConfig

QUIET = 1.0


def fleet(
    n_true: int,
    n_false: int,
    *,
    true_rise: float = 3.0,
    false_rise: float = 1.3,
    shared: bool = True,
) -> dict[int, Night]:
    """Return three nights; in the second one the losses rise and everybody flags."""
    true = {f"t{n}" for n in range(n_true)}
    false = {f"f{n}" for n in range(n_false)}
    everybody = frozenset(true | false)
    losses = {1: dict.fromkeys(everybody, QUIET), 3: dict.fromkeys(everybody, QUIET)}
    losses[2] = {**dict.fromkeys(true, true_rise), **dict.fromkeys(false, false_rise)}
    nights = {
        r: Night(r, n_accepted=len(everybody), losses=losses[r] if shared else {}) for r in losses
    }
    nights[2] = dataclasses.replace(nights[2], flagged=everybody)
    nights[3] = dataclasses.replace(nights[3], asked=everybody, returned=frozenset(false))
    return {r: nights[r] for r in (1, 2, 3)}


def test_false_alarms_are_the_flags_that_went_home() -> None:
    counts = count_flags(fleet(6, 2))
    assert (counts.flags.count, counts.flags.total) == (8, 24)
    assert (counts.false_alarms.count, counts.false_alarms.total) == (2, 8)
    assert counts.false_alarm_rate == 2 / 24


def test_a_client_that_was_not_asked_is_not_judged() -> None:
    nights = fleet(1, 0)
    del nights[3]
    assert [flag.true for flag in judged_flags(nights)] == [None]


def test_a_larger_rise_is_proposed_where_it_saves_false_alarms_and_loses_nothing() -> None:
    rise, anchor = propose_detector(fleet(10, 10), DriftConfig())
    assert 0.3 <= rise.value <= 2.0
    assert rise.errors is not None
    assert (rise.errors.false_alarms.count, rise.errors.misses.count) == (0, 0)
    assert not anchor.changes


def test_no_flag_of_a_true_drift_is_given_up() -> None:
    rise, anchor = propose_detector(fleet(10, 10, true_rise=1.3, false_rise=1.4), DriftConfig())
    assert not rise.changes
    assert not anchor.changes


def test_few_flags_change_nothing() -> None:
    rise, _ = propose_detector(fleet(3, 10), DriftConfig())
    assert (rise.changes, rise.reason) == (
        False,
        "too few: 3 true flags, 10 false alarms, wanted 8 of each",
    )


def test_without_losses_no_detector_is_replayed() -> None:
    assert propose_detector(fleet(10, 10, shared=False), DriftConfig()) == ()
