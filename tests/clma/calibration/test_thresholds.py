"""Proposals on federations whose truth is known, though the calibration does not see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from clma.calibration.decisions import destinations
from clma.calibration.hindsight import look_back
from clma.calibration.thresholds import Proposal, propose_thresholds
from clma.ledger.federation import Federation
from tests.clma.calibration.springs import TOGETHER, concept, digest_of, live, read


def proposals(federation: Federation, **options: int) -> dict[str, Proposal]:
    nights, measured = read(federation)
    hindsight = look_back(nights, {r: m.likeness for r, m in measured.items()})
    found = propose_thresholds(measured, hindsight, federation.config.cohorting, **options)
    return {p.setting.removeprefix("cohorting."): p for p in found}


def test_opposites_that_were_averaged_get_a_threshold_that_parts_them(
    averaged: Federation,
) -> None:
    proposal = proposals(averaged)["pair_threshold"]

    _, measured = read(averaged)
    settings = averaged.config.cohorting.model_copy(update={"pair_threshold": proposal.value})
    for round_num in (3, 6, 9, 12):
        went = destinations(measured[round_num], settings)
        assert len(went) == 4
        for first in went:
            for second in went:
                alike = concept(first, round_num) == concept(second, round_num)
                assert (went[first] == went[second]) == alike
    assert proposal.errors_in_force is not None
    assert proposal.errors_in_force.misses.count == 16


def test_thresholds_that_make_no_error_stay(sensible: Federation) -> None:
    assert not any(p.changes for p in proposals(sensible, min_evidence=4).values())


def test_proposals_are_within_the_range_of_their_settings(averaged: Federation) -> None:
    found = proposals(averaged)

    assert {*TOGETHER, "split_ceiling"} == set(found)
    assert all(-1 <= p.value <= 1 for p in found.values())


def test_with_too_few_cases_nothing_is_proposed(sensible: Federation) -> None:
    found = proposals(sensible, min_evidence=9)

    assert not any(p.changes for p in found.values())
    assert found["silhouette_floor"].reason.startswith("too few: 16 pairs that do not belong")


def test_without_alike_pairs_a_threshold_that_errs_goes_back_to_the_default(
    averaged: Federation,
) -> None:
    nights, measured = read(averaged)
    hindsight = look_back(nights, {r: m.likeness for r, m in measured.items()})
    few = type(hindsight)(pairs=tuple(p for p in hindsight.pairs if not p.alike))

    found = propose_thresholds(measured, few, averaged.config.cohorting)[1]

    assert found.value == 0.25 != found.in_force
    assert found.reason.endswith("back to the default, which gets more of them right")


def test_that_a_split_was_too_fine_is_not_known_and_is_said(tmp_path: Path) -> None:
    fine = {"pair_threshold": 1.0, "silhouette_floor": 1.0, "recall": False}

    found = proposals(live(tmp_path, n_rounds=10, cohorting=fine))["pair_threshold"]

    assert not found.changes
    assert found.reason.startswith("too few")
    assert found.n_unseen == 12


def test_a_method_without_thresholds_has_no_proposals(tmp_path: Path) -> None:
    alone = {"method": "singletons", "recall": False}

    assert proposals(live(tmp_path, n_rounds=2, cohorting=alone)) == {}


def test_reading_a_federation_changes_nothing_in_it(averaged: Federation) -> None:
    folder = Path(averaged.store.url)
    before = digest_of(folder)

    proposals(averaged)

    assert digest_of(folder) == before


@pytest.mark.parametrize("key", sorted(TOGETHER))
def test_every_threshold_is_a_setting(averaged: Federation, key: str) -> None:
    assert proposals(averaged)[key].in_force == TOGETHER[key]
