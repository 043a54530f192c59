"""Detectors on recorded series: what counts as flagged, and what as a false alarm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.detectors import DETECTORS, Counts, Series, count, flags_of, record_life, table
from clma.errors import InvalidConfigError
from clma.simulation.scenarios import load_scenario


def series(*losses: float, drifts: tuple[tuple[int, ...], ...] = ()) -> Series:
    changed = tuple(any(i in drift for drift in drifts) for i in range(len(losses)))
    return Series(losses, (0.01,) * len(losses), changed, drifts)


def test_a_gradual_drift_counts_once() -> None:
    ramp = series(*[1.0] * 6, drifts=((2, 3, 4),))
    for flagged in ({3}, {2, 4}):
        counts = count(ramp, [i in flagged for i in range(6)])
        assert (counts.n_flagged, counts.n_drifts) == (1, 1)


def test_a_flag_after_the_drift_is_neither_found_nor_false() -> None:
    sudden = series(*[1.0] * 6, drifts=((2,),))
    assert count(sudden, [i == 3 for i in range(6)]) == Counts(0, 1, 0, 3)


def test_a_flag_where_nothing_changed_is_false() -> None:
    assert count(series(*[1.0] * 4), [i == 2 for i in range(4)]) == Counts(0, 0, 1, 3)


@pytest.mark.parametrize("scale", [10.0, 0.1])
@pytest.mark.parametrize("name", ["quiet_level", "anchored"])
def test_scale_of_the_loss_changes_no_flag(name: str, scale: float) -> None:
    rng = np.random.default_rng(0)
    noisy = series(2.3, *rng.gamma(1.0, 0.3, size=40))
    flags = flags_of(DETECTORS[name], noisy)

    assert 0 < sum(flags) < len(flags)
    assert flags_of(DETECTORS[name], noisy, scale=scale) == flags


def test_absolute_threshold_misses_a_drift_of_small_losses() -> None:
    step = series(0.4, 0.1, 0.1, 0.1, 0.5, drifts=((4,),))
    assert flags_of(DETECTORS["loss_threshold"], step)[4]
    assert not any(flags_of(DETECTORS["loss_threshold"], step, scale=0.1))


def test_a_life_is_recorded_with_its_truth() -> None:
    """A drift meets the model of before it, also where a cohort of its concept is known already."""
    fleet = load_scenario("plant/recurring", 0)
    life = record_life("plant/recurring", 0, None, 5)

    ids = fleet.client_ids
    assert [s.drifts for s in life] == [
        ((2,), (4,)) if client_id in fleet.drifted_clients else () for client_id in ids
    ]
    means = np.mean([s.losses for s in life if s.drifts], axis=0)
    assert means[2] > means[1] > means[3]
    assert means[4] > means[3]


def test_a_data_set_of_several_scenarios_gets_their_sum() -> None:
    step = series(2.3, 0.1, 0.1, 0.1, 3.0, drifts=((4,),))
    lines = table({"a/b": [step], "a/c": [step, step], "d/e": [series(1.0, 1.0)]})

    sums = [line for line in lines if line.startswith("| a, all 2 | quiet_level | 1.000 (3/3)")]
    assert len(lines) == 2 + 4 * len(DETECTORS)
    assert len(sums) == 1


def test_absent_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="pronto"):
        record_life("pronto/stagger", 0, tmp_path, 2)
