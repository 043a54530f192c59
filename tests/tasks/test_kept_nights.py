"""A kept night is taken for the night only if all that its numbers follow from is the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from clma.cohorting.contract import CohortingUnit, UnitMember
from clma.config import override_config, preset_config
from clma.records import ArtifactRef
from clma.sweep.inner_products import InnerProducts
from clma.sweep.shard import ShardSums, UnitSums
from tasks.kept_nights import KeptNights

MEMBERS = tuple(UnitMember(c, "c0", ArtifactRef(f"{c}.st", c * 64), 10) for c in "ab")
UNIT = CohortingUnit("c0", 7, MEMBERS, ArtifactRef("base", "0" * 64), (), seed=1)
SUMS = ShardSums(
    np.zeros((1, 0)), (UnitSums((InnerProducts.zeros(2, 1),), (), np.array([0.5, -0.5])),)
)
CONFIG = preset_config("north")


@pytest.fixture
def kept(tmp_path: Path) -> KeptNights:
    made = KeptNights(tmp_path / "nights")
    made.save((UNIT,), CONFIG, SUMS)
    return made


def test_a_kept_night_is_read_as_it_was_measured(kept: KeptNights) -> None:
    found = kept.load((UNIT,), CONFIG)
    assert found is not None
    assert found.units[0].ks_statistics.tolist() == [0.5, -0.5]


def test_a_threshold_does_not_make_another_night(kept: KeptNights) -> None:
    other = override_config(CONFIG, ["cohorting.pair_threshold=0.9", "round.quorum=3"])
    assert kept.load((UNIT,), other) is not None


@pytest.mark.parametrize("setting", ["cohorting.distance=sketch", "cohorting.last_layers=2"])
def test_another_way_to_measure_makes_another_night(kept: KeptNights, setting: str) -> None:
    assert kept.load((UNIT,), override_config(CONFIG, [setting])) is None


def test_a_client_less_makes_another_night(kept: KeptNights) -> None:
    assert kept.load((dataclasses.replace(UNIT, members=MEMBERS[:1]),), CONFIG) is None


def test_a_damaged_night_is_measured_again(kept: KeptNights) -> None:
    path = kept.path((UNIT,), CONFIG)
    path.write_bytes(path.read_bytes()[:40])
    assert kept.load((UNIT,), CONFIG) is None


def test_no_client_is_named_in_what_is_kept(kept: KeptNights) -> None:
    unit = dataclasses.replace(
        UNIT, members=(dataclasses.replace(MEMBERS[0], client_id="harbour-3"), MEMBERS[1])
    )
    kept.save((unit,), CONFIG, SUMS)
    files = list(kept.folder.iterdir())
    assert not any(b"harbour-3" in f.read_bytes() or "harbour-3" in f.name for f in files)
