"""Nights decided again: as they were under their own settings, otherwise under others."""

from __future__ import annotations

import pytest

from clma.calibration.what_if import NightAgain, decide_again, override_decisions
from clma.errors import InvalidConfigError
from clma.ledger.federation import Federation
from tests.clma.calibration.springs import read


def again(federation: Federation, *settings: str) -> list[NightAgain]:
    config = override_decisions(federation.config, settings)
    nights, measured = read(federation, config)
    return [decide_again(nights[r], m, config) for r, m in measured.items() if nights[r].rows]


@pytest.mark.parametrize("which", ["averaged", "sensible"])
def test_own_settings_decide_every_night_as_it_was_decided(
    which: str, request: pytest.FixtureRequest
) -> None:
    found = again(request.getfixturevalue(which))

    assert len(found) == 4
    for night in found:
        assert (night.n_recorded, night.cohorts_recorded) == (night.n_again, night.cohorts_again)
        assert (night.agreement, night.changed) == (1.0, ())


def test_other_settings_part_who_was_together(averaged: Federation) -> None:
    found = again(averaged, "cohorting.pair_threshold=0.7")
    assert {(n.cohorts_recorded, n.cohorts_again) for n in found} == {(1, 2)}


def test_without_recall_whoever_was_recalled_is_named(sensible: Federation) -> None:
    first, *others = again(sensible, "cohorting.recall=false")
    assert first.changed == ()
    assert all(len(night.changed) == 4 for night in others)


@pytest.mark.parametrize("setting", ["drift.z_score=4", "aggregation.method=median", "nonsense"])
def test_what_is_decided_elsewhere_cannot_be_tried(sensible: Federation, setting: str) -> None:
    with pytest.raises(InvalidConfigError, match="flags and weights are as recorded"):
        override_decisions(sensible.config, [setting])
